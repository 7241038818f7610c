"""Compute and install a group's target assignment.

Joins and leaves during a computation count as having happened after it: only members whose target
changed get a record, members gone since are dropped, members new since have an empty target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.arrays import Bools, Ints, Longs, offsets_of
from assignors.partition_ranges import Verdict
from assignors.prior_ownership import RangeColumns
from assignors.quality import find_problems
from assignors.registry import knows_loads
from coordinator.config import Config
from coordinator.core.state.groups import Computation, Group, Mark, State, Topic
from coordinator.core.state.partition_spans import Spans, count_partitions, subtract_spans
from coordinator.core.state.records import (
    LoadsNoted,
    MemberMetadata,
    Record,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.target_assignment import Ranges, Targets, WholeTarget
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.load_columns import list_racks, load_columns
from coordinator.errors import ErrorCode, GroupError


@dataclass(frozen=True, slots=True)
class MemberChange:
    """What this step is about to change: one member comes or is another; one is gone."""

    meta: MemberMetadata | None = None
    target: Spans | None = None
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """Members with their subscriptions and previous targets, and the topics they subscribe to.

    `loads` are the weights and constraints that were noted last; constraints are in force as of a
    time, in ms since 1970.
    """

    metas: dict[str, MemberMetadata]
    targets: Targets
    topics: list[Topic]
    regexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    loads: LoadsNoted | None = None
    as_of_ms: int | None = None
    prepared: Mark | None = None
    restored: Mark | None = None
    """Where the group's changes were when the input was prepared, and when it was restored."""

    def spec(self, assignor: str | None = None) -> GroupSpec:
        """Return the group that an assignor gets; dead topics and their owners are dropped.

        Weights, capacities and constraints are in it for an assignor that knows them. To others a
        member that plans drain subscribes to nothing. For no assignor, the group is as it is told.

        Raises
        ------
        SpecError
            All subscribers of a topic are drained.
        """
        weighed = assignor is not None and knows_loads(assignor)
        subscription = self._subscriptions()
        offsets, flat = self._lists(subscription)
        if assignor is not None and not weighed and self.loads and self.loads.drained:
            for name in sorted(self.find_drained_topics())[:1]:  # `weighted` refuses it alike
                raise SpecError(
                    f"partitions of topic {name} cannot be on any member: plans drain all its "
                    "subscribers; undrain one of them"
                )
            subscription = self._drop_drained(self.loads.drained, subscription, offsets)
            offsets = np.append(offsets, offsets[-1])
        partitions = np.array([topic.partitions for topic in self.topics], dtype=np.int64)
        had, number = self.owned()
        stop = np.minimum(had.end, np.append(partitions, 0)[number])
        alive = (number >= 0) & (stop > had.first)
        return GroupSpec.from_columns(
            member_id=pa.array(list(self.metas), pa.string()),
            instance_id=pa.array([m.instance_id for m in self.metas.values()], pa.string()),
            rack=pa.array(list_racks(self.loads, self.metas), pa.string()),
            subscription=subscription,
            list_offsets=offsets,
            list_topics=flat,
            topics=pa.array([topic.key.name for topic in self.topics], pa.string()),
            partitions=partitions,
            owner=had.owner.filter(pa.array(alive)),
            owned_topic=number[alive].astype(np.int32),
            owned_first=had.first[alive],
            owned_count=(stop - had.first)[alive],
            loads=(
                load_columns(self.loads, self.metas, self.topics, self.as_of_ms)
                if weighed
                else None
            ),
        )

    def _subscriptions(self) -> Longs:
        """Return a number for each member's subscription: equal ones share their list of names."""
        metas = self.metas.values()
        lists = [id(meta.subscribed_topic_names) for meta in metas]
        if not self.regexes:
            _, numbers = np.unique(np.array(lists, dtype=np.int64), return_inverse=True)
            return numbers.astype(np.int64)
        known: dict[tuple[int, str], int] = {}
        pairs = zip(lists, (meta.subscribed_topic_regex for meta in metas), strict=True)
        return np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)

    def find_drained_topics(self) -> frozenset[str]:
        """Return the topics of which plans drain all subscribers: nobody may have them."""
        if self.loads is None or not self.loads.drained:
            return frozenset()
        subscription = self._subscriptions()
        offsets, flat = self._lists(subscription)
        left = self._drop_drained(self.loads.drained, subscription, offsets)
        kept = flat[np.isin(np.arange(len(offsets) - 1).repeat(np.diff(offsets)), left)]
        return frozenset(self.topics[at].key.name for at in np.setdiff1d(flat, kept).tolist())

    def without(self, topics: frozenset[str]) -> AssignorInput:
        """Return the group as if some topics were not there."""
        if not topics:
            return self
        return replace(self, topics=[one for one in self.topics if one.key.name not in topics])

    def _drop_drained(self, drained: Iterable[str], subscription: Longs, offsets: Longs) -> Longs:
        """Return subscriptions in which members that plans drain have the one after the last."""
        names = set(drained)
        theirs = [not names.isdisjoint((m.member_id, m.instance_id)) for m in self.metas.values()]
        return np.where(theirs, len(offsets) - 1, subscription)

    def _lists(self, subscription: Longs) -> tuple[Longs, Ints]:
        """Return the distinct subscriptions as lists of topic numbers."""
        number = {topic.key.name: at for at, topic in enumerate(self.topics)}
        _, rows = np.unique(subscription, return_index=True)
        members = list(self.metas.values())
        flat: list[list[int]] = []
        for row in rows.tolist():
            meta = members[row]
            names = {
                *meta.subscribed_topic_names,
                *self.regexes.get(meta.subscribed_topic_regex, ()),
            }
            flat.append([number[name] for name in names if name in number])
        offsets = np.cumsum([0, *map(len, flat)], dtype=np.int64)
        return offsets, np.array([t for one in flat for t in one], dtype=np.int32)

    def owned(self) -> tuple[Ranges, Longs]:
        """Return previous targets, and the number of each one's topic; −1 is dead."""
        had = self.targets.ranges()
        index = {topic.key: number for number, topic in enumerate(self.topics)}
        numbers = np.array([index.get(key, -1) for key in had.keys] or [-1], dtype=np.int64)
        return had, numbers[had.topic]


def build_input(
    state: State, group: Group, change: MemberChange, as_of_ms: int | None = None
) -> AssignorInput:
    """Return the group as it will be after this step's change, at a time in ms since 1970."""
    metas = dict(group.metas)
    targets = group.targets.copy()
    for member_id in change.removed:
        metas.pop(member_id, None)
        targets.end(member_id)
    names = set(group.names)
    if change.meta is not None:
        member_id = change.meta.member_id
        metas[member_id] = _share_names(group, change.meta)
        if change.target is not None:
            targets[member_id] = change.target
        names.update(change.meta.subscribed_topic_names)
    topics = [state.topics[name] for name in sorted(names) if name in state.topics]
    regexes = {regex: found.topics for regex, found in group.regexes.items()}
    loads = state.loads.get(group.group_id)
    return AssignorInput(metas, targets, topics, regexes, loads, as_of_ms)


def _share_names(group: Group, meta: MemberMetadata) -> MemberMetadata:
    """Return the metadata with the group's own list object, so that equal lists are one class."""
    listed = group.lists.get(meta.subscribed_topic_names)
    return meta if listed is None else listed.share_with(meta)


def run_assignor(spec: GroupSpec, options: AssignorOptions) -> PartitionRanges:
    """Run an assignor in this process.

    Raises
    ------
    SpecError
        The assignor is not installed or refuses the group.
    """
    ranges = options.make_assignor().assign(spec)
    return replace(ranges, verdict=Verdict()) if options.waits else ranges


def assign_in_step(
    given: AssignorInput, asked: tuple[str, Mapping[str, str], Config], epoch: int
) -> PartitionRanges | None:
    """Run a group's assignor within a step; None keeps the target, for constraints that clash.

    Parameters
    ----------
    asked
        The assignor's name, the group's settings and the coordinator's.

    Raises
    ------
    GroupError
        UNKNOWN_SERVER_ERROR: the assignor fails.
    """
    options = AssignorOptions.of_target(*asked)
    try:
        return run_assignor(given.spec(options.assignor), options)
    except (SpecError, ValueError, MemoryError) as error:
        ruled = given.loads is not None and (knows_loads(options.assignor) or given.loads.drained)
        if isinstance(error, SpecError) and ruled:
            return None
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {epoch}: {error}",
        ) from error


def diff_targets(
    group_id: str, old: AssignorInput, ranges: PartitionRanges, spec: GroupSpec | None = None
) -> tuple[list[TargetMember], int]:
    """Return a record for each member whose target is another one (G-153), and the moves in them.

    A member that had no target gets a record even when it stays empty.

    Parameters
    ----------
    spec
        The old input's, if what its members own are just their targets; else None.
    """
    bounds = offsets_of(np.bincount(ranges.member, minlength=len(ranges.member_ids)))
    had = _list_targets(old, ranges.member_ids) if spec is None else _list_owned(spec)
    differs = _find_changed(old, had, ranges, bounds)
    rows, theirs = np.flatnonzero(differs), differs[ranges.member]
    ids: list[str] = ranges.member_ids.take(pa.array(rows)).to_pylist()
    keys = {topic.key.name: topic.key for topic in old.topics}
    names = [keys[name] for name in ranges.topics.to_pylist()]
    topic, first = ranges.topic[theirs], ranges.first[theirs].astype(np.int64)
    end = first + ranges.count[theirs]
    columns = (map(names.__getitem__, topic.tolist()), first.tolist(), end.tolist())
    spans = list(zip(*columns, strict=True))
    stops = np.cumsum(np.diff(bounds)[rows]).tolist()
    alive = set(names)
    records, moved = [], 0
    for member_id, (start, stop) in zip(ids, pairwise([0, *stops]), strict=True):
        record = TargetMember(group_id, member_id, tuple(spans[start:stop]))
        held = old.targets.get(member_id) or ()
        moved += count_partitions(subtract_spans((s for s in held if s[0] in alive), record.spans))
        records.append(record)
    return sorted(records, key=lambda record: record.member_id), moved


def _list_targets(old: AssignorInput, member_ids: pa.StringArray) -> RangeColumns:
    """Return the old targets by member: the place of each among these, topic, first and end."""
    had, number = old.owned()
    owner = pc.index_in(had.owner, value_set=member_ids)
    member = owner.fill_null(-1).to_numpy().astype(np.int64)
    order = np.argsort(member, kind="stable")[np.count_nonzero(member < 0) :]
    return member[order], number[order], had.first[order], had.end[order]


def _list_owned(spec: GroupSpec) -> RangeColumns:
    """Return the same of a group whose members own just their targets."""
    return spec.member, spec.topic, spec.first, spec.first + spec.count


def _find_changed(
    old: AssignorInput, had: RangeColumns, ranges: PartitionRanges, bounds: Longs
) -> Bools:
    """Return which members' ranges are not their old target, comparing whole columns."""
    member, topic, begin, end = had
    had_count = np.bincount(member, minlength=len(bounds) - 1)
    has_count = np.diff(bounds)
    differs: Bools = had_count != has_count
    nothing = np.flatnonzero((had_count == 0) & (has_count == 0))
    ids = ranges.member_ids.take(pa.array(nothing)).to_pylist()
    differs[nothing] = [member_id not in old.targets for member_id in ids]
    was = np.flatnonzero(~differs[member])
    now = np.flatnonzero(~differs[ranges.member])
    other = (
        (topic[was] != ranges.topic[now])
        | (begin[was] != ranges.first[now])
        | (end[was] != ranges.first[now].astype(np.int64) + ranges.count[now])
    )
    differs[ranges.member[now[other]]] = True
    return differs


def validate_ranges(computation: Computation, ranges: pa.Table) -> PartitionRanges:
    """Check an assignment against the input it was computed from (K-47).

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: partitions missing, given twice, outside their topic, to an unknown
        member, or of a topic to which the member does not subscribe; or not such a table.
    """
    spec = AssignorInput(
        computation.metas, Targets(), computation.topics, computation.regexes
    ).spec()
    return _check_ranges(spec, ranges)


def validate_whole_target(spec: GroupSpec, topics: Iterable[Topic], whole: WholeTarget) -> None:
    """Check a whole target against the input it was computed from (K-47).

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT, as for `validate_ranges`; or a topic has another id.
    """
    had = whole.ranges()
    unknown = set(had.keys) - {topic.key for topic in topics}
    if unknown:
        raise _invalid(f"there is no topic {min(unknown)}")
    names = pa.array([key.name for key in had.keys], pa.string())
    columns = {
        "member_id": had.owner,
        "topic": names.take(pa.array(had.topic)),
        "first_partition": had.first,
        "partition_count": had.end - had.first,
    }
    _check_ranges(spec, pa.table(columns))


def _check_ranges(spec: GroupSpec, ranges: pa.Table) -> PartitionRanges:
    try:
        found = _read_ranges(spec, ranges)
        wrong = find_problems(spec, found)
    except (SpecError, KeyError, pa.ArrowInvalid, ValueError, OverflowError) as error:
        wrong = [str(error)]
    if wrong:
        raise _invalid(wrong[0])
    return found


def _invalid(reason: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_ASSIGNMENT, f"The assignment is refused: {reason}.")


def _read_ranges(spec: GroupSpec, ranges: pa.Table) -> PartitionRanges:
    wanted = ("member_id", "topic", "first_partition", "partition_count")
    missing = [name for name in wanted if name not in ranges.column_names]
    if missing:
        raise SpecError(f"column {missing[0]} is missing: give {', '.join(wanted)}")
    table = ranges.select(wanted).cast(
        pa.schema(
            [
                ("member_id", pa.string()),
                ("topic", pa.string()),
                ("first_partition", pa.int32()),
                ("partition_count", pa.int32()),
            ]
        )
    )
    if any(column.null_count for column in table.columns):
        raise SpecError("a value is null: give every row its four values")
    count = table["partition_count"].to_numpy()
    first = table["first_partition"].to_numpy()
    if (count < 1).any() or (first < 0).any():
        raise SpecError("a range is empty or begins below 0")
    found = PartitionRanges.from_arrow(spec.member_ids, spec.topics, table)
    return found


def restore_input(
    group: Group,
    computation: Computation,
    loads: LoadsNoted | None = None,
    as_of_ms: int | None = None,
) -> AssignorInput:
    """Return the group as it was when the computation was prepared.

    A target is the same since, but for that of a static member, which its successor has now.
    """
    targets = group.targets.copy()
    for member_id in _list_changed(group, computation):
        if member_id in group.members or member_id not in computation.metas:
            continue
        successor = _find_successor(group, computation, member_id)
        if successor is not None and successor in targets:
            targets[member_id] = targets[successor]
    return AssignorInput(
        computation.metas,
        targets,
        computation.topics,
        computation.regexes,
        loads,
        as_of_ms,
        computation.mark,
        group.mark(),
    )


def _list_changed(group: Group, computation: Computation) -> Iterable[str]:
    """Return those who may have come or gone since a computation was prepared, all who did."""
    changed = None if computation.mark is None else computation.mark.until(group.mark())
    return computation.metas.keys() ^ group.members.keys() if changed is None else set(changed)


def diff_computed(
    group: Group, computation: Computation, ranges: PartitionRanges
) -> tuple[list[TargetMember], int]:
    """Return the records of an assignment made for a computation's input, and its moves."""
    return diff_targets(group.group_id, restore_input(group, computation), ranges)


def rebase_targets(
    group: Group, computation: Computation, records: Iterable[TargetMember]
) -> list[TargetMember]:
    """Return the records that make a computed target the group's (K-48, K-49).

    Members that are gone since are left out, but a static member's successor inherits; members
    that are new since get an empty target.
    """
    found: dict[str, TargetMember] = {}
    for record in records:
        member_id = _find_successor(group, computation, record.member_id)
        if member_id is not None:
            found[member_id] = TargetMember(group.group_id, member_id, record.spans)
    for member_id in _list_changed(group, computation):
        new = member_id in group.members and member_id not in computation.metas
        if new and member_id not in found and member_id not in group.targets:
            found[member_id] = TargetMember(group.group_id, member_id)
    return [found[member_id] for member_id in sorted(found)]


def rebase_whole_target(group: Group, computation: Computation, whole: WholeTarget) -> list[Record]:
    """Return what must come after a whole target that was computed for another set of members.

    Members that are gone since have no target, but a static member's successor inherits; members
    that are new since have an empty one.
    """
    records: list[Record] = []
    heirs = set()
    for member_id in (i for i in computation.metas if i not in group.members):
        heir = _find_successor(group, computation, member_id)
        records.append(Tombstone(TargetMember.kind, group.group_id, member_id))
        if heir is not None:
            heirs.add(heir)
            records.append(TargetMember(group.group_id, heir, whole.spans(member_id)))
    new = (i for i in group.members if i not in computation.metas and i not in heirs)
    records += (TargetMember(group.group_id, member_id) for member_id in new)
    return records


def _find_successor(group: Group, computation: Computation, member_id: str) -> str | None:
    """Return who has a member's place now: itself, its next incarnation, or nobody."""
    if member_id in group.members:
        return member_id
    instance_id = computation.metas[member_id].instance_id
    return None if instance_id is None else group.instances.get(instance_id)
