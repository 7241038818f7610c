"""The nodes of a store of shards: which there are, what each has, and what it should have."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.targets.basis import Basis
from coordinator.display.times import format_time
from coordinator.history.former_targets import read_basis
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import list_rows
from coordinator.storage.nodes import Node, StoreNodes
from coordinator.storage.record_log import NoLog
from coordinator.storage.shards import NODES, Shards, read_whole, root_at
from coordinator.storage.tables.store_root import find_root

Row = dict[str, Any]


class NodeRow(msgspec.Struct, kw_only=True):
    """A node that is alive, as `muster nodes` lists it.

    `target` is how many shards it should have, `load` what its groups ask of it a second.
    """

    node_id: int
    address: str
    has_root: bool
    shards: int
    target: int
    load: float
    drained: bool
    member_id: str | None
    seen_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class ShardRow(msgspec.Struct, kw_only=True):
    """A shard and the node that has claimed it last, as `muster nodes --shards` lists it."""

    shard: int
    node_id: int | None
    address: str | None
    coordinator_epoch: int | None
    load: float | None


def list_nodes(store: str, config: Config, seen: StoreNodes | None = None) -> list[Row]:
    """Return the nodes that are alive, by their ids.

    Parameters
    ----------
    seen
        The nodes of the store, where the caller has looked at them just now.

    Raises
    ------
    SpecError
        The store is one shard, so that it has no nodes.
    ConfigError
        It is a copy that is not whole.
    OSError
        Its nodes cannot be read.
    """
    _, nodes = _look(store, config, seen)
    basis, owned = _read_group(store, config)
    owners = nodes.owners()
    counts = Counter(one.node_id for one in owners.values())
    loads: defaultdict[int, float] = defaultdict(float)
    for shard, owner in owners.items():
        loads[owner.node_id] += owner.loads.get(shard, 0.0)
    root = nodes.coordinator()
    drained = basis.input.loads.drained if basis and basis.input.loads else ()
    rows = []
    for one in nodes.others:
        member_id = _member_of(one, basis)
        rows.append(
            NodeRow(
                node_id=one.node_id,
                address=one.address,
                has_root=one is root,
                shards=counts[one.node_id],
                target=sum(
                    row["partition_count"] for row in owned if row["member_id"] == member_id
                ),
                load=round(loads[one.node_id], 1),
                drained=member_id in drained,
                member_id=member_id,
                seen_at=format_time(one.renewed_ms),
            )
        )
    return [msgspec.to_builtins(one) for one in rows]


def list_owners(store: str, config: Config, seen: StoreNodes | None = None) -> list[Row]:
    """Return all shards, each with the node that has claimed it last; None where none has.

    Parameters
    ----------
    seen
        As for `list_nodes`.

    Raises
    ------
    SpecError, OSError
        As `list_nodes`.
    """
    shards, nodes = _look(store, config, seen)
    owners = nodes.owners()
    rows = []
    for shard in range(shards.count):
        one = owners.get(shard)
        row = ShardRow(shard=shard, node_id=None, address=None, coordinator_epoch=None, load=None)
        if one is not None:
            row.node_id, row.address = one.node_id, one.address
            row.coordinator_epoch, row.load = one.shards[shard], one.loads.get(shard)
        rows.append(row)
    return [msgspec.to_builtins(one) for one in rows]


def read_node(store: str, config: Config, node_id: int) -> tuple[Basis, str]:
    """Return the group of the nodes, and who of its members a node is.

    Raises
    ------
    SpecError
        No such node is alive, or it has not joined yet; else as `list_nodes`.
    """
    _, nodes = _look(store, config, None)
    basis, _ = _read_group(store, config)
    found = next((one for one in nodes.others if one.node_id == node_id), None)
    if found is None:
        known = ", ".join(str(one.node_id) for one in nodes.others)
        raise SpecError(f"node {node_id} of {store} is not alive: alive are {known or 'none'}")
    member_id = _member_of(found, basis)
    if basis is None or member_id is None:
        raise SpecError(f"node {node_id} of {store} has not joined the others yet: try again")
    return basis, member_id


def _look(store: str, config: Config, seen: StoreNodes | None) -> tuple[Shards, StoreNodes]:
    shards = read_whole(store)
    if shards is None:
        raise SpecError(f"{store} is not a store of shards, so it has no nodes: name one")
    if seen is not None:
        return shards, seen
    nodes = StoreNodes(find_root(store), config.lease)
    nodes.look()
    return shards, nodes


def _read_group(store: str, config: Config) -> tuple[Basis | None, list[Row]]:
    """Return the group of the nodes and its target; None before a node has joined."""
    try:
        reading = LogReader(root_at(find_root(store)))
        return read_basis(reading, config, NODES), list_rows(reading, "target_assignments", NODES)
    except (NoLog, SpecError):
        return None, []


def _member_of(node: Node, basis: Basis | None) -> str | None:
    """Return the member that a node is, which has the node's address as its client id."""
    metas = {} if basis is None else basis.input.metas
    return next((name for name, meta in metas.items() if meta.client_id == node.address), None)
