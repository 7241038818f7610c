"""Members that come, go, stop, and want something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .client import Member
from .surroundings import TOPICS

if TYPE_CHECKING:
    from .world import World

REGEXES = ("a.*", "b.*", ".*[12]", "a1|b2", "nothing")
REBALANCE_MS = (2_000, 5_000, 15_000)
MEMBERS_MAX = 9


class Crowd:
    """All that the processes of members do beside heartbeats."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._static = world.chance.pick((0.0, 0.5, 1.0), "static members")
        self._regexes = world.chance.pick((0.0, 0.3), "regexes")
        self._left: list[Member] = []
        """Members that left or died: others may come back for them."""

    def joins(self, *key: object) -> None:
        """Let a new member join."""
        chance, count = self._chance, len(self._world.members) + 1
        instance_id = f"s{count}" if chance.likely(self._static, "static", *key) else None
        wishes = (None, *chance.some(self._world.config.kafka.assignors, "wishes"))
        group_id = chance.pick(self._world.groups, "group", *key)
        names, regex = self._subscription(*key)
        rebalance_ms = chance.pick(REBALANCE_MS, "rebalance", *key)
        wish = chance.pick(wishes, "wish", *key)
        self._begin(group_id, f"m{count}", instance_id, names, regex, rebalance_ms, wish)

    def leaves(self, *key: object) -> None:
        """Let a member leave for good."""
        for member in self._one(*key):
            member.leave(for_a_while=False)
            self._left.append(member)

    def leaves_for_a_while(self, *key: object) -> None:
        """Let a static member leave, to come back."""
        for member in self._one(*key):
            if member.instance_id is not None:
                member.leave(for_a_while=True)
                self._left.append(member)

    def dies(self, *key: object) -> None:
        """Let a member die."""
        for member in self._one(*key):
            member.die()
            self._left.append(member)

    def comes_back(self, *key: object) -> None:
        """Start again what left: under its member id, or another one with its instance id."""
        if self._left:
            old = self._left.pop(self._chance.between(0, len(self._left) - 1, "who", *key))
            same = self._chance.likely(0.5, "same id", *key)
            self._again(old, old.member_id if same else self._new_id(), *key)

    def takes_instance_id(self, *key: object) -> None:
        """Start a second process with the instance id of one that runs, or has just died."""
        for member in self._one(*key):
            if member.instance_id is not None:
                if self._chance.likely(0.5, "dies first", *key):
                    member.die()
                self._again(member, self._new_id(), *key)

    def stops(self, *key: object) -> None:
        """Stop a member for a while, as by a signal."""
        for member in self._one(*key):
            member.pause()
            self._world.schedule.after(self._chance.a_while(*key), member.resume)

    def resubscribes(self, *key: object) -> None:
        """Let a member want something else."""
        for member in self._one(*key):
            member.resubscribe(*self._subscription(*key))

    def _new_id(self) -> str:
        return f"m{len(self._world.members) + 1}"

    def _live(self) -> list[Member]:
        return [member for member in self._world.members if not member.gone]

    def _one(self, *key: object) -> list[Member]:
        """Return one member that is at work, if there is one."""
        live = [member for member in self._live() if not member.paused]
        return [self._chance.pick(live, "who", *key)] if live else []

    def _subscription(self, *key: object) -> tuple[tuple[str, ...], str]:
        """Return topic names and a regex; often what the others have."""
        chance = self._chance
        if chance.likely(self._regexes, "has a regex", *key):
            names = chance.some(TOPICS, "names", *key) if chance.likely(0.3, "both", *key) else ()
            return tuple(names), chance.pick(REGEXES, "regex", *key)
        if chance.likely(0.5, "as others", *key):
            return TOPICS, ""
        return tuple(chance.some(TOPICS, "names", *key)), ""

    def _again(self, old: Member, member_id: str, *key: object) -> None:
        names, regex = old.names, old.regex
        if self._chance.likely(0.3, "another subscription", *key):
            names, regex = self._subscription("again", *key)
        self._begin(
            old.group_id,
            member_id,
            old.instance_id,
            names,
            regex,
            old.rebalance_timeout_ms,
            old.wish,
        )

    def _begin(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        names: tuple[str, ...],
        regex: str,
        rebalance_timeout_ms: int,
        wish: str | None,
    ) -> None:
        live = self._live()
        if len(live) >= MEMBERS_MAX or any(m.name == (group_id, member_id) for m in live):
            return
        member = Member(
            self._world,
            group_id,
            member_id,
            instance_id,
            names=names,
            regex=regex,
            rebalance_timeout_ms=rebalance_timeout_ms,
            wish=wish,
            first_number=1_000 * len(self._world.members),
        )
        self._world.members.append(member)
        self._world.tell(
            f"{group_id}/{member_id}: begins ({instance_id}, {names}, {regex!r}, {wish})"
        )
        member.begin()
