"""One simulation: its settings, coordinators, members and topics, and how it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, Protocol

from assignors.option_values import LONG_RANGES
from coordinator.config import Config, EngineConfig, LeaseConfig, PlanConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import Answer, ConfigureGroup, Event
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import Batch, LogError, RecordLog
from tests.support.traces.event_history import EventHistory

from .actions import Actions
from .chance import Chance
from .checkers import Checker
from .client import Member
from .clock import Schedule
from .ending import Ending
from .network import Network, Request
from .node import Node
from .story import Story
from .troubles import Troubles

BEATS = ("300", "2000")
MANY_COMMITS = 4
"""How many a coordinator makes while a claim of another one sleeps."""


class Store(Protocol):
    """Where the logs of all coordinators of a simulation are."""

    def open(self, node: Node) -> RecordLog:
        """Return the log of a coordinator that starts."""

    def batches(self, after: int) -> Iterable[Batch]:
        """Return what is durable after a position."""

    def power_fails(self) -> None:
        """Lose what is not durable."""

    def plain(self, text: str) -> str:
        """Return a text without what differs from run to run."""

    def close(self) -> None:
        """Remove what is left."""


class World:
    """One simulation of one seed.

    Attributes
    ----------
    store_kind
        What its store is; None to choose by the seed.
    """

    store_kind: ClassVar[Callable[[Chance], Store] | None] = None

    def __init__(self, chance: Chance, store: Store) -> None:
        self.chance = chance
        self.store = store
        self.schedule = Schedule()
        self.events: list[str] = []
        """What happened, for people."""
        self.bugs: list[str] = []
        """Bugs of ours that coordinators reported."""
        props = settings_of(chance)
        self.story = Story(props)
        self.config = Config(
            kafka=kafka_config(props),
            plan=PlanConfig(long_ranges=chance.pick((0, 0, LONG_RANGES), "long")),
            lease=replace(LeaseConfig(), check_ms=chance.pick((100, 300, 500), "check")),
            engine=EngineConfig(
                step_rows_max=chance.pick((4, 2_000_000, 2_000_000), "rows"),
                timeout_ms=chance.pick((3_000, 15_000), "engine"),
            ),
        )
        self.history = EventHistory(self.config, self.schedule.now)
        self.topics = DictCatalog()
        self.members: list[Member] = []
        self.groups = [f"g{n + 1}" for n in range(chance.pick((1, 1, 2), "groups"))]
        self.network = Network(self)
        self.checker = Checker(self)
        count = chance.pick((1, 2, 2, 3), "coordinators")
        self.nodes = [Node(self, f"c{number + 1}") for number in range(count)]
        self.troubles = Troubles(self)
        self.actions = Actions(self)

    def run(self) -> None:
        """Let things happen and break; then let faults stop, and see that all comes to rest.

        Raises
        ------
        Violation
            Something that must never be.
        """
        ears = Ears(self)
        logger = logging.getLogger("muster.coordinator")
        logger.addHandler(ears)
        loud, logger.propagate = logger.propagate, False
        try:
            self.nodes[0].start()
            self.actions.begin()
            self.schedule.run(self.chance.between(20_000, 70_000, "duration"))
            self.chance.calm = True
            self.come_to_rest()
        finally:
            logger.removeHandler(ears)
            logger.propagate = loud

    def come_to_rest(self) -> None:
        """See that everything comes to rest once nothing breaks."""
        Ending(self).come_to_rest()

    def tell(self, what: str) -> None:
        """Note what happened."""
        self.events.append(f"{self.schedule.now:7} {self.store.plain(what)}")

    # Coordinators --------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """Return the coordinator that has the log, if it is up."""
        self.checker.follow()
        for node in self.nodes:
            newest = self.checker.newest
            if node.serves and node.processor is not None and node.processor.log.epoch == newest:
                return node
        return None

    def coordinator(self, member: Member | None = None) -> Node:
        """Return whom a member asks: the coordinator, or one that it takes for it."""
        wrong = member is not None and self.chance.happens(
            "asks the wrong coordinator", *member.name, member.number
        )
        if wrong:
            return self.chance.pick(self.nodes, "wrong", *member.name, member.number)
        return self.leader() or self.nodes[0]

    def take_over(self, besides: Node | None = None) -> None:
        """Let another coordinator claim the log; the old one may not know it for a while."""
        free = [node for node in self.nodes if node is not besides and not node.busy]
        if free:
            self.chance.pick(free, "takes over", self.schedule.now).start()

    def writes(self, besides: Node, turn: int = 0) -> None:
        """Let the coordinator write something at this very moment, while another one claims."""
        leader = self.leader()
        if leader is not None and leader is not besides and not leader.busy:
            beats = BEATS[:: self.chance.pick((1, -1), "beat")]
            interval = {"consumer.heartbeat.interval.ms": beats[turn % 2]}
            number = (besides.name, besides.life, turn)
            leader.decide(ConfigureGroup(self.groups[0], interval), *number)

    def goes_on(self, besides: Node) -> None:
        """Let the coordinator write and clean up for a while, while another one claims."""
        for turn in range(MANY_COMMITS):
            self.writes(besides, turn)
            self.maintain(besides)

    def maintain(self, besides: Node) -> None:
        """Let all others do their maintenance, also one that does not know yet that it is fenced."""
        for node in self.nodes:
            if node is not besides:
                self.troubles.maintains(node)

    def power_fails(self) -> None:
        """End all coordinators at once, wherever they are; the disk loses what was not synced."""
        self.tell("the power fails")
        for node in self.nodes:
            if node.processor is not None or node.starting:
                node.die("the power failed")
        self.store.power_fails()

    def died(self, node: Node) -> None:
        """A process ended: it is started again, as long as no other has taken over."""
        wait = self.chance.between(100, 8_000, "restart", node.name, node.life)
        self.schedule.after(wait, self._restart, node, node.life)

    def _restart(self, node: Node, life: int) -> None:
        if life != node.life:
            return
        if self.leader() is None:
            node.start()
        else:
            self.schedule.after(5_000, self._restart, node, life)

    def ask(
        self,
        event: Event,
        *name: object,
        reply: Callable[[Answer, Node], None] | None = None,
        node: Node | None = None,
    ) -> None:
        """Send a request that is no member's, to the coordinator or another node."""
        request = Request(name, event, reply or _ignore)
        self.network.send(request, node or self.leader() or self.nodes[0])


class Ears(logging.Handler):
    """Hears what coordinators report of bugs of ours."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note a report that comes with an exception other than those that are simulated."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, LogError | OSError):
            self._world.bugs.append(f"{record.getMessage()}: {error!r}")


def settings_of(chance: Chance) -> dict[str, object]:
    """Return the coordinators' settings under Kafka's names."""
    session = chance.pick((6_000, 10_000, 15_000), "session")
    assignors = ("uniform", "range", "sticky")
    first = chance.pick(assignors, "assignor")
    return {
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.consumer.max.session.timeout.ms": 30_000,
        "group.consumer.session.timeout.ms": session,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.max.heartbeat.interval.ms": 2_000,
        "group.consumer.max.assignment.interval.ms": 3_000,
        "group.consumer.heartbeat.interval.ms": chance.pick((500, 1_000, 2_000), "heartbeat"),
        "group.consumer.assignment.interval.ms": chance.pick((0, 0, 300, 1_000, 3_000), "interval"),
        "group.consumer.assignors": ",".join([first, *(a for a in assignors if a != first)]),
        "group.consumer.regex.refresh.interval.ms": chance.pick((10_000, 600_000), "refresh"),
        "group.consumer.max.size": chance.pick((4, 1_000, 1_000, 1_000), "size"),
        "offsets.retention.minutes": chance.pick((1, 10_000), "retention"),
        "offsets.retention.check.interval.ms": chance.pick((5_000, 600_000), "expiry"),
    }


def _ignore(_answer: Answer, _node: Node) -> None:
    """Wait for nothing."""
