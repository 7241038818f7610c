"""PlannedGroup: a group with its plan, and the next plan after some changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import PARTITIONS_MAX, Longs
from assignors.group_spec import GroupSpec
from assignors.incremental.changes import (
    GroupChanges,
    SubscribedMembers,
    change_group,
)
from assignors.incremental.equal_members import EqualMembers, order_keys, read_texts
from assignors.incremental.member_order import BLOCK, Texts
from assignors.incremental.next_plan import Newcomers, plan_next
from assignors.incremental.rename_members import rename_members
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.plan import bound_equal_loads
from assignors.registry import Assignor
from assignors.sticky import StickyAssignor, parse_imbalance
from assignors.uniform import UniformAssignor


class FullPlan(Enum):
    """Why a plan was made from nothing, that is, by looking at all members."""

    FIRST = "there is no plan before it"
    ASSIGNOR = "only uniform and sticky, without max_moves, continue from their last plan"
    LOADS = "the group has weights, capacities or constraints"
    SUBSCRIPTIONS = "members have different subscriptions, or change them"
    TOPICS = "a topic is new, smaller or gone"
    NAMES = "a member is looked for among all"
    NOTHING = "the group has, or had, no members or no partitions"


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGroup:
    """A group whose members own what its assignor planned; never changed, only followed.

    Attributes
    ----------
    assignor
        What makes its plans.
    verdict
        What the assignor proved about the last plan.
    full
        Why the last plan looked at all members; None if it continued from the one before.
    """

    assignor: Assignor
    verdict: Verdict
    full: FullPlan | None
    _whole: tuple[GroupSpec, PartitionRanges] | None
    _equal: EqualMembers | None

    @classmethod
    def plan(
        cls,
        group: GroupSpec,
        assignor: Assignor,
        why: FullPlan = FullPlan.FIRST,
        block: int = BLOCK,
    ) -> PlannedGroup:
        """Plan a group from what its members own.

        Parameters
        ----------
        why
            Why this is not the next plan of another.
        block
            Members that are copied when one of them changes.
        """
        return cls.of(group, assignor, assignor.assign(group), why, block)

    @classmethod
    def of(
        cls,
        group: GroupSpec,
        assignor: Assignor,
        ranges: PartitionRanges,
        why: FullPlan = FullPlan.FIRST,
        block: int = BLOCK,
    ) -> PlannedGroup:
        """Take the plan that an assignor has made for a group; the rest as `plan`."""
        if _find_obstacle(group, assignor) is None:
            return cls(assignor, ranges.verdict, why, None, EqualMembers.of(group, ranges, block))
        return cls(assignor, ranges.verdict, why, (group, ranges), None)

    def find_obstacle(self, changes: GroupChanges) -> FullPlan | None:
        """Return why the plan after some changes would look at all members; None: it would not.

        It would too if a change names a member that is unknown, or one as new that is not.
        """
        if self._equal is not None:
            return _find_obstacle_in(self._equal, changes)
        assert self._whole is not None
        return _find_obstacle(self._whole[0], self.assignor) or FullPlan.FIRST

    def after(self, changes: GroupChanges) -> PlannedChange:
        """Return the group with its next plan; this one stays as it is.

        Raises
        ------
        SpecError
            As `change_group`, and as the assignor.
        """
        held = self._equal
        if held is None:
            return self._plan_all(changes, None)
        why = _find_obstacle_in(held, changes)
        if why is not None:
            return self._plan_all(changes, why)
        renamed = rename_members(held, changes.renamed) if changes.renamed else held
        if renamed is None:
            return self._plan_all(changes, FullPlan.NAMES)
        left = _find_left(renamed, changes.left)
        joined = _list_joined(left[1], changes.joined, left[0]) if left else None
        if left is None or joined is None:
            return self._plan_all(changes, FullPlan.NAMES)
        (places, _), (newcomers, held) = left, joined
        partitions = held.partitions
        if changes.topics:
            partitions = partitions.copy()
            partitions[_look_up(held.topics, changes.topics)] = list(changes.topics.values())
        plan = plan_next(held, places, newcomers, partitions, self._bounds)
        verdict = Verdict(moved_minimum=plan.moved)
        planned = PlannedGroup(self.assignor, verdict, None, None, plan.held.swept())
        return PlannedChange(planned, plan.held.assignment_of(plan.touched, verdict))

    def _plan_all(self, changes: GroupChanges, why: FullPlan | None) -> PlannedChange:
        before = (self.group(), self.assignment()) if self._whole is None else self._whole
        group = change_group(*before, changes)
        why = why or _find_obstacle(before[0], self.assignor) or FullPlan.FIRST
        planned = PlannedGroup.plan(group, self.assignor, why)
        return PlannedChange(planned, planned.assignment())

    def assignment(self) -> PartitionRanges:
        """Return who owns what, all of it: as many steps as there are ranges."""
        if self._equal is not None:
            return self._equal.assignment(self.verdict)
        assert self._whole is not None
        return self._whole[1]

    def assignment_of(self, member_ids: Sequence[str]) -> PartitionRanges:
        """Return what some members own; those that the group does not have are left out.

        As many steps as they have ranges, where plans continue from their last one.
        """
        ids = pa.array(member_ids, pa.string())
        if self._equal is None:
            ranges = self.assignment()
            return ranges.of_members(pc.is_in(ranges.member_ids, value_set=ids))
        keys = np.unique(order_keys(ids, self._equal.instances_of(member_ids)))
        places, there = self._equal.order.find(keys)
        return self._equal.assignment_of(places[there], self.verdict)

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        if self._equal is not None:
            return self._equal.instances_of(member_ids)
        group = self.group()
        at = pc.index_in(pa.array(member_ids, pa.string()), value_set=group.member_ids)
        return group.instance_ids.take(at)

    def group(self) -> GroupSpec:
        """Return the group, with what its members own: as many steps as there are ranges."""
        if self._equal is not None:
            return self._equal.group()
        assert self._whole is not None
        return change_group(*self._whole, GroupChanges())

    def _bounds(self, partitions: int, members: int) -> tuple[int, int]:
        allowed: int | Fraction = 0
        if isinstance(self.assignor, StickyAssignor):
            allowed = parse_imbalance(self.assignor.imbalance)
        return bound_equal_loads(partitions, members, allowed)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChange:
    """What one plan changed.

    Attributes
    ----------
    planned
        The group after it.
    changed
        Members that gained or lost something, with all that they own now; all members if the plan
        looked at all (`planned.full`).
    """

    planned: PlannedGroup
    changed: PartitionRanges


def _find_obstacle(group: GroupSpec, assignor: Assignor) -> FullPlan | None:
    """Return what keeps plans of a group from being continued."""
    uniform = isinstance(assignor, UniformAssignor)
    if not uniform and not (isinstance(assignor, StickyAssignor) and assignor.max_moves is None):
        return FullPlan.ASSIGNOR
    if group.loads is not None:
        return FullPlan.LOADS
    if group.class_count > 1:
        return FullPlan.SUBSCRIPTIONS
    if not group.member_count or not group.partitions[group.class_topics].sum():
        return FullPlan.NOTHING
    return None


def _find_obstacle_in(held: EqualMembers, changes: GroupChanges) -> FullPlan | None:
    """Return why some changes need a plan from nothing."""
    names = held.subscribed_names
    if changes.resubscribed or any(set(some.subscribed) != names for some in changes.joined):
        return FullPlan.SUBSCRIPTIONS
    if len(changes.left) >= len(held.order):
        return FullPlan.NOTHING
    if changes.removed_topics:
        return FullPlan.TOPICS
    if not changes.topics:
        return None
    at = _look_up(held.topics, changes.topics)
    more = np.array(list(changes.topics.values()), dtype=np.int64) - held.partitions[at]
    grows = (at >= 0).all() and (more >= 0).all()
    return None if grows and held.line.length + more.sum() <= PARTITIONS_MAX else FullPlan.TOPICS


def _look_up(known: pa.StringArray, names: Iterable[str]) -> Longs:
    """Return the places of names, −1 for one that is not there."""
    at = pc.index_in(pa.array(names, pa.string()), value_set=known)
    return np.asarray(pc.fill_null(at, -1), dtype=np.int64)


def _find_left(held: EqualMembers, left: Sequence[str]) -> tuple[Longs, EqualMembers] | None:
    """Return the places of members that leave, and the group that forgets who is static of them.

    None if one is unknown: `change_group` says which.
    """
    if not left:
        return np.zeros(0, dtype=np.int64), held
    ids, instances = pa.array(left, pa.string()), held.instances_of(left)
    static = held.statics.keys() & set(left)
    if static:
        rest = {name: at for name, at in held.statics.items() if name not in static}
        held = replace(held, statics=rest)
    places, there = held.order.find(np.unique(order_keys(ids, instances)))
    return (places, held) if there.all() else None


def _list_joined(
    held: EqualMembers, joined: Sequence[SubscribedMembers], leaving: Longs
) -> tuple[Newcomers, EqualMembers] | None:
    """Return new members, in order, and the group that knows who of them is static.

    None if one is not new, but for members at places of those who leave, or comes twice:
    `change_group` says which.
    """
    if not joined:
        none = np.zeros(0, dtype=np.object_)
        return Newcomers(none, none, np.zeros(0, dtype=np.int64)), held
    ids = pa.concat_arrays([members.member_ids for members in joined])
    instances = pa.concat_arrays([members.names("instance_ids") for members in joined])
    racks = pa.concat_arrays([members.names("racks") for members in joined])
    if len(pc.unique(ids)) < len(ids):
        return None
    if held.statics and not held.statics.keys().isdisjoint(ids.to_pylist()):
        return None
    keys = order_keys(ids, instances)
    order = np.argsort(keys)
    if instances.null_count < len(ids):
        named = instances.is_valid()
        plain = order_keys(ids.filter(named), pa.nulls(pc.sum(named).as_py(), pa.string()))
        if _find_staying(held, np.sort(plain), leaving)[1]:
            return None
        new = zip(ids.filter(named).to_pylist(), instances.filter(named).to_pylist(), strict=True)
        held = replace(held, statics=held.statics | dict(new))
    before, stays = _find_staying(held, keys[order], leaving)
    return None if stays else (Newcomers(keys[order], read_texts(racks)[order], before), held)


def _find_staying(held: EqualMembers, keys: Texts, leaving: Longs) -> tuple[Longs, bool]:
    """Return where members belong, and whether one of them is there and stays."""
    places, there = held.order.find(keys)
    return places, bool((there & ~np.isin(places, leaving)).any())
