"""Count failed logins, denied and throttled requests until they are written to the log.

Strangers cause them, as many as they like: so they are counted by who and what, only so many
different ones at a time, and each is one record of the log a period, whatever its number.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coordinator.core.audit import DENIED, LOGIN_FAILED, THROTTLED, audit_record, shorten
from coordinator.core.events import Caller
from coordinator.core.records import Audited
from coordinator.wire.acceptor import network_of
from coordinator.wire.acls import Operation, Resource, ResourceType
from coordinator.wire.client_warnings import SAY_AGAIN_S
from coordinator.wire.quotas import Quota
from coordinator.wire.session import Session

Audit: TypeAlias = Callable[[Sequence[Audited]], object]
GUESSES_PER_S, HOSTS_MAX = 1, 1_000
"""An address (of IPv6 a network, /64) may guess so often, and ten times as often at first: a
hundred thousand guesses of a password take a day."""
logger = logging.getLogger("muster.wire")
DIFFERENT_MAX = 20
"""Different refusals that are told apart in one period; the others are one together."""


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
        """Count a login that failed, by the principal that the client said it was."""
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


class WrongLogins:
    """What is done about wrong logins over HTTP; for one thread.

    Parameters
    ----------
    clock
        Seconds, from any beginning.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counter = RefusalCounter()
        self._guesses = Quota(GUESSES_PER_S, {})
        self._logged: OrderedDict[str, float] = OrderedDict()

    def is_held_back(self, host: str) -> bool:
        """Whether an address has guessed too often lately: its next guess is not looked at."""
        return self._guesses.charge(network_of(host), 0, self._clock()) > 0

    def note(self, name: str, host: str) -> None:
        """Note a wrong login: a line of the log a minute and address, and a count for the audit."""
        now, network = self._clock(), network_of(host)
        self._guesses.charge(network, 1, now)
        if now - self._logged.get(network, -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._logged[network] = now
            logger.warning("a login over HTTP from %s as %r was wrong", host, name[:80])
            if len(self._logged) > HOSTS_MAX:
                self._logged.popitem(last=False)
        self._counter.note_login(f"User:{name}", Session(host=host, client_id="http"))

    def take(self) -> list[Audited]:
        """Return records of those noted so far, for the audit, and reset."""
        return self._counter.take()
