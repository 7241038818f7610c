"""The uniform assignor: the fairest loads, and among those the fewest moves, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assignors.compressed_problem import CompressedProblem
from assignors.group_spec import GroupSpec
from assignors.materialize import materialize
from assignors.option_values import EXACT_EDGES, LONG_RANGES, check_defragment
from assignors.ownership import ArrayOwnership
from assignors.partition_ranges import PartitionRanges
from assignors.plan import plan_uniform_cells, solve_plan


@dataclass(frozen=True, slots=True)
class UniformAssignor:
    """Balance first, then the fewest moves (docs/design/assignors.md#what-is-promised).

    Parameters
    ----------
    exact_edges
        Arcs of the largest network to solve exactly.
    long_ranges
        Partitions of the largest group whose ranges are kept long, with a member for each 128.
    defragment
        Of such a group, how many partitions more may be moved so that members have fewer ranges.
    """

    name: ClassVar[str] = "uniform"
    knows_loads: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("exact_edges", "long_ranges", "defragment")
    spark_twin: ClassVar[str] = "spark_jobs.assignors.uniform:TWIN"
    exact_edges: int = EXACT_EDGES
    long_ranges: int = LONG_RANGES
    defragment: int = 0

    def __post_init__(self) -> None:
        """Refuse options that are not of their form."""
        check_defragment(self.defragment)

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Assign every partition of every subscribed topic.

        Returns
        -------
        PartitionRanges
            The sorted loads are max-min fair (spread at most 1 when all subscriptions are equal);
            among such assignments no other moves fewer owned partitions, as `verdict` says.
        """
        group.refuse_constraints(self.name)
        owned = ArrayOwnership(group)
        plan = solve_plan(plan_uniform_cells(CompressedProblem.of(group)), owned, self.exact_edges)
        return materialize(
            group, plan, owned, long_ranges=self.long_ranges, defragment=self.defragment
        )
