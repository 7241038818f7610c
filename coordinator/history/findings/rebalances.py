"""Findings about rebalances: how many there were, how long they took, and who was waited for."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.state.groups import GroupState
from coordinator.history.current_views import find_waited
from coordinator.history.findings.facts import Facts, name_first
from coordinator.history.findings.limits import HOUR_MS
from coordinator.history.findings.times import to_ms, to_times
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    join_keys,
    pick,
    to_mask,
    to_numbers,
)

MOVING = (GroupState.ASSIGNING.value, GroupState.RECONCILING.value)
RESTART = 2
"""Rebalances that a restart of a member takes: it leaves, and it joins."""


def find_frequent_rebalances(facts: Facts) -> pa.Table:
    """Return the groups in which more epochs began than the limit, and than a restart of all takes.

    Each with its most frequent reason, and the member that caused most of the epochs.
    """
    epochs = facts.epochs
    epochs = epochs.filter(pa.array(to_ms(epochs["recorded_at"]) >= facts.begin_ms))
    place = facts.place_of(epochs["group_id"])
    epochs, place = epochs.filter(pa.array(place >= 0)), place[place >= 0]
    count = np.bincount(place, minlength=len(facts.groups))
    hours = facts.limits.window_ms / HOUR_MS
    members = to_numbers(facts.groups["members"])
    many = np.flatnonzero(count > np.maximum(facts.limits.rebalances * hours, RESTART * members))
    reason, reason_count = _find_most(place, epochs, ["reason"], many)
    who, _ = _find_most(place, epochs, ["client_id", "client_host", "member_id"], many)
    columns = {
        "group_id": pick(facts.groups["group_id"], many),
        "rebalances": pa.array(count[many]),
        "an_hour": pa.array(count[many] / hours),
        "members": pa.array(members[many]),
        "reason": pick(epochs["reason"], reason),
        "reason_count": pa.array(reason_count),
    }
    columns |= {name: pick(epochs[name], who) for name in ("member_id", "client_id", "client_host")}
    return pa.table(columns)


def _find_most(
    place: Longs, rows: pa.Table, names: list[str], wanted: Longs
) -> tuple[Longs, Longs]:
    """Return, for wanted groups, a row with the most frequent values, the last one, and how many.

    Rows without a value do not count; a group without any has the row -1.
    """
    there = to_mask(pc.is_valid(rows[names[-1]]))
    row = np.flatnonzero(there)
    key = encode_keys(*(combine_chunks(rows[name]) for name in names))[row]
    line = join_keys(place[row], key)
    size = int(line.max(initial=-1)) + 1
    times = np.bincount(line, minlength=size)
    last = np.full(size, -1)
    last[line] = row
    group = place[last] if size else last
    order = np.lexsort((last, times, group))
    best = np.full(int(place.max(initial=-1)) + 2, -1)
    best[group[order]] = order
    best = np.append(best, -1)[np.minimum(wanted, len(best))]
    return np.append(last, -1)[best], np.append(times, 0)[best]


@dataclass(frozen=True, slots=True)
class Rebalances:
    """The rebalances of all groups, also of deleted ones.

    A rebalance begins with an epoch. It ends when all members have what the epoch's target, or a
    later one, gives them, or when no member is left: epochs that end together are one rebalance.
    Of classic groups the log has no epoch before it has settled.

    Attributes
    ----------
    first, last, epochs
        The rows of the first and the last epoch in `Facts.epochs`, and how many there are.
    open
        Whether it goes on.
    begun_ms, ended_ms, ended_at
        When it began and ended, and at which position; -1 while it goes on.
    settled
        The place in `Settled` of the target that ended it; -1 while it goes on.
    """

    first: Longs
    last: Longs
    epochs: Longs
    open: Bools
    begun_ms: Longs
    ended_ms: Longs
    ended_at: Longs
    settled: Longs

    @classmethod
    def of(cls, facts: Facts) -> Rebalances:
        """Find them."""
        epochs, settled = facts.epochs, facts.settled
        begun_ms = to_ms(epochs["recorded_at"])
        found, still = settled.place_of(to_numbers(epochs["target_position"])), find_open(facts)
        done = np.append(settled.at_ms, -1)[found] >= begun_ms  # else the group was empty already
        row = np.flatnonzero(still | done)
        group = encode_keys(combine_chunks(epochs["group_id"]))[row]
        ended_at = np.where(still, -1, np.append(settled.ended_at, -1)[found])[row]
        _, first, line, count = np.unique(
            join_keys(group, ended_at + 1), return_index=True, return_inverse=True,
            return_counts=True,
        )  # fmt: skip
        last = np.zeros(len(first), np.int64)
        last[line] = row
        row, ended_at = row[first], ended_at[first]
        now = still[row]
        place = np.where(now, -1, found[row])
        ended_ms = np.where(now, -1, np.append(settled.at_ms, -1)[place])
        return cls(row, last, count, now, begun_ms[row], ended_ms, ended_at, place)

    def take(self, some: Bools) -> Rebalances:
        """Return some of the rebalances."""
        return Rebalances(*(getattr(self, one.name)[some] for one in fields(self)))


def find_slow_rebalances(facts: Facts) -> pa.Table:
    """Return when groups took longer than the limit to settle, or still do.

    The member that others waited for longest is named; of one that goes on, those that are waited
    for now.
    """
    found, epochs = Rebalances.of(facts), facts.epochs
    place = facts.place_of(epochs["group_id"])[found.first]
    until_ms = np.where(found.open, facts.now_ms, found.ended_ms)
    slow = (until_ms - found.begun_ms > facts.limits.patience_ms) & (until_ms >= facts.begin_ms)
    slow &= place >= 0
    found, place, until_ms = found.take(slow), place[slow], until_ms[slow]
    names = ("group_id", "group_epoch", "reason")
    columns = {name: pick(epochs[name], found.first) for name in names}
    columns |= {
        "last_epoch": pick(epochs["group_epoch"], found.last),
        "epochs": pa.array(found.epochs),
        "began_at": to_times(found.begun_ms),
        "settled_at": to_times(found.ended_ms),
        "seconds": pa.array((until_ms - found.begun_ms) / 1000),
    }
    waits, named = _find_waited_now(facts)
    before = pick(facts.settled.waited_for, found.settled)
    there = to_mask(pc.is_valid(before))
    ends = pa.array(np.append(0, np.cumsum(there)), pa.int32())
    one = pa.ListArray.from_arrays(ends, before.drop_null())
    columns["waits_for"] = pa.array(np.where(found.open, waits[place], there))
    columns["waited_for"] = pc.if_else(pa.array(found.open), named.take(pa.array(place)), one)
    return pa.table(columns)


def find_open(facts: Facts) -> Bools:
    """Return the epochs that their group has not settled in, and may yet."""
    epochs, settled = facts.epochs, facts.settled
    target, position = (to_numbers(epochs[n]) for n in ("target_position", "position"))
    moving = to_mask(pc.is_in(facts.groups["state"], value_set=pa.array(MOVING)))
    here = np.append(moving, False)[facts.place_of(epochs["group_id"])]
    here &= (position > settled.find_end(epochs["group_id"])) & (target != position)
    return here & (settled.place_of(target) < 0)


def find_unsettled_ms(facts: Facts) -> Longs:
    """Return when the first epoch began in which each group has not settled; -1 where it has."""
    epochs, still = facts.epochs, find_open(facts)
    found = np.full(len(facts.groups), -1)
    open_rows = np.flatnonzero(still)[::-1]
    place = facts.place_of(epochs["group_id"])[open_rows]
    found[place] = to_ms(epochs["recorded_at"])[open_rows]
    return found


def _find_waited_now(facts: Facts) -> tuple[Longs, pa.ListArray]:
    """Return how many members each group waits for, and the first of them."""
    size = len(facts.groups)
    epoch = to_numbers(facts.groups["assignment_epoch"])
    waited = find_waited(facts.members, epoch[facts.place])
    names = combine_chunks(facts.members["member_id"]).filter(pa.array(waited))
    place = facts.place[waited]
    return np.bincount(place, minlength=size), name_first(place, names, size)
