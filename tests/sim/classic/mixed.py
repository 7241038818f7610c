"""Groups whose members speak either protocol, and change from one to the other while they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.core.events import Answer, OffsetCommit, OffsetFetch
from coordinator.core.state.groups import Group
from coordinator.errors import GroupError
from coordinator.member.events import Action, AssignPartitions
from tests.sim.chance import Chance
from tests.sim.client import Member, Partition, by_topic
from tests.sim.network import Request
from tests.sim.node import Node
from tests.sim.world import Store

from .crowd import REBALANCE_MS, ClassicActions, ClassicCrowd
from .member import ClassicMember
from .mixed_checkers import MixedChecker
from .world import ClassicWorld, classic_settings_of

if TYPE_CHECKING:
    from coordinator.core.state.groups import State

POLICIES = ("bidirectional", "bidirectional", "upgrade")
CLOSE_MS = 20_000
"""So long a process may take to close."""
CONSUMERS = (0.1, 0.3, 0.6)
"""How many of those that come speak the consumer protocol."""


class Consumer(Member):
    """A member by the consumer protocol that reads from where the last owner committed."""

    world: MixedWorld

    def __init__(self, world: MixedWorld, *words: object, **named: object) -> None:
        super().__init__(world, *words, **named)
        self._positions: dict[Partition, int] = {}
        self._asked = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """What it subscribes to."""
        return self.names

    @property
    def generation(self) -> int:
        """Its epoch, as members of classic groups call it."""
        return self.epoch

    @property
    def has(self) -> set[tuple[str, int]]:
        """What it owns, by the names of topics."""
        return {(key.name, partition) for key, partition in self.owned}

    def leave(self, *, for_a_while: bool = False) -> None:
        """Leave for good, or for a while; a process whose application holds it up is killed."""
        super().leave(for_a_while=for_a_while)
        self.world.schedule.after(CLOSE_MS, self._kill)

    def _kill(self) -> None:
        if not self.gone:
            self.die()

    def _perform(self, action: Action) -> None:
        super()._perform(action)
        if isinstance(action, AssignPartitions):
            self._fetch({(key, p) for key, low, end in action.partitions for p in range(low, end)})

    def _fetch(self, new: set[Partition]) -> None:
        for one in new:
            self._positions.pop(one, None)
        node, life = self._node, self._node.life
        epoch = self.epoch

        def fetched(answer: Answer, answered_by: Node) -> None:
            same = answered_by is node and node.life == life and self.epoch == epoch
            if answer is None or isinstance(answer, GroupError) or not same or self.gone:
                return
            for key, partition in new & self.owned:
                found = answer.response.get(key.name, {}).get(partition)
                self._positions[key, partition] = 0 if found is None else found.offset

        self._ask(OffsetFetch(self.group_id, by_topic(new)), fetched)

    def _commit_offsets(self, *_name: object) -> None:
        """Commit a little further than last time."""
        further = {one: at + 1 for one, at in self._positions.items() if one in self.owned}
        mark = f"{self.epoch} {self.member_id}"
        offsets: dict[str, dict[int, tuple[int, str]]] = {}
        for (key, partition), offset in sorted(further.items()):
            offsets.setdefault(key.name, {})[partition] = (offset, mark)
        epoch = self.epoch

        def committed(answer: Answer, _node: Node) -> None:
            if answer is None or isinstance(answer, GroupError) or self.epoch != epoch:
                return
            for one in further.keys() & self._positions.keys():
                self._positions[one] = max(self._positions[one], further[one])

        if offsets:
            self._ask(OffsetCommit(self.group_id, self.member_id, epoch, offsets), committed)

    def _ask(self, event: OffsetCommit | OffsetFetch, reply) -> None:
        self._asked += 1
        name = (self.group_id, self.member_id, type(event).__name__, self._asked)
        self.world.network.send(Request(name, event, reply), self._node)


class MixedCrowd(ClassicCrowd):
    """Members that come with either protocol; static ones come back with the other, too."""

    _world: MixedWorld

    def __init__(self, world: MixedWorld) -> None:
        super().__init__(world)
        self._share = world.chance.pick(CONSUMERS, "consumers")

    def restarts(self, *key: object) -> None:
        """Start a static member again, when the process before it is dead."""
        for member in self._one(*key):
            if member.instance_id is not None:
                member.die()
                self._begin(member.group_id, member.instance_id, member.topics, *key)

    def _begin(
        self, group_id: str, instance_id: str | None, topics: tuple[str, ...], *key: object
    ) -> None:
        chance, world = self._chance, self._world
        if not chance.likely(self._share, "a consumer", *key):
            super()._begin(group_id, instance_id, topics, *key)
            return
        count = world.count_members()
        consumer = Consumer(
            world,
            group_id,
            f"m{count + 1}",
            instance_id,
            names=topics,
            regex="",
            rebalance_timeout_ms=chance.pick(REBALANCE_MS, "rebalance", *key),
            wish=None,
            first_number=1_000 * count,
        )
        world.consumers.append(consumer)
        world.tell(f"{group_id}/m{count + 1}: begins as a consumer ({instance_id}, {topics})")
        consumer.begin()

    def _living(self) -> list[ClassicMember | Consumer]:
        return [one for one in self._world.processes() if not one.gone]


class MixedActions(ClassicActions):
    """What happens to the world while faults last."""

    _crowd_of = MixedCrowd


class MixedWorld(ClassicWorld):
    """One simulation of one seed.

    Attributes
    ----------
    consumers
        Members by the consumer protocol; `members` are those of the classic one.
    """

    checker: MixedChecker
    _checker_of = MixedChecker
    _actions_of = MixedActions

    def __init__(self, chance: Chance, store: Store) -> None:
        self.consumers: list[Consumer] = []
        super().__init__(chance, store)

    def _settings_of(self, chance: Chance) -> dict[str, object]:
        return classic_settings_of(chance) | {
            "group.consumer.migration.policy": chance.pick(POLICIES, "policy"),
            "group.consumer.max.size": 1_000,
        }

    def processes(self) -> list[ClassicMember | Consumer]:
        """Return all members, those that are gone too."""
        return [*self.members, *self.consumers]

    def _unrest(self) -> Iterator[str]:
        leader = self.leader()
        if leader is None or leader.processor is None:
            yield "no member leads"
            return
        state = leader.processor.state
        for group_id in self.groups:
            live = [m for m in self.processes() if m.group_id == group_id and not m.gone]
            yield from (f"{group_id}: {what}" for what in self._of_either(state, group_id, live))

    def _of_either(
        self, state: State, group_id: str, live: list[ClassicMember | Consumer]
    ) -> Iterator[str]:
        group = state.groups.get(group_id)
        consumers = [one for one in live if isinstance(one, Consumer)]
        if group is None and not consumers:
            yield from self._of_group(state.classic.get(group_id), live)
        elif group is None:
            yield "it is a classic group, and there are consumers"
        else:
            both = self.config.kafka.migration_policy == "bidirectional"
            if both and live and not consumers:
                yield "it is a consumer group, and there are no consumers"
            yield from self._of_consumer_group(group, live)

    def _of_consumer_group(
        self, group: Group, live: list[ClassicMember | Consumer]
    ) -> Iterator[str]:
        inside = [one for one in live if one.member_id in group.members]
        if {one.member_id for one in inside} != set(group.members):
            yield f"members are left over: {sorted(group.members)}"
        for member in live:
            if member not in inside:
                yield f"{member.member_id or member.name} is outside"
        for member in inside:
            if not member.settled or member.generation != group.epoch:
                yield f"{member.member_id} is not settled at {member.generation} of {group.epoch}"
        topics = self.topics.topics()
        wanted = {
            (name, partition)
            for member in inside
            for name in member.topics
            if name in topics
            for partition in range(topics[name].partitions)
        }
        owned = [
            one
            for member in inside
            for one in (member.has if isinstance(member, Consumer) else member.owned)
        ]
        if len(owned) != len(wanted) or set(owned) != wanted:
            yield f"owned are {len(owned)} partitions, there are {len(wanted)}"
