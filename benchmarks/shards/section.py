"""Nodes of a store of shards: how long groups wait for them, and what two do."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measure import Bench, Figure, cpu_s
from benchmarks.report import Section
from benchmarks.shape import small_member_id, spread_group_id
from benchmarks.shards.client import Beater
from benchmarks.shards.nodes import Nodes, write_shards
from benchmarks.shards.under_load import Load, planned_move, scale, sudden_end
from benchmarks.store import temporary_store, write_small_groups
from coordinator import Coordinator
from coordinator.storage.shards import Shards

TITLE = "Shards and nodes"
CLIENTS_PAUSE_S = 0.1
"""As clients of Kafka: what they ask meanwhile takes of the node's core."""
TEXT = """\
With default settings, on this disk; elapsed, where it does not say CPU. *One node takes all*: a
node starts on a store in shards; *first* is the first group that answers once it listens, *all* is
when a group of each shard has, by the load of as many groups in a store of one shard at the same
commit. The goal is *today's load* when shards were wished for: that of d21c7375, the last
commit without them. There `write_small_groups(store, 1_000_000)` and then `Coordinator.open(store,
topics={"small": 1})` took 60.5 s (62.7 s of CPU; one run, 2026-11-28, this machine), where the node
took 49.8 s (50.1 s): 0.82 x elapsed, 0.80 x CPU. The load of one shard has become quicker since.
*Two nodes by one* is the CPU of their processes for the same requests: clients and nodes share this
machine, so that two nodes cannot show here how many requests they answer on cores of their own.
*Planned move*: a second node joins while four threads send heartbeats one after the other. *kill
-9*: three nodes are settled; the time counts from the signal to the last group's answer, less the
lease of 10 s, for which its node may still be alive.
"""


def run(bench: Bench) -> Section:
    """Measure; each on a store of its own."""
    figures: list[Figure] = []
    bench.say("shards: one node takes all")
    figures += taken(*(20, 8) if bench.smoke else (1_000_000, 64))
    if not bench.smoke:  # nodes start, and end, for a minute
        bench.say("shards: two nodes by one")
        figures += scale(Load(1_000, 10, 16), 10_000)
        bench.say("shards: a planned move")
        figures += planned_move(Load(2_000, 10, 2))
        bench.say("shards: the end of a node")
        figures += sudden_end(Load(3_000, 100, 64))
    return Section(TITLE, TEXT, figures)


def taken(groups: int, count: int) -> Iterator[Figure]:
    """Start the only node of a store, and compare with a store of one shard."""
    with temporary_store() as store:
        write_small_groups(store, groups, name=spread_group_id)
        began, before = time.perf_counter(), time.process_time()
        with Coordinator.open(store, topics={"small": 1}):
            whole, whole_cpu = time.perf_counter() - began, time.process_time() - before
    with temporary_store() as store:
        write_shards(store, groups, count)
        asked = _one_of_each(groups, Shards(count))
        began = time.perf_counter()
        with Nodes(store) as nodes:
            beater = Beater(nodes.start(1), CLIENTS_PAUSE_S)
            (node,) = nodes.processes()
            started, before = time.perf_counter(), cpu_s(node)
            beater.beat(spread_group_id(0), small_member_id(0))
            first = time.perf_counter()
            for number in asked:
                beater.beat(spread_group_id(number), small_member_id(number))
            last, cpu = time.perf_counter() - started, cpu_s(node) - before
            beater.close()
    named = f"one node takes {count} shards of {groups:,} members"
    yield Figure.of("start of a node until it listens", [(started - began) * 1000])
    yield Figure.of(f"{named}: first answer after that", [(first - started) * 1000], goal=2_000.0)
    yield Figure.of(f"{named}: all, by the load of one shard", [last / whole], "x", 1.0)
    yield Figure.of(f"{named}: CPU, by that of one shard", [cpu / whole_cpu], "x", 1.0)


def _one_of_each(groups: int, shards: Shards) -> list[int]:
    """Return the number of a group of each shard that has any."""
    found: dict[int, int] = {}
    for number in range(groups):
        found.setdefault(shards.shard_of(spread_group_id(number)), number)
        if len(found) == shards.count:
            break
    return list(found.values())
