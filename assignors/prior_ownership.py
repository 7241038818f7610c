"""Decide which claims of the previous assignment count as owned.

A claim is honoured when its owner is a live member, the partitions exist, the member still
subscribes, and no earlier member in order claims the same partition. The rest is *released*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, pieces
from assignors.errors import SpecError
from assignors.partition_ranges import (
    are_in_order,
    find_first_claims,
    find_overlaps,
    merge_touching,
    subtract,
)

LEFT, UNSUBSCRIBED, CONTESTED = 0, 1, 2
"""Why a claim of the previous assignment is not honoured: `ReleasedOwnership.cause`."""

CAUSES = ("owner left", "owner unsubscribed", "claimed twice")
"""`ReleasedOwnership.cause` in words."""

RangeColumns: TypeAlias = tuple[Ints, Ints, Ints, Ints]
"""Member, topic, first and count of ranges, (ranges,) each."""
_POSITION_BITS = 31
_DENSE_MAX = 1 << 25


@dataclass(slots=True)
class PriorOwnership:
    """Claims in any order: the owner's name, its index in member order (−1: left), and the range.

    A topic of −1 is one that the group does not have; only an owner that left may name it. Numbers
    are int64, or int32 where the ends of all ranges are too.
    """

    owner: pa.StringArray | pa.DictionaryArray
    member: Ints
    topic: Ints
    first: Ints
    count: Ints

    def rows(self, index: Longs | Bools) -> PriorOwnership:
        """Take rows by index or mask."""
        at = np.flatnonzero(index) if index.dtype == np.bool_ else index
        owner = self.owner.take(pa.array(at))
        return PriorOwnership(
            owner, self.member[at], self.topic[at], self.first[at], self.count[at]
        )


@dataclass(frozen=True, slots=True)
class ReleasedOwnership:
    """Previous claims that no member can keep; their partitions count as orphans.

    Attributes
    ----------
    owner
        Member id of the claimant, which may have left.
    topic, first, count
        int64 arrays: the ranges, by (topic, first, owner).
    cause
        int8 array of LEFT, UNSUBSCRIBED or CONTESTED.
    """

    owner: pa.StringArray
    topic: Longs
    first: Longs
    count: Longs
    cause: Ints

    @property
    def contested(self) -> int:
        """Partitions lost to an earlier member that claims them too."""
        return int(self.count[self.cause == CONTESTED].sum())


@dataclass(frozen=True, slots=True)
class SubscribedPairs:
    """Which (class, topic) pairs are subscribed: a dense table when small, else sorted keys."""

    size: int
    table: Bools | None
    keys: Longs

    @classmethod
    def of(cls, class_offsets: Longs, class_topics: Ints, topic_count: int) -> SubscribedPairs:
        """Read the pairs from the classes' topic lists."""
        classes = len(class_offsets) - 1
        row = np.repeat(np.arange(classes, dtype=np.int64), np.diff(class_offsets))
        keys = row * topic_count + class_topics
        if classes * topic_count > _DENSE_MAX:
            return cls(topic_count, None, keys)
        table = np.zeros(classes * topic_count, dtype=np.bool_)
        table[keys] = True
        return cls(topic_count, table, keys)

    def holds(self, class_: Ints, topic: Ints) -> Bools:
        """Tell for each pair whether the class subscribes to the topic."""
        key = class_ * np.int64(self.size) + topic
        if self.table is not None:
            return np.asarray(self.table[key])
        at = np.searchsorted(self.keys, key)
        return np.asarray(np.append(self.keys, -1)[at] == key)


@dataclass(frozen=True, slots=True)
class ResolvedClaims:
    """Who owns what, once every claim is decided.

    Attributes
    ----------
    member, topic, first, count
        The ranges that members own: canonical int32 columns, (ranges,) each.
    line_order
        The permutation that sorts them by (topic, first).
    released
        The claims not honoured.
    """

    member: Ints
    topic: Ints
    first: Ints
    count: Ints
    line_order: Longs
    released: ReleasedOwnership


def resolve_claims(
    claims: PriorOwnership,
    member_ids: pa.StringArray,
    topics: pa.StringArray,
    partitions: Longs,
    member_class: Longs,
    eligible: SubscribedPairs,
) -> ResolvedClaims:
    """Decide every claim.

    Raises
    ------
    SpecError
        A live member's claim lies outside its topic, or overlaps another claim of its own.
    """
    live = claims.member >= 0
    gone = None if live.all() else claims.rows(~live)
    if gone is not None:
        claims = claims.rows(live)
    _refuse_outside(claims, topics, partitions)
    order = _find_canonical_order(claims)
    if order is not None:
        claims = claims.rows(order)
    _refuse_own_overlap(claims, topics)
    held = np.zeros(len(claims.topic), dtype=np.bool_)
    for some in pieces(len(held)):
        held[some] = eligible.holds(member_class[claims.member[some]], claims.topic[some])
    dropped = None if held.all() else claims.rows(~held)
    if dropped is not None:
        claims = claims.rows(held)
    owned = merge_touching(claims.member, claims.topic, claims.first, claims.count)
    line_order = _order_on_line(owned)
    lost = None
    if find_overlaps(*(column[line_order] for column in owned[1:])).any():
        claimed, owned = owned, _resolve_overlaps(owned)
        lost = _subtract_owned(claimed, owned, member_ids)
        line_order = _order_on_line(owned)
    released = _collect_released(gone, dropped, lost, partitions)
    return ResolvedClaims(*owned, line_order, released)


def _order_on_line(ranges: RangeColumns) -> Longs:
    _, topic, first, _ = ranges
    return np.argsort(_pack_positions(topic, first), kind="stable")


def _pack_positions(topic: Ints, first: Ints) -> Longs:
    """Pack (topic, first) so that integers compare as the pair does."""
    packed = topic.astype(np.int64)
    packed <<= _POSITION_BITS
    packed |= first
    return packed


def _unpack_positions(position: Longs) -> tuple[Longs, Longs]:
    """Return topic and first partition."""
    return position >> _POSITION_BITS, position & ((1 << _POSITION_BITS) - 1)


def _find_canonical_order(claims: PriorOwnership) -> Longs | None:
    """Return the permutation to (member, topic, first); None when the claims have that order."""
    if are_in_order(claims.member, claims.topic, claims.first):
        return None
    return np.lexsort((_pack_positions(claims.topic, claims.first), claims.member))


def _refuse_outside(claims: PriorOwnership, topics: pa.StringArray, partitions: Longs) -> None:
    unknown = claims.topic < 0
    if unknown.any():
        who = claims.owner[int(np.flatnonzero(unknown)[0])].as_py()
        raise SpecError(
            f"member {who!r} owns partitions of a topic that is not in topics: "
            "add the topic, or drop the claim"
        )
    for some in pieces(len(claims.topic)):
        outside = claims.first[some] + claims.count[some] > partitions[claims.topic[some]]
        if not outside.any():
            continue
        row = some.start + int(outside.argmax())
        topic = int(claims.topic[row])
        last = int(claims.first[row] + claims.count[row] - 1)
        raise SpecError(
            f"member {claims.owner[row].as_py()!r} owns partition {last} of topic "
            f"{topics[topic].as_py()!r}, which has {int(partitions[topic])}: "
            "correct the claim or the partition count"
        )


def _refuse_own_overlap(claims: PriorOwnership, topics: pa.StringArray) -> None:
    again = find_overlaps(claims.topic, claims.first, claims.count)
    again[1:] &= claims.member[1:] == claims.member[:-1]
    if again.any():
        row = int(np.flatnonzero(again)[0])
        raise SpecError(
            f"member {claims.owner[row].as_py()!r} owns partition {int(claims.first[row])} of "
            f"topic {topics[int(claims.topic[row])].as_py()!r} twice: its ranges overlap; "
            "give each partition once"
        )


def _resolve_overlaps(claims: RangeColumns) -> RangeColumns:
    """Give each partition claimed twice to the first member in order."""
    member, topic, first, count = (column.astype(np.int64) for column in claims)
    start = _pack_positions(topic, first)
    won_start, won_end, won_by = find_first_claims(start, start + count, member)
    order = np.lexsort((won_start, won_by))
    won_start, won_end, won_by = won_start[order], won_end[order], won_by[order]
    topic, first = _unpack_positions(won_start)
    return merge_touching(won_by, topic, first, won_end - won_start)


def _subtract_owned(
    claims: RangeColumns, owned: RangeColumns, member_ids: pa.StringArray
) -> PriorOwnership:
    """Return the parts of claims that their members do not own."""
    member, topic, first, count = (column.astype(np.int64) for column in claims)
    start = _pack_positions(topic, first)
    end = start + count
    owner, topic, first, count = (column.astype(np.int64) for column in owned)
    own_start = _pack_positions(topic, first)
    own_end = own_start + count
    # Each member on a stretch of its own, counted in cuts, so that one subtraction serves all.
    cuts = np.unique(np.concatenate([start, end]))
    shift, own_shift = member * len(cuts), owner * len(cuts)
    lost_start, lost_end = subtract(
        shift + np.searchsorted(cuts, start),
        shift + np.searchsorted(cuts, end),
        own_shift + np.searchsorted(cuts, own_start),
        own_shift + np.searchsorted(cuts, own_end),
    )
    loser = lost_start // len(cuts)
    at, until = cuts[lost_start % len(cuts)], cuts[(lost_end - 1) % len(cuts) + 1]
    topic, first = _unpack_positions(at)
    return PriorOwnership(member_ids.take(pa.array(loser)), loser, topic, first, until - at)


def _collect_released(
    gone: PriorOwnership | None,
    dropped: PriorOwnership | None,
    lost: PriorOwnership | None,
    partitions: Longs,
) -> ReleasedOwnership:
    """Collect what is not honoured; claims of owners that left are clipped to what exists."""
    if gone is not None:
        gone = gone.rows(gone.topic >= 0)
        first = np.minimum(gone.first, partitions[gone.topic])
        gone.count = np.minimum(gone.first + gone.count, partitions[gone.topic]) - first
        gone = gone.rows(gone.count > 0)
    causes = [LEFT, UNSUBSCRIBED, CONTESTED]
    named = zip((gone, dropped, lost), causes, strict=True)
    parts = [(part, cause) for part, cause in named if part is not None and len(part.topic)]
    if not parts:  # the usual case, and sorting nothing takes time
        none = np.zeros(0, dtype=np.int64)
        return ReleasedOwnership(pa.array([], pa.string()), none, none, none, none.astype(np.int8))
    owner = pa.chunked_array([part.owner.cast(pa.large_string()) for part, _ in parts])
    topic = np.concatenate([part.topic for part, _ in parts])
    first = np.concatenate([part.first for part, _ in parts])
    count = np.concatenate([part.count for part, _ in parts])
    lengths = [len(part.topic) for part, _ in parts]
    cause = np.repeat(np.array([cause for _, cause in parts], dtype=np.int8), lengths)
    columns = {"topic": topic, "first": first, "count": count, "owner": owner, "cause": cause}
    keys = [(name, "ascending") for name in columns]
    order = np.asarray(pc.sort_indices(pa.table(columns), keys), dtype=np.int64)
    names = owner.combine_chunks().take(pa.array(order))
    if names.nbytes < np.iinfo(np.int32).max:
        names = names.cast(pa.string())
    topic, first, count = (column.astype(np.int64)[order] for column in (topic, first, count))
    return ReleasedOwnership(names, topic, first, count, cause[order])
