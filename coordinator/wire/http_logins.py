"""Logins and TLS of what is served over HTTP: metrics and pages."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from coordinator.config import ConfigError, ServerConfig
from coordinator.core.records import Audited
from coordinator.wire.acceptor import network_of
from coordinator.wire.client_warnings import SAY_AGAIN_S
from coordinator.wire.quotas import Quota
from coordinator.wire.refusal_audit import RefusalCounter
from coordinator.wire.sasl import Users
from coordinator.wire.session import Session

GUESSES_PER_S, HOSTS_MAX = 1, 1_000
"""An address (of IPv6 a network, /64) may guess so often, and ten times as often at first: a
hundred thousand guesses of a password take a day."""
logger = logging.getLogger("muster.wire")


def tls_files(setting: str, server: ServerConfig, *, wanted: bool) -> tuple[str, ...]:
    """Return the certificate and the key to serve with; none without TLS.

    Parameters
    ----------
    setting
        What turns TLS on.

    Raises
    ------
    ConfigError
        There is no certificate.
    """
    if wanted and not server.tls_certificate:
        raise ConfigError(
            f"{setting} is on, but server.tls_certificate is empty: name the PEM file"
        )
    return (server.tls_certificate, server.tls_key) if wanted else ()


class HttpLogins:
    """Who logs in over HTTP, and what is done about wrong logins; for one thread.

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

    def knows(self, users: Users, name: str, password: str, host: str) -> bool | None:
        """Whether somebody is let in; None where the password must be checked, which takes a while.

        If it is wrong then, `note` it.
        """
        if not name:
            return False
        if users.is_remembered(name, password):
            return True
        return False if self.is_held_back(host) else None

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
