"""A classic group: its members, their waiting requests, and the progress of its rebalance.

Only the group's record outlives the coordinator, as in Kafka: the members of the last generation
that was assigned. Waiting requests, issued member ids and a running rebalance are lost with the
process; members learn it by an error, and join again.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from copy import copy
from enum import StrEnum
from typing import TypeVar

import msgspec

from coordinator.core.classic_events import CONSUMER, Protocol
from coordinator.core.reasons import SEPARATOR, Reason
from coordinator.core.state.draft_dict import DraftDict, first_of
from coordinator.core.state.partition_spans import Spans
from coordinator.errors import ErrorCode, GroupError

MEMBER_BYTES, PROTOCOL_BYTES = 500, 100
"""What they take up beside their names and bytes, with dicts and timers."""
K = TypeVar("K")
V = TypeVar("V")


class ClassicState(StrEnum):
    """States of a classic group."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


CLASSIC_MOVES: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.PREPARING: frozenset(
        {ClassicState.COMPLETING, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}
"""The transitions between states that a group may make."""


class ClassicMember(msgspec.Struct, frozen=True, gc=False):
    """One member.

    Attributes
    ----------
    protocols
        In the member's order of preference. A member read from the log only has the group's choice.
    assignment
        Its assignment in the last generation; cleared when a generation is cancelled.
    last_assignment
        The same, but never cleared. If the coordinator assigns, it starts from this.
    assigned
        The partitions of a consumer's last assignment, for the history.
    is_new
        Whether it waits for its first generation.
    parked_join, parked_sync
        The number of its waiting request.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    last_assignment: bytes = b""
    assigned: Spans = ()
    is_new: bool = False
    parked_join: int | None = None
    parked_sync: int | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        for name, found in self.protocols:
            if name == protocol:
                return found
        return b""


class InitialDelay(msgspec.Struct, frozen=True):
    """How long a group's first generation waits for more members (KIP-134)."""

    delay_ms: int
    left_ms: int
    """The part of the rebalance timeout that is left for another delay, in ms."""


class ClassicGroup(msgspec.Struct, eq=False):
    """A classic group.

    Attributes
    ----------
    members
        In the order in which they joined. A new leader is the first of them.
    pending_joins
        Ids that were issued and have not joined yet.
    pending_syncs
        Members of this generation that have not sent a SyncGroup.
    subscribed
        The topics of the members of this generation; None if unknown.
    delay
        The delay of the first generation; None if it does not wait.
    newcomer
        Whether a member joined since the delay began.
    assignor, moved
        The coordinator's assignor that computed the assignment, and how many owned partitions it
        moved; "" if the leader computed it.
    reason, cause
        Why the generation began, or the next one will, and the member that caused it, if one did.
    """

    group_id: str
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state: ClassicState = ClassicState.EMPTY
    previous: ClassicState = ClassicState.DEAD
    state_since_ms: int = 0
    members: MutableMapping[str, ClassicMember] = msgspec.field(default_factory=dict)
    instances: MutableMapping[str, str] = msgspec.field(default_factory=dict)
    pending_joins: MutableMapping[str, None] = msgspec.field(default_factory=dict)
    pending_syncs: MutableMapping[str, None] = msgspec.field(default_factory=dict)
    subscribed: frozenset[str] | None = None
    delay: InitialDelay | None = None
    newcomer: bool = False
    assignor: str = ""
    moved: int = 0
    reason: str = ""
    cause: str | None = None
    parked_joins: int = 0
    """How many joins are waiting."""
    supported: MutableMapping[str, int] = msgspec.field(default_factory=dict)
    """How many members support each protocol."""
    preferences: MutableMapping[tuple[str, ...], int] = msgspec.field(default_factory=dict)
    """How many members have each list of protocols, in order of preference."""
    rebalance_timeouts: MutableMapping[int, int] = msgspec.field(default_factory=dict)
    """How many members have each rebalance timeout, in ms."""

    size_bytes: int = 0
    """About how much memory its members, and the ids that it handed out, take up."""

    def draft(self) -> ClassicGroup:
        """Return a draft for a step to change. This group does not change until it is applied."""
        found = copy(self)
        found.members = _draft(self.members)
        found.instances = _draft(self.instances)
        found.pending_joins = _draft(self.pending_joins)
        found.pending_syncs = _draft(self.pending_syncs)
        found.supported = _draft(self.supported)
        found.preferences = _draft(self.preferences)
        found.rebalance_timeouts = _draft(self.rebalance_timeouts)
        return found

    def apply_draft(self) -> None:
        """Apply the draft's changes. The original group must not be used afterwards."""
        self.members = _apply(self.members)
        self.instances = _apply(self.instances)
        self.pending_joins = _apply(self.pending_joins)
        self.pending_syncs = _apply(self.pending_syncs)
        self.supported = _apply(self.supported)
        self.preferences = _apply(self.preferences)
        self.rebalance_timeouts = _apply(self.rebalance_timeouts)

    # What it is ----------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members, in ms."""
        return max(self.rebalance_timeouts, default=0)

    def have_all_joined(self) -> bool:
        """Whether every member has joined, and so has every id that was issued."""
        return len(self.members) <= self.parked_joins and not self.pending_joins

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether all members support one of these protocols."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        members = len(self.members)
        return any(self.supported.get(name, 0) == members for name, _ in protocols)

    def is_subscribed(self, topic: str) -> bool:
        """Whether offsets of a topic may be in use: the group subscribes, or it is unknown."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    def is_running(self) -> bool:
        """Whether it has members, or a join is pending."""
        return self.state not in {ClassicState.EMPTY, ClassicState.DEAD}

    def find_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that a request speaks for (H-13).

        Raises
        ------
        GroupError
            UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID: the instance id belongs to another member id.
        """
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                message = f"Instance id {instance_id} is unknown in group {self.group_id}."
                raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, message)
            if holder != member_id:
                message = f"Instance id {instance_id} belongs to {holder}, not to {member_id}."
                raise GroupError(ErrorCode.FENCED_INSTANCE_ID, message)
        member = self.members.get(member_id)
        if member is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise GroupError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return member

    def check_generation(self, generation: int) -> None:
        """Refuse another generation than the running one.

        Raises
        ------
        GroupError
            ILLEGAL_GENERATION.
        """
        if generation != self.generation:
            raise GroupError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The request says generation {generation}, group {self.group_id} is at "
                f"{self.generation}: rejoin.",
            )

    # Changes, of a draft -------------------------------------------------------------------------

    def note_reason(self, reason: Reason, cause: str | None) -> None:
        """Note why a generation begins; one that was never assigned leaves its reasons to it."""
        if self.state in {ClassicState.STABLE, ClassicState.EMPTY} or not self.reason:
            self.reason, self.cause = reason, cause
            return
        if reason not in self.reason.split(SEPARATOR):
            self.reason = f"{self.reason}{SEPARATOR}{reason}"
        self.cause = cause if cause == self.cause else None

    def move(self, state: ClassicState, now_ms: int) -> None:
        """Change to another state."""
        assert state in CLASSIC_MOVES[self.state], f"{self.state} may not become {state}"
        self.previous, self.state, self.state_since_ms = self.state, state, now_ms

    def put(self, member: ClassicMember) -> None:
        """Add a member, or change it in place."""
        self._count(self.members.get(member.member_id), member)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._forget_id(member.member_id)

    def put_all(self, members: Sequence[ClassicMember]) -> None:
        """Change all members in place, at once.

        Only what they are assigned, and what waits, may be others than before: nothing else that is
        counted of members may change.
        """
        assert len(members) == len(self.members), "not all members"
        self.members.update({member.member_id: member for member in members})
        self.parked_joins = sum([member.parked_join is not None for member in members])

    def expect(self, member_id: str) -> None:
        """Hand an id out, with which a member is to join."""
        self.pending_joins[member_id] = None
        self.size_bytes += size_of(member_id)

    def _forget_id(self, member_id: str) -> None:
        if member_id in self.pending_joins:
            del self.pending_joins[member_id]
            self.size_bytes -= size_of(member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or an issued id. If it was the leader, the first member becomes leader.

        A static member's instance id is removed too, unless another member has it by now.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, None)
            if self.instances.get(member.instance_id or "") == member_id:
                del self.instances[member.instance_id or ""]
        if self.leader == member_id:
            self.leader = first_of(self.members)
        self._forget_id(member_id)
        self.pending_syncs.pop(member_id, None)

    def replace(self, old_id: str, member: ClassicMember) -> None:
        """Replace a static member by its next incarnation, which becomes the last in order.

        An id in `pending_syncs` is not renamed: as in Kafka, the group rebalances when the time for
        its SyncGroup is over.
        """
        self._count(self.members.pop(old_id), None)
        if self.leader == old_id:
            self.leader = member.member_id
        self.put(member)

    def _count(self, old: ClassicMember | None, new: ClassicMember | None) -> None:
        """Update the counts for a changed member."""
        for member, more in ((old, -1), (new, 1)):
            if member is not None and member.parked_join is not None:
                self.parked_joins += more
        if (
            old is not None
            and new is not None
            and old.protocols is new.protocols
            and old.rebalance_timeout_ms == new.rebalance_timeout_ms
        ):
            return
        for member, more in ((old, -1), (new, 1)):
            if member is None:
                continue
            self.size_bytes += more * size_of(member.member_id, member.client_id, member.protocols)
            names = tuple(name for name, _ in member.protocols)
            _add(self.preferences, names, more)
            _add(self.rebalance_timeouts, member.rebalance_timeout_ms, more)
            for name in names:
                _add(self.supported, name, more)


def size_of(member_id: str, client_id: str = "", protocols: Iterable[Protocol] = ()) -> int:
    """Return about how many bytes a member takes up, or an id that was handed out."""
    size = sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)
    return MEMBER_BYTES + len(member_id) + len(client_id) + size


def _draft(found: MutableMapping[K, V]) -> DraftDict[K, V]:
    assert isinstance(found, dict), "a draft of a draft"
    return DraftDict(found)


def _apply(found: MutableMapping[K, V]) -> MutableMapping[K, V]:
    return found.apply() if isinstance(found, DraftDict) else found


def _add(counts: MutableMapping[K, int], key: K, more: int) -> None:
    count = counts.get(key, 0) + more
    if count:
        counts[key] = count
    else:
        del counts[key]
