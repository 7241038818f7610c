"""What a weighted assignment is worth, against bounds that are computed from the group alone.

It trusts no assignor: loads, racks and rules are worked out again from the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assignors.arrays import Bools, Longs, offsets_of, sum_by
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.constraints import ANTI_AFFINITY, COLOCATE, DRAIN, PIN
from assignors.loads.held_rules import find_held, find_owned
from assignors.loads.load_spec import LoadSpec
from assignors.partition_ranges import PartitionRanges
from assignors.weighted.bounds import SHARE, LowerBound, find_lower_bound, find_whole_bound
from assignors.weighted.problem import IGNORE, pose_problem

_NEAR = Fraction(1, 100)
_HELD_MAX, _NAMED = 20, 3


@dataclass(frozen=True, slots=True)
class Certificate:
    """Makespan, moves and racks of an assignment in the units of its group, with their bounds.

    Attributes
    ----------
    makespan, lower_bound
        Greatest load by capacity, and what none can be below; None where rules cannot hold.
    term
        What the bound is: "share" (weight by the capacity that may have it) or "heaviest".
    moved_weight, moved_weight_bound
        Of owned partitions with a new owner; at least so much moves for this makespan.
    distant_before, distant_after
        Weight of partitions with known racks, none of them their member's.
    weights_known
        Partitions with a weight of their own, of `partitions`.
    rules
        Each constraint in force: name, reason, hard, and whether it holds.
    idle
        Constraints that are not in force, and why.
    held
        Members more than 1 % above the bound, the fullest first, and what holds each there.
    """

    makespan: float
    lower_bound: float | None
    term: str | None
    moved_weight: float
    moved_weight_bound: float
    distant_before: float
    distant_after: float
    weights_known: int
    partitions: int
    rules: tuple[dict[str, Any], ...]
    idle: tuple[str, ...]
    held: tuple[dict[str, str], ...]

    @property
    def gap(self) -> float | None:
        """How far the makespan is above the bound, as a share of it."""
        if not self.lower_bound:
            return None
        return max(self.makespan / self.lower_bound - 1, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "makespan": self.makespan,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "term": self.term,
            "moved_weight": self.moved_weight,
            "moved_weight_bound": self.moved_weight_bound,
            "distant_weight": {"before": self.distant_before, "after": self.distant_after},
            "weights_known": self.weights_known,
            "partitions": self.partitions,
            "constraints": list(self.rules),
            "idle_constraints": list(self.idle),
            "held": list(self.held),
        }


@dataclass(frozen=True, slots=True)
class _Owners:
    """Who had and who has each partition on the line of all topics; −1 for no owner."""

    before: Longs
    now: Longs
    loads: LoadSpec

    @classmethod
    def of(cls, group: GroupSpec, ranges: PartitionRanges, loads: LoadSpec) -> _Owners:
        start = offsets_of(group.partitions)
        before, now = np.full((2, int(start[-1])), -1, dtype=np.int64)
        for owner, rows in ((before, group), (now, ranges)):
            counts = rows.count.astype(np.int64)
            first = start[rows.topic] + rows.first
            inside = offsets_of(counts)
            at = np.arange(int(inside[-1])) + np.repeat(first - inside[:-1], counts)
            owner[at] = np.repeat(rows.member.astype(np.int64), counts)
        return cls(before, now, loads)

    def load(self, owner: Longs, members: int) -> Longs:
        held = owner >= 0
        return sum_by(owner[held], self.loads.weight[held], members)

    def find_distant(self, group: GroupSpec, owner: Longs) -> int:
        sets = self.loads.rack_set
        if not (sets >= 0).any():
            return 0
        racks = group.racks.to_pylist()
        names = {name: at for at, name in enumerate(sorted({one for one in racks if one}))}
        rack = np.array([names.get(one, -1) if one else -1 for one in racks], dtype=np.int64)
        near = np.zeros((len(self.loads.rack_sets), len(names) + 1), dtype=np.bool_)
        for row, members in enumerate(self.loads.rack_sets):
            near[row, [names[name] for name in members if name in names]] = True
        known = np.flatnonzero((owner >= 0) & (sets >= 0))
        far = ~near[sets[known], rack[owner[known]]]
        return int(self.loads.weight[known[far]].sum())


def certify(group: GroupSpec, ranges: PartitionRanges) -> Certificate | None:
    """Judge an assignment; None for a group without weights, capacities and rules."""
    loads = group.loads
    if loads is None:
        return None
    owners = _Owners.of(group, ranges, loads)
    size, unit = group.member_count, loads.weight_unit
    load = owners.load(owners.now, size)
    reached = find_makespan(load, loads.capacity)
    bound = _find_bound(group, loads)
    scale = unit / loads.capacity_unit
    moved = (owners.before >= 0) & (owners.before != owners.now)
    why = ranges.verdict.softness
    return Certificate(
        makespan=float(reached) * scale,
        lower_bound=None if bound is None else float(bound.ratio) * scale,
        term=None if bound is None else bound.term,
        moved_weight=int(loads.weight[moved].sum()) * unit,
        moved_weight_bound=_bound_moves(owners, loads, reached, size) * unit,
        distant_before=owners.find_distant(group, owners.before) * unit,
        distant_after=owners.find_distant(group, owners.now) * unit,
        weights_known=loads.known,
        partitions=len(loads.weight),
        rules=_describe_all(owners, size),
        idle=loads.idle + (() if why is None else (f"soft constraints, all of them: {why}",)),
        held=_explain(group, owners, load, bound),
    )


def weigh_members(group: GroupSpec) -> NDArray[np.float64]:
    """Return the weight that each member owns before any assignment, for its capacity.

    Without weights and capacities it is how many partitions.
    """
    loads = group.loads
    if loads is None:
        return sum_by(group.member, group.count, group.member_count).astype(np.float64)
    before = group.owned()
    owners = _Owners.of(group, before, loads)
    load = owners.load(owners.now, group.member_count)
    scale = float(loads.weight_unit / loads.capacity_unit)
    return load / loads.capacity * scale


def _find_bound(group: GroupSpec, loads: LoadSpec) -> LowerBound | None:
    """Return the bound with hard rules, from true weights; None where they cannot hold."""
    if not group.member_count or not group.subscribed_topics().any():
        return None
    if group.class_count == 1 and all(rule.kind == DRAIN for rule in loads.constraints):
        return _find_bound_for_all(group, loads)
    try:
        problem = pose_problem(group, loads, IGNORE, soft=False)
    except SpecError:
        return None
    weight = loads.weight[problem.place]
    if problem.unit is not None:
        weight = sum_by(problem.unit, weight, len(problem.weight))
    return find_lower_bound(
        weight, problem.type, problem.capacity, problem.cell, problem.allowed, problem.home
    )


def _find_bound_for_all(group: GroupSpec, loads: LoadSpec) -> LowerBound | None:
    """Return the bound where every partition may be on every active member."""
    active = _find_active(loads)
    weight = loads.weight[np.repeat(group.subscribed_topics(), group.partitions)]
    if not len(weight):
        return LowerBound(0, 1, SHARE)
    if not active.any():
        return None
    return find_whole_bound(int(weight.sum()), int(weight.max()), loads.capacity[active])


def _find_active(loads: LoadSpec) -> Bools:
    """Tell which members may have partitions."""
    active = loads.active.copy()
    for rule in loads.constraints:
        if rule.kind == DRAIN and rule.hard:
            active[rule.members] = False
    return active


def _bound_moves(owners: _Owners, loads: LoadSpec, level: Fraction, members: int) -> int:
    before = owners.load(owners.before, members)
    return bound_moves(before, loads.capacity, _find_active(loads), level)


def bound_moves(load: Longs, capacity: Longs, active: Bools, level: Fraction) -> int:
    """Return the weight that must move for a level: from who may have nothing, and what exceeds.

    Parameters
    ----------
    load, capacity, active
        (members,): what each has before, and whether it may have something.
    """
    sizes, at = np.unique(capacity, return_inverse=True)
    room = np.array([(level * int(one)).__ceil__() for one in sizes], dtype=np.int64)
    above = np.maximum(load - room[at], 0)
    return int(load[~active].sum()) + int(above[active].sum())


def find_makespan(load: Longs, capacity: Longs) -> Fraction:
    """Return the greatest load by capacity; 0 without members."""
    if not len(load):
        return Fraction(0)
    top = int(np.argmax(load / capacity))
    return Fraction(int(load[top]), int(capacity[top]))


def _describe_all(owners: _Owners, members: int) -> tuple[dict[str, Any], ...]:
    rules = owners.loads.constraints
    held = find_held(rules, owners.now, members).tolist()
    return tuple(
        {"name": rule.name, "reason": rule.reason, "hard": rule.hard, "holds": holds}
        for rule, holds in zip(rules, held, strict=True)
    )


def find_broken_rules(group: GroupSpec, ranges: PartitionRanges) -> list[str]:
    """Say which hard constraints, and which states of members, an assignment breaks."""
    if group.loads is None:
        return []
    rules = group.loads.constraints
    owners = _Owners.of(group, ranges, group.loads)
    held = find_held(rules, owners.now, group.member_count).tolist()
    out = [
        f"constraint does not hold: {rule.name}"
        for rule, holds in zip(rules, held, strict=True)
        if rule.hard and not holds
    ]
    has = np.zeros(group.member_count, dtype=np.bool_)
    has[ranges.member] = True
    idle = np.flatnonzero(has & ~group.loads.active)
    if len(idle):
        name = group.member_ids[int(idle[0])].as_py()
        out.append(f"member {name!r} owns partitions and is not active")
    return out


def _explain(
    group: GroupSpec, owners: _Owners, load: Longs, bound: LowerBound | None
) -> tuple[dict[str, str], ...]:
    """Say for members above the bound what holds them there."""
    if bound is None or not bound.load:
        return ()
    loads = owners.loads
    limit = float(bound.ratio * (1 + _NEAR))
    level = load / loads.capacity
    full = np.argsort(-level, kind="stable")[:_HELD_MAX]
    full = full[level[full] > limit]
    rules = [rule for rule in loads.constraints if rule.kind in (PIN, COLOCATE, ANTI_AFFINITY)]
    held = find_owned(rules, owners.now, full)
    return tuple(
        {
            "member_id": group.member_ids[member].as_py(),
            "held_by": "; ".join([rules[at].name for at in np.flatnonzero(own)[:_NAMED]])
            or _name_heaviest(group, loads, owners.now == member),
        }
        for member, own in zip(full.tolist(), held, strict=True)
    )


def _name_heaviest(group: GroupSpec, loads: LoadSpec, own: Bools) -> str:
    """Name the heaviest partition of a member without rules."""
    place = int(np.argmax(np.where(own, loads.weight, -1)))
    start = offsets_of(group.partitions)
    topic = int(np.searchsorted(start, place, side="right")) - 1
    share = int(loads.weight[place]) / max(int(loads.weight[own].sum()), 1)
    name = f"{group.topics[topic].as_py()}/{place - int(start[topic])}"
    return f"no rule; {name} is {share:.0%} of its load"
