"""Who has a store, for commands that ask its coordinator, or claim the log if it has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from coordinator.clock import wall_ms
from coordinator.config import LeaseConfig
from coordinator.storage.lease import Holder, Lease
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import ROOT, whole_of

FindHolder: TypeAlias = Callable[[], Holder | None]


def watch_holder(store: str | os.PathLike[str], config: LeaseConfig) -> FindHolder:
    """Return what looks who has a store, None where no server does.

    It is the holder of the store's lease. A shard has none: its holder is the node that claimed it
    last; while that one is gone, any other node of the store, which will be given the shard.
    """
    whole = whole_of(store)
    if whole is None or whole[1] == ROOT:
        return Lease(os.fspath(store), "", "", config, wall_ms).holder
    root, part = whole
    nodes = StoreNodes(root, config)

    def look() -> Holder | None:
        nodes.look()
        return holder_of(nodes, int(part), config)

    return look


def holder_of(nodes: StoreNodes, shard: int, config: LeaseConfig) -> Holder | None:
    """Return who has a shard, as `watch_holder` does, by the nodes as they were seen last."""
    owner, epoch = nodes.owner_of(shard)
    found = owner or next(iter(nodes.others), None)
    if found is None:
        return None
    until = found.renewed_ms + config.ttl_ms
    return Holder(f"node {found.node_id}", epoch, found.address, until, found.token)
