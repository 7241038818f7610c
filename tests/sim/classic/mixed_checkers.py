"""What must hold of groups that change from one protocol to the other, and of mixed ones.

- In the log no partition has two owners, whichever protocol they speak.
- A group that changes its protocol keeps what it was assigned: what a classic group's members had
  is what they have in the consumer group, and its targets are what they have in the classic group.
- What a classic member is answered in a generation is what the log had of it then.
- No offset goes back but by the member that committed it: no member commits for another's partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coordinator.core.classic_events import SyncGroup, SyncGroupResponse
from coordinator.core.events import Answer, OffsetCommit, Result
from coordinator.core.state.embedded import read_assignment
from coordinator.core.state.partition_spans import Span
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    MembersAdvanced,
    OffsetCommitted,
    Record,
    Tombstone,
)
from coordinator.errors import ErrorCode
from coordinator.runtime.responses import HeartbeatAnswer
from tests.sim.checkers import differences
from tests.sim.client import Member, Partition
from tests.sim.network import Request
from tests.sim.node import Node
from tests.support.fingerprint import fingerprint

from .checkers import ClassicChecker

if TYPE_CHECKING:
    from .member import ClassicMember

Names = frozenset[tuple[str, int]]
"""Partitions by the names of their topics."""
NOTHING: Names = frozenset()


class MixedChecker(ClassicChecker):
    """As `ClassicChecker`, for groups whose members speak either protocol."""

    def __init__(self, world) -> None:
        super().__init__(world)
        self.upgrades = self.downgrades = 0
        """How many groups with members changed their protocol."""
        self._ever: dict[tuple[str, str, int], set[Names]] = {}
        """What the log had of a member in a generation or at an epoch."""
        self._targets: dict[str, dict[str, Names]] = {}
        """Of each consumer group, and of the last one under a name."""
        self._classic: dict[str, dict[str, Names]] = {}
        """What the members of each classic group had, as it was written last."""
        self._begun: dict[str, dict[str, Names]] = {}
        """The same of a classic group that became a consumer group: who has not been looked at."""

    # The log -------------------------------------------------------------------------------------

    def _assignment_is_the_leaders(self, record: ClassicGroupWritten) -> None:
        """A generation is written as its leader assigned it, or as the targets were."""
        group_id, generation = record.group_id, record.generation
        before = self.state.classic.get(group_id)
        if before is not None and generation < before.generation:
            self.fail(f"{group_id}: generation {generation} follows {before.generation}")
        shares = {one.member_id: names_in(one.assignment) for one in record.members}
        self._classic[group_id] = shares
        owned = [one for share in shares.values() for one in share]
        if len(set(owned)) != len(owned):
            self.fail(f"{group_id}: generation {generation} gives a partition twice")
        if not shares:
            return
        for member_id, share in shares.items():
            self._ever.setdefault((group_id, member_id, generation), set()).add(share)
        raw = {one.member_id: one.assignment for one in record.members}
        sent = self._sent.get((group_id, generation), [])
        by_leader = raw in [{one: found.get(one, b"") for one in raw} for found in sent]
        was = self._classic_shares(group_id) if before is not None else []
        rewritten = before is not None and set(shares.values()) <= {*was, NOTHING}
        targets = self._targets.get(group_id, {})
        converted = before is None and all(
            share == self._existing(targets.get(one, NOTHING)) for one, share in shares.items()
        )
        self.generations += by_leader
        self.downgrades += converted and not by_leader
        if not (by_leader or rewritten or converted):
            self.fail(f"{group_id}: no member assigned generation {generation} so: {shares}")

    def _classic_shares(self, group_id: str) -> list[Names]:
        members = self.state.classic[group_id].members.values()
        return [names_in(one.assignment) for one in members]

    def _epochs_rise(self, record: Record) -> None:
        group_id = getattr(record, "group_id", "")
        if isinstance(record, Tombstone) and record.of == ClassicGroupWritten.kind:
            self._begun[group_id] = self._classic.pop(group_id, {})
            self.upgrades += bool(self._begun[group_id])
        super()._epochs_rise(record)

    def _tell_session(self, record: Record) -> None:
        """Note what a record made of a consumer group: it is replayed by now."""
        group = self.state.groups.get(getattr(record, "group_id", ""))
        if group is None or isinstance(record, Tombstone):
            return
        self._targets[group.group_id] = {
            member_id: names_of(group.targets.get(member_id, ())) for member_id in group.members
        }
        changed: Iterable[str] = ()
        if isinstance(record, CurrentMember):
            changed = (record.member_id,)
            self._keeps(record)
        elif isinstance(record, MembersAdvanced):
            changed = record.member_ids
        for member_id in changed:
            member = group.members[member_id]
            key = (group.group_id, member_id, member.epoch)
            self._ever.setdefault(key, set()).add(names_of(member.current.assigned))

    def _keeps(self, record: CurrentMember) -> None:
        """A classic member begins in a consumer group with what it had, or has given it up."""
        had = self._begun.get(record.group_id, {}).pop(record.member_id, None)
        if had is None:
            return
        has = names_of(record.assigned)
        if has not in {self._existing(had), NOTHING}:
            self.fail(f"{record.group_id}/{record.member_id} had {had}, upgraded it has {has}")

    def _existing(self, names: Names) -> Names:
        topics = self.state.topics
        return frozenset(one for one in names if one[0] in topics)

    def _offset_rises(self, record: OffsetCommitted) -> None:
        """What another member committed is not undone; its own may be overtaken."""
        key = (record.group_id, record.topic, record.partition)
        mark, _, name = record.metadata.partition(" ")
        was = self._committed.get(key)
        self.commits += 1
        if was is not None and record.offset < was[2] and name != was[1]:
            self.fail(f"{key}: offset {record.offset} of {record.metadata} follows {was}")
        self._committed[key] = (int(mark), name, record.offset)

    def same(self, node: Node) -> None:
        """Consumer groups too are what the log says."""
        super().same(node)
        assert node.processor is not None
        mine, logged = fingerprint(node.processor.state), fingerprint(self.state)
        for groups in (mine["groups"], logged["groups"]):
            for group in groups.values():  # type: ignore[attr-defined]
                group["computation"] = None
        if mine["groups"] != logged["groups"]:
            where = "; ".join(differences(mine["groups"], logged["groups"]))
            self.fail(f"the memory of {node.name} is not what the log says: {where}")

    # Answers and members -------------------------------------------------------------------------

    def answered(self, node: Node, request: Request, answer: Answer) -> None:
        """An answer is about to leave, be it one that waited."""
        if not isinstance(answer, Result):
            return
        found = answer.response
        if isinstance(found, SyncGroupResponse) and found.error_code is ErrorCode.NONE:
            self._still_ours(node)
            event = request.event
            assert isinstance(event, SyncGroup)
            share = names_in(found.assignment)
            logged = self._ever.get((event.group_id, event.member_id, event.generation), set())
            if share not in logged:
                self.fail(f"{event} is assigned {set(share)}, the log has {logged}")
        if isinstance(request.event, OffsetCommit):
            self._still_ours(node)

    def owns(self, member: ClassicMember, partitions: set[tuple[str, int]]) -> None:
        """A classic member got its share: `answered` has looked at it."""

    def begins(self, member: Member, partitions: set[Partition]) -> None:
        """A consumer begins to use partitions; a classic member does not know when it is out."""

    def confirmed(self, member: Member, answer: HeartbeatAnswer) -> None:
        """A member that is out of its group for a while may come back to one that started over."""


def names_in(raw: bytes) -> Names:
    """Return the partitions in the bytes of an assignment."""
    found = read_assignment(raw).partitions if raw else {}
    return frozenset((topic, p) for topic, numbers in found.items() for p in numbers)


def names_of(spans: Iterable[Span]) -> Names:
    """Return the partitions of spans of either kind."""
    return frozenset((span[0].name, p) for span in spans for p in range(span[1], span[2]))
