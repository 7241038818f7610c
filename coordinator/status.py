"""Status of a coordinator, and the error that callers get in each."""

from __future__ import annotations

from enum import StrEnum

from coordinator.errors import ErrorCode, GroupError


class Status(StrEnum):
    """What a coordinator is doing with its store."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"
    CLOSED = "closed"


REFUSALS = {
    Status.ACTIVE: (  # it is again: memory was dropped and the log replayed meanwhile
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "The log failed; whether this was written is not known: try again.",
    ),
    Status.LOADING: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "The coordinator replays its log: try again.",
    ),
    Status.FAILED: (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "The coordinator cannot read or write its log: try again.",
    ),
    Status.FENCED: (
        ErrorCode.NOT_COORDINATOR,
        "Another coordinator has taken the store over: find it and ask there.",
    ),
    Status.CLOSED: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is shut down."),
}


def refusal(status: Status) -> GroupError:
    """Return what requests are told that were not served, by what the coordinator does (G-150)."""
    return GroupError(*REFUSALS[status])


def our_fault() -> GroupError:
    """Return the answer to a request that our own bug keeps from being decided."""
    return GroupError(
        ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed; its log says where and why."
    )
