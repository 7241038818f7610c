"""PartitionRanges: who owns what, as columnar ranges, and the algebra on such ranges.

A range is (member, topic, first partition, number of partitions). Members and topics are indexes
into the group's ordered names, so comparing integers compares names. Canonical order is (member,
topic, first) with touching ranges merged; every assignor returns it. This room knows nothing of
balance or subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, expand_runs, offsets_of, pieces, sum_by
from assignors.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd

ARROW_SCHEMA = pa.schema(
    [
        ("member_id", pa.string()),
        ("topic", pa.string()),
        ("first_partition", pa.int32()),
        ("partition_count", pa.int32()),
    ]
)
"""An assignment as a table: one row per range, in canonical order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the assignor proved about its own result.

    Attributes
    ----------
    partial
        `max_moves` cut the target short: assigning again continues it.
    moved_minimum
        Fewest moves any assignment within the assignor's promise needs; None when not computed.
    exact
        False when the plan was larger than `exact_edges`; `moved_minimum` is then a lower bound.
    swapped
        Whether partitions were swapped so that members have fewer ranges.
    softness
        Why soft constraints were given up together, other than for balance; None if they were not.
    """

    partial: bool = False
    moved_minimum: int | None = None
    exact: bool = True
    softness: str | None = None
    swapped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRanges:
    """Partitions owned by members, in canonical order.

    Attributes
    ----------
    member_ids, topics
        The names that the indexes stand for: members in member order, topics by name.
    member, topic, first, count
        int32 arrays of equal length R: one entry per range.
    verdict
        What the assignor proved about this result; not part of equality.
    """

    member_ids: pa.StringArray
    topics: pa.StringArray
    member: Ints
    topic: Ints
    first: Ints
    count: Ints
    verdict: Verdict = field(default_factory=Verdict)

    def __len__(self) -> int:
        return len(self.member)

    def __eq__(self, other: object) -> bool:
        """Compare names and rows; the verdict does not count."""
        if not isinstance(other, PartitionRanges):
            return NotImplemented
        return (
            self.member_ids.equals(other.member_ids)
            and self.topics.equals(other.topics)
            and np.array_equal(self.member, other.member)
            and np.array_equal(self.topic, other.topic)
            and np.array_equal(self.first, other.first)
            and np.array_equal(self.count, other.count)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"PartitionRanges({len(self.member_ids)} members, {len(self.topics)} topics, "
            f"{len(self)} ranges, {int(self.count.sum(dtype=np.int64))} partitions)"
        )

    @property
    def partial(self) -> bool:
        """Whether `max_moves` cut this target short."""
        return self.verdict.partial

    def loads(self) -> Longs:
        """Return the number of partitions of each member, shape (members,)."""
        return sum_by(self.member, self.count, len(self.member_ids))

    def of_member(self, member_id: str) -> Self:
        """Return the ranges of one member.

        Raises
        ------
        KeyError
            The member is not in the group.
        """
        at = pc.index(self.member_ids, member_id).as_py()
        if at < 0:
            raise KeyError(member_id)
        low, high = np.searchsorted(self.member, [at, at + 1])
        return self._rows(slice(low, high))

    def of_members(self, some: pa.BooleanArray) -> Self:
        """Return the ranges of some members, as if there were no others.

        Parameters
        ----------
        some
            A value for each member of the group, in member order: true for those to return.
        """
        kept = some.to_numpy(zero_copy_only=False)
        rows = self._rows(np.flatnonzero(kept[self.member]))
        member = (np.cumsum(kept) - 1)[rows.member].astype(np.int32)
        return replace(rows, member_ids=self.member_ids.filter(some), member=member)

    def explode(self) -> tuple[Longs, Longs, Longs]:
        """Return one entry per partition, in canonical order.

        Returns
        -------
        member, topic, partition
            Three int64 arrays of as many entries as partitions are owned: indexes into
            `member_ids` and `topics`, and the partition's number.
        """
        counts = self.count.astype(np.int64)
        return (
            np.repeat(self.member.astype(np.int64), counts),
            np.repeat(self.topic.astype(np.int64), counts),
            expand_runs(self.first.astype(np.int64), counts),
        )

    def to_dict(self, *, lists: bool = True) -> dict[str, dict[str, list[object]]]:
        """Return {member: {topic: partitions}}, every member included, in member order.

        Parameters
        ----------
        lists
            True: each topic's partitions one by one; False: as [first, count] pairs.

        Returns
        -------
        dict
            Of plain Python values, ready for JSON. A member without partitions has {}.
        """
        out: dict[str, dict[str, list[object]]] = {m: {} for m in self.member_ids.to_pylist()}
        members, topics = self.member_ids.to_pylist(), self.topics.to_pylist()
        rows = zip(
            self.member.tolist(),
            self.topic.tolist(),
            self.first.tolist(),
            self.count.tolist(),
            strict=True,
        )
        for member, topic, first, count in rows:
            cell = out[members[member]].setdefault(topics[topic], [])
            if lists:
                cell.extend(range(first, first + count))
            else:
                cell.append([first, count])
        return out

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table of `ARROW_SCHEMA`."""
        return pa.table(
            [
                take_names(self.member_ids, self.member),
                take_names(self.topics, self.topic),
                pa.array(self.first, pa.int32()),
                pa.array(self.count, pa.int32()),
            ],
            schema=ARROW_SCHEMA,
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a frame with columns member_id, topic, first_partition, count.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ModuleNotFoundError:
            raise ImportError("to_pandas needs pandas, not installed: pip install pandas") from None
        return frame

    @classmethod
    def from_arrow(cls, member_ids: pa.StringArray, topics: pa.StringArray, rows: pa.Table) -> Self:
        """Read an assignment table back, against the names of its group.

        Parameters
        ----------
        member_ids, topics
            The group's names: members in member order, topics sorted.
        rows
            Of `ARROW_SCHEMA`, in any order: member_id, topic, first_partition, partition_count.

        Returns
        -------
        PartitionRanges
            With the rows in canonical order, and a verdict that claims nothing.

        Raises
        ------
        SpecError
            A row names a member or a topic that the group does not have.
        """
        member = _look_up(rows["member_id"], member_ids, "member")
        topic = _look_up(rows["topic"], topics, "topic")
        first, count = (rows[name].to_numpy() for name in ("first_partition", "partition_count"))
        return cls(member_ids, topics, *order_canonically(member, topic, first, count))

    def _rows(self, rows: slice | Longs) -> Self:
        return type(self)(
            self.member_ids,
            self.topics,
            self.member[rows],
            self.topic[rows],
            self.first[rows],
            self.count[rows],
            self.verdict,
        )


def take_names(names: pa.StringArray, at: Ints, most: int = 2**31 - 1) -> pa.ChunkedArray:
    """Return the names at some places, in chunks of `most` bytes: a string's offsets are int32."""
    longest = pc.max(pc.binary_length(names)).as_py() or 1
    rows = max(most // longest, 1)
    chunks = [names.take(pa.array(at[row : row + rows])) for row in range(0, len(at), rows)]
    return pa.chunked_array(chunks, pa.string())


def order_canonically(
    member: Ints, topic: Ints, first: Ints, count: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Sort ranges by (member, topic, first) and merge those that touch; int32 columns."""
    if not are_in_order(member, topic, first):
        order = np.lexsort((first, topic, member))
        member, topic, first, count = (one[order] for one in (member, topic, first, count))
    return merge_touching(member, topic, first, count)


def are_in_order(member: Ints, topic: Ints, first: Ints) -> bool:
    """Whether ranges are sorted by (member, topic, first), looked at a piece at a time."""
    for some in pieces(len(member) - 1):
        (a, b), (c, d), (e, f) = (
            (one[some], one[some.start + 1 : some.stop + 1]) for one in (member, topic, first)
        )
        if not ((a < b) | ((a == b) & ((c < d) | ((c == d) & (e <= f))))).all():
            return False
    return True


def merge_touching(
    member: Ints, topic: Ints, first: Ints, count: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Merge ranges, sorted by (member, topic, first), where one ends as the next begins."""
    if len(member):
        head = np.empty(len(member), dtype=np.bool_)
        head[0] = True
        np.not_equal(first[1:], first[:-1] + count[:-1], out=head[1:])
        head[1:] |= topic[1:] != topic[:-1]
        head[1:] |= member[1:] != member[:-1]
        if not head.all():
            at = np.flatnonzero(head)
            member, topic, first = member[at], topic[at], first[at]
            count = np.add.reduceat(count, at)
    return (
        member.astype(np.int32, copy=False),
        topic.astype(np.int32, copy=False),
        first.astype(np.int32, copy=False),
        count.astype(np.int32, copy=False),
    )


def complement(start: Longs, length: Longs, total: int) -> tuple[Longs, Longs]:
    """Return the gaps that disjoint, sorted ranges leave on the line [0, total)."""
    gap_start = np.zeros(len(start) + 1, dtype=np.int64)
    np.add(start, length, out=gap_start[1:])
    gap = np.empty(len(start) + 1, dtype=np.int64)
    np.subtract(start, gap_start[:-1], out=gap[:-1])
    gap[-1] = total - gap_start[-1]
    open_ = gap > 0
    return gap_start[open_], gap[open_]


def cut_at(start: Longs, length: Longs, points: Longs) -> tuple[Longs, Longs]:
    """Cut disjoint, sorted ranges of a line at the points that lie inside them."""
    if not len(start):
        return start, length
    end = start + length
    at = np.searchsorted(start, points, side="right") - 1
    inside = (at >= 0) & (points < end[at]) & (points > start[at])
    if not inside.any():
        return start, length
    cut = np.concatenate([start, points[inside]])
    cut.sort(kind="stable")  # np.unique hashes, which is slow where all differ
    cut = cut[np.append(True, cut[1:] != cut[:-1])]
    last = end[np.searchsorted(start, cut, side="right") - 1]
    return cut, np.minimum(last, np.append(cut[1:], last[-1])) - cut


def overlay(left: Longs, right: Longs, total: int) -> tuple[Longs, Longs, Longs, Longs]:
    """Cut the line [0, total) at the starts of two rows of adjacent intervals.

    Parameters
    ----------
    left, right
        Lengths of the intervals of each row, laid end to end from 0; each covers the line.

    Returns
    -------
    left_index, right_index, start, length
        One entry per piece: the interval of each row it lies in, and where on the line it is.
    """
    left_start, right_start = offsets_of(left)[:-1], offsets_of(right)[:-1]
    start = np.concatenate([left_start, right_start])
    start.sort(kind="stable")  # two sorted runs: a merge
    if len(start):
        begins = np.ones(len(start), dtype=np.bool_)
        np.not_equal(start[1:], start[:-1], out=begins[1:])
        start = start[begins]
    length = np.empty_like(start)
    np.subtract(start[1:], start[:-1], out=length[:-1])
    length[-1:] = total - start[-1:]
    return (
        left_start.searchsorted(start, side="right") - 1,
        right_start.searchsorted(start, side="right") - 1,
        start,
        length,
    )


def find_overlaps(group: Ints, first: Ints, count: Ints) -> Bools:
    """Tell for each range, sorted by (group, first), whether it begins before an earlier one ends.

    The flag is exact for the first overlap of a run; a sweep that stops there needs no more.
    """
    out = np.zeros(len(group), dtype=np.bool_)
    if len(group) > 1:
        out[1:] = (group[1:] == group[:-1]) & (first[1:] < first[:-1] + count[:-1])
    return out


def find_first_claims(start: Longs, end: Longs, claimant: Longs) -> tuple[Longs, Longs, Longs]:
    """Resolve overlapping ranges of a line: each point goes to the lowest claimant that covers it.

    Parameters
    ----------
    start, end
        Half-open ranges, in any order.
    claimant
        Who claims each range; lower wins.

    Returns
    -------
    start, end, claimant
        Disjoint pieces in line order, one per (piece, claimant); unclaimed points are left out.

    Notes
    -----
    The cuts make elementary segments. Each range covers a run of them and is written as two blocks
    of a power of two; blocks are pushed down level by level, so the work is O(n log n) however the
    ranges nest.
    """
    cuts = np.unique(np.concatenate([start, end]))
    low, high = np.searchsorted(cuts, start), np.searchsorted(cuts, end)
    segments = max(len(cuts) - 1, 0)
    unclaimed = np.iinfo(np.int64).max
    level_of = np.frexp(np.maximum(high - low, 1).astype(np.float64))[1] - 1
    lowest = np.full(segments, unclaimed, dtype=np.int64)
    for level in range(int(level_of.max(initial=0)), -1, -1):
        here, width = level_of == level, 1 << level
        np.minimum.at(lowest, low[here], claimant[here])
        np.minimum.at(lowest, high[here] - width, claimant[here])
        if level:
            half = width // 2
            pushed = lowest.copy()
            np.minimum(pushed[half:], lowest[:-half], out=pushed[half:])
            lowest = pushed
    taken = np.flatnonzero(lowest != unclaimed)
    return cuts[taken], cuts[taken + 1], lowest[taken]


def _look_up(names: pa.ChunkedArray, known: pa.StringArray, what: str) -> Ints:
    found = find_names(names.combine_chunks(), known)
    unknown = found < 0
    if unknown.any():
        missing = names[int(unknown.argmax())].as_py()
        raise SpecError(f"{what} {missing!r} is not in the group: use the group's own rows")
    return found


def find_names(names: pa.Array, known: pa.Array) -> Ints:
    """Return the place of each name among those that are known, −1 where it is not there.

    Each of the names of a dictionary, of which not all need be in use, is looked for once.
    """
    if pa.types.is_dictionary(names.type):
        found: Ints = find_names(names.dictionary, known)[names.indices.to_numpy()]
        return found
    known = known if known.type == names.type else known.cast(names.type)
    at = pc.index_in(names, value_set=known)
    return np.array(at.fill_null(-1) if at.null_count else at)


def subtract(start: Longs, end: Longs, less_start: Longs, less_end: Longs) -> tuple[Longs, Longs]:
    """Return disjoint ranges of a line without the disjoint ranges `less`; both in any order."""
    at = np.concatenate([start, end, less_start, less_end])
    step = np.repeat([1, -1, -2, 2], [len(start), len(end), len(less_start), len(less_end)])
    order = np.argsort(at, kind="stable")
    at, depth = at[order], np.cumsum(step[order])
    open_ = (depth[:-1] == 1) & (at[1:] > at[:-1])
    return at[:-1][open_], at[1:][open_]
