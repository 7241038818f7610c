"""Ask a store's coordinator about a plan, from another process: a file in, a record back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from assignors import SpecError
from coordinator.core.events import DecidePlan
from coordinator.core.state.records import ACCEPTED, RequestAnswered
from coordinator.storage.delta_log import read_log
from coordinator.storage.inbox import Inbox
from coordinator.storage.tables.table_io import BusyError


def ask_about_plan(
    store: str,
    request: DecidePlan,
    after: int,
    wait: Callable[[], None],
    patience_s: float,
) -> int:
    """Ask, and return the group epoch that the answer began, or 0.

    Parameters
    ----------
    after
        A position of the log before the request.
    wait
        Waits a little for the answer; what it raises ends the request.
    patience_s
        Seconds until the request is withdrawn.

    Raises
    ------
    SpecError
        It was refused; the message says why.
    BusyError
        No coordinator answered in time, or it failed over the request.
    """
    inbox = Inbox(store)
    inbox.put(request)
    try:
        judged = _await_answer(store, inbox, request.request_id, after, wait, patience_s)
    finally:
        inbox.remove(request.request_id)
    if judged.reason != ACCEPTED:
        raise SpecError(judged.reason.partition(": ")[2] or judged.reason)
    return judged.group_epoch


def find_answer(
    store: str | os.PathLike[str], request_id: str, after: int
) -> tuple[RequestAnswered | None, int]:
    """Return the answer to a request, if the log has it, and the last position searched."""
    for batch in read_log(store, after):
        after = batch.position
        for record in batch.records:
            if isinstance(record, RequestAnswered) and record.computation_id == request_id:
                return record, after
    return None, after


def _await_answer(
    store: str,
    inbox: Inbox,
    request_id: str,
    after: int,
    wait: Callable[[], None],
    patience_s: float,
) -> RequestAnswered:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        waits = request_id in inbox.waiting()
        found, after = find_answer(store, request_id, after)
        if found is not None:
            return found
        if not waits:  # a request that was answered is taken away only then
            raise BusyError(
                f"the coordinator of {store} failed on the request and moved it to "
                "_set_aside: see its log"
            )
        wait()
    raise BusyError(
        f"the coordinator of {store} did not answer within {patience_s:g} s: check it, "
        "then try again"
    )
