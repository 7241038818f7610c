"""Findings about partitions: without an owner now or for a time, and passed around.

Ranges of one topic are cut at all their bounds, so that any two pieces are equal or disjoint. Then
each piece has one owner after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.reasons import Reason
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.lives import Lives
from coordinator.history.findings.rebalances import find_unsettled_ms
from coordinator.history.findings.times import to_ms, to_times
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_changes,
    number_runs,
    pick,
    to_mask,
    to_numbers,
)

KEY = ("group_id", "topic", "topic_id")
FIRST, LAST, COUNT = "first_partition", "last_partition", "partition_count"
OWN_CHANGE = Reason.SUBSCRIPTION_CHANGED.code


def find_unowned_partitions(facts: Facts) -> pa.Table:
    """Return the partitions that members subscribe to and no member owns, and since when.

    Of groups that are not at rest only once they have moved for longer than the limit.
    """
    owners = facts.owners
    rows = owners.filter(pc.is_null(owners["member_id"]))
    rows = rows.sort_by([(name, "ascending") for name in (*KEY, FIRST)])
    place = facts.place_of(rows["group_id"])
    begun_ms = np.append(find_unsettled_ms(facts), -1)[place]
    stays = np.append(facts.stable, False)[place]
    stays |= (begun_ms >= 0) & (facts.now_ms - begun_ms > facts.limits.patience_ms)
    rows = rows.filter(pa.array(stays & (place >= 0)))
    found, turn = find_last_turns(rows, facts.history)
    since = np.append(to_ms(facts.history["until"]), -1)[turn]
    row, low, high = found.join(since)
    columns = {name: pick(rows[name], found.row[row]) for name in KEY}
    columns |= range_columns(found.low[low], found.high[high])
    columns["state"] = facts.state_of(columns["group_id"])
    return pa.table(columns | {"since": to_times(since[row])})


def find_last_turns(rows: pa.Table, history: pa.Table) -> tuple[Pieces, Longs]:
    """Return ranges cut where their last owners differ, and the row of the history of each.

    Of ranges that no member owns; -1 is one that none ever owned.
    """
    pieces = Pieces.cut(rows, history)
    theirs = pieces.row >= len(rows)
    turn, piece = pieces.row[theirs] - len(rows), pieces.piece[theirs]
    order = np.argsort(to_numbers(history["until_position"])[turn], kind="stable")
    last = np.full(int(pieces.piece.max(initial=-1)) + 1, -1)
    last[piece[order]] = turn[order]
    found = pieces.take(~theirs)
    return found, last[found.piece]


def measure_gaps(turns: Turns, lives: Lives, begin_ms: int) -> tuple[Longs, Longs]:
    """Return when the gap before each turn began, and for how long it had members to end it.

    A gap begins when the former owner loses a partition, at the earliest at `begin_ms`.
    """
    own = np.append(_list_has(turns.history, "until_reason_codes", OWN_CHANGE), False)
    begins = np.maximum(turns.ended_ms[turns.before], begin_ms)
    begins = np.where(turns.before < 0, turns.begun_ms, np.minimum(begins, turns.begun_ms))
    owned = own[turns.before_row] | (turns.ended_ms[turns.before] < 0)  # or owned by two
    begins = np.where(owned, turns.begun_ms, begins)
    groups = turns.history["group_id"].take(pa.array(turns.row))
    until, since = (lives.sum_occupied(groups, at) for at in (turns.begun_ms, begins))
    return begins, until - since


def find_ownership_gaps(facts: Facts) -> pa.Table:
    """Return the partitions that had no owner in the window for longer than the limit, in all.

    A gap begins when the former owner loses a partition, and ends when the next one has it: one
    that lasts is of `unowned_partitions`. Time in which the group had no members does not count,
    nor does what an owner gave up by changing its subscription: perhaps no member wanted it.
    """
    turns = Turns.of(facts.history)
    begins, gap_ms = measure_gaps(turns, facts.lives, facts.begin_ms)
    size = turns.pieces
    total = np.bincount(turns.piece, gap_ms, size).astype(np.int64)
    count = np.bincount(turns.piece[gap_ms > 0], minlength=size)
    gaps = np.flatnonzero(gap_ms > 0)
    last = np.full(size, -1)
    last[turns.piece[gaps]] = gaps  # in the order of time
    long = np.flatnonzero(total > facts.limits.patience_ms)
    at = last[long]
    found = turns.spans(long)
    row, low, high = found.join(
        total[long], count[long], begins[at], turns.begun_ms[at], turns.cause[turns.before[at]]
    )
    columns = turns.columns_of(long[row], found.low[low], found.high[high])
    at = at[row]
    columns |= {
        "gaps": pa.array(count[long][row]),
        "seconds": pa.array(total[long][row] / 1000),
        "last_gap_at": to_times(begins[at]),
        "last_gap_until": to_times(turns.begun_ms[at]),
        "reason_codes": pick(turns.history["until_reason_codes"], turns.before_row[at]),
    }
    return pa.table(columns)


def find_flapping_partitions(facts: Facts) -> pa.Table:
    """Return the partitions that changed their owner in the window as often as the limit.

    A static member that comes back under another member id is the same owner.
    """
    turns = Turns.of(facts.history)
    moved = (turns.before >= 0) & (turns.owner != np.append(turns.owner, -1)[turns.before])
    moved &= turns.begun_ms >= facts.begin_ms
    count = np.bincount(turns.piece[moved], minlength=turns.pieces)
    last = np.full(turns.pieces, -1)
    last[turns.piece[moved]] = np.flatnonzero(moved)
    many = np.flatnonzero(count >= facts.limits.flaps)
    at = last[many]
    found = turns.spans(many)
    row, low, high = found.join(count[many], turns.begun_ms[at], turns.owner[at])
    columns = turns.columns_of(many[row], found.low[low], found.high[high])
    columns |= {
        "moves": pa.array(count[many][row]),
        "last_at": to_times(turns.begun_ms[at[row]]),
        "member_id": pick(turns.history["member_id"], turns.row[at[row]]),
    }
    return pa.table(columns)


def _list_has(rows: pa.Table, name: str, wanted: str) -> Bools:
    """Return which rows have a text in a list."""
    lists = combine_chunks(rows[name])
    where = to_mask(pc.equal(lists.flatten(), wanted))
    found = np.zeros(len(lists), np.bool_)
    found[pc.list_parent_indices(lists).to_numpy()[where]] = True
    return found


def range_columns(low: Longs, high: Longs) -> dict[str, pa.Array]:
    """Return the columns of ranges low … high - 1."""
    numbers = {FIRST: low, LAST: high - 1, COUNT: high - low}
    return {name: pa.array(one, pa.int32()) for name, one in numbers.items()}


@dataclass(frozen=True, slots=True)
class Pieces:
    """Ranges of several tables, cut at all bounds.

    Attributes
    ----------
    row
        The row that each piece is of; those of the second table follow those of the first.
    piece, line, low, high
        A code of the piece, equal where it is the same; a code of the topic; its bounds.
    """

    row: Longs
    piece: Longs
    line: Longs
    low: Longs
    high: Longs

    @classmethod
    def cut(cls, *tables: pa.Table) -> Pieces:
        """Cut the ranges of tables."""
        columns = {
            name: pa.concat_arrays([combine_chunks(one[name]) for one in tables])
            for name in (*KEY, FIRST, COUNT)
        }
        key = encode_keys(*(columns[name] for name in KEY))
        low = to_numbers(columns[FIRST])
        high = low + to_numbers(columns[COUNT])
        span = int(high.max(initial=0)) + 1
        edges = np.unique(np.concatenate([key * span + low, key * span + high]))
        first, end = (np.searchsorted(edges, key * span + edge) for edge in (low, high))
        row, piece = number_runs(first, end - first)
        return cls(row, piece, key[row], edges[piece] % span, edges[piece + 1] % span)

    def take(self, some: Longs | Bools) -> Pieces:
        """Return some of the pieces."""
        names = ("row", "piece", "line", "low", "high")
        return Pieces(*(getattr(self, name)[some] for name in names))

    def join(self, *same: Longs) -> tuple[Longs, Longs, Longs]:
        """Join adjacent pieces of a topic, which are in order, where values are equal.

        Returns
        -------
        tuple
            Of each range a piece that stands for it, its first piece and its last one.
        """
        touches = np.append(-1, self.high[:-1])[: len(self.low)] == self.low
        first = np.flatnonzero(find_changes(self.line, *same) | ~touches)
        last = np.append(first[1:], len(self.low))[: len(first)] - 1
        return first, first, last


@dataclass(frozen=True, slots=True)
class Turns:
    """Who owned each piece, one owner after the other; sorted by piece and then by time.

    Attributes
    ----------
    history
        The view `assignment_history`.
    all
        The pieces as cut.
    row, piece, before
        Of a turn: its row of the history, its piece, and the turn before it; -1 without one.
    begun_ms, ended_ms, owner, cause
        When it began and ended, -1 if it did not; codes of its owner and of why it ended.
    """

    history: pa.Table
    all: Pieces
    row: Longs
    piece: Longs
    before: Longs
    begun_ms: Longs
    ended_ms: Longs
    owner: Longs
    cause: Longs

    @classmethod
    def of(cls, history: pa.Table) -> Turns:
        """Cut the rows of the view."""
        cut = Pieces.cut(history)
        begun, ended = (to_ms(history[name]) for name in ("since", "until"))
        member, instance = (combine_chunks(history[n]) for n in ("member_id", "instance_id"))
        # An instance id may read as a member id does.
        own = pc.if_else(pc.is_valid(instance), pa.scalar(None, pa.string()), member)
        owner = encode_keys(combine_chunks(history["group_id"]), own, instance)
        cause = encode_keys(combine_chunks(history["until_reason"]))
        since = to_numbers(history["since_position"])
        order = np.lexsort((since[cut.row], cut.piece))
        cut = cut.take(order)
        number = np.arange(len(cut.row))
        before = np.where(find_changes(cut.piece), -1, number - 1)
        row = cut.row
        return cls(
            history, cut, row, cut.piece, before, begun[row], ended[row], owner[row], cause[row]
        )

    @property
    def pieces(self) -> int:
        """How many codes of pieces there are."""
        return int(self.piece.max(initial=-1)) + 1

    @property
    def before_row(self) -> Longs:
        """The row of the history of the turn before each; -1 without one."""
        return np.where(self.before < 0, -1, np.append(self.row, -1)[self.before])

    def spans(self, pieces: Longs) -> Pieces:
        """Return pieces by their codes, which are sorted."""
        return self.all.take(np.searchsorted(self.piece, pieces))

    def columns_of(self, pieces: Longs, low: Longs, high: Longs) -> dict[str, pa.Array]:
        """Return the columns that say which partitions these are."""
        row = self.row[np.searchsorted(self.piece, pieces)]
        return {name: pick(self.history[name], row) for name in KEY} | range_columns(low, high)
