"""Decode rows of the log to records, by whole columns; no row is ever skipped."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

import msgspec
import numpy as np
import pyarrow as pa

from assignors.arrays import Ints, Longs
from coordinator.core.short_calls import apply
from coordinator.core.state.member_rows import (
    META_FIELDS,
    STATES,
    CurrentRows,
    MemberRows,
    TargetRows,
)
from coordinator.core.state.partition_spans import MANY, Holding, Spans, TopicKey, shrink
from coordinator.core.state.record_fields import Mark, take_apart
from coordinator.core.state.records import (
    KINDS,
    PARTITION_METADATA,
    CurrentMember,
    MemberMetadata,
    MemberState,
    Record,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.span_columns import SpanColumns, SpanRows, TopicKeys
from coordinator.storage.record_log import CLAIM, Batch, NewerLog
from coordinator.storage.record_schema import COLUMN_TYPES, FIELDS, NAME_COLUMN, ColumnType

_STATES = {state.name: state for state in MemberState}
_UNSIGNED = 1 << 64
LONG = 1_000
"""So many rows of one kind are worth columns."""
HEAD = 2
"""Fields of a range before its numbers: the topic's name and its id."""
Value = TypeVar("Value")
Rows: TypeAlias = MemberRows | TargetRows | CurrentRows
Column: TypeAlias = Callable[..., pa.Array]
Decoder: TypeAlias = Callable[[pa.Array, "ValueCache"], list[Any]]


class ValueCache:
    """One object for all values that are equal: a million members share their names and topics."""

    def __init__(self) -> None:
        self._texts: dict[str | None, str | None] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._keys: dict[TopicKey, TopicKey] = {}
        self._topics: TopicKeys | None = None

    def texts(self, column: pa.Array) -> list[str | None]:
        """Return a column of strings."""
        words, codes = _number_values(column)
        return _spread(apply(self._texts.setdefault, words, words), codes)

    def ids(self, column: pa.Array) -> list[str | None]:
        """Return a column of strings of which hardly two are equal."""
        words = column.to_pylist()
        return apply(self._texts.setdefault, words, words)

    def names(self, column: pa.Array) -> list[tuple[str, ...]]:
        """Return a column of JSON lists of names."""
        words, codes = _number_values(column)
        return _spread(self.lists(words), codes)

    def lists(self, words: list[str | None]) -> list[tuple[str, ...]]:
        """Return lists of names of which each is JSON."""
        lists = []
        for text in words:
            if text not in self._names and text is not None:
                self._names[text] = msgspec.json.decode(text, type=tuple[str, ...])
            lists.append(self._names.get(text or "", ()))
        return lists

    def keys(self, ranges: pa.StructArray) -> tuple[list[TopicKey], Longs]:
        """Return the distinct topics of a column of ranges, and which of them each range has."""
        names, name_codes = _number_values(ranges.field("topic"))
        ids, id_codes = _number_values(ranges.field("topic_id"))
        pairs, codes = np.unique(
            name_codes.astype(np.int64) * len(ids) + id_codes, return_inverse=True
        )
        keys = [TopicKey(names[p // len(ids)] or "", ids[p % len(ids)] or "") for p in pairs]
        return apply(self._keys.setdefault, keys, keys), codes

    def in_order(self, keys: list[TopicKey]) -> TopicKeys:
        """Return topics in their order, the same object as the last time if they are the same."""
        topics = TopicKeys(sorted(keys))
        if self._topics is None or not self._topics.equals(topics):
            self._topics = topics
        return self._topics


def decode_batches(rows: pa.Table, seen: ValueCache, long: int = LONG) -> Iterator[Batch]:
    """Yield rows as they were written: those of one moment and one coordinator are one batch.

    So many rows of one kind about members of one group, or more, are a batch that has columns.

    Raises
    ------
    NewerLog
        A row is of a kind that this version does not know.
    """
    at = 0
    for first, end in find_runs(rows, long):
        some = rows.slice(first, end - first)
        records = decode_run(some, seen)
        if records is not None:
            yield from _decode_mixed(rows.slice(at, first - at), seen)
            names = ("position", "at_ms", "coordinator_epoch")
            position, at_ms, epoch = (some.column(name)[-1].as_py() for name in names)
            yield Batch(position, at_ms, epoch, records)
            at = end
    yield from _decode_mixed(rows.slice(at), seen)


def find_runs(rows: pa.Table, long: int) -> list[tuple[int, int]]:
    """Return where runs of rows begin and end that may become columns."""
    if len(rows) < long:
        return []
    _, kinds = _number_values(rows.column("kind"))
    columns = [kinds, rows.column("tombstone").to_numpy()]
    columns += [rows.column(name).to_numpy() for name in ("at_ms", "coordinator_epoch")]
    new = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    bounds = [0, *(np.flatnonzero(new) + 1).tolist(), len(rows)]
    return [(first, end) for first, end in pairwise(bounds) if end - first >= long]


def decode_run(rows: pa.Table, seen: ValueCache) -> Rows | None:
    """Return rows of one kind as columns; None where they are better records, one by one.

    They are about members of several groups, an older version wrote them without a column, or a
    member has very many ranges.
    """
    decode = _DECODERS_OF_RUNS.get(rows.column("kind")[0].as_py())
    if decode is None or rows.column("tombstone")[0].as_py():
        return None
    groups = rows.column("group_id").unique().to_pylist()
    if len(groups) > 1:
        return None
    try:
        column = partial(_whole, rows)
        return decode(groups[0], column("member_id"), column, seen)
    except _NoRun:
        return None


class _NoRun(Exception):  # noqa: N818 - no error
    """Rows are better records."""


def _decode_members(
    group_id: str, member_ids: pa.StringArray, column: Column, seen: ValueCache
) -> MemberRows:
    fields = [field for field in FIELDS[MemberMetadata.kind] if field.name in META_FIELDS]
    columns = [
        _code_values(column(field.column, field.optional), len(member_ids), field.column, seen)
        for field in fields
    ]
    return MemberRows(group_id, member_ids, columns)


def _code_values(
    array: pa.Array | None, rows: int, name: str, seen: ValueCache
) -> tuple[list[Any], Ints]:
    """Return the distinct values of a column, each of which some row has, and each row's number."""
    if array is None:
        return [None], np.zeros(rows, np.int32)
    words: list[Any]
    codes: Ints
    if pa.types.is_nested(array.type):
        there = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        codes = np.zeros(rows, np.int32)
        codes[there] = 1 + np.arange(len(there))
        words = [None, *_DECODERS[name](array.drop_null(), seen)]
    else:
        words, codes = _number_values(array)
    counts = np.bincount(codes, minlength=len(words))
    used = np.flatnonzero(counts)
    if len(used) < len(words):
        codes, words = (np.cumsum(counts > 0) - 1)[codes], [words[at] for at in used.tolist()]
    if Mark.AS_JSON in COLUMN_TYPES[name].marks:
        words = seen.lists(words)
    return words, codes


def _decode_targets(
    group_id: str, member_ids: pa.StringArray, column: Column, seen: ValueCache
) -> TargetRows:
    return TargetRows(group_id, member_ids, _decode_span_rows(column("target"), seen))


def _decode_currents(
    group_id: str, member_ids: pa.StringArray, column: Column, seen: ValueCache
) -> CurrentRows:
    names, codes = _number_values(column("state"))
    states = np.array([STATES.index(_STATES[str(name)]) for name in names], np.int32)[codes]
    epochs = (column(name).to_numpy() for name in ("member_epoch", "previous_member_epoch"))
    held = (_decode_span_rows(column(name), seen) for name in ("assigned", "pending"))
    return CurrentRows(group_id, member_ids, [*epochs, states], *held)


def _whole(rows: pa.Table, name: str, optional: bool = False) -> pa.Array | None:  # noqa: FBT001
    """Return a column of which every row has a value, unless it is optional."""
    if name not in rows.column_names:
        if optional:
            return None
        raise _NoRun
    column = rows.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if array.null_count and not optional:
        raise _NoRun
    return array


def _decode_span_rows(array: pa.ListArray, seen: ValueCache) -> SpanRows:
    counts = array.value_lengths().to_numpy(zero_copy_only=False)
    if counts.max() >= MANY:
        raise _NoRun
    ranges = array.flatten()
    keys, codes = seen.keys(ranges)
    return SpanRows(keys, counts, codes, _decode_numbers(ranges))


def _decode_numbers(ranges: pa.StructArray) -> list[Ints]:
    """Return the first partition of each range, the one after its last, and its epoch if any."""
    first = ranges.field("first_partition").to_numpy()
    numbers = [first, first + ranges.field("partition_count").to_numpy()]
    if ranges.type.num_fields > len(numbers) + HEAD:
        numbers.append(ranges.field("assignment_epoch").to_numpy())
    return numbers


def _decode_mixed(rows: pa.Table, seen: ValueCache) -> Iterator[Batch]:
    if not len(rows):
        return
    at_ms, epochs, positions = (
        rows.column(name).to_numpy() for name in ("at_ms", "coordinator_epoch", "position")
    )
    records = decode_rows(rows, seen)
    new = np.flatnonzero((np.diff(at_ms) != 0) | (np.diff(epochs) != 0)) + 1
    bounds = [0, *new.tolist(), len(rows)]
    for first, end in pairwise(bounds):
        some = [record for record in records[first:end] if record is not None]
        yield Batch(int(positions[end - 1]), int(at_ms[first]), int(epochs[first]), some)


class RecordsCopy(NamedTuple):
    """What `copy_records` made text of."""

    position: int
    """Of the first one."""
    at_ms: int
    epoch: int
    records: list[Record]

    @property
    def last(self) -> int:
        """The position of the last one."""
        return self.position + len(self.records) - 1


def read_copy(text: str) -> RecordsCopy | None:
    """Return what a copy of records says; None where another version of Muster made it.

    Raises
    ------
    ValueError
        It is not what was written.
    """
    body = text[8:].encode()
    if text[:8] != f"{zlib.crc32(body):08x}":
        raise ValueError("its checksum is another one")
    try:
        position, at_ms, epoch, some = _COPY.decode(body)
        records = [_IN_COPIES[kind].decode(record) for kind, record in some]
    except (msgspec.DecodeError, KeyError):
        return None
    return RecordsCopy(position, at_ms, epoch, records)


def decode_rows(rows: pa.Table, seen: ValueCache) -> list[Record | None]:
    """Return the record of each row; a claim has none."""
    records: list[Record | None] = [None] * len(rows)
    kinds, codes = _number_values(rows.column("kind"))
    ends = rows.column("tombstone").to_numpy(zero_copy_only=False)
    groups = 2 * codes.astype(np.int64) + ends
    for group in np.unique(groups).tolist():
        places = np.flatnonzero(groups == group)
        some = _take_rows(rows, places)
        kind = kinds[group // 2]
        _refuse_unknown(kind, some)
        if kind != CLAIM:
            found = (
                _decode_tombstones(some, str(kind), seen)
                if group % 2
                else _decode_records(some, kind, seen)
            )
            for place, record in zip(places.tolist(), found, strict=True):
                records[place] = record
    return records


def _refuse_unknown(kind: str | None, rows: pa.Table) -> None:
    if kind not in KINDS and kind not in {CLAIM, PARTITION_METADATA}:
        raise NewerLog(
            f"position {rows.column('position')[0]} of the log is a record of kind {kind!r}, which "
            f"this version does not know: open the store with the version that wrote it"
        )


def _take_rows(rows: pa.Table, places: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places):
        return rows.slice(first, len(places))
    return rows.take(pa.array(places))


def _decode_records(rows: pa.Table, kind: str | None, seen: ValueCache) -> Iterator[Record]:
    columns = [
        _decode_column(rows, field.column, seen, None if field.optional else field.default)
        for field in FIELDS[str(kind)]
    ]
    return map(KINDS[str(kind)], *columns)


def _decode_tombstones(rows: pa.Table, kind: str, seen: ValueCache) -> Iterator[Record]:
    name = NAME_COLUMN.get(kind)
    nothing = [None] * len(rows)
    columns = [_decode_column(rows, column, seen) for column in ("group_id", "member_id")]
    names = _decode_column(rows, name, seen) if name else nothing
    groups = [group_id or "" for group_id in columns[0]]
    return map(
        Tombstone,
        [kind] * len(rows),
        groups,
        columns[1],
        names,
        _decode_column(rows, "partition", seen),
    )


def _decode_column(
    rows: pa.Table, name: str, seen: ValueCache, default: Callable[[], Any] | None = None
) -> list[Any]:
    """Return the values of a column; the default, or None, where a row has none."""
    if name not in rows.column_names:  # no row of the file has it
        return [default() if default else None for _ in range(len(rows))]
    column = rows.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    decode = _DECODERS[name]
    if not array.null_count or (default is None and decode in _TAKE_NULLS):
        return decode(array, seen)
    # An older version wrote rows without the field.
    values = iter(decode(array.drop_null(), seen))
    return [
        next(values) if there else default() if default else None
        for there in array.is_valid().to_pylist()
    ]


def _decode_plain(array: pa.Array, _seen: ValueCache) -> list[Any]:
    if array.null_count or pa.types.is_nested(array.type):
        return list(array.to_pylist())
    return list(array.to_numpy(zero_copy_only=False).tolist())


def _spread(values: list[Value], codes: Ints) -> list[Value]:
    """Return the value of each row; of most columns all rows have the same."""
    if len(values) == 1:
        return values * len(codes)
    return apply(values.__getitem__, codes.tolist())


def _number_values(column: pa.Array | pa.ChunkedArray) -> tuple[list[str | None], Ints]:
    """Return the distinct values of a column, and for each row which of them it has."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode(null_encoding="encode")
    words, codes = column.dictionary.to_pylist(), column.indices
    if codes.null_count:
        codes, words = codes.fill_null(len(words)), [*words, None]
    return words, codes.to_numpy()


def _decode_spans(array: pa.ListArray, seen: ValueCache) -> list[Any]:
    ranges = array.flatten()
    numbers = _decode_numbers(ranges)
    keys, codes = seen.keys(ranges)
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.max() >= MANY:
        return _to_columns(lengths, keys, codes, numbers, seen)
    columns = [column.tolist() for column in numbers]
    shared = map(keys.__getitem__, codes.tolist())
    return _to_tuples(array, zip(shared, *columns, strict=True))


def _to_columns(
    lengths: Ints, keys: list[TopicKey], codes: Longs, numbers: list[Ints], seen: ValueCache
) -> list[Sequence[Any]]:
    """Return the spans of each row: in columns where they are many."""
    topics = seen.in_order(keys)
    ranks = np.fromiter(map(topics.places.__getitem__, keys), np.int32, len(keys))
    whole = SpanColumns(topics, ranks[codes], *(column.astype(np.int32) for column in numbers))
    ends = np.cumsum(lengths).tolist()
    return [
        shrink(whole[end - length : end])
        for end, length in zip(ends, lengths.tolist(), strict=True)
    ]


def _to_tuples(array: pa.ListArray, values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the lists of a column whose values, all of them in a row, are these."""
    whole = tuple(values)
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths).tolist()
    return [whole[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def _decode_text(array: pa.Array, seen: ValueCache) -> list[str | None]:
    return seen.texts(array)


def _decode_id(array: pa.Array, seen: ValueCache) -> list[str | None]:
    return seen.ids(array)


def _decode_names(array: pa.Array, seen: ValueCache) -> list[tuple[str, ...]]:
    return seen.names(array)


def _decode_texts(array: pa.ListArray, seen: ValueCache) -> list[tuple[Any, ...]]:
    return _to_tuples(array, seen.texts(array.flatten()))


def _decode_ids(array: pa.ListArray, seen: ValueCache) -> list[tuple[Any, ...]]:
    return _to_tuples(array, seen.ids(array.flatten()))


def _decode_hashes(array: pa.Array, _seen: ValueCache) -> list[int]:
    return [value % _UNSIGNED for value in array.to_pylist()]


def _decode_states(array: pa.Array, seen: ValueCache) -> list[MemberState]:
    return [_STATES[str(name)] for name in seen.texts(array)]


def _decode_maps(array: pa.MapArray, _seen: ValueCache) -> list[dict[str, str]]:
    return [dict(items) for items in array.to_pylist()]


def _decode_nested(array: pa.Array, _seen: ValueCache, type_: Any) -> list[Any]:  # noqa: ANN401
    return msgspec.convert(array.to_pylist(), list[type_], builtin_types=(bytes,))


def _decoder_of(column: ColumnType) -> Decoder:
    """Return what decodes a column to values of its field's type."""
    if column.python is str:
        return _decode_id if Mark.DISTINCT in column.marks else _decode_text
    if Mark.AS_JSON in column.marks:
        return _decode_names
    if column.python in (Spans, Holding):
        return _decode_spans
    if pa.types.is_nested(column.arrow):
        return _nested_decoder_of(column)
    if column.python is MemberState:
        return _decode_states
    return _decode_hashes if Mark.UINT64 in column.marks else _decode_plain


def _nested_decoder_of(column: ColumnType) -> Decoder:
    if get_origin(column.python) is dict:
        return _decode_maps
    if get_origin(column.python) is tuple:
        element, _, marks = take_apart(get_args(column.python)[0])
        if element is str:
            return _decode_ids if Mark.DISTINCT in marks else _decode_texts
    return partial(_decode_nested, type_=column.python)


_DECODERS_OF_RUNS: dict[str | None, Callable[..., Rows]] = {
    MemberMetadata.kind: _decode_members,
    TargetMember.kind: _decode_targets,
    CurrentMember.kind: _decode_currents,
}
_TAKE_NULLS = (_decode_text, _decode_id, _decode_plain)
_DECODERS = {name: _decoder_of(column) for name, column in COLUMN_TYPES.items()}
_COPY = msgspec.json.Decoder(tuple[int, int, int, list[tuple[str, msgspec.Raw]]])
_IN_COPIES = {kind: msgspec.json.Decoder(record) for kind, record in KINDS.items()}
