"""Count failed logins, denied and throttled requests until they are written to the log.

Strangers cause them, as many as they like: so they are counted by who and what, only so many
different ones at a time, and each is one record of the log a period, however often it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coordinator.core.audit import DENIED, LOGIN_FAILED, THROTTLED, audit_record, shorten
from coordinator.core.events import Caller
from coordinator.core.state.records import Audited
from coordinator.wire.acls import Operation, Resource, ResourceType
from coordinator.wire.session import Session

Audit: TypeAlias = Callable[[Sequence[Audited]], object]
DIFFERENT_MAX = 20
"""Different refusals that are counted apart in one period; the others count as one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused to whom."""

    action: str
    principal: str = ""
    host: str = ""
    operation: Operation | None = None
    of: Resource | None = None


class RefusalCounter:
    """Counts failed logins, denials and throttled requests."""

    def __init__(self) -> None:
        self._counts: dict[Refusal, int] = {}
        self._client_ids: dict[Refusal, str] = {}

    def note_login(self, claimed: str, session: Session) -> None:
        """Count a login that failed, by the principal that the client claimed."""
        self._note(Refusal(LOGIN_FAILED, shorten(claimed), session.host), session.client_id)

    def note_denial(self, session: Session, operation: Operation, of: Resource) -> None:
        """Count a request that a principal may not make."""
        of = Resource(of.type, shorten(of.name))
        found = Refusal(DENIED, shorten(session.principal), session.host, operation, of)
        self._note(found, session.client_id)

    def note_throttle(self, session: Session) -> None:
        """Count a request that waits, because its client is beyond a quota."""
        self._note(Refusal(THROTTLED, shorten(session.principal), session.host), session.client_id)

    def take(self) -> list[Audited]:
        """Return an audit record of each refusal with its count, and reset."""
        counts, self._counts = self._counts, {}
        client_ids, self._client_ids = self._client_ids, {}
        return [_to_record(what, client_ids[what], count) for what, count in counts.items()]

    def _note(self, what: Refusal, client_id: str) -> None:
        if what not in self._counts and len(self._counts) >= DIFFERENT_MAX:
            what, client_id = Refusal(what.action), ""
        self._counts[what] = self._counts.get(what, 0) + 1
        self._client_ids.setdefault(what, client_id)


def _to_record(what: Refusal, client_id: str, count: int) -> Audited:
    details = {"count": str(count)}
    group_id = ""
    if what.of is not None and what.operation is not None:
        details |= {
            "operation": what.operation.name,
            "resource_type": what.of.type.name,
            "resource_name": what.of.name,
        }
        group_id = what.of.name if what.of.type is ResourceType.GROUP else ""
    return audit_record(
        what.action, group_id, Caller(what.principal, client_id, what.host), details
    )
