"""Ask a store's coordinator about a plan, from another process: a file in, a record back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from assignors import SpecError
from coordinator.compute.proposal_inbox import find_verdict
from coordinator.core.records import ACCEPTED, PlanMade, ProposalJudged
from coordinator.storage import plan_queue
from coordinator.storage.plan_queue import Action, PlanRequest
from coordinator.storage.tables.table_io import BusyError


def ask_about_plan(
    store: str,
    request: PlanRequest,
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
    plan_queue.put_plan_request(store, request)
    try:
        judged = _await_answer(store, request.request_id, after, wait, patience_s)
    finally:
        plan_queue.remove_plan_request(store, request.request_id)
    if judged.reason != ACCEPTED:
        raise SpecError(judged.reason.partition(": ")[2] or judged.reason)
    return judged.group_epoch


def make_request(
    action: Action, group_id: str, plan_id: str, plan: PlanMade | None, by: str, reason: str
) -> PlanRequest:
    """Return a request with an id of its own."""
    return PlanRequest(uuid.uuid4().hex, action, group_id, plan_id, plan, by, reason)


def _await_answer(
    store: str, request_id: str, after: int, wait: Callable[[], None], patience_s: float
) -> ProposalJudged:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        waits = request_id in plan_queue.list_plan_requests(store)
        found, after = find_verdict(store, request_id, after)
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
