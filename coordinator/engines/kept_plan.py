"""The plan of a group's last target, from which the next one is made at the cost of what moves.

What is kept is about what was planned, not what came of it: a target may be refused, overtaken or
replaced. So each time the members that changed since are compared with it, and at any doubt the
target is computed from nothing. See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from assignors import GroupSpec, PartitionRanges
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.planned_group import PlannedChange, PlannedGroup
from assignors.registry import knows_loads
from coordinator.core.state.groups import ChangePlace, TopicList
from coordinator.core.state.partition_spans import Spans, count_partitions, subtract_spans
from coordinator.core.state.records import LoadsNoted, MemberMetadata, Record, TargetMember
from coordinator.core.state.rows.member_table import code_fields
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis
from coordinator.core.targets.compute_here import keep_topics, list_spans
from coordinator.core.targets.validate import check_moves, refusal
from coordinator.engines.changed_topics import ChangedTopics
from coordinator.engines.changed_weights import ChangedWeights, find_changed_weights

COMPARED_LEAST = 1_000
"""So many members are compared with a plan however small the group is."""

COMPARED_PART = 10
"""To compare a member takes 18 us; a plan from nothing 1 us a member of rows, 4 us of objects."""
BRIEF_MOST = 500
"""So many members change in a plan that is made while others wait."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptPlan:
    """A plan, and what it takes to tell whether the group follows it.

    Attributes
    ----------
    options, topics
        What it was made with.
    mark
        Where the group's changes were when its input was prepared.
    lists
        The lists of names that members had, as they named them, and perhaps others.
    planned
        The group as planned.
    proposed
        The targets that it changed: it is a group's plan once they are the group's.
    before
        The plan before it, which is the group's until then.
    loads
        The weights that it was made with; None where it knows none.
    """

    options: AssignorOptions
    topics: TopicList
    mark: ChangePlace
    lists: frozenset[tuple[str, ...]]
    planned: PlannedGroup
    proposed: Mapping[str, Spans]
    before: KeptPlan | None = None
    loads: LoadsNoted | None = None

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
        if not _is_plain(basis) or found.prepared is None or basis.options.waits:
            return None
        planned = PlannedGroup.of(spec, basis.options.make_assignor(), ranges)
        if planned.find_obstacle(GroupChanges()) is not None:
            return None
        proposed = _list_proposed(changes)
        ((names, _),) = code_fields(found.metas, ["subscribed_topic_names"])
        lists = frozenset({id(listed): listed for listed in names}.values())
        return cls(
            basis.options, found.listed, found.prepared, lists, planned, proposed,
            loads=_find_loads(basis),
        )  # fmt: skip

    def is_brief(self, basis: Basis) -> bool:
        """Tell whether few members changed since this plan, and no topic."""
        found = basis.input
        named = self.mark.until(found.restored)
        few = named is not None and len(named) + len(self.proposed) <= BRIEF_MOST
        return few and found.topics is self.topics and _find_loads(basis) is self.loads

    def follow(self, basis: Basis) -> tuple[TargetCandidate, KeptPlan] | None:
        """Compute the next target from this plan; None: compute it from nothing.

        Raises
        ------
        GroupError
            INVALID_ASSIGNMENT: what the plan gave is not valid.
        """
        found = basis.input
        if found.prepared is None or not _is_plain(basis):
            return None
        starts = (self, self.before) if self._is_installed(found) else (self.before,)
        for start in starts:
            since = None if start is None else start.list_changes(basis)
            if start is None or since is None:
                continue
            done = start.planned.follow(since.changes)
            if not isinstance(done, FullPlan):
                return start.continue_with(basis, since, done)
        return None

    def continue_with(
        self, basis: Basis, since: Since, done: PlannedChange
    ) -> tuple[TargetCandidate, KeptPlan]:
        """Return the next target, and its plan, which was made from this one."""
        found, changes = basis.input, since.changes
        assert found.prepared is not None, "follow looks"
        self.check(since, done)
        records, moved = _list_records(basis, changes, done.changed)
        kept = KeptPlan(
            basis.options,
            found.listed,
            found.prepared,
            self.lists | since.lists,
            done.planned,
            _list_proposed(records),
            replace(self, before=None),
            _find_loads(basis),
        )
        return basis.candidate(moved, changes=records), kept

    def _is_installed(self, found: AssignorInput) -> bool:
        """Tell whether all who were to get another target have it; who has none may have left."""
        for member_id, spans in self.proposed.items():
            has = found.targets.get(member_id)
            if has is not spans and has is not None and has != spans:
                return False
        return True

    def list_changes(self, basis: Basis) -> Since | None:
        """Compare the group with the plan; None: it is otherwise than planned."""
        found = basis.input
        named = self.mark.until(found.restored)
        topics = ChangedTopics.of(self.topics, found.listed, self.lists)
        weights = self._list_weights(basis)
        if named is None or topics is None or weights is None or basis.options != self.options:
            return None
        names = {*named, *(one for one in self.proposed if found.targets.get(one) is None)}
        if len(names) > max(COMPARED_LEAST, len(found.metas) // COMPARED_PART):
            return None
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
        pairs = list(zip(known.values(), self.planned.subscriptions_of([*known]), strict=True))
        moving = [
            meta for meta, names in pairs if not subscriptions.is_of(meta, topics.relist(names))
        ]
        heirs_moving = {meta.member_id for meta in moving if meta.member_id not in known}
        if any(
            meta.member_id in heirs_moving and not subscriptions.of(meta).isdisjoint(names or ())
            for meta, names in pairs
        ):
            return None  # an heir keeps what it still subscribes to, and who joins has nothing
        renamed = {old: new for old, new in renamed.items() if new not in heirs_moving}
        joined += (meta for meta in moving if meta.member_id in heirs_moving)
        moving = [meta for meta in moving if meta.member_id not in heirs_moving]
        changes = GroupChanges(
            left=sorted(left - renamed.keys()),
            joined=subscriptions.group(joined),
            resubscribed=subscriptions.group(moving),
            topics=topics.sizes,
            removed_topics=sorted(topics.removed),
            lists=topics.relisted(),
            renamed=renamed,
            weights=weights,
        )
        named_now = {meta.subscribed_topic_names for meta in chain(joined, known.values())}
        return Since(changes, topics, frozenset(named_now))

    def _list_weights(self, basis: Basis) -> ChangedWeights | None:
        """Return which weights changed; None if more than weights did that decides with them."""
        loads = _find_loads(basis)
        if loads is None and self.loads is None:
            return {}
        found = basis.input
        if found.topics is not self.topics and found.topics != self.topics:
            return None  # their racks count, too
        if loads is not None and loads.capacities and self.mark.until(found.restored):
            return None  # who changed may have another capacity
        return find_changed_weights(self.loads, loads, found.listed)

    def check(self, since: Since, done: PlannedChange) -> None:
        """Check the members whose ranges a plan changed (K-47)."""
        has, changes = done.changed, since.changes
        formerly = {new: old for old, new in changes.renamed.items()}
        names = [formerly.get(name, name) for name in has.member_ids.to_pylist()]
        had = self.planned.assignment_of([*names, *changes.left])
        other = done.planned.find_unsubscribed(has)
        if other is not None:
            raise refusal(
                f"member {other!r} owns partitions of a topic to which it does not subscribe"
            )
        check_moves(since.topics.renumber(had), since.topics.grown(), has)


@dataclass(frozen=True, slots=True, eq=False)
class Since:
    """What changed since a plan: the group, its topics, and the lists of names that came."""

    changes: GroupChanges
    topics: ChangedTopics
    lists: frozenset[tuple[str, ...]]


class _Subscriptions:
    """Which of some topics members subscribe to; it looks at each list of names once."""

    def __init__(self, topics: TopicList) -> None:
        self._keys = topics.keys
        self._known: dict[int, frozenset[str]] = {}
        self._alike: dict[tuple[int, int], bool] = {}

    def of(self, meta: MemberMetadata) -> frozenset[str]:
        """Return what a member subscribes to of these topics."""
        listed = meta.subscribed_topic_names
        if id(listed) not in self._known:
            names = map(self._keys.names.__getitem__, self._keys.find_names(listed).tolist())
            self._known[id(listed)] = frozenset(names)
        return self._known[id(listed)]

    def is_of(self, meta: MemberMetadata, names: frozenset[str] | None) -> bool:
        """Tell whether a member subscribes to just these topics."""
        pair = id(meta.subscribed_topic_names), id(names)
        if pair not in self._alike:
            self._alike[pair] = self.of(meta) == names
        return self._alike[pair]

    def group(self, metas: list[MemberMetadata]) -> list[SubscribedMembers]:
        """Return members by what they subscribe to."""
        each: dict[frozenset[str], list[MemberMetadata]] = {}
        for meta in metas:
            each.setdefault(self.of(meta), []).append(meta)
        found = []
        for names, some in each.items():
            rows = ((one.member_id, one.instance_id, one.rack_id) for one in some)
            columns = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
            ids, instances, racks = columns
            found.append(SubscribedMembers(ids, tuple(names), instances, racks))
        return found


def _list_proposed(changes: Sequence[Record]) -> dict[str, Spans]:
    return {one.member_id: one.spans for one in changes if isinstance(one, TargetMember)}


def _is_plain(basis: Basis) -> bool:
    """Tell whether members' names, partitions and weights decide alone about a group's targets."""
    found = basis.input
    return not found.regexes and (found.loads is None or not found.loads.drained)


def _find_loads(basis: Basis) -> LoadsNoted | None:
    """Return the weights that a group's assignor knows."""
    return basis.input.loads if knows_loads(basis.options.assignor) else None


def _list_records(
    basis: Basis, changes: GroupChanges, changed: PartitionRanges
) -> tuple[list[TargetMember], int]:
    """Return a record for each member that has another target, or had none, and the moves."""
    records, moved, had = [], 0, basis.input.targets
    topics = basis.input.listed.keys
    for member_id, spans in list_spans(changed, topics):
        before = had.get(member_id)
        if before is None or before != spans:
            records.append(TargetMember(basis.group_id, member_id, spans))
            moved += count_partitions(subtract_spans(keep_topics(before or (), topics), spans))
    seen = set(changed.member_ids.to_pylist())
    for member_id in chain.from_iterable(one.member_ids.to_pylist() for one in changes.joined):
        before = had.get(member_id)
        if member_id not in seen and (before is None or before):  # what an heir of others lost
            records.append(TargetMember(basis.group_id, member_id))
            moved += count_partitions(keep_topics(before or (), topics))
    return sorted(records, key=lambda record: record.member_id), moved
