"""A world of several nodes that share a store of shards, and of members of groups in them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from coordinator.config import Config, EngineConfig, LeaseConfig, LogConfig
from coordinator.config.kafka import kafka_config
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryRecords
from coordinator.storage.shards import Shards, root_at, shard_at
from tests.sim.chance import Chance
from tests.sim.clock import Schedule
from tests.sim.story import Story
from tests.sim.world import Ears, settings_of
from tests.support.traces.event_history import EventHistory

from .actions import Actions
from .checkers import Checkers, LogChecker
from .client import ShardMember
from .ending import Ending
from .host import Host
from .machine import Machine, Process
from .network import Finder, Network
from .seams import on_machine
from .store import ROOT, NodeFiles, NodeLog, Way

LOGGERS = ("muster.coordinator", "muster.shards", "muster.wire")
TOPICS = {"a1": 4, "b1": 3}
PLANNED = ("happens", "commits offsets")
"""What occurs where nothing breaks."""
QUIET_MS = 3
"""For how many leases one process alone must have been disturbed, for the shorter bound."""


class NoStore:
    """What `simulate` takes for the store of a world: the logs are the world's own."""

    def __init__(self, _chance: Chance) -> None:
        """There is nothing to open."""

    def close(self) -> None:
        """There is nothing to remove."""


class ShardWorld:
    """One simulation of one seed.

    Attributes
    ----------
    is_planned
        Whether nothing breaks: nodes come, go and are drained as their operators plan it.
    only_links
        Whether nodes do nothing but be cut off each other now and then.
    records
        The logs of the shards and of the root, by their paths.
    requests
        Those that are under way, by the ids of their events.
    disturbed_at
        When something happened last that may leave a shard without a coordinator.
    """

    store_kind: ClassVar[Callable[[Chance], Any] | None] = NoStore
    root = ROOT

    def __init__(self, chance: Chance, store: NoStore) -> None:
        self.chance, self.store = chance, store
        self.schedule = Schedule()
        self.machine = Machine(self.schedule, chance)
        self.events: list[str] = []
        self.bugs: list[str] = []
        self.is_planned = chance.likely(0.25, "planned")
        self.only_links = not self.is_planned and chance.likely(0.1, "only links are cut")
        if self.is_planned or self.only_links:
            chance.only(PLANNED)
        self.shards = Shards(chance.pick((4, 4, 8, 16), "shards"))
        self.config = config_of(chance)
        self.story = Story({})
        self.story.cannot_tell("nodes and shards")
        self.history = EventHistory(self.config, self.schedule.now)
        self.topics = DictCatalog(TOPICS)
        self.members: list[ShardMember] = []
        self.groups = [f"g{n}" for n in range(chance.between(2, 6, "groups"))]
        self.records: defaultdict[str, MemoryRecords] = defaultdict(MemoryRecords)
        self.claims: dict[str, tuple[int, Host]] = {}
        """When each log was claimed last, and by whom."""
        self.left_behind: set[str] = set()
        """Logs that no one had claimed by the end of a node, which waits for so long and no longer:
        plans changed faster than their shards were loaded."""
        self.small_files: dict[str, tuple[bytes, str]] = {}
        self.swaps = 0
        self._ids = 0
        self._poll_s = chance.pick((0.0, 0.0, 2.0), "poll")
        self.read_ms = chance.pick((0, 300, 2_000), "how long logs are")
        self.way = Way(self)
        self.requests: dict[int, Any] = {}
        self.network = Network(self)
        self._checkers: dict[str, LogChecker] = {}
        self.checker = Checkers(self)
        self._disturbances: list[tuple[int, str]] = []
        self.disturbed_at = 0
        self.hosts: list[Host] = []
        self.hosts_by_address: dict[str, Host] = {}
        for _ in range(chance.pick((3, 3, 4, 5), "nodes")):
            self.add_host()
        self.machine.when_dead = lambda process, why: self.host_of(process).die(why)
        self.actions = Actions(self)

    def run(self) -> None:
        """Let things happen and break; then let faults stop, and see that all comes to rest.

        Raises
        ------
        Violation
            Something that must never be.
        """
        ears = NodeEars(self)  # type: ignore[arg-type] # it has bugs
        loggers = [logging.getLogger(name) for name in LOGGERS]
        loud = [one.propagate for one in loggers]
        for one in loggers:
            one.addHandler(ears)
            one.propagate = False
        try:
            with on_machine(self):
                try:
                    self.actions.begin()
                    self.schedule.after(0, self.checker.watch)
                    self.schedule.run(self.chance.between(15_000, 50_000, "duration"))
                    self.chance.calm = True
                    Ending(self).come_to_rest()
                finally:
                    self.machine.errors.clear()
                    for host in self.hosts:
                        if host.process is not None:
                            self.machine.kill(host.process)
        finally:
            for one, was in zip(loggers, loud, strict=True):
                one.removeHandler(ears)
                one.propagate = was

    def tell(self, what: str) -> None:
        """Note what happened."""
        self.events.append(f"{self.schedule.now:7} {what}")

    def bound(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        """Return what makes something of the product in this world."""
        return partial(kind, self)

    def next_id(self) -> int:
        """Return a number that was not given before."""
        self._ids += 1
        return int(self.chance.draw("id", self._ids) * 2**48) << 80 | self._ids

    # The store -----------------------------------------------------------------------------------

    def open_log(self, path: str, _config: LogConfig) -> NodeLog:
        """Return a log as the process that is at work sees it."""
        return NodeLog(self.way, path, self.records[path])

    def files(self) -> NodeFiles:
        """Return the small files."""
        return NodeFiles(self.way, self.small_files, self._poll_s)

    def path_of(self, shard: int) -> str:
        """Return where a shard is."""
        return shard_at(self.root, shard)

    def checker_of(self, path: str) -> LogChecker:
        """Return who looks at a log."""
        if path not in self._checkers:
            is_root = path == root_at(self.root)
            shard = None if is_root else int(path.rpartition("/")[2])
            self._checkers[path] = LogChecker(self, path, shard)
        return self._checkers[path]

    def checker_of_group(self, group_id: str) -> LogChecker:
        """Return who looks at the log of a group."""
        return self.checker_of(self.path_of(self.shards.shard_of(group_id)))

    def all_checkers(self) -> list[LogChecker]:
        """Return all of them."""
        return list(self._checkers.values())

    # Nodes ---------------------------------------------------------------------------------------

    def add_host(self) -> Host:
        """Add a place where a node may run."""
        host = Host(self, len(self.hosts) + 1)
        self.hosts.append(host)
        self.hosts_by_address[host.address] = host
        return host

    def host_of(self, process: Process) -> Host:
        """Return where a process runs."""
        return next(host for host in self.hosts if host.process is process)

    def any_host(self, *key: object) -> Host:
        """Return a node that a client knows, which may be gone."""
        found = [host for host in self.hosts if host.front is not None] or self.hosts
        return self.chance.pick(found, "any", *key)

    def coordinator(self, _member: object = None) -> Finder:
        """Return how a client finds whom to ask."""
        return Finder(self)

    def disturbed(self, name: str) -> None:
        """Note that something befell a node that may leave shards without a coordinator."""
        self.disturbed_at = self.schedule.now
        self._disturbances.append((self.schedule.now, name))

    def bound_ms(self) -> int:
        """Return for how long a shard may have no coordinator, by what was disturbed lately."""
        ttl = self.config.lease.ttl_ms
        since = self.schedule.now - QUIET_MS * ttl
        lately = {name for at, name in self._disturbances if at > since}
        return ttl + 2_000 if len(lately) <= 1 else 2 * ttl + 4_000

    def ended(self, host: Host) -> None:
        """A process ended: mostly it is started again."""
        wait = self.chance.between(100, 8_000, "restart", host.name, host.life)
        self.schedule.after(wait, self._restart, host, host.life)

    def _restart(self, host: Host, life: int) -> None:
        if host.life == life and host.process is None:
            host.start()


class NodeEars(Ears):
    """As `Ears`; what a process says while it is killed is heard by no one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note a report of a process that is alive."""
        process = self._world.machine.process
        if process is None or process.alive:
            super().emit(record)


def config_of(chance: Chance) -> Config:
    """Return the settings of all nodes."""
    ttl = chance.pick((3_000, 6_000, 10_000), "ttl")
    props = settings_of(chance) | {
        "group.consumer.max.size": 1_000,
        "offsets.retention.minutes": 10_000,
    }
    config = Config(kafka=kafka_config(props))
    check = chance.pick((100, 300, 500), "check")
    return replace(
        config,
        lease=LeaseConfig(ttl_ms=ttl, renew_ms=ttl // 5, check_ms=check),
        engine=EngineConfig(step_rows_max=chance.pick((4, 2_000_000, 2_000_000), "rows")),
        log=replace(config.log, maintenance_ms=20_000, linger_ms=0),
        topics=replace(config.topics, poll_ms=20_000),
        plans=replace(config.plans, poll_ms=20_000),
        weights=replace(
            config.weights,
            poll_ms=chance.pick((2_000, 10_000), "weights"),
            half_life_ms=chance.pick((0, 10_000), "half life"),
            interval_ms=chance.pick((0, 5_000, 300_000), "weights interval"),
        ),
    )
