"""The uniform assignor: the fairest loads, and among those the fewest moves, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assignors.compressed_problem import Problem
from assignors.group_spec import GroupSpec
from assignors.materialize import expand
from assignors.ownership import Asked
from assignors.partition_ranges import PartitionRanges
from assignors.plan import EXACT_EDGES, solve, uniform_cells


@dataclass(frozen=True, slots=True)
class UniformAssignor:
    """Balance first, then the fewest moves (docs/assignors.md#what-is-promised).

    Parameters
    ----------
    exact_edges
        Arcs of the largest network to solve exactly.
    """

    name: ClassVar[str] = "uniform"
    exact_edges: int = EXACT_EDGES

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Assign every partition of every subscribed topic.

        Returns
        -------
        PartitionRanges
            The sorted loads are max-min fair (spread at most 1 when all subscriptions are equal);
            among such assignments no other moves fewer owned partitions, as `verdict` says.
        """
        owned = Asked(group)
        plan = solve(uniform_cells(Problem.of(group)), owned, self.exact_edges)
        return expand(group, plan, owned)
