"""Members of several groups, and the journal of all answers to them.

Each member has one request under way at most. What is acknowledged is what came out of the pipe;
what was asked and not answered may have happened or not.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from coordinator.errors import ErrorCode

from .node import SMALL, code_of
from .process import Node

Key: TypeAlias = tuple[str, int]
"""A topic and a partition."""

JOIN, LEAVE = 0, -1
START_OVER = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
TRY_AGAIN = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
LEAVES, COMMITS = 0.03, 0.25
PAUSE_S = 0.02
"""At most, between an answer and the next request."""


class Broken(AssertionError):  # noqa: N818 - a promise is
    """Something that must never be."""


@dataclass
class Member:
    """One member; `epoch` and `owned` are those of the last answer."""

    group_id: str
    name: str
    life: int = 1
    epoch: int = JOIN
    owned: frozenset[Key] = frozenset()
    reported: frozenset[Key] | None = None
    """What the coordinator knows that it owns; None to say everything."""
    leaving: bool = False
    asked: tuple[int, str, Any] | None = None
    """The number of the request under way, its kind and content."""
    unsure: bool = False
    """Whether a request was lost since the last answer."""
    due: float = 0.0

    @property
    def member_id(self) -> str:
        """A member that left comes back as another one."""
        return f"{self.name}-{self.life}"


@dataclass
class Offsets:
    """What is acknowledged of a partition's offset, and what was tried since."""

    acknowledged: int = -1
    tried: set[int] = field(default_factory=set)


class Crowd:
    """All members, and what they know.

    Parameters
    ----------
    groups
        How many members each group has.
    """

    def __init__(self, groups: dict[str, int], chance: random.Random) -> None:
        self.groups = groups
        self.members = [Member(g, f"{g}-m{n}") for g, count in groups.items() for n in range(count)]
        self.offsets: dict[tuple[str, Key], Offsets] = defaultdict(Offsets)
        self.epochs: dict[str, tuple[int, int]] = dict.fromkeys(groups, (0, 0))
        self.acknowledged = 0
        self.refused = 0
        self._chance = chance
        self._value = 0

    # Asking --------------------------------------------------------------------------------------

    def live(self, node: Node, seconds: float) -> None:
        """Let all members live with a coordinator for a while."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end and not node.ended:
            for member in self.members:
                if member.asked is None and member.due <= now:
                    self._ask(node, member)
            node.hear(0.002)
            self.take(node)

    def _ask(self, node: Node, member: Member) -> None:
        chance = self._chance.random()
        if member.epoch > JOIN and chance < LEAVES:
            member.leaving, member.owned = True, frozenset()
        if member.leaving:
            self._beat(node, member, LEAVE)
        elif member.owned and chance > 1 - COMMITS:
            self._commit(node, member)
        else:
            self._beat(node, member, member.epoch)

    def _beat(self, node: Node, member: Member, epoch: int) -> None:
        fields: dict[str, Any] = {}
        if epoch != LEAVE and member.reported != member.owned:
            fields["topic_partitions"] = by_topic(member.owned)
        if epoch != LEAVE and member.reported is None:
            # A full request gets a full answer.
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": sorted(SMALL)}
        number = node.send(
            "consumer_group_heartbeat",
            group_id=member.group_id,
            member_id=member.member_id,
            member_epoch=epoch,
            **fields,
        )
        member.asked = (number, "leave" if epoch == LEAVE else "beat", member.owned)

    def _commit(self, node: Node, member: Member) -> None:
        self._value += 1
        count = self._chance.randint(1, len(member.owned))
        some = frozenset(self._chance.sample(sorted(member.owned), count))
        for key in some:
            self.offsets[member.group_id, key].tried.add(self._value)
        number = node.send(
            "offset_commit",
            group_id=member.group_id,
            member_id=member.member_id,
            member_epoch=member.epoch,
            topics={t: dict.fromkeys(ps, self._value) for t, ps in by_topic(some).items()},
        )
        member.asked = (number, "commit", (self._value, some))

    # Answers -------------------------------------------------------------------------------------

    def take(self, node: Node) -> None:
        """Take all answers that are there."""
        for member in self.members:
            if member.asked is not None and member.asked[0] in node.answers:
                number, kind, what = member.asked
                member.asked = None
                member.due = time.monotonic() + self._chance.uniform(0, PAUSE_S)
                answer = node.answers.pop(number)
                if kind == "commit":
                    self._committed(member, answer, what)
                else:
                    self._beaten(member, answer, kind, what)

    def lose(self) -> None:
        """The coordinator is gone, and with it what was under way."""
        for member in self.members:
            if member.asked is not None:
                member.asked, member.unsure = None, True
                member.reported = None

    def _committed(self, member: Member, answer: Any, what: tuple[int, Iterable[Key]]) -> None:
        code = code_of(answer)
        if code in TRY_AGAIN:
            member.unsure, member.reported = True, None
            self.refused += 1
            return
        if code is not ErrorCode.NONE:
            raise Broken(f"{member.member_id} may not commit what it owns: {answer}")
        value, keys = what
        for key in keys:
            offsets = self.offsets[member.group_id, key]
            offsets.acknowledged, offsets.tried = value, set()
        self.acknowledged += 1

    def _beaten(self, member: Member, answer: Any, kind: str, owned: frozenset[Key]) -> None:
        code = code_of(answer)
        if code in TRY_AGAIN:
            member.unsure, member.reported = True, None
            self.refused += 1
        elif kind == "leave" and code in {ErrorCode.NONE, *START_OVER}:
            if code is not ErrorCode.NONE and not member.unsure:
                raise Broken(f"{member.member_id} is no longer there: {answer}")
            member.life += 1
            member.epoch, member.reported, member.leaving = JOIN, None, False
            member.unsure = False
            self.acknowledged += 1
        elif code is ErrorCode.FENCED_MEMBER_EPOCH and member.unsure:
            member.owned, member.epoch, member.reported = frozenset(), JOIN, None
        elif code is not ErrorCode.NONE:
            raise Broken(f"{member.member_id} at epoch {member.epoch} is refused: {answer}")
        else:
            self._accepted(member, answer, owned)

    def _accepted(self, member: Member, answer: Any, owned: frozenset[Key]) -> None:
        if answer.member_epoch < member.epoch:
            raise Broken(f"{member.member_id} falls from epoch {member.epoch}: {answer}")
        member.epoch, member.reported, member.unsure = answer.member_epoch, owned, False
        if answer.assignment is not None:
            member.owned = keys_of(answer.assignment)
            self._alone(member)
        self.acknowledged += 1

    def _alone(self, member: Member) -> None:
        """Nobody else uses what a member was just given."""
        for other in self.members:
            both = other.owned & member.owned
            if both and other is not member and other.group_id == member.group_id:
                raise Broken(f"{sorted(both)} are {other.member_id}'s and {member.member_id}'s")

    # After a fault -------------------------------------------------------------------------------

    def check(self, node: Node) -> None:
        """Everything that was acknowledged is there, and nothing that was not asked for."""
        asked = {member.asked[0] for member in self.members if member.asked is not None}
        node.wait(lambda: asked <= node.answers.keys())
        self.take(node)
        described = node.ask("consumer_group_describe", group_ids=sorted(self.groups))
        for group in described:
            if any(m.group_id == group["group_id"] and m.epoch > JOIN for m in self.members):
                self._check_group(group)
        for group_id in self.groups:
            self._check_offsets(group_id, node.ask("offset_fetch", group_id=group_id))

    def _check_group(self, group: dict[str, Any]) -> None:
        group_id = group["group_id"]
        epochs = group["group_epoch"], group["assignment_epoch"]
        if epochs[0] < self.epochs[group_id][0] or epochs[1] < self.epochs[group_id][1]:
            raise Broken(f"{group_id} falls from epochs {self.epochs[group_id]} to {epochs}")
        self.epochs[group_id] = epochs
        there = {member["member_id"]: member for member in group["members"]}
        mine = {member.member_id: member for member in self.members if member.group_id == group_id}
        if strangers := there.keys() - mine.keys():
            raise Broken(f"{group_id} has {strangers}, who left or never came")
        for member_id, member in mine.items():
            if member.epoch > JOIN and not (member.leaving and member.unsure):
                self._check_member(member, there.get(member_id))
        held = [key for found in there.values() for key in assigned(found)]
        if len(held) != len(set(held)):
            raise Broken(f"{group_id} gives partitions twice: {there}")

    def _check_member(self, member: Member, found: dict[str, Any] | None) -> None:
        if found is None:
            raise Broken(f"{member.member_id} was answered epoch {member.epoch}, and is not there")
        epoch = found["member_epoch"]
        if epoch < member.epoch:
            raise Broken(f"{member.member_id} was answered epoch {member.epoch}, and is at {epoch}")
        if member.unsure:
            return
        has, reported = assigned(found), member.reported or frozenset()
        if epoch > member.epoch or not member.owned <= has <= member.owned | reported:
            raise Broken(f"{member.member_id} was answered {member}, and has {found}")

    def _check_offsets(self, group_id: str, answer: dict[str, Any]) -> None:
        there = {
            (topic, partition): found["committed_offset"]
            for topic, partitions in answer.get("topics", {}).items()
            for partition, found in partitions.items()
        }
        known = {key for group, key in self.offsets if group == group_id}
        for key in known | there.keys():
            offsets, found = self.offsets[group_id, key], there.get(key, -1)
            if found != offsets.acknowledged and found not in offsets.tried:
                raise Broken(f"{group_id} has offset {found} of {key}, acknowledged is {offsets}")
            offsets.acknowledged, offsets.tried = found, set()


def keys_of(assignment: dict[str, list[int]]) -> frozenset[Key]:
    """Return an assignment as a set."""
    return frozenset((topic, p) for topic, partitions in assignment.items() for p in partitions)


def assigned(described: dict[str, Any]) -> frozenset[Key]:
    """Return what a described member has, pending revocation included."""
    topics = described["assignment"]["topic_partitions"]
    return frozenset((t["topic_name"], p) for t in topics for p in t["partitions"])


def by_topic(keys: frozenset[Key]) -> dict[str, list[int]]:
    """Return a set as requests have it."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        found.setdefault(topic, []).append(partition)
    return found
