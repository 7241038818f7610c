"""The status of a coordinator, and the error that callers get in each status."""

from __future__ import annotations

from enum import StrEnum

from coordinator.errors.codes import ErrorCode, GroupError


class Status(StrEnum):
    """What a coordinator is doing with its store; one that stands by waits for it."""

    STANDS_BY = "stands by"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"
    BROKEN = "broken"
    CLOSED = "closed"


LOST = frozenset({Status.FENCED.value, Status.BROKEN.value, Status.CLOSED.value})
"""Those that last: this process never answers again."""
STUCK = "stuck"
"""What a health page says of a coordinator that has not had its log for as long as a lease lives:
it may recover, but another one may do better."""
WAITS = "waits for the store"
"""What it says of one that an object store does not let open its store now."""


REFUSALS = {
    Status.STANDS_BY: (
        ErrorCode.NOT_COORDINATOR,
        "Another coordinator has the store: find the coordinator.",
    ),
    Status.ACTIVE: (  # active again, after it dropped its memory and replayed the log
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "The log failed, and it is unknown whether this request was written: try again.",
    ),
    Status.LOADING: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "The coordinator is replaying its log: try again.",
    ),
    Status.FAILED: (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "The coordinator cannot read or write its log: try again.",
    ),
    Status.FENCED: (
        ErrorCode.NOT_COORDINATOR,
        "Another coordinator has taken over the store: find the coordinator again.",
    ),
    Status.BROKEN: (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "The disk did not confirm a commit, so this coordinator has ended: find its successor.",
    ),
    Status.CLOSED: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is shut down."),
}


def refusal(status: Status) -> GroupError:
    """Return the error for requests that were not served, by the coordinator's status (G-150)."""
    return GroupError(*REFUSALS[status])


def unanswered(ms: int) -> GroupError:
    """Return the error for a request whose time is over: the store has not answered for so long."""
    return GroupError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        f"The store has not answered for {ms} ms, and it is unknown whether this request was "
        "written: try again.",
    )


def our_fault() -> GroupError:
    """Return the error for a request that failed because of a bug in the coordinator."""
    return GroupError(
        ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed: see its process's log."
    )
