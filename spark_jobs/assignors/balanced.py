"""The steps that uniform and sticky share: in blocks where classes do not compete, else by frames.

With frames, they are: read, resolve, plan on the driver, materialize.

A group whose ranges are kept long is so small that the driver assigns it, once it is resolved: what
makes it large for the driver is rows of those who left, or ranges cut into many.
"""

from __future__ import annotations

from dataclasses import replace

from assignors.long_ranges.keep_long import keeps_long
from assignors.option_values import EXACT_EDGES, LONG_RANGES
from assignors.partition_ranges import ARROW_SCHEMA
from assignors.plan import solve_sticky_plan
from assignors.sticky import StickyAssignor, parse_imbalance
from spark_jobs.assignors.blocks import assign_in_blocks
from spark_jobs.assignors.group import FrameGroup
from spark_jobs.assignors.materialize import FrameAssignment, materialize
from spark_jobs.assignors.ownership import FrameOwnership
from spark_jobs.assignors.prior_ownership import check_previous, resolve_claims
from spark_jobs.assignors.small_group import GivenTables, assign_on_driver, collect_group
from spark_jobs.session.schemas import frame_of
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
    found = assign_in_blocks(
        work_session, given, imbalance=imbalance, max_moves=max_moves, long_ranges=long_ranges
    )
    if found is not None:
        return found
    previous = given.previous
    if previous is None:
        previous = frame_of(work_session.spark, ARROW_SCHEMA.empty_table())
    claims, rows = check_previous(previous)
    group = FrameGroup.of(work_session, given.members, given.topics, rows)
    resolved = resolve_claims(group, claims)
    sizes = int(group.classes.size.sum()), int(group.problem.partitions.sum())
    if keeps_long(*sizes, long_ranges):
        assignor = StickyAssignor(imbalance, max_moves, exact_edges, long_ranges, defragment)
        done = assign_on_driver(work_session, assignor, collect_group(group, resolved))
        return replace(done, held=None)  # it has no rows of those who left
    owned = FrameOwnership(group, resolved)
    plan = solve_sticky_plan(group.problem, parse_imbalance(imbalance), owned, exact_edges)
    return materialize(plan, owned, max_moves)
