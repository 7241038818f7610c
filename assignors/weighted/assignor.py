"""The weighted assignor: makespan within a tolerance, near replicas, few moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from assignors.arrays import PARTITIONS_MAX, Bools, Ints, Longs, offsets_of
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.loads.load_spec import LoadSpec
from assignors.option_values import parse_share
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.weighted.budget import Budget, Partitions, keep_budget, make_budget, soften
from assignors.weighted.equal import assign_equal
from assignors.weighted.least import solve_evenly
from assignors.weighted.levels import SMALL
from assignors.weighted.problem import PREFER, RACKS, WeightedProblem, find_places, pose_problem
from assignors.weighted.solve import Solution, find_bound

_ROUNDS, _LARGE_ROUNDS = 16, 4
"""Most times that an answer with soft rules is judged again, in a small group and a large one."""


@dataclass(frozen=True, slots=True)
class WeightedAssignor:
    """Balance weight by capacity (docs/design/assignors.md#weighted).

    Parameters
    ----------
    tolerance
        How far the makespan may be above the best one found, as a share.
    max_moves
        Most partitions taken from live owners by one assignment; None for no limit. Orphans are
        always placed, and what a hard constraint moves always moves.
    max_moved_weight
        The same for their weight, or move cost, in the unit of the weights.
    rack
        "prefer": near a replica where balance allows; "require": only there; "ignore".
    improvement
        What is in order stays unless the makespan falls by more than this share of itself.
    least_share
        How much each member has at least, where partitions allow it, as a share of what an even
        division would give it. Members that have less get it from the fullest ones.

    Raises
    ------
    SpecError
        An option is not of its form.
    """

    name: ClassVar[str] = "weighted"
    knows_loads: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = (
        "max_moves", "tolerance", "rack", "improvement", "max_moved_weight", "least_share",
    )  # fmt: skip
    spark_twin: ClassVar[str] = "spark_jobs.assignors.weighted:assign_group"
    tolerance: str = "1%"
    max_moves: int | None = None
    max_moved_weight: float | None = None
    rack: str = PREFER
    improvement: str = "5%"
    least_share: str = "0%"

    def __post_init__(self) -> None:
        """Refuse options that are not of their form."""
        parse_share(self.tolerance, "tolerance")
        parse_share(self.improvement, "improvement")
        if parse_share(self.least_share, "least_share") > 1:
            raise SpecError(f"least_share is {self.least_share!r}: give at most 100%")
        if self.max_moves is not None and (type(self.max_moves) is not int or self.max_moves < 0):
            raise SpecError(
                f"max_moves is {self.max_moves!r}: give a whole number of partitions, 0 or more"
            )
        most = self.max_moved_weight
        if most is not None and (type(most) not in (int, float) or not most >= 0):
            raise SpecError(f"max_moved_weight is {most!r}: give a number from 0 on")
        if self.rack not in RACKS:
            raise SpecError(f"rack is {self.rack!r}: give one of {', '.join(RACKS)}")

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Assign every partition of every subscribed topic.

        Returns
        -------
        PartitionRanges
            Every hard constraint holds. With equal weights and capacities and no constraints, the
            rows of `uniform`, or with max_moves of `sticky`; or what is in order as it is.

        Raises
        ------
        SpecError
            Constraints leave a partition no member.
        """
        loads = group.loads
        wanted = np.repeat(group.subscribed_topics(), group.partitions)
        if loads is None or self._counts(group, loads, wanted):
            return assign_equal(group, self.worth(), self._most_counted())
        if not group.member_count or not wanted.any():
            return to_ranges(group, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        problem, solution, softer, why = self._solve(group, loads)
        owner, partial = solution.owner, False
        budget = self.budget(loads.weight_unit)
        if budget is not None:
            each = Partitions.of(problem, group, loads)
            owner, partial = keep_budget(problem, solution, budget, each)
            if softer is not None:
                share = parse_share(self.tolerance, "tolerance")
                owner, partial = soften(problem, (owner, partial), softer, budget, each, share)
        elif softer is not None:
            owner = softer
        per_partition = owner if problem.unit is None else owner[problem.unit]
        return to_ranges(
            group, problem.place, per_partition, Verdict(partial=partial, softness=why)
        )

    def worth(self) -> tuple[Fraction, Fraction]:
        """Return for what a valid assignment changes: `improvement` and `least_share`."""
        return (
            parse_share(self.improvement, "improvement"),
            parse_share(self.least_share, "least_share"),
        )

    def _counts(self, group: GroupSpec, loads: LoadSpec, wanted: Bools) -> bool:
        """Tell whether partitions are only counted: they weigh the same, and members are alike.

        What weighs nothing and has an owner does not move, so it is not counted.
        """
        return (
            loads.has_equal_loads(wanted)
            and self.max_moved_weight is None
            and (self.rack not in RACKS[:2] or not (loads.rack_set[wanted] >= 0).any())
            and (not len(group.member) or bool(loads.weight[wanted].any()))
        )

    def _most_counted(self) -> int | None:
        """Return how many partitions may move where each weighs 1."""
        most, weight = self.max_moves, self.max_moved_weight
        if weight is None or weight >= PARTITIONS_MAX:
            return most
        return int(weight) if most is None else min(most, int(weight))

    def budget(self, weight_unit: float) -> Budget | None:
        """Return the most that may move; None where as much may as it takes.

        Parameters
        ----------
        weight_unit
            What a weight of 1 is in the user's unit.
        """
        return make_budget(self.max_moves, self.max_moved_weight, weight_unit)

    def _solve(
        self, group: GroupSpec, loads: LoadSpec
    ) -> tuple[WeightedProblem, Solution, Longs | None, str | None]:
        """Solve with hard rules; and say who has each unit if soft rules hold, unless too dear.

        Or why they cannot hold. Whether they are too dear hangs on what hard rules alone give,
        and that on where units are. So each answer is judged again from where it puts them, until
        one is kept; of answers that lead to each other in a circle, the lowest is taken.
        """
        tolerance = parse_share(self.tolerance, "tolerance")
        options = (tolerance, *self.worth())
        problem = pose_problem(group, loads, self.rack, soft=False)
        bound = find_bound(problem)
        solution = solve_evenly(problem, bound, *options)
        if all(rule.hard for rule in loads.constraints):
            return problem, solution, None, None

        def soften_from(hard: Solution, owner: Longs | None) -> _Answer:
            try:
                softer = pose_problem(group, loads, self.rack, soft=True, owner=owner)
                least = find_bound(softer)
                if least.level() > hard.level * (1 + tolerance):
                    return _Answer(hard)
                found = solve_evenly(softer, least, *options)
            except SpecError as error:
                return _Answer(hard, why=str(error))
            if found.level > hard.level * (1 + tolerance):
                return _Answer(hard)
            row = found.owner if softer.unit is None else found.owner[softer.unit]
            if problem.unit is not None:  # what hard rules join is together in `softer`, too
                row = row[np.unique(problem.unit, return_index=True)[1]]
            return _Answer(hard, row, found.level)

        def answer_again(last: _Answer) -> _Answer:
            if last.softer is None:
                owner = last.hard.owner if problem.unit is None else last.hard.owner[problem.unit]
                same = np.array_equal(owner, find_places(group)[2])
                return last if same else soften_from(last.hard, owner)
            moved = replace(problem, owner=last.softer)
            hard = solve_evenly(moved, bound, *options)
            return last if last.level <= hard.level * (1 + tolerance) else _Answer(hard)

        rounds = _ROUNDS if len(problem.owner) <= SMALL else _LARGE_ROUNDS
        last = _repeat(soften_from(solution, None), answer_again, rounds)
        return problem, last.hard, last.softer, last.why


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """What hard rules alone give; where soft ones hold, unless too dear, or why they cannot."""

    hard: Solution
    softer: Longs | None = None
    lifted: int = 0
    why: str | None = None

    @property
    def owner(self) -> Longs:
        """int64 (units,)."""
        return self.hard.owner if self.softer is None else self.softer

    @property
    def level(self) -> int:
        """Its greatest level."""
        return self.hard.level if self.softer is None else self.lifted


def _repeat(first: _Answer, again: Callable[[_Answer], _Answer], rounds: int) -> _Answer:
    """Answer again from each answer until one is kept, or comes back: then the lowest since."""
    answers = [first]
    for _ in range(rounds):
        last = again(answers[-1])
        same = [np.array_equal(last.owner, one.owner) for one in answers]
        if any(same):
            turn = answers[same.index(True) :]
            return min(turn, key=lambda one: (one.level, one.owner.tolist()))
        answers.append(last)
    return answers[-1]


def to_ranges(
    group: GroupSpec, place: Longs, owner: Longs, verdict: Verdict | None = None
) -> PartitionRanges:
    """Return the ranges of an owner for each place on the line, canonical.

    Parameters
    ----------
    place, owner
        int64 (partitions,), places ascending.
    """
    start = offsets_of(group.partitions)
    head = np.ones(len(place), dtype=np.bool_)
    np.not_equal(owner[1:], owner[:-1], out=head[1:])
    if len(place) < start[-1]:
        head[1:] |= place[1:] != place[:-1] + 1
    edges = np.searchsorted(place, start[:-1])
    head[edges[edges < len(place)]] = True
    at = np.flatnonzero(head)
    count = np.diff(at, append=len(place)).astype(np.int32)
    member, line, sizes = _sort_ranges(owner[at], place[at], count)
    topic = np.searchsorted(start, line, side="right") - 1
    return PartitionRanges(
        group.member_ids,
        group.topics,
        member.astype(np.int32),
        topic.astype(np.int32),
        (line - start[topic]).astype(np.int32),
        sizes,
        verdict or Verdict(),
    )


def _sort_ranges(member: Longs, place: Longs, count: Ints) -> tuple[Longs, Longs, Ints]:
    """Sort ranges by member and place: with their counts as one number, if that fits."""
    bits, wide = (int(one.max(initial=0)).bit_length() for one in (count, place))
    if bits + wide + int(member.max(initial=0)).bit_length() > 63:  # noqa: PLR2004 - of an int64
        order = np.lexsort((place, member))
        return member[order], place[order], count[order]
    key = (((member << wide) | place) << bits) | count
    key.sort()
    line = key >> bits
    return (
        line >> wide,
        line & ((1 << wide) - 1),
        (key & ((1 << bits) - 1)).astype(np.int32),
    )
