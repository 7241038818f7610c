"""One simulation of classic groups, and how it comes to rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coordinator.config.kafka import kafka_config
from coordinator.core.events import Event
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from tests.sim.chance import Chance
from tests.sim.world import Store, World, settings_of

from .checkers import ClassicChecker
from .crowd import ClassicActions
from .member import ClassicMember
from .node import ClassicNode

STEP_MS, RESTS = 1_000, 3
REST_MS = 180_000
"""In this time all come to rest: phantoms of lost joins expire, and a few rounds are needed."""


class ClassicWorld(World):
    """One simulation of one seed."""

    checker: ClassicChecker
    members: list[ClassicMember]
    _checker_of = ClassicChecker
    _actions_of = ClassicActions

    def __init__(self, chance: Chance, store: Store) -> None:
        super().__init__(chance, store)
        self.config = replace(self.config, kafka=kafka_config(self._settings_of(chance)))
        self.checker = self._checker_of(self)
        self.nodes = [ClassicNode(self, node.name) for node in self.nodes]
        self.actions = self._actions_of(self)
        self.story.cannot_tell("classic groups")

    def processes(self) -> list[ClassicMember]:
        """Return all members, those that are gone too."""
        return self.members

    def count_members(self) -> int:
        """Return how many members there have been."""
        return len(self.processes())

    def _settings_of(self, chance: Chance) -> dict[str, object]:
        return classic_settings_of(chance)

    def dies_in(self, phase: str, *name: object) -> bool:
        """Whether a coordinator dies at this point."""
        return self.chance.happens("dies in a phase", phase, *name)

    def pause_ms(self, member: ClassicMember, when: str, event: Event, number: int) -> int:
        """Return for how long a member stops before it sends something, or after it; 0: not."""
        name = (when, type(event).__name__, member.name, number)
        happens = self.chance.happens("slow around a request", *name)
        return self.chance.a_while(*name) if happens else 0

    def has_successor(self, member: ClassicMember) -> bool:
        """Whether another living process has this one's instance id."""
        return any(
            other.instance_id == member.instance_id and not other.gone and other is not member
            for other in self.processes()
        )

    def come_to_rest(self) -> None:
        """See that every group is Stable, with exactly the live members."""
        self.tell("faults stop")
        for process in (*self.nodes, *self.processes()):
            process.resume()
        end, rests = self.schedule.now + REST_MS, 0
        while rests < RESTS:
            if self.leader() is None:
                self.take_over()
            self.schedule.run(self.schedule.now + STEP_MS)
            self.checker.follow()
            unrest = list(self._unrest())
            rests = 0 if unrest else rests + 1
            if unrest and self.schedule.now > end:
                self.checker.fail(f"no rest: {'; '.join(unrest)}")
        leader = self.leader()
        if leader is not None:
            self.checker.same(leader)

    def _unrest(self) -> Iterator[str]:
        leader = self.leader()
        if leader is None or leader.processor is None:
            yield "no member leads"
            return
        for group_id in self.groups:
            live = [one for one in self.members if one.group_id == group_id and not one.gone]
            group = leader.processor.state.classic.get(group_id)
            yield from (f"{group_id}: {what}" for what in self._of_group(group, live))

    def _of_group(self, group: ClassicGroup | None, live: list[ClassicMember]) -> Iterator[str]:
        if group is None or not live:
            if live or (group is not None and group.members):
                yield "members and their group do not agree"
            return
        # Of two living processes with one instance id the later has it, or they take turns.
        inside = [one for one in live if one.member_id in group.members]
        if group.state is not ClassicState.STABLE:
            yield f"it is {group.state}"
        if {one.member_id for one in inside} != set(group.members):
            yield f"members are left over: {sorted(group.members)}"
        for member in live:
            twin = member.instance_id is not None and self.has_successor(member)
            if member not in inside and not twin:
                yield f"{member.name} is outside"
        for member in inside:
            if not member.settled or member.generation != group.generation:
                yield f"{member.name} is not settled"
        topics = self.topics.topics()
        wanted = {
            (name, partition)
            for member in inside
            for name in member.topics
            if name in topics
            for partition in range(topics[name].partitions)
        }
        owned = [one for member in inside for one in member.owned]
        if len(owned) != len(wanted) or set(owned) != wanted:
            yield f"owned are {len(owned)} partitions, there are {len(wanted)}"


def classic_settings_of(chance: Chance) -> dict[str, object]:
    """Return the coordinators' settings under Kafka's names."""
    return settings_of(chance) | {
        "group.initial.rebalance.delay.ms": chance.pick((0, 500, 3_000), "initial delay"),
        "offsets.retention.check.interval.ms": 86_400_000,  # an Empty group keeps its generation
    }
