"""The target assignment of a group: a whole one in columns, and later changes to it.

A whole target of a million members is a dozen arrays, of which a heartbeat gets its member's slice;
beside it are the targets of single members that came after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Ints, Longs
from coordinator.core.state.partition_spans import MANY, Spans, TopicKey
from coordinator.core.state.row_dict import NO_ROW, MemberIndex, RowDict, RowValues, SortedIds
from coordinator.core.state.shared_dict import Shareable, SharedDict, share
from coordinator.core.state.span_columns import SpanColumns, SpanRows, TopicKeys, to_array


class Ranges(NamedTuple):
    """Targets, an entry a range: `topic` is one of `keys`, `row` the owner's in the index."""

    owner: pa.StringArray
    keys: list[TopicKey]  # not all in use
    topic: Longs
    first: Longs
    end: Longs
    row: Longs | None = None  # NO_ROW: to be looked up


class StoredTarget(NamedTuple):
    """Which rows of the table of targets are a whole target.

    Attributes
    ----------
    run_id
        Marks its rows: the computation's id, or that of a job's run.
    version
        Of the table; it has these rows.
    digest, ranges
        Of these rows (storage/target_digest.py), and their number.
    members
        For how many it was computed; those without a range have no row.
    """

    group_id: str
    assignment_epoch: int
    run_id: str
    version: int
    digest: int
    members: int
    ranges: int


class WholeTarget:
    """The target of a whole group as a job computed it; never changed.

    A member without a row here has an empty target.

    Attributes
    ----------
    member_ids
        Members that have a range, sorted.
    bounds
        Where the rows of each of them begin, and where all end.
    keys
        The topics that `topic` counts.
    topic, first, end
        One entry per range.
    """

    __slots__ = ("_ids", "_topics", "bounds", "end", "first", "keys", "member_ids", "topic")

    def __init__(
        self,
        member_ids: pa.StringArray,
        bounds: Longs,
        keys: list[TopicKey],
        topic: Ints,
        first: Ints,
        end: Ints,
    ) -> None:
        self.member_ids = member_ids
        self.bounds = bounds
        self.keys = keys
        self.topic = topic
        self.first = first
        self.end = end
        self._topics = TopicKeys(keys)
        self._ids = SortedIds(member_ids)

    @classmethod
    def of(cls, rows: pa.Table) -> WholeTarget:
        """Return a target from its rows: member_id, topic, topic_id, first_partition, …_count."""
        keys, topic = _list_topics(rows)
        columns = {
            "member_id": _combine_chunks(rows["member_id"]),
            "topic": pa.array(topic),
            "first": _combine_chunks(rows["first_partition"]).cast(pa.int32()),
            "count": _combine_chunks(rows["partition_count"]).cast(pa.int32()),
        }
        table = pa.table(columns)
        starts = _find_starts(table)
        if starts is None:
            order = [(name, "ascending") for name in ("member_id", "topic", "first")]
            table = table.sort_by(order).combine_chunks()
            starts = _find_starts(table)
            assert starts is not None
        first = table["first"].to_numpy()
        return cls(
            _combine_chunks(table["member_id"].take(pa.array(starts))),
            np.append(starts, len(table)),
            keys,
            table["topic"].to_numpy(),
            first,
            first + table["count"].to_numpy(),
        )

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.topic)

    def spans(self, member_id: str) -> Spans:
        """Return the target of one member."""
        place = self._ids.find(member_id)
        if place is None:
            return ()
        start, stop = int(self.bounds[place]), int(self.bounds[place + 1])
        if stop - start >= MANY:
            columns = (self.topic, self.first, self.end)
            return SpanColumns(self._topics, *(c[start:stop].astype(np.int32) for c in columns))
        return tuple(
            (self.keys[self.topic[row]], int(self.first[row]), int(self.end[row]))
            for row in range(start, stop)
        )

    def count_ranges(self, member_id: str) -> int:
        """Return how many ranges one member has."""
        place = self._ids.find(member_id)
        return 0 if place is None else int(self.bounds[place + 1] - self.bounds[place])

    def ranges(self, without: Iterable[str] = ()) -> Ranges:
        """Return all ranges but those of some members, who may be unknown here."""
        others = pa.array(list(without), pa.string())
        gone = pc.is_in(self.member_ids, others).to_numpy(zero_copy_only=False)
        place = np.repeat(np.arange(len(self.member_ids)), np.diff(self.bounds))
        rows = np.flatnonzero(~gone[place])
        owner = self.member_ids.take(pa.array(place[rows]))
        columns = (self.topic[rows], self.first[rows], self.end[rows])
        return Ranges(owner, self.keys, *(column.astype(np.int64) for column in columns))


def _list_topics(rows: pa.Table) -> tuple[list[TopicKey], Ints]:
    """Return the topics in order, and the place of each row's."""
    names = _combine_chunks(rows["topic"]).dictionary_encode()
    ids = _combine_chunks(rows["topic_id"]).dictionary_encode()
    if not len(rows):
        return [], np.array([], dtype=np.int32)
    width = len(ids.dictionary)
    codes = names.indices.to_numpy().astype(np.int64) * width + ids.indices.to_numpy()
    if width * len(names.dictionary) > len(rows):
        pairs, codes = np.unique(codes, return_inverse=True)
    else:  # to count them takes a tenth of the time of sorting them
        there = np.bincount(codes) > 0
        pairs, codes = np.flatnonzero(there), (there.cumsum() - 1)[codes]
    found = [
        TopicKey(names.dictionary[int(p) // width].as_py(), ids.dictionary[int(p) % width].as_py())
        for p in pairs
    ]
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), dtype=np.int32)
    rank[order] = np.arange(len(found), dtype=np.int32)
    return [found[at] for at in order], rank[codes]


def _find_starts(table: pa.Table) -> Longs | None:
    """Return where each member's rows begin; None when the rows are not in order."""
    rows = len(table)
    if rows == 0:
        return np.array([], dtype=np.int64)
    ids = _combine_chunks(table["member_id"])
    before, after = ids.slice(0, rows - 1), ids.slice(1)
    other = pc.not_equal(before, after).to_numpy(zero_copy_only=False)
    greater = pc.greater(after, before).to_numpy(zero_copy_only=False)
    topic, first = table["topic"].to_numpy(), table["first"].to_numpy()
    later = (topic[1:] > topic[:-1]) | ((topic[1:] == topic[:-1]) & (first[1:] >= first[:-1]))
    if not np.where(other, greater, later).all():
        return None
    starts: Longs = np.concatenate([[0], np.flatnonzero(other) + 1])
    return starts


def _combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


NOT_READ = WholeTarget(  # from no list: pyarrow would import pandas to convert it, 40 MiB
    pa.nulls(0, pa.string()), np.zeros(1, np.int64), [], *(np.zeros(0, np.int32) for _ in range(3))
)
"""Stands for a whole target that a record names, until it is read from the table of targets."""


def no_rows() -> SpanRows:
    """Return rows of spans to add to."""
    none = np.zeros(0, np.int32)
    return SpanRows([], none, none, (none,) * 2)


_NO_ROWS = no_rows()
"""What groups have whose targets are no columns: a million small ones share it, none adds to it."""


class TargetNumbers(RowValues["Spans | int | None"]):
    """The numbers of targets in columns; 0 is no target."""

    def __init__(self, index: MemberIndex) -> None:
        super().__init__(index)
        self.numbers = array("i")
        self._given = 0

    def give(self, places: Longs, number: int) -> bool:
        """Number the targets of members; False where one has a target."""
        more = len(self.index) - len(self.numbers)
        self.numbers.extend(to_array(np.zeros(more, np.int32)))
        column = np.asarray(self.numbers)
        if column[places].any():
            return False
        column[places] = number + np.arange(len(places))
        self._given += len(places)
        return True

    def at(self, rows: Longs) -> Longs:
        """Return the numbers of some rows' targets."""
        if not len(self.numbers):
            return np.zeros(len(rows), np.int64)
        known = rows < len(self.numbers)
        return np.where(known, np.asarray(self.numbers)[np.where(known, rows, 0)], 0)

    def value(self, key: str, row: int) -> Spans | int | None:  # noqa: ARG002 - others need it
        """Return the number of a row's target; None: it has none."""
        return (self.numbers[row] or None) if row < len(self.numbers) else None

    def __contains__(self, key: object) -> bool:
        row = self.index.places.get(key)  # type: ignore[call-overload]
        return row is not None and row < len(self.numbers) and self.numbers[row] != 0

    def __iter__(self) -> Iterator[str]:
        return compress(self.index.places, self.numbers)

    def __len__(self) -> int:
        return self._given


class Targets(Mapping[str, Spans]):
    """The target assignment of each member that has one; changed by `replay` only.

    A whole target says what every member will own, but lists only those that own something.

    Attributes
    ----------
    whole
        What a job computed, None when none did.
    """

    __slots__ = ("_own", "_own_rows", "_ranges", "_rows", "whole")

    def __init__(self, whole: WholeTarget | None = None) -> None:
        self.whole = whole
        self._own: Shareable[str, Spans | int | None] = {}
        """Members whose target differs from the whole: its number in `_rows`; None is no target."""
        self._rows = _NO_ROWS
        """Targets in columns, each of which is a member's or was. Numbers begin with 1."""
        self._ranges: Ranges | None = None
        """What `ranges` made, as long as it holds."""
        self._own_rows: int | None = None
        """How many ranges `_own` has, from when it is first asked on."""

    def __getitem__(self, member_id: str) -> Spans:
        if self.whole is None or member_id in self._own:
            own = self._own[member_id]
            if own is None:
                raise KeyError(member_id)
            return self._spans(own)
        return self.whole.spans(member_id)

    def _spans(self, own: Spans | int) -> Spans:
        return self._rows.spans(own - 1) if isinstance(own, int) else own

    def _count(self, own: Spans | int | None) -> int:
        """Return of how many ranges an own target is."""
        return len(self._spans(own)) if own is not None else 0

    def __setitem__(self, member_id: str, spans: Spans) -> None:
        self._put(member_id, spans)

    def _put(self, member_id: str, spans: Spans | None) -> None:
        if self._own_rows is not None:
            self._own_rows += self._count(spans) - self._count(self._own.get(member_id))
        self._own[member_id] = spans
        self._ranges = None

    def update(self, targets: Iterable[tuple[str, Spans]]) -> None:
        """Give many members targets."""
        if self._own_rows is None:
            self._own.update(targets)
            self._ranges = None
        else:
            for member_id, spans in targets:
                self._put(member_id, spans)

    def add_rows(self, index: MemberIndex, places: Longs, rows: SpanRows) -> bool:
        """Give very many members targets in columns; False where one of any had a target.

        Parameters
        ----------
        places
            Of the members in the index.
        """
        if isinstance(self._own, RowDict):
            numbers = self._own.rows
            assert isinstance(numbers, TargetNumbers)
            plain = self._own.is_plain and numbers.index is index and not index.frozen
        else:
            plain, numbers = not self._own, TargetNumbers(index)
        if not plain or not numbers.give(places, len(self._rows) + 1):
            return False
        self._own = RowDict(numbers)
        if self._rows is _NO_ROWS:
            self._rows = no_rows()
        self._rows.extend(rows)
        self._own_rows = self._ranges = None
        return True

    def __iter__(self) -> Iterator[str]:
        yield from (member_id for member_id, spans in self._own.items() if spans is not None)
        if self.whole is not None:
            yield from (i for i in self.whole.member_ids.to_pylist() if i not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def count_ranges(self, member_id: str) -> int:
        """Return of how many ranges a member's target is made; 0 where it has none."""
        if self.whole is None or member_id in self._own:
            return self._count(self._own.get(member_id))
        return self.whole.count_ranges(member_id)

    def end(self, member_id: str) -> None:
        """Let a member have no target."""
        self._put(member_id, None)
        if self.whole is None:
            del self._own[member_id]

    def own(self) -> Iterator[tuple[str, Spans | None]]:
        """Yield the targets that differ from the whole; None is no target."""
        for member_id, own in self._own.items():
            yield member_id, None if own is None else self._spans(own)

    def take_rows(self) -> tuple[pa.StringArray, SpanRows] | None:
        """Return the members whose target is a row, and these; None where none may be."""
        if not isinstance(self._own, RowDict):
            return None
        rows, numbers = self._find_rows(self._own)
        return self._own.rows.index.ids.take(pa.array(rows)), self._rows.take(numbers)

    @property
    def index(self) -> MemberIndex | None:
        """Return what `ranges` numbers owners by."""
        return self._own.rows.index if isinstance(self._own, RowDict) else None

    def ranges(self) -> Ranges:
        """Return all targets in columns, each member's in order."""
        if self._ranges is None:
            self._ranges = self._in_columns()
        return self._ranges

    def _in_columns(self) -> Ranges:
        own = _to_columns({who: spans for who, spans in self.list_changed() if spans})
        if isinstance(self._own, RowDict):
            own = _join_ranges(own, self._list_rows(self._own))
        return own if self.whole is None else _join_ranges(own, self.whole.ranges(self._own))

    def list_changed(self) -> Iterable[tuple[str, Spans | None]]:
        """Return the own targets that are no rows."""
        own = self._own.own if isinstance(self._own, RowDict) else self._own
        return ((who, spans) for who, spans in own.items() if not isinstance(spans, int))

    def _list_rows(self, own: RowDict[Spans | int | None]) -> Ranges:
        """Return the targets of members that are rows."""
        rows, numbers = self._find_rows(own)
        owner = rows.repeat(self._rows.counts_of(numbers))
        at = self._rows.at(numbers)
        topic, first, end = (column[at].astype(np.int64) for column in self._rows.columns())
        ids = own.rows.index.ids.take(pa.array(owner))
        return Ranges(ids, self._rows.keys, topic, first, end, row=owner)

    def _find_rows(self, own: RowDict[Spans | int | None]) -> tuple[Longs, Longs]:
        """Return the rows of members whose target is one, and where these are."""
        table = own.rows
        assert isinstance(table, TargetNumbers)
        rows = own.list_rows()
        numbers = table.at(rows)
        given = numbers != 0
        return rows[given], numbers[given] - 1

    def rows(self) -> int:
        """Return about how many ranges there are."""
        if self._own_rows is None:
            self._own_rows = sum(len(spans) for _, spans in self.list_changed() if spans)
            if isinstance(self._own, RowDict):
                self._own_rows += int(self._rows.counts_of(self._find_rows(self._own)[1]).sum())
        return self._own_rows + (0 if self.whole is None else len(self.whole))

    def find_rows(self, places: Longs, member_ids: Sequence[str]) -> tuple[SpanRows, Longs] | None:
        """Return where the targets of members of an index are; below 0 is none.

        None where one of them has a target that is no row.
        """
        own = self._own
        if self.whole is not None or not (isinstance(own, RowDict) or not own):
            return None
        if not isinstance(own, RowDict):
            return self._rows, np.full(len(places), -1)
        if not own.own.keys().isdisjoint(member_ids):
            return None
        table = own.rows
        assert isinstance(table, TargetNumbers)
        numbers = table.at(places)
        if not own.is_plain:
            numbers = np.where(own.look_up(member_ids) < 0, 0, numbers)
        return self._rows, numbers - 1

    def copy(self) -> Targets:
        """Return a copy that no later change reaches."""
        other = Targets(self.whole)
        self._own = share(self._own)
        if isinstance(self._own, SharedDict):
            self.rows()  # are counted once, not for each copy
        other._own, other._own_rows = self._own.copy(), self._own_rows
        other._rows = self._rows
        return other


def _to_columns(targets: dict[str, Spans]) -> Ranges:
    """Put targets, none of them empty, into columns."""
    shared = _list_shared(targets)
    if shared is not None:
        return shared
    few = {who: spans for who, spans in targets.items() if not isinstance(spans, SpanColumns)}
    flat = [span for spans in few.values() for span in spans]
    known: dict[TopicKey, int] = {}
    topic = [known.setdefault(span[0], len(known)) for span in flat]
    owner = [member_id for member_id, spans in few.items() for _ in spans]
    columns = [topic, [span[1] for span in flat], [span[2] for span in flat]]
    parts = [[np.array(column, dtype=np.int64)] for column in columns]
    owners = [pa.array(owner, pa.string())]
    numbers: dict[TopicKeys, Longs] = {}
    for member_id, spans in targets.items():
        if isinstance(spans, SpanColumns):
            if spans.topics not in numbers:
                places = [known.setdefault(key, len(known)) for key in spans.topics.keys]
                numbers[spans.topics] = np.array(places, dtype=np.int64)
            theirs = (numbers[spans.topics][spans.topic], *spans.numbers())
            for part, column in zip(parts, theirs, strict=True):
                part.append(column.astype(np.int64))
            owners.append(pa.repeat(pa.scalar(member_id, pa.string()), len(spans)))
    joined = map(np.concatenate, parts)
    return Ranges(pa.concat_arrays(owners), list(known), *joined)


def _list_shared(targets: dict[str, Spans]) -> Ranges | None:
    """Return the same of members that all have columns, of the same topics; None elsewhere."""
    found = [spans for spans in targets.values() if isinstance(spans, SpanColumns)]
    topics = found[0].topics if found else None
    if topics is None or len(found) < len(targets) or any(s.topics is not topics for s in found):
        return None
    counts = pa.array(np.arange(len(found)).repeat(list(map(len, found))))
    columns = ([spans.topic, *spans.numbers()] for spans in found)
    joined = (np.concatenate(parts).astype(np.int64) for parts in zip(*columns, strict=True))
    return Ranges(pa.array(list(targets), pa.string()).take(counts), topics.keys, *joined)


def _join_ranges(one: Ranges, other: Ranges) -> Ranges:
    """Return the ranges of both; a topic of both is counted once."""
    number = {key: at for at, key in enumerate(other.keys)}
    known = np.array([number.setdefault(key, len(number)) for key in one.keys], dtype=np.int64)
    rows = [np.full(len(r.topic), NO_ROW) if r.row is None else r.row for r in (one, other)]
    return Ranges(
        pa.concat_arrays([one.owner, other.owner]),
        list(number),
        np.concatenate([known[one.topic], other.topic]),
        np.concatenate([one.first, other.first]),
        np.concatenate([one.end, other.end]),
        np.concatenate(rows),
    )
