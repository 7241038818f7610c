"""Turns of the event loop, in which connections take requests that others have to wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

REQUESTS_A_TURN = 25
"""Requests that a turn of the event loop takes beside heartbeats and commits, and answers that it
gives to those that waited: bounded, so that they do not starve heartbeats. This is the network's
thread, which decodes and encodes; the coordinator's has a limit of its own (`event_loop.py`), since
many turns pass in one of its rounds, and callers in this process do not come through here."""


class TurnTaker(Protocol):
    """What turns need of a connection."""

    def have_turn(self) -> None:
        """Go on with the request that waited for its turn."""


class Turns:
    """Whose requests a turn of the event loop takes, of those that others have to wait for.

    A connection that comes too late in a turn waits behind the others that do, and then asks one
    request after which it waits again: however many come at once, heartbeats have every turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._room = REQUESTS_A_TURN
        self._behind: deque[TurnTaker] = deque()
        self._begun = False
        self._now: TurnTaker | None = None

    def take(self, link: TurnTaker) -> bool:
        """Whether a connection's next request may be taken now; if not, it has a turn later."""
        self._begin_soon()
        if link is self._now:
            self._now = None
            return True
        if self._room > 0 and not self._behind:
            self._room -= 1
            return True
        self._behind.append(link)
        return False

    def _begin_soon(self) -> None:
        if not self._begun:
            self._begun = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the next turn, with those that wait."""
        self._begun = False
        turns = min(len(self._behind), REQUESTS_A_TURN)
        self._room = REQUESTS_A_TURN - turns
        for _ in range(turns):
            self._now = self._behind.popleft()
            self._now.have_turn()
        self._now = None
        if self._behind:
            self._begin_soon()
