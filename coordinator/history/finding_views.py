"""Views of what groups went through: what the doctor looks at, for all of a log's time.

They have the definitions of `findings`, which report what exceeds a limit; these have every row.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from coordinator.core.state.records import MemberMetadata
from coordinator.history import reached
from coordinator.history.classic_views import CLIENT
from coordinator.history.events_view import JOINED, tell_members
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.limits import Limits
from coordinator.history.findings.lives import Lives
from coordinator.history.findings.ownership import (
    KEY,
    Pieces,
    Turns,
    find_last_turns,
    measure_gaps,
    range_columns,
)
from coordinator.history.findings.rebalances import Rebalances
from coordinator.history.findings.settled import Waits
from coordinator.history.findings.times import to_ms, to_times
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    count_runs,
    encode_keys,
    is_kind,
    join_keys,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.owners_view import read_partition_owners
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

    Null without a count: the target is missing, or the leader of a classic group made it.
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


# Waits -------------------------------------------------------------------------------------------


def read_waits(log: LogRows) -> pa.Table:
    """Return for which members others waited, and for how long; those that they wait for too."""
    kinds = [one.kind for one in reached.KINDS]
    rows = log.past(kinds, [*reached.COLUMNS, "pending", *CLIENT])
    group = encode_keys(combine_chunks(rows["group_id"]))
    by_member = reached.MemberSteps.of(rows, group)
    waits = Waits.of(rows, group, by_member)
    long = waits.waited_ms > 0
    ended = waits.row[long]
    open_ = np.full(len(waits.open), -1)
    place = np.append(waits.place[long], waits.open)
    begun = np.append(waits.begun[long], waits.open_begun)
    until = np.append(ended, open_)
    known = is_kind(rows, MemberMetadata.kind) & ~to_mask(rows["tombstone"])
    who = Timeline(by_member.member, np.flatnonzero(known[by_member.row])).newest(place)
    who = np.where(who < 0, -1, np.append(by_member.row, -1)[who])
    group_ids = pick(rows["group_id"], by_member.row[place])
    position = to_numbers(rows["position"])
    none = np.ones(len(open_), np.bool_)
    columns = {
        "group_id": group_ids,
        "incarnation": Incarnations(log).at(group_ids, position[begun]),
        "assignment_epoch": pa.array(np.append(waits.target[long], waits.open_target)),
        "member_id": by_member.member_ids.take(pa.array(place)),
        "pending_revocation": pa.array(np.append(waits.gives_up[long], waits.open_gives_up)),
        "since": pick(rows["at"], begun),
        "since_position": pick(rows["position"], begun),
        "until": pick(rows["at"], until),
        "until_position": pick(rows["position"], until),
        "seconds": pa.array(np.append(waits.waited_ms[long], open_) / 1000, mask=until < 0),
        "reached": pa.array(np.append(waits.arrived[long], none), mask=until < 0),
    }
    return _shape("waits", columns | {name: pick(rows[name], who) for name in CLIENT})


# Partitions and members --------------------------------------------------------------------------


def read_unowned(log: LogRows) -> pa.Table:
    """Return when partitions had no owner after they had one; and those that have none."""
    history = read_assignment_history(log)
    return pa.concat_tables([_find_gaps(log, history), _find_open_gaps(log, history)])


def _find_gaps(log: LogRows, history: pa.Table) -> pa.Table:
    """Return the gaps between two owners in one life of a group."""
    turns = Turns.of(history)
    _, gap_ms = measure_gaps(turns, Lives.read(log), 0)
    life = np.append(to_numbers(history["incarnation"]), -1)
    gaps = np.flatnonzero((gap_ms > 0) & (life[turns.before_row] == life[turns.row]))
    row = turns.row[gaps]
    theirs = history.select([*KEY, "incarnation"]).take(pa.array(row))
    return _join_gaps(theirs, turns.all.take(gaps), history, turns.before_row[gaps], row,
                      gap_ms[gaps])  # fmt: skip


def _find_open_gaps(log: LogRows, history: pa.Table) -> pa.Table:
    """Return the partitions that members subscribe to and no member owns."""
    owners, ends = read_partition_owners(log), Incarnations(log)
    rows = owners.filter(pc.is_null(owners["member_id"])).combine_chunks()
    rows = rows.append_column("incarnation", ends.latest(rows["group_id"]))
    newest = ends.latest(history["group_id"])
    history = history.filter(pc.equal(history["incarnation"], newest)).combine_chunks()
    found, former = find_last_turns(rows, history)
    theirs = rows.select([*KEY, "incarnation"]).take(pa.array(found.row))
    nothing = np.full(len(former), -1)
    return _join_gaps(theirs, found, history, former, nothing, nothing)


def _join_gaps(
    theirs: pa.Table, cut: Pieces, history: pa.Table, former: Longs, later: Longs, gap_ms: Longs
) -> pa.Table:
    """Return gaps, those of adjacent partitions that are alike as one.

    Parameters
    ----------
    theirs, cut
        The topic and the partitions of each.
    former, later
        The rows of the history before and after it; -1 without one.
    gap_ms
        For how long it was; -1 while it lasts.
    """
    before = {
        "former_member_id": "member_id", "since": "until", "since_position": "until_position",
        "reason": "until_reason", "reason_codes": "until_reason_codes",
        "reason_member_id": "until_member_id",
    }  # fmt: skip
    after = {"member_id": "member_id", "until": "since", "until_position": "since_position"}
    columns = {name: pick(history[column], former) for name, column in before.items()}
    columns |= {name: pick(history[column], later) for name, column in after.items()}
    names = ("former_member_id", "since_position", "reason", "reason_member_id")
    same = encode_keys(*(columns[name] for name in (*names, *after)))
    same = join_keys(same, np.unique(gap_ms, return_inverse=True)[1])
    order = np.lexsort((cut.low, cut.line, same))
    cut, same = cut.take(order), same[order]
    first, low, high = cut.join(same)
    at = order[first]
    columns = {name: column.take(pa.array(at)) for name, column in columns.items()}
    columns |= {name: pick(theirs[name], at) for name in theirs.column_names}
    columns |= range_columns(cut.low[low], cut.high[high])
    columns["seconds"] = pa.array(gap_ms[at] / 1000, mask=gap_ms[at] < 0)
    return _shape("unowned", columns)


def read_memberships(log: LogRows) -> pa.Table:
    """Return from when until when members were in groups."""
    turns = tell_members(Facts(log, log.at_ms, Limits())).combine_chunks()
    key = encode_keys(*(combine_chunks(turns[name]) for name in ("group_id", "member_id")))
    came = to_mask(pc.equal(turns["event"], JOINED))
    went = Timeline(key, np.flatnonzero(~came))
    begun = np.flatnonzero(came)
    ended = went.next(key[begun], begun)
    at_ms = to_ms(turns["recorded_at"])
    names = ("group_id", "member_id", *CLIENT)
    columns = {name: pick(turns[name], begun) for name in names}
    columns["incarnation"] = Incarnations(log).at(
        columns["group_id"], to_numbers(turns["position"])[begun]
    )
    moment = {"": "recorded_at", "_position": "position", "_epoch": "group_epoch"}
    for name, column in moment.items():
        columns |= {f"since{name}": pick(turns[column], begun)}
        columns |= {f"until{name}": pick(turns[column], ended)}
    for name in ("reason", "reason_codes"):
        columns[f"until_{name}"] = pick(turns[name], ended)
    columns["fenced"] = pick(pc.equal(turns["event"], "fenced"), ended)
    stayed_ms = np.append(at_ms, -1)[ended] - at_ms[begun]
    columns["seconds"] = pa.array(stayed_ms / 1000, mask=ended < 0)
    return _shape("memberships", columns)
