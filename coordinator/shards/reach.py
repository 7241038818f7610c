"""Whether nodes reach the root, and a node its store: what cannot be reached is others' to have.

A root is heard of in two ways: it answers heartbeats, and it renews its lease in the store. Where
the network is cut, only the second goes on, and no node would ever have its shards. So nodes say in
the store that it does not answer, and one that hears of none of them believes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from coordinator.config import Config
from coordinator.member.member import Member
from coordinator.shards.looks_ahead import LooksAhead
from coordinator.shards.root import Root, session_ms_of
from coordinator.shards.shards_here import LOOK_S, RETRY_S, ShardsHere
from coordinator.storage.nodes import StoreNodes

PATIENCE = 3
"""A heartbeat is waited for as long as a session, divided by this; then it is sent again."""
logger = logging.getLogger("muster.shards")


class Reach:
    """Looks whether a node reaches the root, and its store.

    Parameters
    ----------
    root, ahead, here, nodes
        Of the node.
    start
        Starts a thread that has a name.

    Attributes
    ----------
    member
        The node as a member of the group of the nodes; None while it is none.
    """

    def __init__(
        self,
        config: Config,
        root: Root,
        ahead: LooksAhead,
        here: ShardsHere,
        nodes: StoreNodes,
        start: Callable[[Callable[[], object], str], threading.Thread],
    ) -> None:
        self._config, self._root, self._ahead = config, root, ahead
        self._here, self._nodes, self._start = here, nodes, start
        self._session_ms = session_ms_of(config)
        self._noted = 0
        self._noting: threading.Thread | None = None
        self.member: Member | None = None

    def misses(self) -> int:
        """Return the claim of the root whose owner does not answer us; 0 while it does."""
        member, holder = self.member, self._root.holder
        if member is None or holder is None or self._root.coordinator is not None:
            return 0
        is_silent = member.waits_ms > self._session_ms // PATIENCE
        return holder.coordinator_epoch if is_silent else 0

    def is_cut_off(self) -> bool:
        """Whether the store lets this node say nothing, nor a shard of it answer, for a session."""
        session_ms, patience_ms = self._session_ms, int(2_000 * self._nodes.every_s)
        is_stuck = self._here.stuck_ms > session_ms
        return self._nodes.silent_ms > (session_ms if is_stuck else max(session_ms, patience_ms))

    def watch(self, leaving: threading.Event) -> None:
        """Look again and again, until the node leaves."""
        asking: threading.Thread | None = None
        while not leaving.wait(LOOK_S):
            # A shard alone may be stuck, and its next owner would be too.
            if self._here.stuck_ms > RETRY_S * 1000 and not (asking and asking.is_alive()):
                asking = self._start(self._ask_store, "muster-asks")
            self.leave_where_cut_off()
            self._note_what_is_missed()

    def leave_where_cut_off(self) -> None:
        """Let others have the shards while this node cannot reach the store.

        Its heartbeats need no store, and would keep shards that no one can be served from.
        """
        member = self.member
        if member is not None and self.is_cut_off():
            logger.warning("%s cannot be reached: others may have its shards", self._nodes.root)
            self.member = None
            member.leave()

    def _note_what_is_missed(self) -> None:
        """Say in the store that the root does not answer, and look ahead at its owner's shards."""
        missed = self.misses()
        if not missed:
            return
        self._ahead.see(self._root.holder, missed=True)
        if missed != self._noted and not (self._noting and self._noting.is_alive()):
            self._noting = self._start(lambda: self._note(missed), "muster-misses")

    def _note(self, missed: int) -> None:
        with suppress(OSError):  # it is noted again
            self._nodes.renew()
            self._noted = missed

    def _ask_store(self) -> None:
        with suppress(OSError):
            self._nodes.renew()
