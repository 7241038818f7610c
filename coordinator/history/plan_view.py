"""The view of plans: what was proposed or applied, and what became of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.plans.decisions import APPLIED, EXPIRED, REJECTED, SUPERSEDED
from coordinator.core.state.records import PlanDecided, PlanMade
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_last,
    is_kind,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.view_schemas import VIEW_SCHEMAS

WAITING = "waiting"
STATUSES = (WAITING, APPLIED, REJECTED, EXPIRED, SUPERSEDED)
COLUMNS = (
    *("position", "at", "kind", "tombstone", "group_id", "plan_id", "group_epoch", "decision"),
    *("assignor", "owner", "reason", "expires_ms", "summary", "planned_moves"),
)
COUNTS = ("moved", "placed", "moved_weight", "makespan_before", "makespan_after", "lower_bound")


def read_plans(log: LogRows) -> pa.Table:
    """Return the plans of all groups, including deleted ones: one row per plan."""
    rows = log.past([PlanMade.kind, PlanDecided.kind], COLUMNS)
    number = np.arange(len(rows))
    kept = ~to_mask(rows["tombstone"])
    keys = encode_keys(combine_chunks(rows["group_id"]), combine_chunks(rows["plan_id"]))
    size = int(keys.max(initial=-1)) + 1
    made = np.unique(find_last(keys, number[kept & is_kind(rows, PlanMade.kind)], size))
    made = made[made >= 0]
    ended = find_last(keys, number[kept & is_kind(rows, PlanDecided.kind)], size)
    decided = np.append(ended, -1)[keys[made]]
    status = pc.fill_null(pick(rows["decision"], decided), WAITING)
    epoch = pick(rows["group_epoch"], decided)
    summary = pick(rows["summary"], made)
    named = {name: pick(rows[name], made) for name in ("group_id", "plan_id", "group_epoch")}
    expires = pick(rows["expires_ms"], made).cast(pa.timestamp("ms", tz="UTC"))
    columns = named | {
        "status": status,
        "position": pick(rows["position"], made),
        "recorded_at": pick(rows["at"], made),
        "assignor": pick(rows["assignor"], made),
        "principal": pick(rows["owner"], made),
        "reason": pick(rows["reason"], made),
        "expires_at": expires,
        "decided_at": pick(rows["at"], decided),
        "decided_by": pick(rows["owner"], decided),
        "decision_reason": pick(rows["reason"], decided),
        "applied_epoch": pc.if_else(pc.equal(epoch, 0), pa.scalar(None, pa.int32()), epoch),
        "moves": pick(rows["planned_moves"], made),
    }
    position = to_numbers(columns["position"])
    columns["incarnation"] = Incarnations(log).at(columns["group_id"], position)
    columns |= {name: pc.struct_field(summary, name) for name in COUNTS}
    schema = VIEW_SCHEMAS["plans"]
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)
