"""Fill members with units that are counted by weight: what `place` does, without a row per unit.

An engine that has the units elsewhere needs to know only how many there are of each weight; on the
grid of `levels.round_to_grid` these are few. The answer is runs: the first units of the pool go to
one member, the next ones to another. Members get what `place` gives them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs, offsets_of, sum_by
from assignors.weighted.bounds import find_whole_bound
from assignors.weighted.fill import (
    count_shares,
    find_lightest,
    find_room_ends,
    is_light,
    take_slots,
)
from assignors.weighted.levels import IDLE_BITS
from assignors.weighted.place import is_few, place_few


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Which member each unit of a pool goes to.

    Attributes
    ----------
    member, end
        int64 (runs,): units from the end of the run before up to `end` go to `member`.
    """

    member: Longs
    end: Longs


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Units in order, the heaviest first.

    Attributes
    ----------
    weight
        int64 (weights,): different weights, descending.
    rank, before
        int64 (weights + 1,): how many units, and how much weight, come before those of a weight.
    """

    weight: Longs
    rank: Longs
    before: Longs

    @classmethod
    def of(cls, weight: Longs, count: Longs) -> Pool:
        """Make a pool of weights, in any order, with how many units each has."""
        order = np.argsort(-weight, kind="stable")
        weight, count = weight[order], count[order]
        return cls(weight, offsets_of(count), offsets_of(weight * count))

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.rank[-1])

    def without_idle(self) -> tuple[Pool, int]:
        """Return the units that weigh something, and how many, which are last, weigh nothing."""
        some = int(np.count_nonzero(self.weight))
        kept = Pool(self.weight[:some], self.rank[: some + 1], self.before[: some + 1])
        return kept, self.units - kept.units

    def sum_before(self, rank: Longs) -> Longs:
        """Return the weight of the units before a rank, for each."""
        at = np.minimum(np.searchsorted(self.rank, rank, side="right") - 1, len(self.weight) - 1)
        return np.asarray(self.before[at] + (rank - self.rank[at]) * self.weight[at])

    def find_rank(self, before: int) -> int:
        """Return the greatest rank with at most so much weight before it."""
        at = int(np.searchsorted(self.before, before, side="right")) - 1
        if at == len(self.weight):
            return self.units
        return int(self.rank[at]) + (before - int(self.before[at])) // int(self.weight[at])

    def count_middles(self, edges: Longs) -> Longs:
        """Return for each place on the line how many units have their middle before it."""
        at = np.searchsorted(self.before, edges, side="right") - 1
        at = np.clip(at, 0, len(self.weight) - 1)
        weight = self.weight[at]
        inside = -((self.before[at] + (weight >> 1) - edges) // weight)
        return np.asarray(self.rank[at] + np.clip(inside, 0, self.rank[at + 1] - self.rank[at]))


def place_pool(pool: Pool, load: Longs, capacity: Longs, level: int) -> tuple[Runs, Longs]:
    """Choose members for all units of a pool, as `place.place_units` does within a cell.

    Parameters
    ----------
    load, capacity
        int64 (members,).

    Returns
    -------
    runs, load
        Members as indexes, and what each has afterwards.
    """
    if not is_few(pool.units, int(pool.before[-1]), load):
        return fill_runs(pool, load, capacity)
    weight = np.repeat(pool.weight, np.diff(pool.rank))
    chosen = place_few(weight, load, capacity, None, level)
    return Runs(chosen, np.arange(1, len(chosen) + 1)), load + sum_by(chosen, weight, len(load))


def place_idle(runs: Runs, count: int, held: Longs, capacity: Longs) -> Runs:
    """Choose members for units that weigh nothing, as `place` does within a cell; add them to runs.

    Parameters
    ----------
    runs
        Those of the units that weigh something.
    count
        How many weigh nothing.
    held
        int64 (members,): how many of such units each has.
    """
    if not count:
        return runs
    one, load = 1 << IDLE_BITS, held << IDLE_BITS
    bound = find_whole_bound(int(load.sum()) + count * one, one, capacity)
    pool = Pool.of(np.array([one]), np.array([count]))
    more, _ = place_pool(pool, load, capacity, bound.level())
    begun = int(runs.end[-1]) if len(runs.end) else 0
    return Runs(np.append(runs.member, more.member), np.append(runs.end, more.end + begun))


def fill_runs(pool: Pool, load: Longs, capacity: Longs) -> tuple[Runs, Longs]:
    """Choose a member for each unit, as `fill.fill_members` does."""
    shares, at = count_shares(capacity), 0
    members: list[Longs] = [np.zeros(0, dtype=np.int64)]
    lengths: list[Longs] = [np.zeros(0, dtype=np.int64)]
    while at < pool.units:
        first = int(np.searchsorted(pool.rank, at, side="right")) - 1
        heaviest, before = int(pool.weight[first]), int(pool.sum_before(np.array([at]))[0])
        rest = int(pool.before[-1]) - before
        if len(capacity) == 1:
            end, who, much = pool.units, np.zeros(1, dtype=np.int64), np.array([pool.units])
        elif is_light(heaviest, rest, shares):
            end = max(pool.find_rank(before + rest // 2), at + 1)
            who, much = _lay_on_line(pool, at, end, before, load, capacity)
        else:
            least = -find_lightest(heaviest)
            end = int(pool.rank[np.searchsorted(-pool.weight, least, side="right")])
            who, much = take_slots(end - at, heaviest, load, capacity, None)
        who, much = who[much > 0], much[much > 0]
        ends = at + np.cumsum(much)
        load = load + sum_by(who, np.diff(pool.sum_before(ends), prepend=before), len(load))
        members.append(who)
        lengths.append(much)
        at = end
    return Runs(np.concatenate(members), np.cumsum(np.concatenate(lengths))), load


def _lay_on_line(
    pool: Pool, at: int, end: int, before: int, load: Longs, capacity: Longs
) -> tuple[Longs, Longs]:
    """Lay units of some ranks along the line of rooms; return members and how many each gets."""
    amount = int(pool.sum_before(np.array([end]))[0]) - before
    ends, last = find_room_ends(load, capacity, amount)
    upto = np.clip(pool.count_middles(before + ends), at, end)
    upto[last:] = end
    return np.arange(len(load)), np.diff(upto, prepend=at)
