"""Nodes of a store of shards are killed, stopped and cut off, while members commit and work.

Members reach nodes, and nodes each other and a store in S3, over links that can be cut. A prober
asks every node directly, and so sees for how long a group has no coordinator.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from coordinator.clock import wall_ms
from coordinator.config import Config, LeaseConfig, ServerConfig
from coordinator.config.kafka import kafka_config
from coordinator.errors import GroupError
from coordinator.history import frame
from coordinator.member.member import Member
from coordinator.storage.lease import Lease
from coordinator.storage.shards import make_shards, read_shards, root_at, shard_at
from coordinator.storage.tables.store_options import use_settings
from tests.faults import process
from tests.faults.crowd import Broken
from tests.faults.node import Teller
from tests.faults.report import Outcome
from tests.faults.said import Said
from tests.faults.shadow import Shadow
from tests.member.cut_network import Proxy, free_port

from .outages import Bystander, Prober, show, tell_timeline

SHARDS, NODES, TOPIC, PARTITIONS = 6, 3, "t", 4
GROUPS = [f"g{number}" for number in range(8)]
TTL_MS, S3_TTL_MS, MORE_S = 4_000, 10_000, 2.0
"""A lease on a disk and on S3, and how much longer than it a group may have no coordinator."""
COMMITS = 11
"""To take the root (10 requests) and then a shard (12), an object store is asked one thing after the
other as often as for so many commits: that is what a machine that does much else makes slow."""
CONFIG = Config(
    lease=LeaseConfig(ttl_ms=TTL_MS, renew_ms=500, check_ms=200),
    kafka=kafka_config(
        {
            "group.consumer.assignment.interval.ms": 0,
            "group.consumer.min.session.timeout.ms": 1_000,
            "group.consumer.session.timeout.ms": 9_000,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 500,
        }
    ),
)
ANSWER_S, COMMIT_S, S3_COMMIT_S = 1.0, 0.1, 0.5
Key: TypeAlias = tuple[str, int]
"""A group, and a partition of the topic."""


def serve(config: Config, pipe: Connection, store: str, _: Config, __: str) -> None:
    """Be a node until the pipe ends."""
    from coordinator.shards.node import Node

    tell = Teller(pipe)
    logging.getLogger("muster").addHandler(
        Said(lambda text: tell("said", f"{time.monotonic():.3f} {text}"))
    )
    logging.getLogger("muster.shards").setLevel(logging.DEBUG)
    use_settings(config.store)
    tell("began", time.monotonic())
    shards = read_shards(store)
    assert shards is not None, "it was made with some"
    with Node(store, shards, config, topics={TOPIC: PARTITIONS}) as one:
        one.serve()
        tell("serves", time.monotonic())
        with suppress(EOFError, OSError):
            pipe.recv()


class Host:
    """A place where a node runs, in each of its lives.

    Parameters
    ----------
    endpoint
        The port of the server in S3, None on a disk.

    Attributes
    ----------
    link, store_link
        How others reach it, and how it reaches its store.
    is_well
        Whether it is expected to answer.
    """

    def __init__(self, store: str, number: int, endpoint: int | None) -> None:
        self.store, self.port, self.name = store, free_port(), f"node {number}"
        self.link, self.store_link = Proxy(), Proxy()
        self.link.begin(("127.0.0.1", self.port))
        server = ServerConfig(
            listen=f"127.0.0.1:{self.port}", advertised=self.link.address, node_id=number
        )
        self.config = replace(CONFIG, server=server)
        if endpoint is not None:
            self.store_link.begin(("127.0.0.1", endpoint))
            reached = replace(CONFIG.store, endpoint=f"http://{self.store_link.address}")
            lease = LeaseConfig(ttl_ms=S3_TTL_MS)
            self.config = replace(self.config, store=reached, lease=lease)
        self.is_well = False
        self.start()

    def start(self) -> None:
        """Begin a life."""
        self.process = process.Node(self.store, main=partial(serve, self.config))
        self.process.wait_serves()
        self.is_well = True

    def close(self) -> None:
        """End it, and its links."""
        self.is_well = False
        self.process.close()
        self.link.close()
        self.store_link.close()


@dataclass
class Journal:
    """What was acknowledged, and who works on what."""

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.value = 0
        self.acknowledged: dict[Key, int] = defaultdict(lambda: -1)
        self.tried: dict[Key, set[int]] = defaultdict(set)
        self.hands: dict[Key, dict[str, Any]] = defaultdict(dict)
        self.count = 0
        self.broken: list[str] = []

    def take(self, key: Key, member_id: str, stop: Any) -> None:
        """Note that a member begins to work: no other one may be at it by its own clock."""
        with self.lock:
            for other, its in self.hands[key].items():
                if other != member_id and not its.is_set():
                    self.broken.append(f"{key} is worked on by {other} and {member_id}")
            self.hands[key][member_id] = stop

    def leave(self, key: Key, member_id: str) -> None:
        """Note that a member has ended its work."""
        with self.lock:
            del self.hands[key][member_id]

    def next(self, key: Key) -> int:
        """Return an offset that no one has committed."""
        with self.lock:
            self.value += 1
            self.tried[key].add(self.value)
            return self.value

    def acknowledge(self, key: Key, value: int) -> None:
        """Note that a commit was acknowledged."""
        with self.lock:
            self.count += 1
            self.acknowledged[key] = max(value, self.acknowledged[key])
            self.tried[key] = {one for one in self.tried[key] if one > value}

    def check(self, key: Key, found: int, floor: int) -> None:
        """See that an answer has all that was acknowledged before it was asked for."""
        if found < floor:
            self.broken.append(f"{key} has offset {found}, and {floor} was acknowledged")


class Crew:
    """Two members of each group, which commit what they count in their work."""

    def __init__(self, addresses: list[str], journal: Journal, every_s: float) -> None:
        self._journal, self._every_s = journal, every_s
        self._members = [
            Member(addresses, group_id=group_id, topics=[TOPIC]).open()
            for group_id in GROUPS
            for _ in range(2)
        ]
        self._threads = [
            threading.Thread(target=member.run, args=(partial(self._work, member),), daemon=True)
            for member in self._members
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, member: Member, partition: Any, stop: Any) -> None:
        key, journal = (member.group_id, partition.partition), self._journal
        journal.take(key, member.member_id, stop)
        while not stop.wait(self._every_s):
            value = journal.next(key)
            with suppress(GroupError):  # it may have been written all the same
                member.commit({(TOPIC, partition.partition): value}, timeout=ANSWER_S)
                journal.acknowledge(key, value)
        journal.leave(key, member.member_id)

    def close(self) -> None:
        """Leave, all of them."""
        for member in self._members:
            member.leave()
        for thread in self._threads:
            thread.join()


def broken_up(
    store: Path | str,
    seed: int,
    times: int,
    endpoint: int | None = None,
    more_s: float = MORE_S,
) -> Outcome:
    """Have nodes fail in turns, each in some way, and see that their groups go on elsewhere.

    Parameters
    ----------
    endpoint
        The port of the server that has the store, where that is in S3.
    more_s
        For how much longer than a lease a group may have no coordinator, beside what `COMMITS`
        commits take at a coordinator that nothing befalls.
    """
    ttl_s = (TTL_MS if endpoint is None else S3_TTL_MS) / 1000
    every_s = COMMIT_S if endpoint is None else S3_COMMIT_S
    chance, journal, made = random.Random(seed), Journal(), Counter[str]()
    longest_s: dict[str, float] = defaultdict(float)
    make_shards(str(store), SHARDS, CONFIG)
    faults = ["kill", "stop", "cut off clients", *(["cut off the store"] if endpoint else [])]
    with ExitStack() as opened:
        hosts = [
            opened.enter_context(closing(Host(str(store), number, endpoint)))
            for number in range(1, NODES + 1)
        ]
        beside = opened.enter_context(closing(Bystander(store)))
        floor = journal.acknowledged.__getitem__
        prober = opened.enter_context(
            closing(Prober(hosts, GROUPS, TOPIC, PARTITIONS, floor, journal.check))
        )
        opened.enter_context(closing(Crew([host.link.address for host in hosts], journal, every_s)))
        prober.wait_for_all()
        for number in range(times):
            fault, host = faults[number % len(faults)], _choose(hosts, number, chance)
            made[fault] += 1
            prober.gaps.start_over()
            beside.start_over()
            seen: list[str] = []
            _break(host, fault, prober, chance, seen, ttl_s)
            silent_s = max(prober.gaps.longest_s.values())
            noise_s = COMMITS * beside.mean_s
            longest_s[fault] = max(longest_s[fault], silent_s)
            for one in hosts:
                one.process.hear()
            show(
                f"{fault} of {host.name}: {silent_s:.1f} s without a coordinator; a commit beside "
                f"them took {1000 * beside.mean_s:.0f} ms"
            )
            if journal.broken:
                raise Broken("; ".join(journal.broken[:5]))
            if silent_s > ttl_s:
                heard = {one.name: one.process.said for one in hosts}
                show("\n" + tell_timeline(store, float(seen[0].split()[0]), heard, seen))
            if silent_s > ttl_s + more_s + noise_s:
                raise Broken(f"{fault}: no coordinator of a group for {silent_s:.1f} s")
    _check_end(store, journal)
    words = ", ".join(f"{made[one]} x {one}: at most {s:.1f} s" for one, s in longest_s.items())
    return Outcome(
        times,
        f"{journal.count:,} commits acknowledged, none lost; no partition in two hands; without a "
        f"coordinator, where the lease lives {ttl_s:.0f} s: {words}",
    )


def _choose(hosts: Sequence[Host], number: int, chance: random.Random) -> Host:
    """Return which node fails: each second time the one that has the root."""
    holder = Lease(root_at(hosts[0].store), "", "", CONFIG.lease, wall_ms).holder()
    of_root = [one for one in hosts if holder is not None and one.link.address == holder.address]
    return of_root[0] if of_root and number % 2 else chance.choice(hosts)


def _break(
    host: Host, fault: str, prober: Prober, chance: random.Random, seen: list[str], ttl_s: float
) -> None:
    """Let a node fail until its groups are answered by others, and then come back."""

    def note(what: str) -> None:
        seen.append(f"{time.monotonic():.3f} {what}")

    time.sleep(chance.uniform(0.5, 1.5))
    note(f"{fault} of {host.name}")
    if fault == "cut off clients":  # it is well, and has its groups for those that reach it
        host.link.whole.clear()
        time.sleep(chance.uniform(0.5, 1.5) * ttl_s)
        host.link.whole.set()
    elif fault == "cut off the store":
        host.store_link.whole.clear()
        time.sleep(2 * ttl_s)
        prober.wait_for_all()
        host.store_link.whole.set()
    elif fault == "stop":
        host.process.stop()
        host.is_well = False
        prober.wait_for_all()
        host.process.wake()
        host.is_well = True  # whatever it answers from now on must not be stale
    else:
        host.process.kill()
        host.is_well = False
        prober.wait_for_all()
        note("all groups are answered")
        host.start()
    note("all is well again")
    time.sleep(ttl_s)  # until who came back has its share: the bound is one of a single fault
    prober.wait_for_all()


def _check_end(store: Path | str, journal: Journal) -> None:
    """See in the logs what was acknowledged, and that each partition had one owner at a time."""
    for path in [root_at(str(store)), *(shard_at(str(store), n) for n in range(SHARDS))]:
        Shadow(path).follow()
    found = {
        (row["group_id"], row["partition"]): row["offset"]
        for row in frame(str(store), "offsets").to_pylist()
    }
    for key, value in journal.acknowledged.items():
        if found.get(key) != value and found.get(key) not in journal.tried[key]:
            raise Broken(f"{key} has offset {found.get(key)}, acknowledged is {value}")
