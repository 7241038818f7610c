"""Looks at the shards of a node that may have ended, before they come to another one.

Most of what an object store is asked for a shard that moves is what its tables have. While the
lease of the root runs out, or the session of a node, the others ask for that: it claims and loads
nothing.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from coordinator.config import Config
from coordinator.shards.root import config_of_nodes
from coordinator.storage.lease import Holder
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import shard_at
from coordinator.storage.tables.store_files import ask_each, is_remote

RENEWALS_MISSED = 2
"""After so many the holder of the root is late."""
SHARES = 2
"""A node looks at so many times its share of the shards: which ones it gets is not known yet."""
REST_LEASES = 6
"""For so many leases it does not look again: a store that is slow makes every holder late."""
logger = logging.getLogger("muster.shards")


class _Looked(NamedTuple):
    """A log that was looked at, whose shard it was, and until when it may be taken."""

    log: LogAhead
    owner: str
    until_s: float


class LooksAhead:
    """What a node has looked at of the shards of another one, which may have ended.

    Parameters
    ----------
    root
        Of the store; on a disk there is nothing to look at ahead.
    nodes
        Returns the nodes of the store, which say who has which shards.
    start
        Starts a thread that has a name.
    """

    def __init__(
        self,
        root: str,
        config: Config,
        nodes: Callable[[], StoreNodes],
        start: Callable[[Callable[[], object], str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root, self._config, self._nodes = root, config, nodes
        self._start, self._clock = start, clock
        self._lease_s = config.lease.ttl_ms / 1000
        self._late_s = RENEWALS_MISSED * config_of_nodes(config).lease.renew_ms / 1000
        self._holder: Holder | None = None
        self._since_s = 0.0
        """When that was first seen as it is."""
        self._missed_s = -self._lease_s
        """When it was last found not to answer."""
        self._rests_until_s: dict[str, float] = {}
        """Until when a node's shards are not looked at again, by its address."""
        self._looked: dict[int, _Looked] = {}

    def see(self, holder: Holder | None, *, missed: bool = False) -> None:
        """Note who has the root; look at the shards of one that does not renew its lease.

        Parameters
        ----------
        missed
            Whether it does not answer heartbeats, though it may renew its lease.
        """
        now_s, before = self._clock(), self._holder
        if holder is None or not is_remote(self._root):
            return
        if missed:
            self._missed_s = now_s
        if holder != before:
            self._holder, self._since_s = holder, now_s
            is_same = before is not None and before.token == holder.token
            if is_same and now_s - self._missed_s >= self._late_s:  # it is alive
                looked = self._looked.items()
                self._looked = {n: one for n, one in looked if one.owner != holder.address}
        if missed or now_s - self._since_s >= self._late_s:
            self.see_late([holder.address])
        self.see_late(holder.late)

    def see_late(self, addresses: Sequence[str]) -> None:
        """Look at the shards of nodes that are late."""
        now_s = self._clock()
        for address in addresses if is_remote(self._root) else ():
            if now_s < self._rests_until_s.get(address, 0.0):
                continue
            rests = {known: at for known, at in self._rests_until_s.items() if at > now_s}
            self._rests_until_s = rests | {address: now_s + REST_LEASES * self._lease_s}
            self._start(partial(self.look, address), "muster-looks-ahead")

    def look(self, address: str) -> None:
        """Look at shards of the node with an address: other ones than other nodes, if there are."""
        nodes = self._nodes()
        others = nodes.others
        its = next((one.shards for one in others if one.address == address), {})
        shards = [shard for shard, epoch in its.items() if epoch]
        most = -(-SHARES * len(shards) // max(1, len(others)))
        own = {one.node_id for one in nodes.every()} - {one.node_id for one in others}
        shards.sort(key=lambda shard: zlib.crc32(f"{own} {shard}".encode()))
        paths = {shard_at(self._root, shard): shard for shard in shards[:most]}
        ask_each(lambda path: self._look_at(paths[path], address), list(paths))
        logger.debug("has looked at %d shards of %s, which is late", len(paths), address)

    def _look_at(self, shard: int, owner: str) -> None:
        log = LogAhead.open(shard_at(self._root, shard), self._config.log)
        if log.look_ahead():
            self._looked[shard] = _Looked(log, owner, self._clock() + self._lease_s)

    def take(self, shard: int) -> LogAhead | None:
        """Return a shard's log that was looked at not long ago; once."""
        looked = self._looked.pop(shard, None)
        if looked is None or self._clock() > looked.until_s:
            return None
        return looked.log
