"""What must hold in every simulation, whatever breaks.

A second state, the shadow, is replayed from the log alone, record by record. It is compared with
the coordinators' memory, with what they answer, and with what members believe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.config.kafka import group_value
from coordinator.core.events import Answer, Heartbeat, Result
from coordinator.core.state.groups import Group, State
from coordinator.core.state.partition_spans import Holding
from coordinator.core.state.records import (
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    Record,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import Status
from coordinator.runtime.responses import HeartbeatAnswer
from coordinator.storage.record_log import Batch
from tests.support.fingerprint import fingerprint

from .client import Member, Partition

if TYPE_CHECKING:
    from .network import Request
    from .node import Node
    from .world import World

SOMETIMES = 0.15
"""How often memory and log are compared whole; always after a load and at the end."""


class Violation(AssertionError):
    """Something that must never be."""


class Checker:
    """Looks at everything that coordinators write and answer, and at what members use."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = State()
        """The shadow: what the log says."""
        self.excused = 0
        """How often the protocol itself lets two members believe that they own a partition."""
        self.position = 0
        """Of the last record that the shadow has."""
        self.newest = 0
        self._at_ms = 0
        """The coordinator epoch of the newest claim."""
        self._made_by: dict[str, tuple[str, dict[str, str]]] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        self._member_epochs: dict[tuple[str, str], int] = {}
        self._unacknowledged: dict[int, Counter[object]] = {}
        self._stale: list[tuple[Member, set[Partition], object]] = []
        self._before: dict[tuple[str, str], set[int]] = {}
        """The epochs that members might say before a coordinator decided."""
        self._lost_at: dict[str, int] = {}
        """When, in true time, each coordinator that is fenced lost the log."""
        self._compared = 0
        self._loaded: dict[str, State] = {}

    def fail(self, what: str) -> None:
        """Stop the simulation: something is broken."""
        raise Violation(self.world.store.plain(f"at {self.world.schedule.now} ms: {what}"))

    # The log -------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Replay what was committed since, and look at every record and every state."""
        for batch in self.world.store.batches(self.position):
            self._one_writer(batch)
            groups: set[str] = set()
            for record in batch.records:
                self._epochs_rise(record)
                try:
                    replay(self.state, record)
                except AssertionError as error:
                    self.fail(f"the log cannot be replayed: {error}")
                groups.add(getattr(record, "group_id", ""))
                self._tell_session(record)
            for group_id in groups & self.state.groups.keys():
                self._holds(self.state.groups[group_id])
            written = self._unacknowledged.setdefault(batch.epoch, Counter())
            written.update(flat(batch.records))

    def _one_writer(self, batch: Batch) -> None:
        if batch.epoch < self.newest:
            self.fail(
                f"coordinator epoch {batch.epoch} wrote position {batch.position} "
                f"after epoch {self.newest} had claimed the log"
            )
        if batch.epoch > self.newest:
            self.newest = batch.epoch
            for node in self.world.nodes:
                if node.processor is not None and 0 < node.processor.log.epoch < batch.epoch:
                    self._lost_at.setdefault(node.name, self.world.schedule.now)
        if batch.at_ms < self._at_ms:
            self.fail(f"position {batch.position} is of {batch.at_ms}, after {self._at_ms}")
        self._at_ms = batch.at_ms
        rows = len(batch.records) or 1
        if batch.position != self.position + rows:
            self.fail(f"position {batch.position} follows {self.position} with {rows} rows")
        self.position = batch.position

    def _epochs_rise(self, record: Record) -> None:
        """The three epochs never fall while a group, or a member, lives."""
        if isinstance(record, Tombstone):
            if record.of == GroupMetadata.kind:
                self._epochs.pop(record.group_id, None)
            elif record.of == MemberMetadata.kind:
                self._member_epochs.pop((record.group_id, record.member_id or ""), None)
        elif isinstance(record, GroupMetadata):
            self._rise(record.group_id, record.epoch, -1)
        elif isinstance(record, TargetMetadata):
            if record.assignor:
                settings = self.state.settings.get(record.group_id, {})
                self._made_by[record.group_id] = (record.assignor, dict(settings))
            self._rise(record.group_id, -1, record.assignment_epoch)
        elif isinstance(record, CurrentMember):
            self._member_rises(record.group_id, record.member_id, record.member_epoch)
        elif isinstance(record, MembersAdvanced):
            for member_id in record.member_ids:
                self._member_rises(record.group_id, member_id, record.member_epoch)

    def _rise(self, group_id: str, epoch: int, assignment_epoch: int) -> None:
        was = self._epochs.get(group_id, (0, 0))
        if -1 < epoch < was[0] or -1 < assignment_epoch < was[1]:
            self.fail(f"{group_id}: an epoch falls from {was} to {epoch}, {assignment_epoch}")
        self._epochs[group_id] = (max(epoch, was[0]), max(assignment_epoch, was[1]))

    def _member_rises(self, group_id: str, member_id: str, epoch: int) -> None:
        was = self._member_epochs.get((group_id, member_id), 0)
        if 0 <= epoch < was:
            self.fail(f"{group_id}/{member_id}: the member epoch falls from {was} to {epoch}")
        self._member_epochs[group_id, member_id] = max(epoch, was)

    def _holds(self, group: Group) -> None:
        """member <= assignment <= group epoch; no partition in assigned ∪ pending of two members."""
        if group.assignment_epoch > group.epoch:
            self.fail(f"{group.group_id}: the assignment epoch is ahead of the group epoch")
        holders: dict[Partition, str] = {}
        for member_id, member in group.members.items():
            if member.epoch > max(group.assignment_epoch, 0):
                self.fail(f"{group.group_id}/{member_id} is ahead of the assignment epoch")
            for partition in held(member.current.assigned, member.current.pending):
                if partition in holders:
                    self.fail(f"{partition} is held by {holders[partition]} and by {member_id}")
                holders[partition] = member_id

    def made_by(self, group_id: str) -> tuple[str, dict[str, str]]:
        """Return the assignor that made a group's target, and the group's settings then."""
        return self._made_by[group_id]

    def session_ms(self, group_id: str) -> int:
        """Return a group's session timeout as the log has it now."""
        settings = self.state.settings.get(group_id, {})
        return group_value(self.world.config.kafka, settings, "consumer.session.timeout.ms")

    def _tell_session(self, record: Record) -> None:
        of = record.of if isinstance(record, Tombstone) else record.kind
        if of == GroupConfigured.kind:
            group_id = record.group_id  # type: ignore[attr-defined]
            for member in self.world.members:
                if member.group_id == group_id:
                    member.session_is(self.session_ms(group_id))

    # Coordinators --------------------------------------------------------------------------------

    def asked(self, requests: Sequence[Request]) -> None:
        """Be called before a coordinator decides."""
        self.follow()
        self._unacknowledged.clear()
        self._stale = []
        self._before = {
            request.member.name: self._epochs_of(request.member)
            for request in requests
            if request.member is not None
        }
        for at, request in enumerate(requests):
            for member in self.world.members:
                if _is_stale(request, member, again=request in requests[:at]):
                    self._stale.append((member, self._held(member), self._known(member)))

    @contextmanager
    def within(self) -> Iterator[None]:
        """Let another coordinator decide while one does, whose answers are looked at later."""
        self.follow()
        kept = self._unacknowledged, self._before, self._stale
        self._unacknowledged = {}
        try:
            yield
        finally:
            self._unacknowledged, self._before, self._stale = kept

    def settled(self) -> None:
        """Be called when it has decided, even if it died of it."""
        self.follow()
        for member, before, known in self._stale:
            if self._known(member) != known:
                member.untold = member.number
            # By a request from the past, the coordinator believes that the member has let go.
            member.released |= (before - self._held(member)) & member.owned
        self._stale = []
        self._bugs()

    def _held(self, member: Member) -> set[Partition]:
        current = self._current(member)
        return set() if current is None else set(held(current.assigned, current.pending))

    def _known(self, member: Member) -> object:
        """Return what the log says of a member."""
        group = self.state.groups.get(member.group_id)
        found = group.members.get(member.member_id) if group else None
        return None if found is None else (found.meta, found.current)

    def _current(self, member: Member) -> CurrentMember | None:
        group = self.state.groups.get(member.group_id)
        found = group.members.get(member.member_id) if group else None
        return None if found is None else found.current

    def answered(self, node: Node, requests: Sequence[Request], answers: Sequence[Answer]) -> None:
        """Look at answers that are about to leave."""
        fine = [answer for answer in answers if isinstance(answer, Result)]
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, GroupError) and answer.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self.fail(f"{node.name} fails at {request.event}: {answer.message}")
            ours = node.processor is not None and node.processor.log.epoch == self.newest
            if isinstance(answer, Result) and request.member is not None and ours:
                self._epoch_counts(request, request.member)
        if not fine:
            return
        self._still_ours(node)
        assert node.processor is not None
        written = self._unacknowledged.get(node.processor.log.epoch, Counter())
        wanted = Counter(flat([record for answer in fine for record in answer.records]))
        if wanted - written:
            self.fail(f"{node.name} acknowledges what is not in the log: {wanted - written}")

    def _epoch_counts(self, request: Request, member: Member) -> None:
        """A heartbeat that is accepted has the member's epoch or the one before (G-30, G-31)."""
        assert isinstance(request.event, Heartbeat)
        said = request.event.member_epoch
        if said > 0 and said not in self._before[member.name] | self._epochs_of(member):
            self.fail(f"{member.name} is accepted with epoch {said}: {request.event}")

    def _epochs_of(self, member: Member) -> set[int]:
        current = self._current(member)
        if current is None:
            return set()
        return {current.member_epoch, current.previous_member_epoch}

    def _still_ours(self, node: Node) -> None:
        """No answer leaves a fenced coordinator, but for the moment between two looks."""
        lost_at = self._lost_at.get(node.name)
        assert node.processor is not None
        if lost_at is None or node.processor.log.epoch == self.newest:
            return
        late = self.world.schedule.now - lost_at
        if late > self.world.config.lease.check_ms:
            self.fail(f"{node.name} answers {late} ms after it was fenced")

    def starts(self, node: Node) -> None:
        """Begin to watch a new life of a coordinator."""
        self._lost_at.pop(node.name, None)

    def rests(self, node: Node) -> None:
        """Compare a coordinator's memory with the log, now and then and after each load."""
        self.follow()
        self._bugs()
        processor = node.processor
        if processor is None or processor.status is not Status.ACTIVE:
            return
        if processor.log.epoch != self.newest:
            return
        self._compared += 1
        loaded = self._loaded.get(node.name) is not processor.state
        if loaded or self.world.chance.draw("compare", self._compared) < SOMETIMES:
            self._loaded[node.name] = processor.state
            self.same(node)

    def same(self, node: Node) -> None:
        """The memory of a coordinator is what the log says, from zero or from a snapshot."""
        assert node.processor is not None
        mine, logged = fingerprint(node.processor.state), fingerprint(self.state)
        for group_id, group in mine["groups"].items():  # type: ignore[attr-defined]
            if group["computation"] is None:
                # A snapshot leaves a computation out whose input is no more: it has to start over.
                logged["groups"][group_id]["computation"] = None  # type: ignore[index]
        if mine != logged:
            where = "; ".join(differences(mine, logged))
            self.fail(f"the memory of {node.name} is not what the log says: {where}")

    def _bugs(self) -> None:
        if self.world.bugs:
            self.fail(f"a coordinator reports a bug of ours: {self.world.bugs[0]}")

    # Members -------------------------------------------------------------------------------------

    def confirmed(self, member: Member, answer: HeartbeatAnswer) -> None:
        """A member's epoch never falls while it is in the group."""
        if 0 < answer.member_epoch < member.epoch:
            self.fail(
                f"{member.group_id}/{member.member_id} falls from epoch {member.epoch} "
                f"to {answer.member_epoch}"
            )

    def begins(self, member: Member, partitions: set[Partition]) -> None:
        """A member begins to use partitions: no other member may use them."""
        now = self.world.schedule.now
        if now >= member.uses_until:
            self.fail(f"{member.member_id} begins to use partitions when it must not")
        member.released -= partitions
        for other in self.world.members:
            both = other.owned & partitions
            if other is member or other.group_id != member.group_id or not both:
                continue
            if now >= other.uses_until:
                continue  # its session is over
            if member.untold or other.untold or both <= other.released | member.released:
                self.excused += 1
                continue
            self.fail(
                f"{sorted(both)} of {member.group_id} are used by {other.member_id} "
                f"and by {member.member_id}"
            )

    def fatal(self, member: Member, code: ErrorCode) -> None:
        """Only an instance id that another process has now may end a member."""
        if code is not ErrorCode.FENCED_INSTANCE_ID or member.instance_id is None:
            self.fail(f"{member.group_id}/{member.member_id} is refused for good: {code.name}")


def _is_stale(request: Request, member: Member, *, again: bool) -> bool:
    """Whether a heartbeat of this living member is not the one that it waits for."""
    sender = request.member
    if sender is None or member.gone or member.name != sender.name:
        return False
    doubled = again or request.decided
    return member is not sender or doubled or not member.waits_for(request.number)


def flat(records: Sequence[Record]) -> Iterator[object]:
    """Yield records one a member, so that those merged in the log compare with those answered."""
    for record in records:
        if isinstance(record, MembersAdvanced):
            for member_id in record.member_ids:
                yield record.group_id, record.member_epoch, member_id
        elif isinstance(record, GroupConfigured):
            yield record.group_id, tuple(record.settings.items())
        else:
            try:
                hash(record)
            except TypeError:  # it has a dict
                yield repr(record)
            else:
                yield record


def differences(mine: object, logged: object, path: str = "") -> Iterator[str]:
    """Yield where two fingerprints differ."""
    if isinstance(mine, dict) and isinstance(logged, dict):
        for key in mine | logged:
            yield from differences(mine.get(key), logged.get(key), f"{path}/{key}")
    elif mine != logged:
        yield f"{path} is {mine}, logged is {logged}"


def held(*holdings: Holding) -> Iterator[Partition]:
    """Yield the partitions of holdings."""
    for holding in holdings:
        for key, first, end, _ in holding:
            for partition in range(first, end):
                yield key, partition
