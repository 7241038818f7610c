"""Count refused client software by name, and log each once a minute.

Most that come here by mistake try again for ever, and say nothing useful to those who run them. The
names are those that clients give with ApiVersions; so many are told apart, the rest is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from coordinator.wire.session import Session

CLIENTS_MAX = 50
NAME_MAX = 40
UNNAMED, OTHER = "unknown", "other"
SAY_AGAIN_S = 60.0
logger = logging.getLogger("muster.wire")


class RefusedClients:
    """Counts refused clients, and logs each once a minute.

    Parameters
    ----------
    count
        Told the name each time.
    now
        The time in seconds, from any beginning.
    """

    def __init__(self, count: Callable[[str], None], now: Callable[[], float]) -> None:
        self._count = count
        self._now = now
        self._said: dict[str, float] = {}

    def note(self, session: Session, why: str) -> None:
        """Count a refusal; a name's first in a minute is written to the log."""
        name = session.software or UNNAMED
        if name not in self._said and (len(self._said) >= CLIENTS_MAX or len(name) > NAME_MAX):
            name = OTHER
        self._count(name)
        now = self._now()
        if now - self._said.get(name, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return
        self._said[name] = now
        logger.warning(
            "refuses the client %s %s (%r) at %s: %s; further ones are counted for a minute",
            *(name, session.software_version, session.client_id[:NAME_MAX], session.host, why),
        )
