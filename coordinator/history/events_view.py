"""The view of what happened, one row an event, put together from what other views know.

An event depends on rows of the log up to its position, and on none of later times. So what happened
between two moments of a log stays the same as the log grows, and can be read as a stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from coordinator.core.reasons import Reason
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    PlanDecided,
    PlanMade,
    TargetMetadata,
)
from coordinator.history.classic_views import CLIENT
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.limits import Limits
from coordinator.history.findings.ownership import KEY, Turns, range_columns
from coordinator.history.findings.rebalances import Rebalances
from coordinator.history.findings.times import to_ms
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_places,
    is_kind,
    join_keys,
    null_empty,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows, repeat_shard
from coordinator.history.ownership_view import read_assignment_history
from coordinator.history.reason_codes import encode_reasons, list_codes
from coordinator.history.view_schemas import VIEW_SCHEMAS

SCHEMA = VIEW_SCHEMAS["events"]
FENCED = frozenset(
    reason.value
    for reason in (
        *(Reason.SESSION_TIMEOUT, Reason.REBALANCE_TIMEOUT, Reason.HEARTBEAT_TIMEOUT),
        *(Reason.JOIN_TIMEOUT, Reason.SYNC_TIMEOUT, Reason.GROUP_MAX_SIZE_FELL),
    )
)
"""Reasons for which a coordinator removes a member; it leaves for any other."""
JOINED = "member_joined"
MOVING = (GroupMetadata, MemberMetadata, TargetMetadata, CurrentMember, MembersAdvanced)
_OWNER = ("member_id", *CLIENT)


def read_events(log: LogRows) -> pa.Table:
    """Return what happened to the groups of a log."""
    facts = Facts(log, log.at_ms, Limits())
    found = [
        tell_members(facts),
        _tell_epochs(facts),
        _tell_targets(facts),
        *_tell_rebalances(facts),
        *_tell_ranges(read_assignment_history(log)),
        _tell_plans(log),
    ]
    ends = Incarnations(log)
    found.append(_tell("group_ended", ends.to_table()))
    rows = pa.concat_tables(found)
    incarnation = ends.at(rows["group_id"], to_numbers(rows["position"]))
    place = SCHEMA.get_field_index("incarnation")
    rows = rows.set_column(place, "incarnation", incarnation)
    place = SCHEMA.get_field_index("shard")
    return rows.set_column(place, "shard", repeat_shard(log, len(rows)))


def _tell(
    event: str | pa.Array, columns: Mapping[str, pa.Array | pa.ChunkedArray] | pa.Table
) -> pa.Table:
    """Return rows of the view, with null in the columns that are not given."""
    given = {name: columns[name] for name in SCHEMA.names if name in _names_of(columns)}
    size = len(given["position"])
    if isinstance(event, str):
        event = pa.array([event], pa.string()).take(pa.array(np.zeros(size, np.int64)))
    if "reason" in given and "reason_codes" not in given:
        given["reason_codes"] = list_codes(encode_reasons(given["reason"]))
    given["event"] = event
    return pa.table(
        {f.name: given[f.name] if f.name in given else pa.nulls(size, f.type) for f in SCHEMA}
    ).cast(SCHEMA)


def _names_of(columns: Mapping[str, pa.Array | pa.ChunkedArray] | pa.Table) -> list[str]:
    return columns.column_names if isinstance(columns, pa.Table) else list(columns)


# Members and epochs ------------------------------------------------------------------------------


def tell_members(facts: Facts) -> pa.Table:
    """Tell who came and went, and why: of the epoch that began by it at the same time."""
    lives, rows, cause = facts.lives, facts.lives.rows, find_causes(facts)
    reason = pick(facts.epochs["reason"], cause)
    static = pc.and_(pc.is_null(reason), pc.is_valid(rows["instance_id"]))
    reason = pc.if_else(static, Reason.STATIC_MEMBER_RETURNED.value, reason)
    fenced = pc.fill_null(pc.is_in(reason, value_set=pa.array(sorted(FENCED))), fill_value=False)
    event = pc.if_else(pa.array(lives.came), JOINED, pc.if_else(fenced, "fenced", "member_left"))
    columns = {name: rows[name] for name in ("position", "group_id", *_OWNER)}
    columns |= {"recorded_at": rows["at"], "reason": reason}
    columns["group_epoch"] = pick(facts.epochs["group_epoch"], cause)
    return _tell(event, columns)


def find_causes(facts: Facts) -> Longs:
    """Return, of each turn of `Facts.lives`, the row of the epoch that it began; -1 without one."""
    lives, epochs = facts.lives, facts.epochs
    turned = {name: combine_chunks(lives.rows[name]) for name in ("group_id", "member_id")}
    names = ("group_id", "member_id")
    both = [
        pa.concat_arrays([turned[n].cast(pa.string()), combine_chunks(epochs[n]).cast(pa.string())])
        for n in names
    ]
    size = len(lives.at_ms)
    position = np.concatenate([to_numbers(lives.rows["position"]), to_numbers(epochs["position"])])
    at_ms = np.concatenate([lives.at_ms, to_ms(epochs["recorded_at"])])
    order = np.argsort(position, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # The member's own epoch comes after it, at the same time.
    line = join_keys(encode_keys(*both), at_ms) * (len(order) + 1) + rank
    theirs = np.argsort(line[size:], kind="stable")
    after = np.searchsorted(line[size:][theirs], line[:size])
    found = np.append(theirs, -1)[after]
    same = line // (len(order) + 1) if len(order) else line
    there = (found >= 0) & (np.append(same[size:], -1)[found] == same[:size])
    # A generation of a classic group is of all that came and went: one record has them.
    one = find_places(to_numbers(epochs["position"]), to_numbers(lives.rows["position"]))
    return np.where(there, found, one)


def _tell_epochs(facts: Facts) -> pa.Table:
    """Tell of epochs; what their targets move is not known before these are."""
    return _tell("epoch", facts.epochs.drop_columns(["moved"]))


def _tell_targets(facts: Facts) -> pa.Table:
    """Tell of targets, of which one covers several epochs: as the epoch that it was made for."""
    rows = facts.epochs.filter(pc.is_valid(facts.epochs["computed_at"]))
    columns = {name: rows[name] for name in ("group_id", "group_epoch", "moved")}
    return _tell(
        "target",
        columns | {"position": rows["target_position"], "recorded_at": rows["computed_at"]},
    )


def _tell_rebalances(facts: Facts) -> list[pa.Table]:
    """Tell when rebalances ended, and which had not when the limit of `doctor` was over."""
    found, epochs = Rebalances.of(facts), facts.epochs
    done = np.flatnonzero(~found.open)
    columns = {
        "position": pa.array(found.ended_at[done]),
        "recorded_at": pa.array(found.ended_ms[done] * 1000).cast(SCHEMA.field("recorded_at").type),
        "group_id": pick(epochs["group_id"], found.first[done]),
        "group_epoch": pick(epochs["group_epoch"], found.last[done]),
        "member_id": pick(facts.settled.waited_for, found.settled[done]),
        "seconds": pa.array((found.ended_ms - found.begun_ms)[done] / 1000),
    }
    return [_tell("settled", columns), _tell_stalled(facts, found)]


def _tell_stalled(facts: Facts, found: Rebalances) -> pa.Table:
    """Tell which rebalances went on for longer than the limit: by the group's first row after it.

    The log has no other clock than its rows.
    """
    kinds = [one.kind for one in (*MOVING, ClassicGroupWritten)]
    rows = facts.log.past(kinds, ["position", "at", "group_id"])
    ids = [combine_chunks(one["group_id"]).cast(pa.string()) for one in (rows, facts.epochs)]
    group = encode_keys(pa.concat_arrays(ids))
    ours, theirs = group[: len(rows)], group[len(rows) :][found.first]
    at_ms = to_ms(rows["at"])
    late_ms = found.begun_ms + facts.limits.patience_ms
    span = int(max(at_ms.max(initial=0), late_ms.max(initial=0))) + 1
    line = ours * span + at_ms
    order = np.argsort(line, kind="stable")
    row = np.append(order, -1)[np.searchsorted(line[order], theirs * span + late_ms)]
    there = (row >= 0) & (np.append(ours, -1)[row] == theirs)
    there &= found.open | (np.append(at_ms, 0)[row] < found.ended_ms)
    row, one = row[there], np.flatnonzero(there)
    columns = {
        "position": pick(rows["position"], row),
        "recorded_at": pick(rows["at"], row),
        "group_id": pick(facts.epochs["group_id"], found.first[one]),
        "group_epoch": pick(facts.epochs["group_epoch"], found.first[one]),
        "reason": pick(facts.epochs["reason"], found.first[one]),
        "seconds": pa.array((at_ms[row] - found.begun_ms[one]) / 1000),
    }
    return _tell("stalled", columns)


# Ranges ------------------------------------------------------------------------------------------


def _tell_ranges(history: pa.Table) -> list[pa.Table]:
    """Tell which ranges members began and ceased to own."""
    turns = Turns.of(history)
    life = to_numbers(history["incarnation"])[turns.row]
    again = (turns.before >= 0) & (np.append(life, 0)[turns.before] == life)
    former = np.where(again, turns.before_row, -1)
    moved = again & (np.append(turns.owner, -1)[turns.before] != turns.owner)
    names = pa.array(["assigned", "moved"], pa.string())
    gained = _join_ranges(
        turns, np.arange(len(turns.row)), "since_position", "since",
        ("assignment_epoch", "reason", "reason_codes", "reason_member_id"),
        former, moved, names,
    )  # fmt: skip
    ended = np.flatnonzero(turns.ended_ms >= 0)
    revoked = to_mask(history["revoked"])[turns.row]
    lost = _join_ranges(
        turns, ended, "until_position", "until",
        ("until_epoch", "until_reason", "until_reason_codes", "until_member_id"),
        np.full(len(turns.row), -1), revoked, pa.array(["lost", "revoked"], pa.string()),
    )  # fmt: skip
    return [gained, lost]


def _join_ranges(
    turns: Turns,
    some: Longs,
    position: str,
    at: str,
    why: tuple[str, str, str, str],
    former: Longs,
    which: np.ndarray,
    events: pa.Array,
) -> pa.Table:
    """Return events of some turns, those of adjacent partitions that are alike as one."""
    history, row = turns.history, turns.row[some]
    epoch, reason, codes, cause = why
    others = pick(history["member_id"], former[some])
    same = encode_keys(
        *(combine_chunks(history[name]) for name in (*_OWNER, position, epoch, reason, cause))
    )[row]
    same = join_keys(same, encode_keys(others), which[some].astype(np.int64))
    cut = turns.all.take(some)
    order = np.lexsort((cut.low, cut.line, same))
    cut, same, row = cut.take(order), same[order], row[order]
    first, low, high = cut.join(same)
    row = row[first]
    columns = {name: pick(history[name], row) for name in (*KEY, *_OWNER)}
    columns |= range_columns(cut.low[low], cut.high[high])
    renamed = {
        "position": position, "recorded_at": at, "group_epoch": epoch, "reason": reason,
        "reason_codes": codes, "reason_member_id": cause,
    }  # fmt: skip
    columns |= {name: pick(history[column], row) for name, column in renamed.items()}
    columns["former_member_id"] = others.take(pa.array(order[first]))
    kind = which[some].astype(np.int64)[order[first]]
    return _tell(events.take(pa.array(kind)), columns)


# Plans -------------------------------------------------------------------------------------------


def _tell_plans(log: LogRows) -> pa.Table:
    """Tell which plans were proposed or applied, and what became of them."""
    names = ["position", "at", "kind", "tombstone", "group_id", "plan_id", "group_epoch"]
    rows = log.past([PlanMade.kind, PlanDecided.kind], [*names, "decision", "reason", "summary"])
    rows = rows.filter(pc.invert(rows["tombstone"]))
    made = is_kind(rows, PlanMade.kind)
    decision = pc.if_else(pa.array(made), "made", combine_chunks(rows["decision"]))
    epoch = rows["group_epoch"]
    columns = {name: rows[name] for name in ("position", "group_id", "plan_id")}
    columns |= {
        "recorded_at": rows["at"],
        "reason": null_empty(rows["reason"]),
        "group_epoch": pc.if_else(pc.equal(epoch, 0), pa.scalar(None, epoch.type), epoch),
        "moved": pc.struct_field(combine_chunks(rows["summary"]), "moved"),
        "reason_codes": pa.nulls(len(rows), SCHEMA.field("reason_codes").type),
    }
    return _tell(pc.binary_join_element_wise("plan", decision, "_"), columns)
