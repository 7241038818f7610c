"""What a page cannot show, each with the status of its response."""

from __future__ import annotations

import errno
from http import HTTPStatus

import pyarrow as pa
from deltalake.exceptions import DeltaError

from assignors import SpecError
from coordinator.errors.status import Status
from coordinator.history.view_rows import NeverOwnedError
from coordinator.storage.lease import Holder
from coordinator.storage.record_log import LogError
from coordinator.storage.tables.table_io import BusyError

NAMED_MAX = 255


class QueryError(SpecError):
    """An address says something that cannot be: status 400."""


class LargeError(QueryError):
    """What was sent is too long: status 413."""


class MediaError(QueryError):
    """What was sent is not JSON: status 415."""


class RefusedError(SpecError):
    """The coordinator refused a decision: status 409."""


class NoGroupError(SpecError):
    """The group does not exist, or the viewer may not see it: status 404, the same for both."""

    def __init__(self, group_id: str, when: str = "") -> None:
        where = f"at {when}" if when else "here"
        super().__init__(f"There is no group {_cut(group_id)!r} {where}, or you may not see it.")


class NoPlanError(NoGroupError):
    """The plan does not exist: status 404, too."""

    def __init__(self, group_id: str, plan_id: str) -> None:
        plan, group = _cut(plan_id), _cut(group_id)
        SpecError.__init__(self, f"There is no plan {plan!r} of group {group!r} here.")


class NoMemberError(NoGroupError):
    """The member does not exist: status 404, too."""

    def __init__(self, group_id: str, member_id: str) -> None:
        member, group = _cut(member_id), _cut(group_id)
        SpecError.__init__(self, f"There is no member {member!r} of group {group!r} here.")


class NoNodesError(NoGroupError):
    """The store is one shard, which has no nodes: status 404, too."""

    def __init__(self) -> None:
        SpecError.__init__(self, "This store is one shard, which has no nodes.")


class ForbiddenError(SpecError):
    """The viewer may see this, but not change it: status 403."""


def _cut(text: str) -> str:
    return text if len(text) <= NAMED_MAX else text[:NAMED_MAX] + "…"


def status_of(error: SpecError) -> HTTPStatus:
    """Return the status of the response that says what is wrong."""
    match error:
        case NoGroupError() | NeverOwnedError():
            return HTTPStatus.NOT_FOUND
        case ForbiddenError():
            return HTTPStatus.FORBIDDEN
        case RefusedError():
            return HTTPStatus.CONFLICT
        case LargeError():
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        case MediaError():
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        case _:
            return HTTPStatus.BAD_REQUEST


def explain(error: Exception) -> str:
    """Return what a page says of an error that the viewer did not cause."""
    match error:
        case SpecError():
            return str(error)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EROFS):
            return f"The store cannot be written, so nothing was decided: {error.strerror}"
        case LogError() | BusyError() | OSError() | DeltaError() | pa.ArrowException():
            return f"The store cannot be read: {error}"
        case _:
            return "This page failed. The process's log says why."


def explain_loss(status: str, holder: Holder | None) -> str:
    """Return what a page says where the coordinator of its process has lost its store.

    Parameters
    ----------
    holder
        Who has the lease of the store, as far as can be seen.
    """
    if status == Status.BROKEN:
        why = "The disk did not confirm a commit, so this coordinator has ended."
    else:
        why = "This coordinator lost its place: another one has taken over the store."
    if holder is None:
        return f"{why} Open the pages of its successor."
    return f"{why} The lease has {holder}: open the pages of that one."
