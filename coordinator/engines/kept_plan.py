"""The plan of a group's last target, from which the next one is made at the cost of what moves.

What is kept is about what was planned, not what came of it: a target may be refused, overtaken or
replaced. So each time the members that changed since are compared with it, and at any doubt the
target is computed from nothing. See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.planned_group import PlannedChange, PlannedGroup
from coordinator.core.state.groups import ChangePlace, TopicList
from coordinator.core.state.partition_spans import Spans, count_partitions, subtract_spans
from coordinator.core.state.records import MemberMetadata, Record, TargetMember
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis
from coordinator.core.targets.compute_here import list_spans
from coordinator.core.targets.validate import check_moves, refusal

COMPARED_LEAST = 1_000
"""So many members are compared with a plan however small the group is."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptPlan:
    """A plan, and what it takes to tell whether the group follows it.

    Attributes
    ----------
    options, topics
        What it was made with.
    mark
        Where the group's changes were when its input was prepared.
    planned
        The group as planned.
    proposed
        The targets that it changed: it is a group's plan once they are the group's.
    before
        The plan before it, which is the group's until then.
    """

    options: AssignorOptions
    topics: TopicList
    mark: ChangePlace
    planned: PlannedGroup
    proposed: Mapping[str, Spans]
    before: KeptPlan | None = None

    @classmethod
    def of(
        cls,
        basis: Basis,
        spec: GroupSpec,
        ranges: PartitionRanges,
        changes: Sequence[Record],
    ) -> KeptPlan | None:
        """Keep a plan that was made from nothing; None where none can be made from it."""
        found = basis.input
        if not _is_plain(found) or found.prepared is None or basis.options.waits:
            return None
        planned = PlannedGroup.of(spec, basis.options.make_assignor(), ranges)
        if planned.find_obstacle(GroupChanges()) is not None:
            return None
        proposed = _list_proposed(changes)
        return cls(basis.options, found.listed, found.prepared, planned, proposed)

    def follow(self, basis: Basis) -> tuple[TargetCandidate, KeptPlan] | None:
        """Compute the next target from this plan; None: compute it from nothing.

        Raises
        ------
        GroupError
            INVALID_ASSIGNMENT: what the plan gave is not valid.
        """
        found = basis.input
        if found.prepared is None or not _is_plain(found):
            return None
        starts = (self, self.before) if self._is_installed(found) else (self.before,)
        known = ((start, start.list_changes(basis)) for start in starts if start is not None)
        start, listed = next(
            (
                (start, listed)
                for start, listed in known
                if listed is not None and start.planned.find_obstacle(listed) is None
            ),
            (self, None),
        )
        if listed is None:
            return None
        done = start.planned.after(listed)
        if done.planned.full is not None:
            return None
        start.check(found.listed, listed, done)
        records, moved = _list_records(basis, listed, done.changed)
        kept = KeptPlan(
            basis.options,
            found.listed,
            found.prepared,
            done.planned,
            _list_proposed(records),
            replace(start, before=None),
        )
        return basis.candidate(moved, changes=records), kept

    def _is_installed(self, found: AssignorInput) -> bool:
        """Tell whether all who were to get another target have it; who has none may have left."""
        for member_id, spans in self.proposed.items():
            has = found.targets.get(member_id)
            if has is not spans and has is not None and has != spans:
                return False
        return True

    def list_changes(self, basis: Basis) -> GroupChanges | None:
        """Compare the group with the plan; None: it is otherwise than planned."""
        found = basis.input
        named = self.mark.until(found.restored)
        grown = self._list_growth(found.listed)
        if named is None or grown is None or basis.options != self.options:
            return None
        names = {*named, *(one for one in self.proposed if found.targets.get(one) is None)}
        if len(names) > max(COMPARED_LEAST, len(found.metas) // 4):
            return None  # to compare them takes as long
        had = {
            one: spans
            for one in names
            if (spans := self.proposed.get(one)) is not None and spans is found.targets.get(one)
        }
        others = sorted(names - had.keys())
        had.update(list_spans(self.planned.assignment_of(others), self.topics.keys))
        members = sorted(names)
        instances = dict(zip(members, self.planned.instances_of(members).to_pylist(), strict=True))
        # Who left since the computation was prepared is in it, with nothing: as if it joined again.
        left = {one for one in had if one not in found.metas or one not in found.targets}
        heirs = {instances[name]: name for name in left if instances[name] is not None}
        joined: list[MemberMetadata] = []
        renamed: dict[str, str] = {}
        heir_metas: dict[str, MemberMetadata] = {}
        stays: list[MemberMetadata] = []
        subscriptions = _Subscriptions(found.listed)
        for member_id in members:
            meta, target = found.metas.get(member_id), found.targets.get(member_id)
            if meta is None:
                continue
            if not target and (member_id not in had or target is None):
                joined.append(meta)
            elif member_id in had:
                if target != had[member_id] or meta.instance_id != instances[member_id]:
                    return None
                stays.append(meta)
            else:
                before = heirs.pop(meta.instance_id, None)
                if before is None or target != had[before]:
                    return None
                renamed[before] = member_id
                heir_metas[before] = meta
        known = {meta.member_id: meta for meta in stays} | heir_metas
        had_names = self.planned.subscriptions_of([*known])
        moving = [
            meta
            for meta, names in zip(known.values(), had_names, strict=True)
            if not subscriptions.is_of(meta, names)
        ]
        heirs_moving = {meta.member_id for meta in moving if meta.member_id not in known}
        renamed = {old: new for old, new in renamed.items() if new not in heirs_moving}
        joined += (meta for meta in moving if meta.member_id in heirs_moving)
        moving = [meta for meta in moving if meta.member_id not in heirs_moving]
        return GroupChanges(
            left=sorted(left - renamed.keys()),
            joined=subscriptions.group(joined),
            resubscribed=subscriptions.group(moving),
            topics=grown,
            renamed=renamed,
        )

    def check(self, topics: TopicList, changes: GroupChanges, done: PlannedChange) -> None:
        """Check the members whose ranges a plan changed (K-47)."""
        has = done.changed
        formerly = {new: old for old, new in changes.renamed.items()}
        names = [formerly.get(name, name) for name in has.member_ids.to_pylist()]
        had = self.planned.assignment_of([*names, *changes.left])
        other = done.planned.find_unsubscribed(has)
        if other is not None:
            raise refusal(
                f"member {other!r} owns partitions of a topic to which it does not subscribe"
            )
        more = topics.counts - self.topics.counts
        grown = np.flatnonzero(more)
        check_moves(had, (grown, self.topics.counts[grown], more[grown]), has)

    def _list_growth(self, topics: TopicList) -> dict[str, int] | None:
        """Return topics that have another number of partitions; None: topics came or went."""
        if topics is self.topics:
            return {}
        if not topics.keys.equals(self.topics.keys):
            return None
        return {
            topic.key.name: topic.partitions
            for topic, before in zip(topics, self.topics, strict=True)
            if topic.partitions != before.partitions
        }


class _Subscriptions:
    """Which of some topics members subscribe to; it looks at each list of names once."""

    def __init__(self, topics: TopicList) -> None:
        self._keys = topics.keys
        self._known: dict[int, frozenset[str]] = {}
        self._alike: dict[tuple[int, int], bool] = {}

    def _names(self, meta: MemberMetadata) -> frozenset[str]:
        listed = meta.subscribed_topic_names
        if id(listed) not in self._known:
            names = map(self._keys.names.__getitem__, self._keys.find_names(listed).tolist())
            self._known[id(listed)] = frozenset(names)
        return self._known[id(listed)]

    def is_of(self, meta: MemberMetadata, names: frozenset[str] | None) -> bool:
        """Tell whether a member subscribes to just these topics."""
        pair = id(meta.subscribed_topic_names), id(names)
        if pair not in self._alike:
            self._alike[pair] = self._names(meta) == names
        return self._alike[pair]

    def group(self, metas: list[MemberMetadata]) -> list[SubscribedMembers]:
        """Return members by what they subscribe to."""
        each: dict[frozenset[str], list[MemberMetadata]] = {}
        for meta in metas:
            each.setdefault(self._names(meta), []).append(meta)
        found = []
        for names, some in each.items():
            rows = ((one.member_id, one.instance_id, one.rack_id) for one in some)
            columns = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
            ids, instances, racks = columns
            found.append(SubscribedMembers(ids, tuple(names), instances, racks))
        return found


def _list_proposed(changes: Sequence[Record]) -> dict[str, Spans]:
    return {one.member_id: one.spans for one in changes if isinstance(one, TargetMember)}


def _is_plain(found: AssignorInput) -> bool:
    """Tell whether nothing but members' names and partitions decide about the group's targets."""
    return found.loads is None and not found.regexes


def _list_records(
    basis: Basis, changes: GroupChanges, changed: PartitionRanges
) -> tuple[list[TargetMember], int]:
    """Return a record for each member that has another target, or had none, and the moves."""
    records, moved, had = [], 0, basis.input.targets
    for member_id, spans in list_spans(changed, basis.input.listed.keys):
        before = had.get(member_id)
        if before is None or before != spans:
            records.append(TargetMember(basis.group_id, member_id, spans))
            moved += count_partitions(subtract_spans(before or (), spans))
    seen = set(changed.member_ids.to_pylist())
    for member_id in chain.from_iterable(one.member_ids.to_pylist() for one in changes.joined):
        before = had.get(member_id)
        if member_id not in seen and (before is None or before):  # what an heir of others lost
            records.append(TargetMember(basis.group_id, member_id))
            moved += count_partitions(before or ())
    return sorted(records, key=lambda record: record.member_id), moved
