"""When faults stop, every group comes to rest in bounded time, as its assignor promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import re2

from coordinator.core.events import CatalogTopic
from coordinator.core.state.groups import Group, GroupState
from coordinator.core.state.partition_spans import TopicKey

from .balance import broken_promises
from .checkers import held
from .client import Member, by_topic
from .external import Computer

if TYPE_CHECKING:
    from .world import World

LATEST_MS = 20_000
"""When the last request or answer that was under way has arrived."""
REGEX_MS = 12_000
"""Regexes are not resolved again before that."""
STEP_MS = 1_000
RESTS = 3
"""How many looks in a row must find everything at rest."""


class Ending:
    """The time after the last fault."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._computer = Computer(world)

    def come_to_rest(self) -> None:
        """Let everybody go on until all groups are at rest.

        Raises
        ------
        Violation
            They are not, although there was time enough.
        """
        world = self._world
        world.tell("faults stop")
        for process in (*world.nodes, *world.members):
            process.resume()
        end = world.schedule.now + self._bound_ms()
        rests = 0
        while rests < RESTS:
            if world.leader() is None:
                world.take_over()
            for member in world.members:
                if member.untold:
                    member.connect_again()
            self._compute()
            world.schedule.run(world.schedule.now + STEP_MS)
            world.checker.follow()
            unrest = list(self._unrest())
            rests = 0 if unrest else rests + 1
            if world.schedule.now > end:
                world.checker.fail(f"no rest long after the last fault: {'; '.join(unrest)}")
        for node in world.nodes:
            if node is world.leader():
                world.checker.same(node)

    def _bound_ms(self) -> int:
        """Return when at the latest: one thing after another, and moves that are few at a time."""
        kafka = self._world.config.kafka
        partitions = sum(t.partitions for t in self._world.topics.topics().values())
        rebalance = max((m.rebalance_timeout_ms for m in self._world.members), default=0)
        round_ms = kafka.max_assignment_interval_ms + 4 * kafka.max_heartbeat_interval_ms
        bound = LATEST_MS + 2 * kafka.max_session_timeout_ms + 2 * rebalance + REGEX_MS
        return bound + 2 * self._world.config.engine.timeout_ms + (partitions + 4) * round_ms

    def _compute(self) -> None:
        """Let the external computer serve the groups that wait for it."""
        now = self._world.schedule.now
        for group_id in self._groups("external"):
            group = self._world.checker.state.groups.get(group_id)
            if group is not None and group.epoch > group.assignment_epoch:
                self._computer.compute(group_id, "calm", now)

    def _groups(self, engine: str) -> Iterator[str]:
        settings = self._world.checker.state.settings
        for group_id in self._world.groups:
            if settings.get(group_id, {}).get("consumer.assignor.engine") == engine:
                yield group_id

    # What is not at rest -------------------------------------------------------------------------

    def _unrest(self) -> Iterator[str]:
        for group_id in self._world.groups:
            live = [m for m in self._world.members if m.group_id == group_id and not m.gone]
            group = self._world.checker.state.groups.get(group_id)
            if group is None:
                yield from (f"{m.member_id} is in no group" for m in live)
            else:
                yield from (f"{group_id}: {what}" for what in self._of_group(group, live))

    def _of_group(self, group: Group, live: list[Member]) -> Iterator[str]:
        full = len(group.members) >= self._world.config.kafka.max_size
        inside = [member for member in live if member.member_id in group.members]
        wanted = GroupState.STABLE if inside else GroupState.EMPTY
        if group.state is not wanted or group.partial:
            yield f"it is {group.state}" + (" and not finished" if group.partial else "")
        if len(inside) < len(group.members):
            yield f"members are left over: {sorted(group.members)}"
        for member in live:
            # Of several processes with one instance id one is inside, and a full group is full.
            taken = member.instance_id in group.instances
            if member not in inside and not full and not taken:
                yield f"{member.member_id} is outside"
        for member in inside:
            current = group.members[member.member_id].current
            if not member.settled or member.owned != set(held(current.assigned, current.pending)):
                yield f"{member.member_id} does not have what it is assigned"
        if inside:
            yield from self._shares(group, inside)

    def _shares(self, group: Group, members: list[Member]) -> Iterator[str]:
        """Every partition of every subscribed topic is owned once; loads are as promised."""
        topics = self._world.topics.topics()
        subscribed = {m.member_id: sorted(_subscribed(m, topics)) for m in members}
        wanted = {
            (TopicKey(name, topics[name].topic_id), partition)
            for name in set().union(*subscribed.values())
            for partition in range(topics[name].partitions)
        }
        owned = [partition for m in members for partition in m.owned]
        if len(owned) != len(wanted) or set(owned) != wanted:
            yield f"owned are {len(owned)} partitions, there are {len(wanted)}"
            return
        if not wanted:
            return  # No target was needed, so none was made.
        for member in members:
            for key, _ in member.owned:
                if key.name not in subscribed[member.member_id]:
                    yield f"{member.member_id} owns {key.name}, to which it does not subscribe"
        spec = {
            "topics": {name: found.partitions for name, found in topics.items()},
            "members": {
                m.member_id: {"subscribed": subscribed[m.member_id], "instance_id": m.instance_id}
                for m in members
            },
        }
        shares = {m.member_id: by_topic(m.owned) for m in members if m.owned}
        yield from broken_promises(self._world.checker.made_by(group.group_id), spec, shares)


def _subscribed(member: Member, topics: Mapping[str, CatalogTopic]) -> set[str]:
    """Return the topics that exist of those that a member subscribes to."""
    pattern = re2.compile(member.regex) if member.regex else None
    return {
        name
        for name in topics
        if name in member.names or (pattern is not None and pattern.fullmatch(name))
    }
