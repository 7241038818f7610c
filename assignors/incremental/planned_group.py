"""PlannedGroup: a group with its plan, and the next plan after some changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from assignors.group_spec import GroupSpec
from assignors.incremental.changes import GroupChanges, change_group
from assignors.incremental.drifting_weights import DriftingWeights
from assignors.incremental.equal_members import join_owned
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.member_order import BLOCK
from assignors.incremental.resolve_changes import PAIRS_MAX, ResolvedChanges, resolve_changes
from assignors.incremental.separate_classes import SeparateClasses
from assignors.long_ranges.keep_long import keeps_long
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.plan import bound_equal_loads
from assignors.registry import Assignor
from assignors.sticky import StickyAssignor, parse_imbalance
from assignors.uniform import UniformAssignor
from assignors.weighted.assignor import WeightedAssignor


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
    _weighed: DriftingWeights | None = None

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
        held, weighed = None, None
        if isinstance(assignor, WeightedAssignor):
            weighed = DriftingWeights.of(group, ranges, assignor)
        elif _find_obstacle(group, assignor) is None:
            held = SeparateClasses.of(group, ranges, block)
        whole = (group, ranges) if held is None and weighed is None else None
        return cls(assignor, ranges.verdict, why, whole, held, weighed)

    def find_obstacle(self, changes: GroupChanges) -> FullPlan | None:
        """Return why the plan after some changes would look at all members; None: it would not.

        It would too if a change names a member that is unknown, or one as new that is not.
        """
        found = self.follow(changes) if self._weighed is not None else self._resolve(changes)
        return found if isinstance(found, FullPlan) else None

    def after(self, changes: GroupChanges) -> PlannedChange:
        """Return the group with its next plan; this one stays as it is.

        Raises
        ------
        SpecError
            As `change_group`, and as the assignor.
        """
        done = self.follow(changes)
        return self._plan_all(changes, done) if isinstance(done, FullPlan) else done

    def follow(self, changes: GroupChanges) -> PlannedChange | FullPlan:
        """Return the same if the plan continues from this one; else why it does not."""
        if self._weighed is not None:
            return self._follow_weights(self._weighed, changes)
        found = self._resolve(changes)
        if isinstance(found, FullPlan):
            return found
        assert self._held is not None
        assert isinstance(self.assignor, UniformAssignor | StickyAssignor)
        plans = self._held.plan(found, self._bounds, self.assignor)
        if isinstance(plans, FullPlan):
            return plans
        if _is_cut_short(self.assignor, plans.moved):
            return FullPlan.MOVES
        verdict = Verdict(moved_minimum=plans.moved)
        planned = PlannedGroup(self.assignor, verdict, None, None, plans.held)
        changed = plans.held.ranges_of(join_owned(plans.touched), verdict)
        return PlannedChange(planned, changed)

    def _follow_weights(
        self, weighed: DriftingWeights, changes: GroupChanges
    ) -> PlannedChange | FullPlan:
        """Leave all as it is, if a plan from nothing does."""
        assert isinstance(self.assignor, WeightedAssignor)
        after = weighed.follow(changes, self.assignor)
        if isinstance(after, FullPlan):
            return after
        planned = PlannedGroup(self.assignor, Verdict(), None, None, None, after)
        return PlannedChange(planned, after.owned_by(()))

    def _resolve(self, changes: GroupChanges) -> ResolvedChanges | FullPlan:
        if self._held is None:
            assert self._whole is not None
            return _find_obstacle(self._whole[0], self.assignor) or FullPlan.KINDS
        assert isinstance(self.assignor, UniformAssignor | StickyAssignor)
        if changes.weights:
            return FullPlan.LOADS
        if self.verdict.partial:  # classes that nothing touches have more to move
            return FullPlan.MOVES
        found = resolve_changes(self._held, changes)
        if isinstance(found, FullPlan):
            return found
        long = keeps_long(found.members, found.partitions, self.assignor.long_ranges)
        return FullPlan.LONG if long else found

    def _plan_all(self, changes: GroupChanges, why: FullPlan) -> PlannedChange:
        before = self._held.group_and_owned() if self._held is not None else self._all()
        group = change_group(*before, changes)
        planned = PlannedGroup.plan(group, self.assignor, why)
        return PlannedChange(planned, planned.assignment())

    def assignment(self) -> PartitionRanges:
        """Return who owns what, all of it: as many steps as there are ranges."""
        if self._held is not None:
            return self._held.ranges_of(self._held.all_owned(), self.verdict)
        return replace(self._all()[1], verdict=self.verdict)

    def _all(self) -> tuple[GroupSpec, PartitionRanges]:
        """Return the group as planned, where that is kept as a whole, and who owns what."""
        if self._weighed is not None:
            return self._weighed.known_group(), self._weighed.ranges
        assert self._whole is not None
        return self._whole

    def assignment_of(self, member_ids: Sequence[str]) -> PartitionRanges:
        """Return what some members own; those that the group does not have are left out.

        As many steps as they have ranges, where plans continue from their last one.
        """
        if self._weighed is not None:
            return replace(self._weighed.owned_by(member_ids), verdict=self.verdict)
        if self._held is None:
            ids = pa.array(member_ids, pa.string())
            ranges = self.assignment()
            return ranges.of_members(pc.is_in(ranges.member_ids, value_set=ids))
        return self._held.ranges_of(self._held.owned_by(member_ids), self.verdict)

    def subscriptions_of(self, member_ids: Sequence[str]) -> list[frozenset[str] | None]:
        """Return the topics that some members subscribe to; None: the group has no such member.

        Only where plans continue from their last one.
        """
        if self._weighed is not None:
            return self._weighed.subscriptions_of(member_ids)
        assert self._held is not None
        return self._held.subscriptions_of(member_ids)

    def find_unsubscribed(self, ranges: PartitionRanges) -> str | None:
        """Return a member that is given a topic to which it does not subscribe; None: none is.

        Only where plans continue from their last one.
        """
        if self._weighed is not None:
            assert not len(ranges), "weights that drift move nothing"
            return None
        assert self._held is not None
        return self._held.find_unsubscribed(ranges)

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        if self._held is not None:
            return self._held.instances_of(member_ids)
        if self._weighed is not None:
            return self._weighed.instances_of(member_ids)
        group = self.group()
        at = pc.index_in(pa.array(member_ids, pa.string()), value_set=group.member_ids)
        return group.instance_ids.take(at)

    def group(self) -> GroupSpec:
        """Return the group, with what its members own: as many steps as there are ranges."""
        if self._held is not None:
            return self._held.group()
        return change_group(*self._all(), GroupChanges())

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
    if group.loads is not None:
        return FullPlan.LOADS
    if not _continues(assignor):
        return FullPlan.ASSIGNOR
    partitions = int(group.partitions[group.subscribed_topics()].sum())
    if keeps_long(group.member_count, partitions, assignor.long_ranges):
        return FullPlan.LONG
    if group.class_count * len(group.topics) > PAIRS_MAX:
        return FullPlan.CLASSES
    return None if group.member_count else FullPlan.NOTHING


def _is_cut_short(assignor: Assignor, moved: int) -> bool:
    """Tell whether so many moves are more than an assignor makes at once."""
    most = assignor.max_moves if isinstance(assignor, StickyAssignor) else None
    return most is not None and moved > most


def _continues(assignor: Assignor) -> TypeGuard[UniformAssignor | StickyAssignor]:
    return isinstance(assignor, StickyAssignor | UniformAssignor)
