"""Views of what groups went through: what the doctor looks at, for all of a log's time.

They have the definitions of `findings`, which report what exceeds a limit; these have every row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from coordinator.history.classic_views import CLIENT
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.limits import Limits
from coordinator.history.findings.rebalances import Rebalances
from coordinator.history.findings.times import to_ms, to_times
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    combine_chunks,
    count_runs,
    encode_keys,
    pick,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.ownership_view import read_assignment_history
from coordinator.history.view_schemas import VIEW_SCHEMAS


def read_rebalances(log: LogRows) -> pa.Table:
    """Return the rebalances of a log, those that go on too.

    A generation of a classic group is a rebalance of which only the end is known.
    """
    facts = Facts(log, log.at_ms, Limits())
    found, epochs = Rebalances.of(facts), facts.epochs
    position = to_numbers(epochs["position"])
    classic = np.flatnonzero(to_numbers(epochs["target_position"]) == position)
    first, last = (np.concatenate([rows, classic]) for rows in (found.first, found.last))
    ended_ms = np.concatenate([found.ended_ms, to_ms(epochs["recorded_at"])[classic]])
    waited_for = pick(facts.settled.waited_for, found.settled)
    nothing = pa.nulls(len(classic), waited_for.type)
    names = ("group_id", "group_epoch", "position", "recorded_at", "reason", "reason_codes")
    columns = {name: pick(epochs[name], first) for name in (*names, "member_id", *CLIENT)}
    known = np.append(~found.open, np.zeros(len(classic), np.bool_))
    took_ms = ended_ms - to_ms(columns["recorded_at"])
    columns |= {
        "incarnation": Incarnations(log).at(columns["group_id"], position[first]),
        "last_epoch": pick(epochs["group_epoch"], last),
        "epochs": pa.array(np.append(found.epochs, np.ones(len(classic), np.int64))),
        "settled_at": to_times(ended_ms),
        "settled_position": _number(np.append(found.ended_at, position[classic])),
        "seconds": pa.array(took_ms / 1000, mask=~known),
        "waited_for": pa.concat_arrays([waited_for, nothing]),
        "moved": _sum_moved(epochs, first, last),
        "partitions": _count_owned(log, columns["group_id"], to_ms(columns["recorded_at"])),
    }
    return _shape("rebalances", columns)


def _shape(view: str, columns: dict[str, pa.Array]) -> pa.Table:
    """Return the columns of a view in its order, of its types."""
    schema = VIEW_SCHEMAS[view]
    return pa.table(columns).select(schema.names).cast(schema)


def _number(values: Longs) -> pa.Array:
    """Return numbers; null where they are below 0."""
    return pa.array(values, pa.int64(), mask=values < 0)


def _sum_moved(epochs: pa.Table, first: Longs, last: Longs) -> pa.Array:
    """Return what the targets of epochs moved, from a first to a last one of the same group.

    Null where no target says so: there is none yet, or the leader of a classic group made it.
    """
    group = encode_keys(combine_chunks(epochs["group_id"]))
    moved = to_numbers(epochs["moved"])
    total = np.append(count_runs(group, np.maximum(moved, 0)), 0)
    known = np.append(count_runs(group, (moved >= 0).astype(np.int64)), 0)
    total, known = (
        sums[last] - sums[first] + own[first]
        for sums, own in ((total, np.maximum(moved, 0)), (known, moved >= 0))
    )
    return pa.array(total, mask=known == 0)


def _count_owned(log: LogRows, group_ids: pa.Array, at_ms: Longs) -> pa.Array:
    """Return how many partitions members of groups owned right before some times."""
    history = read_assignment_history(log)
    ids = [combine_chunks(history["group_id"]), combine_chunks(group_ids)]
    group = encode_keys(pa.concat_arrays([one.cast(pa.string()) for one in ids]))
    ours, asked = group[: len(history)], group[len(history) :]
    count = to_numbers(history["partition_count"])
    since, until = (to_ms(history[name]) for name in ("since", "until"))
    ended = np.flatnonzero(until >= 0)
    line = np.append(ours, ours[ended])
    change = np.append(count, -count[ended])
    when = np.append(since, until[ended])
    order = np.lexsort((when, line))
    line, when, owned = line[order], when[order], count_runs(line[order], change[order])
    span = int(max(when.max(initial=0), at_ms.max(initial=0))) + 1
    place = np.searchsorted(line * span + when, asked * span + at_ms) - 1
    here = np.append(line, -1)[place] == asked
    return pa.array(np.where(here, np.append(owned, 0)[place], 0))
