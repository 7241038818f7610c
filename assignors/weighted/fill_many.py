"""Fill the members of many groups at once: what `fill.fill_members` does, in one step for all.

A row is a group. Its units and members are in the first columns; what is behind them is not read.
Groups are at different units after a step, but each step is the same arithmetic for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from assignors.arrays import Bools, Longs, expand_runs
from assignors.weighted.fill import LIGHT, find_lightest
from assignors.weighted.levels import BITS, levels_of, room_under, room_up_to

_ROW = np.int64(2**44)
"""Sums of a row are less; so all rows are on one line, and are searched at once."""
_TOP = np.int64(2**43)
_NEVER = np.iinfo(np.int64).max
ROWS_MAX = 2**18


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What does not change while rows are filled.

    Attributes
    ----------
    weight, before
        int64 (groups, units) and (groups, units + 1): weights, and the sum before each.
    units, members, shares
        int64 (groups,): how many there are; `fill.count_shares`.
    capacity, real
        int64 and bool (groups, members).
    """

    weight: Longs
    before: Longs
    units: Longs
    members: Longs
    shares: Longs
    capacity: Longs
    real: Bools

    @classmethod
    def of(cls, weight: Longs, units: Longs, capacity: Longs, members: Longs) -> Self:
        real = np.arange(capacity.shape[1]) < members[:, None]
        own = np.arange(weight.shape[1]) < units[:, None]
        before = np.zeros((len(units), weight.shape[1] + 1), dtype=np.int64)
        np.cumsum(np.where(own, weight, 0), axis=1, out=before[:, 1:])
        least = np.where(real, capacity, _NEVER).min(axis=1)
        shares = np.where(real, capacity, 0).sum(axis=1) // least + 1
        return cls(
            np.where(own, weight, 0), before, units, members, shares,
            np.where(real, capacity, 1), real,
        )  # fmt: skip

    def find_in(self, line: Longs, row: Longs, value: Longs) -> Longs:
        """Return how many entries of each row of a line are at most a value."""
        width = len(line) // len(self.units)
        found = np.searchsorted(line, row * _ROW + value, side="right")
        return np.asarray(found - row * width)


def fill_many(
    weight: Longs, units: Longs, capacity: Longs, members: Longs, has: Longs | None = None
) -> tuple[Longs, Longs]:
    """Choose a member for each weight of each group.

    Parameters
    ----------
    weight
        int64 (groups, units): each row descending, above 0.
    units, members
        int64 (groups,): how many of a row's entries count; two members at least.
    capacity
        int64 (groups, members).
    has
        int64 (groups, members): what they have already; None: nothing.

    Returns
    -------
    chosen, load
        int64 (groups, units): index of each unit's member in its row; (groups, members): sums.
    """
    assert len(units) <= ROWS_MAX, "too many rows for one line"
    rows = _Rows.of(weight, units, capacity, members)
    out = np.zeros(weight.shape, dtype=np.int64)
    load = np.zeros(capacity.shape, dtype=np.int64) if has is None else has.copy()
    base = np.arange(len(units), dtype=np.int64)[:, None] * _ROW
    sums, falling = (rows.before + base).ravel(), (_TOP - rows.weight + base).ravel()
    at = np.zeros(len(units), dtype=np.int64)
    left = np.flatnonzero(units > 0)
    while len(left):
        begin = at[left]
        heaviest = rows.weight[left, begin]
        begun = rows.before[left, begin]
        rest = rows.before[left, units[left]] - begun
        light = rest // (LIGHT * rows.shares[left]) >= heaviest
        some = left[light]
        if len(some):
            end = rows.find_in(sums, some, begun[light] + rest[light] // 2) - 1
            end = np.maximum(end, begin[light] + 1)
            _lay_on_lines(rows, some, begin[light], end, load, out)
            at[some] = end
        some = left[~light]
        if len(some):
            least = find_lightest(heaviest[~light])
            end = rows.find_in(falling, some, np.asarray(_TOP - least))
            _take_slots(rows, some, begin[~light], end, load, out)
            at[some] = end
        left = left[at[left] < units[left]]
    return out, load


def _lay_on_lines(
    rows: _Rows, group: Longs, begin: Longs, end: Longs, load: Longs, out: Longs
) -> None:
    """Do `fill._lay_on_line` for units begin to end of some groups."""
    has, capacity, real = load[group], rows.capacity[group], rows.real[group]
    before = rows.before[group, begin]
    level = _find_water_levels(has, capacity, real, rows.before[group, end] - before)
    width = capacity.shape[1]
    room = np.maximum(room_up_to(level[:, None], capacity) - has, 0)
    ends = np.cumsum(np.where(real, room, 0), axis=1)
    last = (ends < ends[:, -1:]).sum(axis=1)
    row = np.repeat(np.arange(len(group)), end - begin)
    at = expand_runs(group * rows.weight.shape[1] + begin, end - begin)
    weight = rows.weight.ravel()[at]
    base = np.arange(len(group)) * _ROW
    middle = (rows.before.ravel()[at + group[row]] + (weight >> 1)) + (base - before)[row]
    # Members are fewer than units: find where rooms end among units, and count these before each.
    line = (ends + base[:, None]).ravel()
    first = np.bincount(np.searchsorted(middle, line), minlength=len(middle) + 1)
    found = np.cumsum(first[:-1]) - row * width
    found = np.minimum(found, last[row])
    out.ravel()[at] = found
    more = np.bincount(row * width + found, weights=weight, minlength=has.size)
    load[group] = has + more.astype(np.int64).reshape(has.shape)


def _find_water_levels(load: Longs, capacity: Longs, real: Bools, amount: Longs) -> Longs:
    """Do `levels.find_water_level` for each row."""
    level = np.where(real, levels_of(load, capacity), _NEVER)
    order = np.argsort(level, axis=1, kind="stable")
    level = np.take_along_axis(level, order, axis=1)
    wet, wide = (
        np.cumsum(np.take_along_axis(np.where(real, one, 0), order, axis=1), axis=1)
        for one in (load, capacity)
    )
    filled = -((-(wet + amount[:, None]) << BITS) // wide)
    after = np.full_like(level, _NEVER)
    after[:, :-1] = level[:, 1:]
    at = np.argmax(filled <= after, axis=1)
    return np.asarray(filled[np.arange(len(at)), at])


def _take_slots(
    rows: _Rows, group: Longs, begin: Longs, end: Longs, load: Longs, out: Longs
) -> None:
    """Do `fill.take_slots`: one slot of a member where that is all there is to take."""
    count, size = end - begin, rows.weight[group, begin]
    has, capacity, real = load[group], rows.capacity[group], rows.real[group]
    width = has.shape[1]
    ends = levels_of(has + size[:, None], capacity)
    order = _sort_rows(ends, real)[:, : int(count.max())]
    of_it = np.arange(order.shape[1]) < count[:, None]
    top = order[np.arange(len(group)), np.minimum(count, order.shape[1]) - 1]
    highest = ends[np.arange(len(group)), top]
    row, rank = np.nonzero(of_it)
    at = row * width + order[row, rank]
    twice = levels_of(has.ravel()[at] + 2 * size[row], capacity.ravel()[at]) < highest[row]
    again = np.bincount(row[twice], minlength=len(group)) > 0
    one_each = (count <= rows.members[group]) & ((count < 2) | ~again)  # noqa: PLR2004
    mine = one_each[row]
    row, rank, at = row[mine], rank[mine], at[mine]
    unit = (group * rows.weight.shape[1] + begin)[row] + rank
    chosen = at - row * width
    out.ravel()[unit] = chosen
    load.ravel()[group[row] * width + chosen] += rows.weight.ravel()[unit]
    if not one_each.all():
        rest = ~one_each
        _take_several(rows, group[rest], begin[rest], end[rest], load, out)


def _take_several(
    rows: _Rows, group: Longs, begin: Longs, end: Longs, load: Longs, out: Longs
) -> None:
    """Do `fill.take_slots` where a member may take more than one."""
    has, real, count = load[group], rows.real[group], end - begin
    slots = _choose_slots(rows, group, begin, end, has)
    order = _sort_rows(levels_of(has, rows.capacity[group]), real)
    chosen = np.repeat(order.ravel(), np.take_along_axis(slots, order, axis=1).ravel())
    row, unit = np.repeat(np.arange(len(group)), count), expand_runs(begin, count)
    out[group[row], unit] = chosen
    weight = rows.weight[group[row], unit]
    more = np.bincount(row * has.shape[1] + chosen, weights=weight, minlength=has.size)
    load[group] = has + more.astype(np.int64).reshape(has.shape)


def _choose_slots(rows: _Rows, group: Longs, begin: Longs, end: Longs, has: Longs) -> Longs:
    """Return how many slots members of each row take, (rows, members)."""
    capacity, real, count = rows.capacity[group], rows.real[group], end - begin
    size = rows.weight[group, begin][:, None]

    def slots_under(level: Longs, of: Longs) -> Longs:
        room = room_under(level[of, None], capacity[of]) - has[of]
        return np.asarray(np.where(real[of], np.maximum(room, 0), 0) // size[of])

    low = np.where(real, levels_of(has, capacity), _NEVER).min(axis=1)
    one = (size[:, 0] << BITS) // capacity.max(axis=1)
    step, fine = np.maximum(one, 1), np.maximum(one >> 6, 1)
    high = low + step
    slots = np.zeros_like(has)
    left = np.arange(len(group))
    while len(left):
        slots[left] = slots_under(high, left)
        left = left[slots[left].sum(axis=1) < count[left]]
        low[left] = high[left]
        step[left] *= 2
        high[left] += step[left]
    while len(left := np.flatnonzero((high - low > fine) & (slots.sum(axis=1) > count))):
        middle = (low + high) // 2
        fewer = slots_under(middle, left)
        enough = fewer.sum(axis=1) >= count[left]
        covered = left[enough]
        slots[covered], high[covered] = fewer[enough], middle[covered]
        low[left[~enough]] = middle[left[~enough]]
    _drop_highest(slots, count, has, capacity, size)
    return slots


def _drop_highest(slots: Longs, count: Longs, has: Longs, capacity: Longs, size: Longs) -> None:
    """Take slots that end highest from rows that have too many, one of a member at a time."""
    while (surplus := slots.sum(axis=1) - count).any():
        taken = slots > 0
        ends = np.where(taken, -levels_of(has + slots * size, capacity), _NEVER)
        order = np.argsort(ends, axis=1, kind="stable")
        drop = np.minimum(surplus, taken.sum(axis=1))
        rank = expand_runs(np.zeros(len(drop), dtype=np.int64), drop)
        row = np.repeat(np.arange(len(drop)), drop)
        slots[row, order[row, rank]] -= 1


def _sort_rows(level: Longs, real: Bools) -> Longs:
    """Return the order of each row, ties by column."""
    bits = level.shape[1].bit_length()
    if int(np.where(real, level, 0).max()).bit_length() + bits > 62:  # noqa: PLR2004 - of an int64
        return np.asarray(np.argsort(np.where(real, level, _NEVER), axis=1, kind="stable"))
    key = (np.where(real, level, _NEVER >> bits) << bits) | np.arange(level.shape[1])
    key.sort(axis=1)
    return np.asarray(key & ((1 << bits) - 1))
