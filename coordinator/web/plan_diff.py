"""One plan: what it moves, who gains and who loses, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import sum_by
from coordinator.core.state.records import PlanMade
from coordinator.history.keyed_rows import combine_chunks, flatten, to_numbers
from coordinator.web.errors import NoPlanError
from coordinator.web.store_reader import Look

FIELDS = (
    "position", "plan_id", "assignment_epoch", "settings", "inputs", "summary", "plan_digest",
    "drains", "undrains", "supposes",
)  # fmt: skip
MOVES = ("topic", "first_partition", "partition_count", "from_member_id", "to_member_id")
MEMBERS = ("member_id", "loses", "gains", "change")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """A plan and what it would change, or has changed.

    Attributes
    ----------
    row
        Its row of the view `plans`, without its moves.
    made
        What else the record of the plan says, as `PlanMade` has it; `summary` is an object.
    moves
        A row for each range of partitions that goes from one member to another; null is no member.
    members
        A row for each member that gains or loses partitions: how many, and the `change`.
    """

    row: dict[str, Any]
    made: dict[str, Any]
    moves: pa.Table
    members: pa.Table


def read_plan(look: Look, group_id: str, plan_id: str) -> PlanDiff:
    """Return a plan of a group.

    Raises
    ------
    NoPlanError
        The plan does not exist.
    """
    return look.once(group_id, ("plan", plan_id), lambda: _read_plan(look, group_id, plan_id))


def _read_plan(look: Look, group_id: str, plan_id: str) -> PlanDiff:
    plans = look.view("plans", group_id)
    found = plans.filter(pc.equal(plans["plan_id"], plan_id))
    if not len(found):
        raise NoPlanError(group_id, plan_id)
    (row,) = found.drop_columns(["moves"]).to_pylist()
    made = look.rows(group_id).past([PlanMade.kind], FIELDS, row["position"] - 1)
    values = made.slice(0, 1).to_pylist()[0]
    for name in ("settings", "inputs"):
        values[name] = dict(values[name] or ())
    _, ranges = flatten(combine_chunks(found["moves"]))
    moves = pa.table({name: ranges.field(name) for name in MOVES})
    return PlanDiff(row, values, moves, _count_members(moves))


def _count_members(moves: pa.Table) -> pa.Table:
    """Return what each member gains and loses by the moves."""
    count = to_numbers(moves["partition_count"])
    ends = [combine_chunks(moves[name]) for name in ("from_member_id", "to_member_id")]
    ids = pc.unique(pa.concat_arrays(ends)).drop_null()
    loses, gains = (
        sum_by(to_numbers(pc.index_in(end, value_set=ids), len(ids)), count, len(ids) + 1)[:-1]
        for end in ends
    )
    return pa.table({"member_id": ids, "loses": loses, "gains": gains, "change": gains - loses})
