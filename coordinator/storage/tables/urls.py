"""Names of tables that are URLs: distinguished from paths, split, shown without secrets."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from assignors import SpecError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
PASSWORD = re.compile(r"^[^/@:]*:(?!\d+(?:/|$)).*@")
"""A login with one, which may have a slash as half of Amazon's secrets do; a number is a port."""
_CUT_LOGIN = re.compile(r"^(?:[^/@]*@|[^/@:]*:(?!\d+(?:/|$)).*)")
"""A login without a password, or one whose end went with what looked like a query."""


def is_url(name: str) -> bool:
    """Tell whether a name is a URL and no path."""
    return _SCHEME.match(name) is not None


def is_file_url(name: str) -> bool:
    """Tell whether a name is a URL of a file on this machine."""
    return name.lower().startswith("file:")


def hide_secret(url: str) -> str:
    """Return a URL without what may be a secret: a login and a query."""
    head, slashes, tail = re.split("(/+)", url, maxsplit=1)
    return head + slashes + _CUT_LOGIN.sub("", PASSWORD.sub("", re.split("[?#]", tail)[0]))


def split_url(url: str, what: str) -> SplitResult:
    """Split a URL into its parts.

    Raises
    ------
    SpecError
        What stands where a host does cannot be one.
    """
    try:
        return urlsplit(url)
    except ValueError:  # its words may repeat a password
        raise SpecError(
            f"{what} {hide_secret(url)!r} is not a URL: its host or bucket has a bracket, or a "
            "character that can be read as two"
        ) from None


def path_of(url: str, what: str = "the URL") -> str:
    """Return the path of a file: URL; any other name as it is.

    Raises
    ------
    SpecError
        It is a file: URL with more than a path.
    """
    if not is_file_url(url):
        return url
    parts = split_url(url, what)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise SpecError(
            f"{what} {url!r} is not a plain file:///FOLDER: it has a host, a query or a fragment; "
            "write %3F for ? and %23 for #"
        )
    return unquote(parts.path)


def split_version(name: str) -> tuple[str, int | None]:
    """Split URL@VERSION; before any other @ is a container or an account."""
    url, at, tail = name.rpartition("@")
    return (url, int(tail)) if at and tail.isdigit() else (name, None)


def split_container(bucket: str) -> tuple[str, str]:
    """Split a bucket's URL into its container, and the account that it names, if any."""
    container, _, host = urlsplit(bucket).netloc.partition("@")
    return container, host.partition(".")[0]
