"""Members of classic groups that come, go, are slow, and restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.actions import Actions
from tests.sim.happenings import Kind
from tests.sim.surroundings import TOPICS

from .member import ClassicMember

if TYPE_CHECKING:
    from .world import ClassicWorld

MEMBERS_MAX = 7
SESSION_MS, REBALANCE_MS = (6_000, 10_000), (3_000, 8_000, 15_000)
VERSIONS = (3, 5, 9)
"""Of JoinGroup: without an id, with one that is handed out, with skipped assignments."""


class ClassicCrowd:
    """All that the processes of members do beside their protocol."""

    def __init__(self, world: ClassicWorld) -> None:
        self._world = world
        self._chance = world.chance
        self._static = world.chance.pick((0.0, 0.3, 1.0), "static members")

    def joins(self, *key: object) -> None:
        """Let a new member join."""
        chance, count = self._chance, self._world.count_members() + 1
        if len(self._living()) >= MEMBERS_MAX:
            return
        static = chance.likely(self._static, "static", *key)
        group_id = chance.pick(self._world.groups, "group", *key)
        topics = tuple(chance.some(TOPICS, "subscribes", *key))
        self._begin(group_id, f"s{count}" if static else None, topics, *key)

    def _begin(
        self, group_id: str, instance_id: str | None, topics: tuple[str, ...], *key: object
    ) -> None:
        chance = self._chance
        member = ClassicMember(
            self._world,
            group_id,
            f"m{self._world.count_members() + 1}",
            instance_id,
            # Before 9 a leader that restarts does not know that it leads, and watches no topics.
            version=9 if instance_id else chance.pick(VERSIONS, "version", *key),
            topics=topics,
            session_ms=chance.pick(SESSION_MS, "session", *key),
            # One for all: who waits less for its join than others may take would never be in.
            rebalance_ms=chance.pick(REBALANCE_MS, "rebalance"),
        )
        self._world.members.append(member)
        member.tell(f"starts, {instance_id or 'dynamic'}, {member.topics}")
        member.join()

    def leaves(self, *key: object) -> None:
        """Close a member."""
        for member in self._one(*key):
            member.leave()

    def dies(self, *key: object) -> None:
        """Kill a member."""
        for member in self._one(*key):
            member.die()

    def is_slow(self, *key: object) -> None:
        """Stop a member, before its join or after it, for less than its session or for more."""
        for member in self._one(*key):
            member.pause()
            self._world.schedule.after(self._chance.a_while(*key), member.resume)

    def restarts(self, *key: object) -> None:
        """Start a static member again; mostly the process before it is dead."""
        for member in self._one(*key):
            if member.instance_id is None:
                continue
            if self._chance.likely(0.7, "dies first", *key):
                member.die()
            # Members learn of other topics only at the next rebalance, as in Kafka.
            self._begin(member.group_id, member.instance_id, member.topics, *key)

    def _living(self) -> list[ClassicMember]:
        return [one for one in self._world.members if not one.gone]

    def _one(self, *key: object) -> list[ClassicMember]:
        living = self._living()
        return [self._chance.pick(living, "member", *key)] if living else []


class ClassicActions(Actions):
    """What happens to the world while faults last."""

    _world: ClassicWorld
    _crowd_of = ClassicCrowd

    def _list_kinds(self) -> list[Kind]:
        self._members = crowd = self._crowd_of(self._world)
        around, troubles = self._around, self._troubles
        return [
            ("a member joins", 3.0, crowd.joins),
            ("a member leaves", 1.0, crowd.leaves),
            ("a member dies", 1.0, crowd.dies),
            ("a member is slow", 2.0, crowd.is_slow),
            ("a member restarts", 1.0, crowd.restarts),
            ("a topic comes or grows", 1.0, around.topic_comes),
            ("a coordinator takes over", 1.0, troubles.takes_over),
            ("a coordinator dies", 1.0, troubles.dies),
            ("a coordinator stops", 1.0, troubles.stops),
            ("a clock jumps", 0.4, troubles.clock_jumps),
            ("a snapshot is written", 0.7, troubles.snapshot),
            ("a coordinator keeps house", 1.0, troubles.keeps_house),
            ("the power fails", 0.3, troubles.power_fails),
        ]

    def begin(self) -> None:
        """Make topics and members, then let things happen."""
        for number in range(self._chance.between(1, 4, "topics")):
            self._around.topic_comes("first", number)
        for number in range(self._chance.between(1, 5, "members")):
            self._members.joins("first", number)
        self._happenings.begin()
