"""What uniform and sticky share: a group is assigned in blocks.

A group whose ranges are kept long is so small that the driver assigns it, once it is read: what
makes it large for the driver is rows of those who left, or ranges cut into many.
"""

from __future__ import annotations

from dataclasses import replace

from assignors.blocks.assign_blocks import Options
from assignors.long_ranges.keep_long import keeps_long
from assignors.option_values import EXACT_EDGES, LONG_RANGES
from assignors.sticky import StickyAssignor, parse_imbalance
from spark_jobs.assignors.blocks import read_blocks
from spark_jobs.assignors.frame_assignment import FrameAssignment
from spark_jobs.assignors.small_group import GivenTables, assign_on_driver, join_blocks
from spark_jobs.session.work_session import WorkSession


def assign_balanced(
    work_session: WorkSession,
    given: GivenTables,
    *,
    imbalance: int | str = 0,
    max_moves: int | None = None,
    exact_edges: int = EXACT_EDGES,
    long_ranges: int = LONG_RANGES,
    defragment: int = 0,
) -> FrameAssignment:
    """Assign with the fewest moves within an imbalance. An imbalance of 0 is uniform."""
    group = read_blocks(work_session, given)
    if keeps_long(int(group.members.sum()), group.partitions, long_ranges):
        assignor = StickyAssignor(imbalance, max_moves, exact_edges, long_ranges, defragment)
        spec = join_blocks(group.known, group.list_members())
        done = assign_on_driver(work_session, assignor, spec)
        return replace(done, held=None)  # it has no rows of those who left
    options = Options(parse_imbalance(imbalance), max_moves, exact_edges)
    return FrameAssignment.of(group.assign(options))
