"""Who has a store, for commands that ask its coordinator, or claim the log if it has none."""

from __future__ import annotations

import os
from collections.abc import Callable

from coordinator.clock import wall_ms
from coordinator.config import LeaseConfig
from coordinator.storage.lease import Holder, Lease
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import ROOT, whole_of


def watch_holder(store: str | os.PathLike[str], config: LeaseConfig) -> Callable[[], Holder | None]:
    """Return what looks who has a store, None where no server does.

    It is the holder of the store's lease. A shard has none: its holder is the node that claimed it
    last; while that one is gone, any other node of the store, which will be given the shard.
    """
    whole = whole_of(store)
    if whole is None or whole[1] == ROOT:
        return Lease(os.fspath(store), "", "", config, wall_ms).holder
    root, part = whole
    nodes = StoreNodes(root, config)
    return lambda: _find_node(nodes, int(part), config)


def _find_node(nodes: StoreNodes, shard: int, config: LeaseConfig) -> Holder | None:
    others = nodes.look()
    owner, epoch = nodes.owner_of(shard)
    found = owner or (others[0] if others else None)
    if found is None:
        return None
    until = found.renewed_ms + config.ttl_ms
    return Holder(f"node {found.node_id}", epoch, found.address, until, found.token)
