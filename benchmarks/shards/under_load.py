"""Nodes under load: what two do, what a planned move costs, and what the end of one costs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, takewhile

from benchmarks.measure import Figure, cpu_s
from benchmarks.shape import small_member_id, spread_group_id
from benchmarks.shards.client import Beater
from benchmarks.shards.nodes import Nodes, write_shards
from benchmarks.store import temporary_store
from coordinator.config import LeaseConfig
from coordinator.history.nodes_view import list_owners
from coordinator.storage.shards import Shards

THREADS = 4
SETTLE_S = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """Groups with settled members."""

    groups: int
    members: int
    shards: int

    def __str__(self) -> str:
        return f"{self.groups * self.members:,} members in {self.groups:,} groups"

    def pairs(self) -> list[tuple[str, str]]:
        """Return all members with their groups, a group's far apart."""
        return [
            (spread_group_id(number), small_member_id(number, at))
            for at in range(self.members)
            for number in range(self.groups)
        ]


def scale(load: Load, requests: int) -> Iterator[Figure]:
    """Compare what requests cost on one node and on two, in CPU of their processes."""
    costs = []
    for count in (1, 2):
        with temporary_store() as store:
            write_shards(store, load.groups, load.shards, load.members)
            with Nodes(store, load.members) as nodes:
                addresses = nodes.start(count)
                wait_for(nodes, count)
                pairs = load.pairs()[: requests // 2]
                drive(addresses, pairs, lambda beater, one: beater.beat(*one))  # connections
                before = sum(map(cpu_s, nodes.processes()))
                drive(addresses, pairs, beat_and_commit)
                costs.append(sum(map(cpu_s, nodes.processes())) - before)
    named = f"a heartbeat and a commit, {load}: CPU of two nodes by one"
    yield Figure.of(named, [costs[1] / costs[0]], "x", 1.1)


def planned_move(load: Load) -> Iterator[Figure]:
    """Let a second node join, which takes half of the shards, under heartbeats."""
    waits: list[float] = []
    with temporary_store() as store:
        write_shards(store, load.groups, load.shards, load.members)
        with Nodes(store, load.members) as nodes:
            addresses = nodes.start(1)
            wait_for(nodes, 1)
            pairs, stop = load.pairs(), threading.Event()

            def beat(beater: Beater, one: tuple[str, str]) -> None:
                waits.append(beater.beat(*one))

            drive(addresses, pairs, lambda beater, one: beater.beat(*one))
            beating = threading.Thread(target=drive, args=(addresses, pairs, beat, stop))
            beating.start()
            nodes.start(1)
            wait_for(nodes, 2)
            time.sleep(1.0)
            stop.set()
            beating.join()
    named = f"planned move, {load}, half of the shards"
    yield Figure.of(f"{named}: heartbeats meanwhile", [1000 * one for one in waits])
    yield Figure.of(f"{named}: longest wait of a heartbeat", [1000 * max(waits)], goal=300.0)


def sudden_end(load: Load) -> Iterator[Figure]:
    """Kill one of three nodes, and ask each of its groups until another answers."""
    with temporary_store() as store:
        write_shards(store, load.groups, load.shards, load.members)
        with Nodes(store, load.members) as nodes:
            addresses = nodes.start(3)
            wait_for(nodes, 3)
            pairs = load.pairs()[: load.groups]
            drive(addresses, pairs, lambda beater, one: beater.beat(*one))
            wait_for(nodes, 3)  # loads that are new may move shards
            owners = list_owners(str(store), nodes.config)
            its = {row["shard"] for row in owners if row["address"] == addresses[-1]}
            shards = Shards(load.shards)
            pairs = [one for one in pairs if shards.shard_of(one[0]) in its]
            killed = time.monotonic()
            nodes.kill(addresses[-1])
            answered: list[float] = []

            def ask(beater: Beater, one: tuple[str, str]) -> None:
                beater.beat(*one)
                answered.append(time.monotonic() - killed)

            drive(addresses[:-1], pairs, ask)
    lease_s = LeaseConfig().ttl_ms / 1000
    named = f"kill -9 of one of three nodes, {load}"
    last = [1000 * (max(answered) - lease_s)]
    yield Figure.of(f"{named}: all groups answer, after the lease", last, goal=2_000.0)


def beat_and_commit(beater: Beater, one: tuple[str, str]) -> None:
    beater.beat(*one)
    beater.commit(*one, 1)


def drive(
    addresses: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    ask: Callable[[Beater, tuple[str, str]], object],
    stop: threading.Event | None = None,
) -> None:
    """Ask of each member, by some threads with connections of their own.

    Parameters
    ----------
    stop
        Until then, ask again and again; None asks once.
    """
    failed: list[BaseException] = []

    def run(mine: Sequence[tuple[str, str]]) -> None:
        beater = Beater(addresses)
        try:
            for one in (
                mine if stop is None else takewhile(lambda _: not stop.is_set(), cycle(mine))
            ):
                ask(beater, one)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failed.append(error)
        finally:
            beater.close()

    threads = [threading.Thread(target=run, args=(pairs[at::THREADS],)) for at in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise failed[0]


def wait_for(nodes: Nodes, count: int) -> None:
    """Wait until each shard has a node, and each of so many about its share of them."""
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        owners = [row["node_id"] for row in list_owners(str(nodes.store), nodes.config)]
        counts = Counter(owners)
        least = len(owners) // count * 3 // 4
        if None not in counts and len(counts) == count and min(counts.values()) >= least:
            return
        time.sleep(0.2)
    raise TimeoutError(f"{count} nodes do not have all shards after {SETTLE_S:.0f} s")
