"""requests: what other processes ask of a store's live coordinator: small files in `requests/`.

A request is an empty file; it is taken away when it is done. Targets that jobs propose have a
folder of their own (inbox.py).
"""

from __future__ import annotations

import os
import uuid

from coordinator.disk import Disk

FOLDER = "requests"
COMPACT = "compact"


def put(store: str | os.PathLike[str], what: str) -> str:
    """Ask for something; returns the name of the request."""
    name = f"{what}-{uuid.uuid4().hex}"
    path = _path(store, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Disk().replace(path, b"")
    return name


def waiting(store: str | os.PathLike[str], what: str = "") -> list[str]:
    """Return the names of the requests that are not done."""
    names = Disk().names(os.path.join(os.path.abspath(store), FOLDER))
    return [name for name in names if name.startswith(what)]


def take_away(store: str | os.PathLike[str], name: str) -> None:
    """End a request: it is done, or whoever asked does not wait any more."""
    Disk().remove(_path(store, name))


def _path(store: str | os.PathLike[str], name: str) -> str:
    return os.path.join(os.path.abspath(store), FOLDER, name)
