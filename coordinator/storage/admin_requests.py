"""Requests to a store's live coordinator, as files in `requests/`.

A request is an empty file; it is taken away when it is done. Targets that jobs propose have a
folder of their own (compute/proposal_inbox.py).
"""

from __future__ import annotations

import os
import uuid

from coordinator.storage.file_queue import FileQueue

COMPACT = "compact"


def put_request(store: str | os.PathLike[str], what: str) -> str:
    """Ask for something; returns the name of the request."""
    name = f"{what}-{uuid.uuid4().hex}"
    _open_queue(store).put(name, b"")
    return name


def list_requests(store: str | os.PathLike[str], what: str) -> list[str]:
    """Return the names of the requests for something that are not done."""
    return [name for name in _open_queue(store).waiting() if name.startswith(f"{what}-")]


def set_unknown_aside(store: str | os.PathLike[str]) -> None:
    """Put what is no request where it is in nobody's way."""
    _open_queue(store).set_strangers_aside()


def remove_request(store: str | os.PathLike[str], name: str) -> None:
    """End a request: it is done, or whoever asked does not wait any more."""
    _open_queue(store).take_away(name)


def _open_queue(store: str | os.PathLike[str]) -> FileQueue:
    return FileQueue(store, "requests", ".request")
