"""Plan a store of shards past this machine, from what was measured on it.

>>> python -m benchmarks.sizing --nodes 100 --groups 1000000 --members 10000000  # doctest: +SKIP

It prints the table of docs/design/sizing.md, and simulates the group of the nodes at that size.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coordinator import Coordinator
from coordinator.config import Config, LeaseConfig
from coordinator.core.events import LEAVE
from coordinator.shards.root import config_of_nodes, set_least_share
from coordinator.shards.shard_loads import ShardWeights
from coordinator.storage.nodes import AGAIN, StoreNodes
from coordinator.storage.shards import NODES, SHARDS_TOPIC

MEASURED = Path(__file__).parent.parent / "docs" / "design" / "benchmarks.json"
PUT, GET = 5e-6, 0.4e-6
"""Dollars a request, of a put or list and of a get or head."""
RENEW_S, LOOK_S = 10.0, 2.0
"""How often a node writes its file on an object store, and the root looks at its log, twice."""
INBOX_S, LEASE_PUT_S, LEASE_GET_S = 2.0, 2.0, 1.0
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is planned.

    Attributes
    ----------
    heartbeat_s, commit_s
        How often a member sends a heartbeat, and commits offsets.
    linger_s
        For how long a shard waits for more before it commits (`log.linger_ms`).
    ttl_s
        `lease.ttl_ms`.
    """

    nodes: int = 100
    shards: int = 1_024
    groups: int = 1_000_000
    members: int = 10_000_000
    heartbeat_s: float = 5.0
    commit_s: float = 60.0
    linger_s: float = 1.0
    ttl_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured, of benchmarks.json.

    Attributes
    ----------
    heartbeat_ms
        CPU of a steady heartbeat on the wire.
    load_ms
        Elapsed for a member when a log on S3 is taken over.
    member_kib
        Memory of a member in a group of its own, and of its group.
    commit_puts
        Requests a commit.
    """

    heartbeat_ms: float
    load_ms: float
    member_kib: float
    commit_puts: float

    @classmethod
    def read(cls, path: Path = MEASURED) -> Costs:
        """Return those of the newest run."""
        found = dict(_medians(json.loads(path.read_text())))
        return cls(
            found["25,000 steady heartbeats, 1,000 connections: CPU"] / 25_000,
            found["S3: take over a store of 100,000 members"] / 100_000,
            found["10,000 groups of one member: memory"] * 1024 / 10_000,
            found["S3: requests a commit"],
        )


def _medians(tree: Any) -> Iterator[tuple[str, float]]:
    if isinstance(tree, dict):
        if "median" in tree:
            yield tree["name"], tree["median"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from _medians(one)


def plan(cluster: Cluster, costs: Costs) -> dict[str, str]:
    """Return what such a cluster needs, in words for a table."""
    c = cluster
    beats = c.members / c.heartbeat_s
    cores = beats * costs.heartbeat_ms / 1000
    # A shard commits at most once a linger, however many requests came.
    commits = min(c.members / c.commit_s, c.shards / c.linger_s)
    files = c.nodes * min(c.nodes, AGAIN) / RENEW_S
    puts = commits * costs.commit_puts + c.nodes * (2 / RENEW_S + 1 / INBOX_S) + 1 / LEASE_PUT_S
    gets = files + c.nodes * (1 / LEASE_GET_S) + 2 / LOOK_S
    root = config_of_nodes(Config(lease=LeaseConfig(ttl_ms=int(1000 * c.ttl_s)))).kafka
    session_s, beat_s = root.session_timeout_ms / 1000, root.heartbeat_interval_ms / 1000
    lost = c.shards / c.nodes
    each = -(-lost // (c.nodes - 1)) if c.nodes > 1 else float("inf")
    load_s = each * (c.members / c.shards) * costs.load_ms / 1000
    return {
        "heartbeats a second": f"{beats:,.0f}",
        "cores for heartbeats, in all": f"{cores:,.0f}",
        "the same, a node": f"{cores / c.nodes:.2f}",
        "memory a node": f"{c.members / c.nodes * costs.member_kib / 2**20:,.1f} GiB",
        "members a shard": f"{c.members / c.shards:,.0f}",
        "commits a second, in all": f"{commits:,.0f}",
        "puts and lists a second": f"{puts:,.0f}",
        "gets and heads a second": f"{gets:,.0f}",
        "of these, for files of nodes": f"{files:,.0f}",
        "requests a day": f"{(puts * PUT + gets * GET) * DAY_S:,.0f} $",
        "shards that a dead node leaves": f"{lost:,.1f}",
        "until all its groups are answered": f"{session_s:g} s + {beat_s:g} s + {load_s:.1f} s",
    }


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the root does at such a size.

    Attributes
    ----------
    join_s
        Until all nodes have shards, in this process.
    moved, least
        Shards that a leave moved, and as few as can move.
    spread
        Most and fewest shards of a node after it.
    leave_ms
        CPU of the epoch that the leave began.
    """

    join_s: float
    moved: int
    least: int
    spread: tuple[int, int]
    leave_ms: float


def simulate(nodes: int, shards: int) -> Simulated:
    """Let nodes join the group of the nodes, and one leave it."""
    with _root(shards) as root:
        began = time.perf_counter()
        epochs = _names(nodes)
        owned = _settle(root, epochs, {}, shards)
        join_s = time.perf_counter() - began
        begun = time.process_time()
        gone = min(epochs)
        root.consumer_group_heartbeat(group_id=NODES, member_id=gone, member_epoch=LEAVE)
        del epochs[gone]
        leave_ms = (time.process_time() - begun) * 1000
        left = _settle(root, epochs, {name: owned[name] for name in epochs}, shards)
    before = {shard: name for name, some in owned.items() for shard in some}
    after = {shard: name for name, some in left.items() for shard in some}
    counts = [len(some) for some in left.values()]
    moved = sum(before[shard] != name for shard, name in after.items())
    return Simulated(join_s, moved, len(owned[gone]), (max(counts), min(counts)), leave_ms)


def settle(nodes: int, shards: int) -> dict[str, frozenset[int]]:
    """Return the shards of nodes that joined one after the other."""
    with _root(shards) as root:
        return _settle(root, _names(nodes), {}, shards)


def _names(nodes: int) -> dict[str, int]:
    return dict.fromkeys((f"n{number:04d}" for number in range(nodes)), 0)


@contextmanager
def _root(shards: int) -> Iterator[Coordinator]:
    """Open the coordinator of the nodes in memory, for shards of equal loads."""
    with TemporaryDirectory() as store:
        equal = ShardWeights(shards, StoreNodes(store, LeaseConfig()), None)()
    config, topics = config_of_nodes(Config()), {SHARDS_TOPIC: shards}
    with Coordinator.open(None, config=config, topics=topics, weights=lambda: equal) as root:
        set_least_share(root)
        yield root


def _settle(
    root: Coordinator, epochs: dict[str, int], owned: dict[str, frozenset[int]], shards: int
) -> dict[str, frozenset[int]]:
    """Send heartbeats until each shard has a node; what is revoked is given up at once."""
    owned = dict(owned)
    while sum(map(len, owned.values())) != shards or len(set(epochs.values())) > 1:
        for name, epoch in epochs.items():
            joins = {"subscribed_topic_names": [SHARDS_TOPIC], "rebalance_timeout_ms": 60_000}
            answer = root.consumer_group_heartbeat(
                group_id=NODES,
                member_id=name,
                member_epoch=epoch,
                client_id=name,
                topic_partitions={SHARDS_TOPIC: sorted(owned[name])} if owned.get(name) else {},
                **({} if epoch else joins),
            )
            epochs[name] = answer.member_epoch
            if answer.assignment is not None:
                owned[name] = frozenset(answer.assignment.get(SHARDS_TOPIC, ()))
    return owned


def print_plan(cluster: Cluster, simulated: Simulated | None = None) -> str:
    """Return the table of a cluster."""
    rows = [("what", "figure"), ("---", "---"), *plan(cluster, Costs.read()).items()]
    if simulated is not None:
        rows += [
            ("shards that a leave moves, and must", f"{simulated.moved}, {simulated.least}"),
            ("most and fewest shards a node after it", "{}, {}".format(*simulated.spread)),
        ]
    return "\n".join(f"| {name} | {figure} |" for name, figure in rows)


def main() -> None:
    """Print the plan of a cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Cluster):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    cluster = Cluster(**vars(parser.parse_args()))
    found = simulate(cluster.nodes, cluster.shards)
    print(print_plan(cluster, found))
    print(f"\nsimulated: {cluster.nodes} nodes join in {found.join_s:.1f} s, and the epoch after")
    print(f"one leaves takes {found.leave_ms:.1f} ms of CPU.")


if __name__ == "__main__":
    main()
