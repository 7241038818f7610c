"""Looks at a store of shards for pages: each log by its own reader, and who has which shard."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from coordinator.config import Config
from coordinator.history.followed_log import KEPT_BYTES_MAX
from coordinator.history.nodes_view import Row, list_nodes, list_owners
from coordinator.storage.holders import holder_of
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import NoLog
from coordinator.storage.shards import (
    NODES,
    Shards,
    part_of,
    read_whole,
    root_at,
    shard_at,
    stores_of,
)
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import ask_each, files_at
from coordinator.storage.tables.store_root import find_root
from coordinator.web.errors import NoGroupError
from coordinator.web.store_reader import SERVERS_S, Servers, StoreReader

ALL_S = 60.0
"""How often all shards are looked at for a first log; one that a node says it has comes at once."""
LOOKS = 8.0
"""How many logs of a bucket are looked at in a second, at most, for pages that are open."""


class ShardsReader:
    """Reads a store of shards for pages; any thread may ask.

    Parameters
    ----------
    store
        The folder of the store, or its URL.
    """

    def __init__(self, store: str | os.PathLike[str], shards: Shards, config: Config) -> None:
        self.store, self.shards = find_root(store), shards
        self._config = config
        self._readers: dict[str, StoreReader] = {}
        self._nodes = StoreNodes(self.store, config.lease)
        self._nodes_s = max(SERVERS_S, 5 * files_at(self.store).poll_s)
        self._lock = threading.RLock()
        self._all_at = self._nodes_at = -math.inf
        self._seen: object = None
        self._changes = 0

    def of(self, group_id: str) -> StoreReader:
        """Return the reader of the log that has a group.

        Raises
        ------
        NoGroupError
            Its shard has no log yet.
        """
        try:
            return self._reader(self._store_of(group_id))
        except NoLog:
            raise NoGroupError(group_id) from None

    def parts(self) -> list[StoreReader]:
        """Return the readers of all shards that have a log, by their numbers."""
        with self._lock:
            if time.monotonic() - self._all_at > ALL_S:
                self._open(stores_of(self.store))
                self._all_at = time.monotonic()
            self._look_at_nodes()
            return [self._readers[one] for one in sorted(self._readers) if one != self._root]

    def find_servers(
        self, now_ms: int, group_id: str | None = None, *, fresh: bool = False
    ) -> Servers:
        """Return which node coordinates a group; no single one coordinates all."""
        self._look_at_nodes(fresh=fresh)
        if group_id is None:
            return Servers()
        if group_id == NODES:
            return self.of(NODES).find_servers(now_ms, fresh=fresh)
        holder = holder_of(self._nodes, self.shards.shard_of(group_id), self._config.lease)
        return Servers(holder, is_live=holder is not None)

    def count_changes(self) -> int:
        """Return a number that is another one once the store, or who has its shards, changed."""
        self.parts()
        with self._lock:
            readers, wait_s = dict(self._readers), self._waits()
        count = partial(_count_commits, readers, wait_s)
        return self._changes + len(readers) + sum(ask_each(count, list(readers)))

    def _waits(self) -> dict[str, float]:
        """Return how old a look at each log may be."""
        owners = self._nodes.owners().items()
        idle = {shard_at(self.store, n) for n, one in owners if one.loads.get(n) == 0}
        return wait_for_looks(
            self._readers.keys(), idle, files_at(self.store).poll_s, self._nodes_s
        )

    def count_shards(self) -> dict[str, int]:
        """Return how many shards there are, how many of them a node has, and how many nodes."""
        with self._lock:
            self._look_at_nodes()
            owned, nodes = len(self._nodes.owners()), len(self._nodes.others)
        return {"count": self.shards.count, "owned": owned, "nodes": nodes}

    def list_nodes(self) -> list[Row]:
        """Return the nodes that are alive, as `muster nodes` does."""
        self._look_at_nodes()
        return list_nodes(self.store, self._config, self._nodes)

    def list_owners(self) -> list[Row]:
        """Return all shards with the nodes that have them, as `muster nodes --shards` does."""
        self._look_at_nodes()
        return list_owners(self.store, self._config, self._nodes)

    @property
    def _root(self) -> str:
        return root_at(self.store)

    def _store_of(self, group_id: str) -> str:
        return part_of(self.store, self.shards, group_id)

    def _reader(self, store: str) -> StoreReader:
        with self._lock:
            found = self._readers.get(store)
            if found is None:
                found = self._readers[store] = self._open_one(store)
            return found

    def _open(self, stores: Iterable[str]) -> None:
        """Open the logs of stores that are not open yet; it may have been removed."""

        def open_one(store: str) -> StoreReader | None:
            try:
                return self._open_one(store)
            except NoLog:
                return None

        missing = [one for one in stores if one not in self._readers]
        found = zip(missing, ask_each(open_one, missing), strict=True)
        self._readers |= {store: one for store, one in found if one is not None}

    def _open_one(self, store: str) -> StoreReader:
        if not files_at(store).is_folder(log_folder(f"{store}/log")):
            raise NoLog(f"{store} has no log")
        share = KEPT_BYTES_MAX // self.shards.count
        return StoreReader(store, self._config.lease, share)

    def _look_at_nodes(self, *, fresh: bool = False) -> None:
        """Note who has which shard, and shards that have a log now."""
        with self._lock:
            if not fresh and time.monotonic() - self._nodes_at < self._nodes_s:
                return
            self._nodes_at = time.monotonic()
            found = self._nodes.look()
            claimed = {n for one in found for n, epoch in one.shards.items() if epoch}
            self._open(shard_at(self.store, n) for n in sorted(claimed) if n < self.shards.count)
            nodes = [(one.address, one.coordinator_epoch, one.shards) for one in found]
            self._changes += nodes != self._seen
            self._seen = nodes


def wait_for_looks(
    stores: Collection[str], idle: Collection[str], poll_s: float, nodes_s: float
) -> dict[str, float]:
    """Return how old a look at each log may be: in a bucket, each look is two requests.

    Of a shard that is asked nothing its node says so, where it says what it has: such a log is
    looked at as seldom as that is read.

    Parameters
    ----------
    idle
        The shards that were asked nothing lately.
    poll_s
        How often at most to look at one log; 0 on a disk, where a look costs nothing.
    nodes_s
        How often it is read what nodes have.
    """
    busy_s = max(poll_s, sum(one not in idle for one in stores) / LOOKS) if poll_s else 0.0
    idle_s = max(nodes_s, busy_s) if poll_s else 0.0
    return {one: idle_s if one in idle else busy_s for one in stores}


def _count_commits(
    readers: Mapping[str, StoreReader], waits: Mapping[str, float], store: str
) -> int:
    return readers[store].count_commits(waits.get(store, 0.0))


def open_reader(store: str | os.PathLike[str], config: Config) -> StoreReader | ShardsReader:
    """Return what reads a store for pages, of one shard or of several.

    Raises
    ------
    SpecError
        There is no store.
    ConfigError
        It is a copy that is not whole.
    """
    shards = read_whole(store)
    if shards is None:
        return StoreReader(store, config.lease)
    return ShardsReader(store, shards, config)
