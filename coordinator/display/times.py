"""Times as text, in one form for commands, pages, the HTTP API, logs and files."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(ms: int) -> str:
    """Format a time in ms since 1970: ISO 8601 in UTC, with milliseconds."""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
