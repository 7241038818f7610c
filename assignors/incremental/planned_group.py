"""PlannedGroup: a group with its plan, and the next plan after some changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import PARTITIONS_MAX, Longs, sum_by
from assignors.group_spec import GroupSpec
from assignors.incremental.changes import GroupChanges, change_group
from assignors.incremental.member_order import BLOCK
from assignors.incremental.separate_classes import SeparateClasses, join_owned
from assignors.long_ranges.keep_long import keeps_long
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
    LONG = "ranges of so small a group are kept long, for which all are looked at"
    SUBSCRIPTIONS = "members have different subscriptions with a common topic, or change them"
    CLASSES = "there are very many subscriptions and topics"
    TOPICS = "a topic is new, smaller or gone"
    NAMES = "a member is looked for among all"
    NOTHING = "members of a subscription, or partitions for them, are not there, before or after"


_PAIRS_MAX = 1 << 21
"""Subscriptions by topics: each has columns of all topics, a few dozen bytes each."""


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
    _held: SeparateClasses | None

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
            return cls(
                assignor, ranges.verdict, why, None, SeparateClasses.of(group, ranges, block)
            )
        return cls(assignor, ranges.verdict, why, (group, ranges), None)

    def find_obstacle(self, changes: GroupChanges) -> FullPlan | None:
        """Return why the plan after some changes would look at all members; None: it would not.

        It would too if a change names a member that is unknown, or one as new that is not.
        """
        if self._held is not None:
            return self._find_obstacle_in(self._held, _simplify(self._held, changes))
        assert self._whole is not None
        return _find_obstacle(self._whole[0], self.assignor) or FullPlan.FIRST

    def after(self, changes: GroupChanges) -> PlannedChange:
        """Return the group with its next plan; this one stays as it is.

        Raises
        ------
        SpecError
            As `change_group`, and as the assignor.
        """
        held = self._held
        if held is None:
            return self._plan_all(changes, None)
        moves = _simplify(held, changes)
        why = self._find_obstacle_in(held, moves)
        if why is not None:
            return self._plan_all(changes, why)
        plans = held.plan(moves, self._bounds)
        if plans is None:
            return self._plan_all(changes, FullPlan.NAMES)
        verdict = Verdict(moved_minimum=plans.moved)
        planned = PlannedGroup(self.assignor, verdict, None, None, plans.held)
        changed = plans.held.ranges_of(join_owned(plans.touched), verdict)
        return PlannedChange(planned, changed)

    def _find_obstacle_in(self, held: SeparateClasses, changes: GroupChanges) -> FullPlan | None:
        assert isinstance(self.assignor, UniformAssignor | StickyAssignor)
        after = _count_after(held, changes)
        if keeps_long(*after, self.assignor.long_ranges):
            return FullPlan.LONG
        return _find_obstacle_in(held, changes)

    def _plan_all(self, changes: GroupChanges, why: FullPlan | None) -> PlannedChange:
        before = (self.group(), self.assignment()) if self._whole is None else self._whole
        group = change_group(*before, changes)
        why = why or _find_obstacle(before[0], self.assignor) or FullPlan.FIRST
        planned = PlannedGroup.plan(group, self.assignor, why)
        return PlannedChange(planned, planned.assignment())

    def assignment(self) -> PartitionRanges:
        """Return who owns what, all of it: as many steps as there are ranges."""
        if self._held is not None:
            return self._held.ranges_of(self._held.all_owned(), self.verdict)
        assert self._whole is not None
        return self._whole[1]

    def assignment_of(self, member_ids: Sequence[str]) -> PartitionRanges:
        """Return what some members own; those that the group does not have are left out.

        As many steps as they have ranges, where plans continue from their last one.
        """
        if self._held is None:
            ids = pa.array(member_ids, pa.string())
            ranges = self.assignment()
            return ranges.of_members(pc.is_in(ranges.member_ids, value_set=ids))
        return self._held.ranges_of(self._held.owned_by(member_ids), self.verdict)

    def subscriptions_of(self, member_ids: Sequence[str]) -> list[frozenset[str] | None]:
        """Return the topics that some members subscribe to; None: the group has no such member.

        Only where plans continue from their last one.
        """
        assert self._held is not None
        return self._held.subscriptions_of(member_ids)

    def find_unsubscribed(self, ranges: PartitionRanges) -> str | None:
        """Return a member that is given a topic to which it does not subscribe; None: none is.

        Only where plans continue from their last one.
        """
        assert self._held is not None
        return self._held.find_unsubscribed(ranges)

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        if self._held is not None:
            return self._held.instances_of(member_ids)
        group = self.group()
        at = pc.index_in(pa.array(member_ids, pa.string()), value_set=group.member_ids)
        return group.instance_ids.take(at)

    def group(self) -> GroupSpec:
        """Return the group, with what its members own: as many steps as there are ranges."""
        if self._held is not None:
            return self._held.group()
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
    if not _continues(assignor):
        return FullPlan.ASSIGNOR
    if group.loads is not None:
        return FullPlan.LOADS
    partitions = int(group.partitions[group.subscribed_topics()].sum())
    if keeps_long(group.member_count, partitions, assignor.long_ranges):
        return FullPlan.LONG
    classes = np.arange(group.class_count).repeat(np.diff(group.class_offsets))
    if len(np.unique(group.class_topics)) < len(classes):
        return FullPlan.SUBSCRIPTIONS
    if group.class_count * len(group.topics) > _PAIRS_MAX:
        return FullPlan.CLASSES
    each = sum_by(classes, group.partitions[group.class_topics], group.class_count)
    return None if len(each) and each.all() else FullPlan.NOTHING


def _continues(assignor: Assignor) -> TypeGuard[UniformAssignor | StickyAssignor]:
    if isinstance(assignor, StickyAssignor):
        return assignor.max_moves is None
    return isinstance(assignor, UniformAssignor)


def _simplify(held: SeparateClasses, changes: GroupChanges) -> GroupChanges:
    """Return the same changes as members that leave, join or only get another id."""
    changes = changes.shortened()
    return held.as_moves(changes) if changes.resubscribed else changes


def _find_obstacle_in(held: SeparateClasses, changes: GroupChanges) -> FullPlan | None:
    """Return why some changes need a plan from nothing."""
    joined = (held.class_of(members.subscribed) for members in changes.joined)
    if changes.resubscribed or any(at is None for at in joined):
        return FullPlan.SUBSCRIPTIONS
    if held.is_emptied(changes.left):
        return FullPlan.NOTHING
    if changes.removed_topics:
        return FullPlan.TOPICS
    if not changes.topics:
        return None
    at = _look_up(held.topics, changes.topics)
    more = np.array(list(changes.topics.values()), dtype=np.int64) - held.partitions[at]
    grows = (at >= 0).all() and (more >= 0).all()
    total = sum(one.line.length for one in held.classes)
    return None if grows and total + more.sum() <= PARTITIONS_MAX else FullPlan.TOPICS


def _count_after(held: SeparateClasses, changes: GroupChanges) -> tuple[int, int]:
    """Return how many members there are after some changes, and partitions for them."""
    members = sum(len(one.order) for one in held.classes) - len(set(changes.left))
    members += sum(len(one.member_ids) for one in changes.joined)
    partitions = sum(one.line.length for one in held.classes)
    grown = {name: to for name, to in changes.topics.items() if name in held.class_of_topic}
    if grown:
        partitions += sum(grown.values()) - int(held.partitions[_look_up(held.topics, grown)].sum())
    return members, partitions


def _look_up(known: pa.StringArray, names: Iterable[str]) -> Longs:
    """Return the places of names, −1 for one that is not there."""
    at = pc.index_in(pa.array(names, pa.string()), value_set=known)
    return np.asarray(pc.fill_null(at, -1), dtype=np.int64)
