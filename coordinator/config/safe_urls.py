"""Where a secret may be sent, and an answer be believed."""

from __future__ import annotations

from urllib.parse import urlsplit

LOCAL = {"localhost", "127.0.0.1", "::1"}


def is_safe_url(url: str) -> bool:
    """Whether no one between can read or change what is sent: https, or http on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)
