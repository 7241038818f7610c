"""The sticky assignor: the fewest moves within an imbalance, as fair as that allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from assignors.arrays import PARTITIONS_MAX
from assignors.compressed_problem import CompressedProblem
from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.materialize import materialize
from assignors.option_values import EXACT_EDGES, LONG_RANGES, check_defragment
from assignors.ownership import ArrayOwnership
from assignors.partition_ranges import PartitionRanges
from assignors.plan import solve_sticky_plan

_PERCENT = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?\s*%")


@dataclass(frozen=True, slots=True)
class StickyAssignor:
    """The fewest moves first, within bounds (docs/design/assignors.md#what-is-promised).

    Parameters
    ----------
    imbalance
        How far a load may lie below the floor and above the ceiling of its level: partitions, or
        text such as "5%", a share of the level rounded up.
    max_moves
        Most partitions taken from live owners by one assignment; None for no limit. Orphans are
        always placed. An assignment cut short is `partial`.
    exact_edges
        Arcs of the largest network to solve exactly.
    long_ranges
        Partitions of the largest group whose ranges are kept long, with a member for each 128.
    defragment
        Of such a group, how many partitions more may be moved so that members have fewer ranges.

    Raises
    ------
    SpecError
        An option is not of its form.
    """

    name: ClassVar[str] = "sticky"
    knows_loads: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = (
        "imbalance", "max_moves", "exact_edges", "long_ranges", "defragment",
    )  # fmt: skip
    spark_twin: ClassVar[str] = "spark_jobs.assignors.sticky:TWIN"
    imbalance: int | str = 0
    max_moves: int | None = None
    exact_edges: int = EXACT_EDGES
    long_ranges: int = LONG_RANGES
    defragment: int = 0

    def __post_init__(self) -> None:
        """Refuse options that are not of their form."""
        parse_imbalance(self.imbalance)
        check_defragment(self.defragment)
        if self.max_moves is not None and (type(self.max_moves) is not int or self.max_moves < 0):
            raise SpecError(
                f"max_moves is {self.max_moves!r}: give a whole number of partitions, 0 or more"
            )

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Assign every partition of every subscribed topic.

        Returns
        -------
        PartitionRanges
            Every load lies in [⌊level⌋ − k, ⌈level⌉ + k]; no such assignment moves fewer. For k = 0
            loads are the fairest, and no assignment with such loads moves fewer.
        """
        group.refuse_constraints(self.name)
        owned = ArrayOwnership(group)
        allowed = parse_imbalance(self.imbalance)
        plan = solve_sticky_plan(CompressedProblem.of(group), allowed, owned, self.exact_edges)
        return materialize(group, plan, owned, self.max_moves, self.long_ranges, self.defragment)


def parse_imbalance(value: int | str, name: str = "imbalance") -> int | Fraction:
    """Read an imbalance: partitions as an int, a share of the level as a Fraction.

    Parameters
    ----------
    name
        What to call it.

    Raises
    ------
    SpecError
        It is neither a whole number from 0 nor a percentage.
    """
    if type(value) is int and 0 <= value <= PARTITIONS_MAX:
        return value
    if isinstance(value, str):
        if value.isascii() and value.isdigit() and int(value) <= PARTITIONS_MAX:
            return int(value)
        found = _PERCENT.fullmatch(value)
        if found:
            digits = found[2] or ""
            return Fraction(int(found[1] + digits), 100 * 10 ** len(digits))
    raise SpecError(
        f"{name} is {value!r}: give a whole number of partitions (0 or more) or a share "
        'such as "5%"'
    )
