"""Where a worker listens: its URL, checked. Pure."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from coordinator.config import ConfigError

PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """A worker's address.

    Attributes
    ----------
    path
        What stands before `/register` and the others, without a slash at its end.
    """

    url: str
    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def is_local(self) -> bool:
        """Whether only this machine can be behind it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_url(text: str) -> Address:
    """Return a worker's address.

    Raises
    ------
    ConfigError
        It is not a URL.
    """
    wanted = f"push.workers (--push) has {text!r}: give http://host:port or https://host:port"
    try:
        found = urlsplit(text)
        port = found.port or PORTS[found.scheme]
    except (ValueError, KeyError):
        raise ConfigError(wanted) from None
    host = found.hostname
    unfit = found.query or found.fragment or found.username is not None
    if not host or unfit or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{wanted}, without user, query and blanks")
    return Address(text, found.scheme == "https", host, port, found.path.rstrip("/"))


def parse_urls(texts: tuple[str, ...]) -> list[Address]:
    """Return workers' addresses; ConfigError if one is invalid, or is there twice."""
    found = [parse_url(text) for text in texts]
    places = [(one.host, one.port, one.path) for one in found]
    for one, place in zip(found, places, strict=True):
        if places.count(place) > 1:
            raise ConfigError(f"push.workers (--push) has {one.url} twice: give it once")
    return found
