"""Looks at a store of shards for pages: each log by its own reader, and who has which shard."""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import suppress

from coordinator.config import Config
from coordinator.history.followed_log import KEPT_BYTES_MAX
from coordinator.history.nodes_view import Row, list_nodes, list_owners
from coordinator.storage.delta_log import find_root
from coordinator.storage.holders import holder_of
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import NoLog
from coordinator.storage.shards import NODES, Shards, read_shards, root_at, shard_at, stores_of
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import files_at
from coordinator.web.errors import NoGroupError
from coordinator.web.store_reader import SERVERS_S, Servers, StoreReader

ALL_S = 60.0
"""How often all shards are looked at for a first log; one that a node says it has comes at once."""


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
        self._said: object = None
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
                for store in stores_of(self.store):
                    self._reader(store)
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
            readers = list(self._readers.values())
        return self._changes + len(readers) + sum(one.count_commits() for one in readers)

    def count_shards(self) -> dict[str, int]:
        """Return how many shards there are, how many of them a node has, and how many nodes."""
        with self._lock:
            self._look_at_nodes()
            owned, nodes = len(self._nodes.owners()), len(self._nodes.others)
        return {"count": self.shards.count, "owned": owned, "nodes": nodes}

    def list_nodes(self) -> list[Row]:
        """Return the nodes that are alive, as `muster nodes` does."""
        return list_nodes(self.store, self._config)

    def list_owners(self) -> list[Row]:
        """Return all shards with the nodes that have them, as `muster nodes --shards` does."""
        return list_owners(self.store, self._config)

    @property
    def _root(self) -> str:
        return root_at(self.store)

    def _store_of(self, group_id: str) -> str:
        if group_id == NODES:
            return self._root
        return shard_at(self.store, self.shards.shard_of(group_id))

    def _reader(self, store: str) -> StoreReader:
        with self._lock:
            found = self._readers.get(store)
            if found is None:
                if not files_at(store).is_folder(log_folder(f"{store}/log")):
                    raise NoLog(f"{store} has no log")
                share = KEPT_BYTES_MAX // self.shards.count
                found = self._readers[store] = StoreReader(store, self._config.lease, share)
            return found

    def _look_at_nodes(self, *, fresh: bool = False) -> None:
        """Note who has which shard, and shards that have a log now."""
        with self._lock:
            if not fresh and time.monotonic() - self._nodes_at < self._nodes_s:
                return
            self._nodes_at = time.monotonic()
            found = self._nodes.look()
            for one in found:
                for shard in (n for n, epoch in one.shards.items() if epoch):
                    with suppress(NoLog):  # it was removed
                        self._reader(shard_at(self.store, shard))
            said = [(one.address, one.coordinator_epoch, one.shards) for one in found]
            self._changes += said != self._said
            self._said = said


def open_reader(store: str | os.PathLike[str], config: Config) -> StoreReader | ShardsReader:
    """Return what reads a store for pages, of one shard or of several.

    Raises
    ------
    SpecError
        There is no store.
    """
    shards = read_shards(store)
    if shards is None:
        return StoreReader(store, config.lease)
    return ShardsReader(store, shards, config)
