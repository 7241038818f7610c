"""Requests about plans to a store's coordinator, as files in `plans/`.

The coordinator answers in the log, with a record of kind `proposal` that has the request's id, and
takes the file away.
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

import msgspec

from coordinator.core.records import PlanMade
from coordinator.storage.file_queue import FileQueue, MessageError

Action: TypeAlias = Literal["apply", "approve", "reject", "propose"]
BYTES_MAX = 1 << 28


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What another process asks of a plan; the fields are `DecidePlan`'s."""

    request_id: str
    action: Action
    group_id: str
    plan_id: str
    plan: PlanMade | None = None
    by: str = ""
    reason: str = ""


def put_plan_request(store: str | os.PathLike[str], request: PlanRequest) -> None:
    """Ask a store's coordinator for something."""
    _open_queue(store).put(request.request_id, msgspec.json.encode(request))


def list_plan_requests(store: str | os.PathLike[str]) -> list[str]:
    """Return the ids of requests that nobody has answered."""
    return _open_queue(store).waiting()


def read_plan_request(store: str | os.PathLike[str], request_id: str) -> PlanRequest:
    """Return a request.

    Raises
    ------
    MessageError
        It cannot be read, or has another id.
    """
    try:
        found = msgspec.json.decode(_open_queue(store).read(request_id), type=PlanRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"it cannot be read: {error}") from None
    if found.request_id != request_id:
        raise MessageError(f"it is named {request_id!r}, and says {found.request_id!r}")
    return found


def remove_plan_request(store: str | os.PathLike[str], request_id: str) -> None:
    """End a request: it is answered, or nobody waits any more."""
    _open_queue(store).take_away(request_id)


def set_plan_request_aside(store: str | os.PathLike[str], request_id: str, reason: str) -> None:
    """Move what is no request where it is in nobody's way."""
    _open_queue(store).set_aside(request_id, reason)


def _open_queue(store: str | os.PathLike[str]) -> FileQueue:
    return FileQueue(store, "plans", ".json", BYTES_MAX)
