"""The next plan of a group with weights, where they drift: who has what stays as it is.

See docs/design/algorithm.md#the-next-plan. A plan from nothing leaves a valid assignment as it is
whose greatest level is near the lower bound. Both follow from sums that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs, expand_runs, offsets_of, sum_by, sum_segments
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec, order_members
from assignors.incremental.changes import GroupChanges, rename_group
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.weight_sums import WeightSums
from assignors.loads.change_loads import locate_weights
from assignors.loads.load_spec import Floats, LoadSpec
from assignors.loads.parse_loads import find_weights
from assignors.partition_ranges import PartitionRanges
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.bounds import bound_types, measure_cells
from assignors.weighted.least import measure_lack
from assignors.weighted.levels import levels_of
from assignors.weighted.problem import IGNORE
from assignors.weighted.tables import Line, relate, tabulate

_OTHERS = ("left", "joined", "resubscribed", "topics", "removed_topics", "lists")
"""What a plan is made from nothing for."""


@dataclass(frozen=True, slots=True, eq=False)
class DriftingWeights:
    """A planned group of which weights may change.

    Attributes
    ----------
    group, ranges
        As planned, but for ids: its loads are those of then.
    unseen
        Weights that changed since of topics without subscribers, by place on the line of all.
    sums
        Of the weights of topics with subscribers.
    topics
        int64 (topics,) each, of topics with subscribers and partitions: where they begin on the
        line, how many partitions they have, and of which type.
    begins, count, owner
        int64 (ranges,): where each range begins on the line, ascending, its partitions and member.
    load, level
        int64 (members,).
    allowed, sizes
        Types and cells, as `bound_types` wants them.
    open
        bool (members,): may have something.
    wanted, unknown
        bool (topics,): have subscribers; have weights that stand for others.
    """

    group: GroupSpec
    ranges: PartitionRanges
    unseen: Mapping[int, float]
    sums: WeightSums
    topics: tuple[Longs, Longs, Longs]
    begins: Longs
    count: Longs
    owner: Longs
    load: Longs
    level: Longs
    allowed: Bools
    sizes: tuple[Longs, Longs]
    open: Bools
    wanted: Bools
    unknown: Bools

    @classmethod
    def of(
        cls, group: GroupSpec, ranges: PartitionRanges, assignor: WeightedAssignor
    ) -> DriftingWeights | None:
        """Keep a plan; None where other weights would be looked at by a plan from nothing."""
        loads, size = group.loads, group.member_count
        if loads is None or loads.given.weight is None or loads.constraints or not size:
            return None
        if assignor.rack != IGNORE and bool((loads.rack_set >= 0).any()):
            return None
        wanted, start = group.subscribed_topics(), offsets_of(group.partitions)
        real = np.flatnonzero(wanted & (group.partitions > 0))
        if not len(real):
            return None
        line = Line(start[real], real, np.full(len(real), -1))
        table, _ = tabulate(group, loads.active, line, (), None)
        allowed, _ = relate(group, loads, table, line, require=False)
        weight, _ = find_weights(loads.given, start, wanted)
        heads = start[real], group.partitions[real], table.type
        added = WeightSums.of(weight, *heads)
        if added is None:
            return None
        begins = start[ranges.topic] + ranges.first
        order = np.argsort(begins)
        count, owner = (column[order].astype(np.int64) for column in (ranges.count, ranges.member))
        load = sum_by(np.repeat(owner, count), added[1], size)
        known = sum_segments((~np.isnan(loads.given.weight)).astype(np.int64), start)
        unknown = known < group.partitions
        if (known[real] == 0).any():  # all that are known stand for those of this topic
            unknown[:] = True
        sizes = measure_cells(loads.capacity, table.cell, allowed.shape[1])
        return cls(
            group, ranges, {}, added[0], heads, begins[order], count, owner, load,
            levels_of(load, loads.capacity), allowed, sizes, table.cell >= 0, wanted, unknown,
        )  # fmt: skip

    def follow(
        self, changes: GroupChanges, assignor: WeightedAssignor
    ) -> DriftingWeights | FullPlan:
        """Return the group after changes if it stays as it is; else why a plan looks at all."""
        if any(getattr(changes, name) for name in _OTHERS):
            return FullPlan.WEIGHED
        group = self.group
        try:
            place, weight = locate_weights(changes.weights, group.topics, group.partitions)
            named = self._rename(changes.renamed)
        except SpecError:
            return FullPlan.NAMES
        if named is None:
            return FullPlan.WEIGHED
        after = named.drifted(place, weight)
        if isinstance(after, FullPlan):
            return after
        return after if after.stays_with(assignor) else FullPlan.DRIFT

    def _rename(self, renamed: Mapping[str, str]) -> DriftingWeights | None:
        """Give members other ids; None if that changes their order."""
        if not renamed:
            return self
        group, ranges = rename_group(self.group, self.ranges, renamed)
        order = order_members(group.member_ids, group.instance_ids)
        if (np.diff(order) < 0).any():
            return None
        return replace(self, group=group, ranges=ranges)

    def drifted(self, place: Longs, weight: Floats) -> DriftingWeights | FullPlan:
        """Change weights at places, ascending."""
        if not len(place):
            return self
        topic = offsets_of(self.group.partitions).searchsorted(place, side="right") - 1
        seen = self.wanted[topic]
        others = zip(place[~seen].tolist(), weight[~seen].tolist(), strict=True)
        after = replace(self, unseen={**self.unseen, **dict(others)})
        place, weight = place[seen], weight[seen]
        if not len(place):
            return after
        if self.unknown[topic[seen]].any() or np.isnan(weight).any():
            return FullPlan.UNKNOWN
        changed = self.sums.changed(place, weight)
        if changed is None:
            return after.scaled_again(place, weight) or FullPlan.WEIGHTLESS
        sums, (where, more) = changed
        whose = self.owner[self.begins.searchsorted(where, side="right") - 1]
        load, level = self.load.copy(), self.level.copy()
        np.add.at(load, whose, more)
        level[whose] = levels_of(load[whose], self._loads.capacity[whose])
        return replace(after, sums=sums, load=load, level=level)

    def scaled_again(self, place: Longs, weight: Floats) -> DriftingWeights | None:
        """Add up all weights, of which some change; None if nothing weighs anything then."""
        line = np.zeros(int(self.group.partitions.sum()))
        self.sums.put(line)
        line[place] = weight
        added = WeightSums.of(line, *self.topics)
        if added is None:
            return None
        capacity = self._loads.capacity
        load = sum_by(np.repeat(self.owner, self.count), added[1], len(capacity))
        return replace(self, sums=added[0], load=load, level=levels_of(load, capacity))

    @property
    def _loads(self) -> LoadSpec:
        assert self.group.loads is not None
        return self.group.loads

    def stays_with(self, assignor: WeightedAssignor) -> bool:
        """Tell whether a plan from nothing leaves all as it is (`WeightedAssignor.assign`)."""
        capacity, sums = self._loads.capacity, self.sums
        if assignor.max_moved_weight is None and self.open.all():  # else weights decide
            alike = bool((capacity == capacity[0]).all())
            if alike and sums.are_equal():
                return False
        improvement, least_share = assignor.worth()
        bound = bound_types(sums.amount, sums.heaviest(), self.sizes, self.allowed)
        if int(self.level.max()) > bound.level(improvement):
            return False
        total = int(sums.amount.sum())
        return not (
            least_share and measure_lack(total, capacity, self.open, self.load, least_share).any()
        )

    def known_group(self) -> GroupSpec:
        """Return the group as planned, with what is given of its loads now."""
        given = self._loads.given
        assert given.weight is not None
        weight = given.weight.copy()
        self.sums.put(weight)
        filled = np.repeat(self.unknown, self.group.partitions)
        weight[filled] = given.weight[filled]
        weight[list(self.unseen)] = list(self.unseen.values())
        return replace(self.group, loads=replace(self._loads, given=replace(given, weight=weight)))

    def owned_by(self, member_ids: Sequence[str]) -> PartitionRanges:
        """Return what some members own, in member order; unknown ones are left out."""
        at = self._find(member_ids)
        known = np.sort(at[at >= 0])
        ends = np.stack([known, known + 1]).astype(self.ranges.member.dtype)
        low, high = self.ranges.member.searchsorted(ends)
        rows = expand_runs(low, high - low)
        return PartitionRanges(
            self.ranges.member_ids.take(pa.array(known)),
            self.ranges.topics,
            np.repeat(np.arange(len(known)), high - low).astype(np.int32),
            self.ranges.topic[rows],
            self.ranges.first[rows],
            self.ranges.count[rows],
        )

    def subscriptions_of(self, member_ids: Sequence[str]) -> list[frozenset[str] | None]:
        """Return the topics that some members subscribe to; None for unknown ones."""
        at = self._find(member_ids)
        class_ = np.append(self.group.member_class, -1)[at].tolist()
        edges, topics = self.group.class_offsets, self.group.class_topics
        names: dict[int, frozenset[str] | None] = {-1: None}
        for one in set(class_) - names.keys():
            listed = pa.array(topics[edges[one] : edges[one + 1]])
            names[one] = frozenset(self.group.topics.take(listed).to_pylist())
        return [names[one] for one in class_]

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        at = self._find(member_ids)
        return self.group.instance_ids.take(pa.array(at, mask=at < 0))

    def _find(self, member_ids: Sequence[str]) -> Longs:
        """Return the place of each member, −1 if it is not there."""
        names = pa.array(member_ids, pa.string())
        at = pc.fill_null(pc.index_in(names, value_set=self.group.member_ids), -1)
        return np.asarray(at, dtype=np.int64)
