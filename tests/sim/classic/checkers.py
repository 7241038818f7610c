"""What must hold of classic groups, whatever breaks.

- What members are assigned in a generation is what a leader of it has sent, as the log has it.
- No partition has two owners in one generation.
- Commits are of the generation that runs; what was answered is in the log, and no offset goes back.
- The memory of a coordinator agrees with the log on every group that is Stable.
- Every waiting member is known to the core and to what owes the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from coordinator.core.classic_events import SyncGroup, SyncGroupResponse
from coordinator.core.events import Answer, OffsetCommit, Result
from coordinator.core.state.classic_group import ClassicState
from coordinator.core.state.embedded import read_assignment
from coordinator.core.state.records import ClassicGroupWritten, OffsetCommitted, Record
from coordinator.errors import ErrorCode
from coordinator.errors.status import Status
from tests.sim.checkers import Checker, differences
from tests.sim.network import Request
from tests.sim.node import Node
from tests.support import invariants

if TYPE_CHECKING:
    from .member import ClassicMember
    from .world import ClassicWorld

Share = dict[str, bytes]


class ClassicChecker(Checker):
    """As `Checker`, for classic groups."""

    world: ClassicWorld

    def __init__(self, world: ClassicWorld) -> None:
        super().__init__(world)
        self.commits = 0
        """How many offsets were committed, to see that simulations do something."""
        self.generations = 0
        """How many generations were assigned."""
        self._sent: dict[tuple[str, int], list[Share]] = {}
        self._written: dict[tuple[str, int], Share] = {}
        self._owners: dict[tuple[str, int], dict[tuple[str, int], ClassicMember]] = {}
        self._committed: dict[tuple[str, str, int], tuple[int, str, int]] = {}

    # The log -------------------------------------------------------------------------------------

    def _epochs_rise(self, record: Record) -> None:
        super()._epochs_rise(record)
        if isinstance(record, ClassicGroupWritten):
            self._assignment_is_the_leaders(record)
        elif isinstance(record, OffsetCommitted):
            self._offset_rises(record)

    def _assignment_is_the_leaders(self, record: ClassicGroupWritten) -> None:
        """A generation is written as its leader assigned it; a static member may change its id."""
        group_id, generation = record.group_id, record.generation
        before = self.state.classic.get(group_id)
        if before is not None and generation < before.generation:
            self.fail(f"{group_id}: generation {generation} follows {before.generation}")
        if not record.members:
            return
        share = {one.member_id: one.assignment for one in record.members}
        old = self._written.get((group_id, generation))
        if old is None:
            self.generations += 1
            sent = self._sent.get((group_id, generation), [])
            given = [{one: found.get(one, b"") for one in share} for found in sent]
            if share not in given:
                self.fail(f"{group_id}: generation {generation} was not assigned by its leader")
        elif not set(share.values()) <= set(old.values()):
            self.fail(f"{group_id}: what generation {generation} was assigned has changed")
        # A static member's former id stays: its sync may have been decided in the same batch.
        self._written[group_id, generation] = (old or {}) | share
        owned = [
            (topic, partition)
            for raw in share.values()
            if raw
            for topic, found in read_assignment(raw).partitions.items()
            for partition in found
        ]
        if len(set(owned)) != len(owned):
            self.fail(f"{group_id}: generation {generation} gives a partition twice")

    def _offset_rises(self, record: OffsetCommitted) -> None:
        """Nobody commits behind what a later generation has committed, or its own."""
        key = (record.group_id, record.topic, record.partition)
        mark, _, name = record.metadata.partition(" ")
        generation = int(mark)
        was = self._committed.get(key)
        self.commits += 1
        if was is not None and generation < was[0]:
            self.fail(f"{key}: generation {generation} commits after {was}")
        same = was is not None and was[:2] == (generation, name)
        if was is not None and record.offset < was[2] and not same:  # its own may be overtaken
            self.fail(f"{key}: offset {record.offset} of {record.metadata} follows {was}")
        self._committed[key] = (generation, name, record.offset)

    def _tell_session(self, record: Record) -> None:
        """Nobody needs to know: members of classic groups have session timeouts of their own."""

    def same(self, node: Node) -> None:
        """What is Stable in memory is what the log says, and so are all offsets."""
        assert node.processor is not None
        state = node.processor.state
        invariants.check(state)
        mine = {
            group_id: (group.generation, group.leader, group.protocol, _shares(group))
            for group_id, group in state.classic.items()
            if group.state is ClassicState.STABLE
        }
        logged = {
            group_id: (group.generation, group.leader, group.protocol, _shares(group))
            for group_id, group in self.state.classic.items()
            if group_id in mine
        }
        for ours, theirs in ((mine, logged), (state.offsets, self.state.offsets)):
            if ours != theirs:
                where = "; ".join(differences(ours, theirs))
                self.fail(f"the memory of {node.name} is not what the log says: {where}")

    # Answers -------------------------------------------------------------------------------------

    def answered(self, node: Node, request: Request, answer: Answer) -> None:
        """An answer is about to leave, be it one that waited."""
        if not isinstance(answer, Result):
            return
        found = answer.response
        if isinstance(found, SyncGroupResponse) and found.error_code is ErrorCode.NONE:
            self._still_ours(node)
            assert isinstance(request.event, SyncGroup)
            key = (request.event.group_id, request.event.generation)
            written = self._written.get(key, {}).get(request.event.member_id)
            if written != found.assignment:
                self.fail(
                    f"{request.event.member_id} is assigned {found.assignment!r} in generation "
                    f"{key[1]}, the log has {written!r}"
                )
        if isinstance(request.event, OffsetCommit):
            self._still_ours(node)

    def waiting(self, node: Node, owed: Collection[int]) -> None:
        """Exactly the members that wait in the core are owed an answer."""
        processor = node.processor
        if processor is None or processor.status is not Status.ACTIVE:
            return
        parked: set[int] = set()
        for group in processor.state.classic.values():
            for member in group.members.values():
                parked |= {member.parked_join or 0, member.parked_sync or 0} - {0}
        if not parked == set(processor.parked.waiting) == set(owed):
            self.fail(f"{node.name}: {parked} wait, {set(owed)} are owed an answer")

    # Members -------------------------------------------------------------------------------------

    def assigns(
        self, member: ClassicMember, generation: int, member_id: str, share: Mapping[str, bytes]
    ) -> None:
        """A leader is about to send what it assigns."""
        assert member_id == member.member_id
        self._sent.setdefault((member.group_id, generation), []).append(dict(share))

    def owns(self, member: ClassicMember, partitions: set[tuple[str, int]]) -> None:
        """A member got its share: in this generation no other has any of it."""
        owners = self._owners.setdefault((member.group_id, member.generation), {})
        for one in partitions:
            other = owners.setdefault(one, member)
            successor = member.instance_id is not None and other.instance_id == member.instance_id
            if other is not member and not successor:
                self.fail(f"{one} is {other.name}'s and {member.name}'s in {member.generation}")


def _shares(group):
    return {one.member_id: one.assignment for one in group.members.values()}
