"""The target assignment of a group: a whole one in columns, and later changes to it.

A whole target of a million members is a dozen arrays, of which a heartbeat gets its member's slice;
beside it are the targets of single members that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Ints, Longs, count_by, offsets_of
from assignors.partition_ranges import are_in_order
from coordinator.core.state.partition_spans import MANY, Spans, TopicKey
from coordinator.core.state.row_dict import (
    MemberIndex,
    RowDict,
    SortedIds,
    TargetNumbers,
)
from coordinator.core.state.shared_dict import Shareable, SharedDict, share
from coordinator.core.state.span_columns import (
    PARTITION_MAX,
    SpanColumns,
    SpanRows,
    TopicKeys,
)
from coordinator.core.state.target_ranges import Ranges, join_ranges, to_columns


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
        """Return a target from its rows: member_id, topic, topic_id, first_partition, …_count.

        Their texts may be coded, and then fifty million rows take 1 GB.
        """
        keys, topic = _list_topics(rows)
        ids, owner = _code(rows["member_id"])
        order = pc.array_sort_indices(ids).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        owner, ids = rank[owner], ids.take(pa.array(order))
        first, count = (_to_ints(rows[name]) for name in ("first_partition", "partition_count"))
        if not are_in_order(owner, topic, first):
            by = np.lexsort((first, topic, owner))
            owner, topic, first, count = (column[by] for column in (owner, topic, first, count))
        counts = count_by(owner, len(ids))
        there = counts > 0
        return cls(
            ids.filter(pa.array(there)),
            offsets_of(counts[there]),
            keys,
            topic,
            first,
            first + count,
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
        columns = [self.owners(), self.topic, self.first, self.end]
        if gone.any():
            stays = ~gone[columns[0]]
            columns = [column[stays] for column in columns]
        return Ranges(self.member_ids, self.keys, *columns)

    def owners(self) -> Ints:
        """Return the place of each range's member."""
        places = np.arange(len(self.member_ids), dtype=np.int32)
        owners: Ints = places.repeat(np.diff(self.bounds))
        return owners


def _list_topics(rows: pa.Table) -> tuple[list[TopicKey], Ints]:
    """Return the topics in order, and the place of each row's."""
    (names, name), (ids, id_) = _code(rows["topic"]), _code(rows["topic_id"])
    if not len(rows):
        return [], np.array([], dtype=np.int32)
    width = len(ids)
    if width * len(names) > PARTITION_MAX:
        name = name.astype(np.int64)
    codes = name * width
    codes += id_
    if width * len(names) > len(rows):
        pairs, codes = np.unique(codes, return_inverse=True)
    else:  # to count them takes a tenth of the time of sorting them
        there = count_by(codes, width * len(names)) > 0
        pairs, codes = np.flatnonzero(there), (there.cumsum(dtype=np.int32) - 1)[codes]
    found = [TopicKey(names[int(p) // width].as_py(), ids[int(p) % width].as_py()) for p in pairs]
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), dtype=np.int32)
    rank[order] = np.arange(len(found), dtype=np.int32)
    return [found[at] for at in order], rank[codes]


def _code(column: pa.Array | pa.ChunkedArray) -> tuple[pa.StringArray, Ints]:
    """Return texts, each once but not all in use, and the number of each row's."""
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if not column.num_chunks:
        return pa.nulls(0, pa.string()), np.zeros(0, np.int32)
    coded = column.unify_dictionaries().combine_chunks()
    return coded.dictionary, coded.indices.to_numpy()


def _to_ints(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Return a column of numbers of 32 bits."""
    numbers: Ints = column.cast(pa.int32()).to_numpy()
    return numbers


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


class Targets(Mapping[str, Spans]):
    """The target assignment of each member that has one; changed by `replay` only.

    A whole target says what every member will own, but lists only those that own something.

    Attributes
    ----------
    whole
        What a job computed, None when none did.
    """

    __slots__ = ("_own", "_own_rows", "_ranges", "_rows", "_shared", "whole")

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
        self._shared = False
        """Whether a copy has the same `_rows`: they are added to no more."""

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
        own = to_columns({who: spans for who, spans in self.list_changed() if spans})
        if isinstance(self._own, RowDict):
            own = join_ranges(own, self._list_rows(self._own))
        return own if self.whole is None else join_ranges(own, self.whole.ranges(self._own))

    def list_changed(self) -> Iterable[tuple[str, Spans | None]]:
        """Return the own targets that are no rows."""
        own = self._own.own if isinstance(self._own, RowDict) else self._own
        return ((who, spans) for who, spans in own.items() if not isinstance(spans, int))

    def _list_rows(self, own: RowDict[Spans | int | None]) -> Ranges:
        """Return the targets of members that are rows."""
        rows, numbers = self._find_rows(own)
        places = np.arange(len(rows), dtype=np.int32)
        owner = places.repeat(self._rows.counts_of(numbers))
        columns: list[Ints]
        if len(numbers) < len(self._rows) or (np.diff(numbers) != 1).any():
            at = self._rows.at(numbers)
            columns = [column[at] for column in self._rows.columns()]
        else:  # all of them, in order; a view of what may still grow would forbid that
            columns = [column.copy() for column in self._rows.columns()]
        topic, first, end = columns
        ids = own.rows.index.ids.take(pa.array(rows))
        return Ranges(ids, self._rows.keys, owner, topic, first, end, rows)

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
        self._shared = other._shared = True
        return other

    @property
    def apart(self) -> int:
        """How many targets stay apart from the rows."""
        return len(self._own.own) if isinstance(self._own, RowDict) else 0

    def base_on(self, index: MemberIndex, rows: Longs) -> None:
        """Let targets be rows of another index, each of whose rows had one of these, or NO_ROW."""
        own = self._own
        if isinstance(own, RowDict):
            assert isinstance(own.rows, TargetNumbers)
            given, places = self._find_rows(own)
            numbers, there = own.rows.move(index, rows, given)
            for row, place in zip(given[~there].tolist(), places[~there].tolist(), strict=True):
                own.own[own.rows.index.ids[row].as_py()] = self._rows.spans(place)
            self._own = RowDict.beside(numbers, own.own, set(), len(own))
        elif self.whole is None:
            apart = cast("dict[str, Spans | int | None]", own)
            self._own = RowDict.beside(TargetNumbers(index), apart, set(), len(own))
            self._rows = no_rows() if self._rows is _NO_ROWS else self._rows

    def fold(self, index: MemberIndex, member_ids: Sequence[str], start: int) -> None:
        """Let targets of members be rows; no reader sees it but by their order, and no copy.

        Parameters
        ----------
        start
            The row of the first member; the others follow.

        Raises
        ------
        OverflowError
            A number has more than 32 bits: nothing is done.
        """
        own = self._own
        if not isinstance(own, RowDict) or not own.own or own.rows.index is not index:
            return
        apart, gone = own.own, own.gone
        found = {
            who: (row, spans)
            for row, who in enumerate(member_ids, start)
            if who in apart
            and who not in gone
            and (spans := self._spans_apart(apart[who])) is not None
        }
        if found:
            rows, spans = zip(*found.values(), strict=True)
            self._give(own, rows, spans)
            self._own.fold(found)  # type: ignore[union-attr]

    @staticmethod
    def _spans_apart(own: Spans | int | None) -> Spans | None:
        """Return a target that may be a row: long ones are columns of their own."""
        return own if isinstance(own, tuple) and len(own) < MANY else None

    def _give(
        self, own: RowDict[Spans | int | None], rows: Sequence[int], spans: Sequence[Spans]
    ) -> None:
        """Give rows targets, which are apart as well."""
        table = own.rows
        assert isinstance(table, TargetNumbers)
        kept = self._rows.copy() if self._shared else self._rows
        numbers = len(kept) + 1 + np.arange(len(rows))
        kept.append(spans)
        if self._shared:
            table = table.copy()
            self._own, self._rows, self._shared = RowDict(table, own), kept, False
        table.set(rows, numbers)

    def tidy(self) -> None:
        """Let go of rows that no member has, once they are most, and of other room."""
        own = self._own
        if not isinstance(own, RowDict):
            return
        own.tidy()
        table = own.rows
        assert isinstance(table, TargetNumbers)
        given = table.list_given()
        if len(self._rows) > 2 * len(given):
            self._rows = self._rows.take(table.at(given) - 1)
            table = table.copy()
            table.set(given, np.arange(1, len(given) + 1))
            self._own, self._shared = RowDict(table, own), False
