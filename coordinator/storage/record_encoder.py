"""Encode records as rows of the log, by whole columns. The way back: record_decoder.py.

One row a record. `kind` says which columns mean something; the others are null. A tombstone is a
row with `tombstone` set, of the kind that it ends, with nothing but its key. Columns and types are
record_schema.py's.

A file leaves out the columns that none of its rows has: in a Delta table that reads as null.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeAlias, cast, get_origin

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.member_rows import (
    META_FIELDS,
    STATES,
    CurrentRows,
    MemberRows,
    RecordRows,
    TargetRows,
)
from coordinator.core.state.partition_spans import Holding, Spans
from coordinator.core.state.record_fields import Mark, RecordField
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    MemberState,
    Record,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.span_columns import SpanColumns, SpanRows, TopicKeys
from coordinator.storage.few_rows import MICROSECONDS, encode_few
from coordinator.storage.record_log import Times
from coordinator.storage.record_schema import (
    COLUMN_TYPES,
    FIELDS,
    NAME_COLUMN,
    SCHEMA,
    ColumnType,
    LogClaimed,
    has_structs,
)

COPY_MAX = 4_096
"""Characters of a copy of rows: so many cost less to read with their entry than by their file."""
Columns: TypeAlias = dict[str, pa.Array]


def encode_records(
    records: Sequence[Record], position: int, at_ms: int | Times, epoch: int
) -> pa.Table:
    """Return records as rows; the first one has this position."""
    if isinstance(records, RecordRows):
        rows = pa.table(_encode_rows(records))
        return _add_positions(rows, np.arange(position, position + len(records)), at_ms, epoch)
    few = encode_few(records, position, at_ms, epoch)
    return encode_by_columns(records, position, at_ms, epoch) if few is None else few


def encode_by_columns(
    records: Sequence[Record], position: int, at_ms: int | Times, epoch: int
) -> pa.Table:
    """Return records as rows, made by whole columns."""
    places: dict[type[Record], list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(type(record), []).append(place)
    parts = []
    for record_type, at in places.items():
        some = records if len(at) == len(records) else [records[place] for place in at]
        columns = (
            _encode_tombstones(some)
            if record_type is Tombstone
            else _encode_fields(record_type, some)
        )
        parts.append(pa.table(columns))
    rows = pa.concat_tables(parts, promote_options="default")
    order = np.fromiter(chain.from_iterable(places.values()), np.int64, len(records))
    if (order[1:] < order[:-1]).any():  # to take rows of nested columns is slow
        rows = rows.take(pa.array(np.argsort(order)))
    return _add_positions(rows, np.arange(position, position + len(records)), at_ms, epoch)


def copy_records(records: Sequence[Record], position: int, at_ms: int | Times, epoch: int) -> str:
    """Return what `encode_records` makes rows of, as text that their commit's entry has besides.

    Returns
    -------
    str
        Empty where they are too long, of several times, or JSON does not have all their values.
    """
    if not isinstance(at_ms, int) or len(records) > COPY_MAX // 32 or any(map(_is_odd, records)):
        return ""
    some = [(record.kind, record) for record in records]
    text = msgspec.json.encode((position, at_ms, epoch, some))
    return f"{zlib.crc32(text):08x}{text.decode()}" if len(text) <= COPY_MAX else ""


def _is_odd(record: Record) -> bool:
    """Whether a record has numbers that JSON lacks, rows that are not the log's, or columns."""
    if record.kind in _WITH_FLOATS or getattr(record, "whole", None) is not None:
        return True
    return any(
        isinstance(getattr(record, name), SpanColumns) for name in _SPANS.get(record.kind, ())
    )


def encode_claim(owner: str, address: str, position: int, at_ms: int, epoch: int) -> pa.Table:
    """Return the row by which a coordinator takes the log."""
    row = _encode_fields(LogClaimed, [LogClaimed(owner, address)])
    return _add_positions(pa.table(row), np.array([position]), at_ms, epoch)


def _add_positions(
    rows: pa.Table, positions: np.ndarray[Any, Any], at_ms: int | Times, epoch: int
) -> pa.Table:
    times = pa.repeat(at_ms, len(rows)) if isinstance(at_ms, int) else pa.array(at_ms)
    columns = {
        "coordinator_epoch": pa.repeat(epoch, len(rows)),
        "position": pa.array(positions),
        "at_ms": times,
        "at": pc.multiply(times, MICROSECONDS).view(SCHEMA.field("at").type),
        **{name: rows.column(name) for name in rows.column_names},
    }
    return pa.table({name: columns[name] for name in SCHEMA.names if name in columns})


def _encode_fields(record_type: type[Record], records: Sequence[Record]) -> Columns:
    columns = {
        "kind": pa.repeat(record_type.kind, len(records)),
        **_mark_tombstones(False, len(records)),
    }
    for field in FIELDS[record_type.kind]:
        columns[field.column] = _encode_values(field, list(map(attrgetter(field.name), records)))
    return columns


def _encode_rows(rows: RecordRows) -> Columns:
    """Return the columns of records that are rows."""
    kind = _KINDS_OF_ROWS[type(rows)]
    columns = {
        "kind": pa.repeat(kind, len(rows)),
        **_mark_tombstones(False, len(rows)),
        "group_id": pa.repeat(rows.group_id, len(rows)),
        "member_id": rows.member_ids,
    }
    if isinstance(rows, MemberRows):
        for name, (values, codes) in zip(META_FIELDS, rows.columns, strict=True):
            field = next(field for field in FIELDS[kind] if field.name == name)
            columns[field.column] = _encode_values(field, list(values)).take(pa.array(codes))
    elif isinstance(rows, TargetRows):
        columns["target"] = _encode_span_rows(rows.spans, COLUMN_TYPES["target"].arrow)
    else:
        columns["member_epoch"], columns["previous_member_epoch"] = map(pa.array, rows.numbers[:2])
        columns["state"] = _encode_states(list(STATES)).take(pa.array(rows.numbers[2]))
        for name, spans in (("assigned", rows.assigned), ("pending", rows.pending)):
            columns[name] = _encode_span_rows(spans, COLUMN_TYPES[name].arrow)
    return columns


def _encode_span_rows(spans: SpanRows, type_: pa.ListType) -> pa.Array:
    topic, first, end, *epoch = (pa.array(column) for column in spans.columns())
    keys = TopicKeys(spans.keys).arrow
    names = (column.take(topic) for column in keys)
    struct = type_.value_type
    arrays = [*names, first, pc.subtract(end, first), *epoch]
    flat = pa.StructArray.from_arrays(arrays, fields=struct.fields)
    return pa.ListArray.from_arrays(pa.array(np.asarray(spans.offsets)), flat, type_)


def _encode_values(field: RecordField, values: list[Any]) -> pa.Array:
    encode = _ENCODERS[field.column]
    if encode is None:
        return pa.array(values, COLUMN_TYPES[field.column].arrow)
    if not field.optional:
        return encode(values)
    there = [value for value in values if value is not None]
    places = iter(range(len(there)))
    taken = (None if value is None else next(places) for value in values)
    return encode(there).take(pa.array(taken, pa.int64()))


def _encode_tombstones(tombstones: Sequence[Any]) -> Columns:
    columns: dict[str, list[Any]] = {
        "kind": [t.of for t in tombstones],
        "group_id": [t.group_id or None for t in tombstones],
        "member_id": [t.member_id for t in tombstones],
        "partition": [t.partition for t in tombstones],
    }
    for name in set(NAME_COLUMN.values()):
        columns[name] = [t.name if NAME_COLUMN.get(t.of) == name else None for t in tombstones]
    arrays = {name: pa.array(some, COLUMN_TYPES[name].arrow) for name, some in columns.items()}
    return arrays | _mark_tombstones(True, len(tombstones))


def _mark_tombstones(tombstone: bool, rows: int) -> Columns:  # noqa: FBT001 - the column's value
    return {"tombstone": pa.repeat(tombstone, rows)}


def _encode_names(values: list[tuple[str, ...]]) -> pa.Array:
    """Return each list as text, every distinct one made once.

    Members of a group share one tuple: looking at the object first spares hashing it a million
    times.
    """
    tuples = {id(names): names for names in values}
    codes = {names: code for code, names in enumerate(dict.fromkeys(tuples.values()))}
    code_of = {key: codes[names] for key, names in tuples.items()}
    texts = [msgspec.json.encode(names).decode() for names in codes]
    indices = pa.array([code_of[id(names)] for names in values], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _encode_ranges(values: list[Sequence[Any]], type_: pa.ListType) -> pa.Array:
    counts = np.fromiter(map(len, values), np.int64, len(values))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    struct = type_.value_type
    parts = [pa.array([], struct)]
    for in_columns, some in groupby(values, _are_columns):
        if in_columns:
            parts += [_encode_columns(cast("SpanColumns", one), struct) for one in some]
        else:
            parts.append(_encode_spans(list(chain.from_iterable(some)), struct))
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(parts), type_)


def _encode_spans(spans: list[tuple[Any, ...]], struct: pa.StructType) -> pa.StructArray:
    if not spans:
        return pa.array([], struct)
    keys, first, end, *epoch = zip(*spans, strict=True)
    names, ids = [key.name for key in keys], [key.topic_id for key in keys]
    first_partition = np.array(first, dtype=np.int32)
    columns = [names, ids, first_partition, np.array(end, dtype=np.int32) - first_partition, *epoch]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, struct.fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=struct.fields)


def _encode_columns(spans: SpanColumns, struct: pa.StructType) -> pa.StructArray:
    names, ids = (column.take(pa.array(spans.topic)) for column in spans.topics.arrow)
    first, end, *epoch = spans.numbers()
    arrays = [names, ids, *map(pa.array, [first, end - first, *epoch])]
    return pa.StructArray.from_arrays(arrays, fields=struct.fields)


def _are_columns(spans: Sequence[Any]) -> bool:
    return isinstance(spans, SpanColumns)


def _encode_hashes(values: list[int]) -> pa.Array:
    return pa.array(np.array(values, dtype=np.uint64).view(np.int64))


def _encode_states(values: list[MemberState]) -> pa.Array:
    return pa.array([state.name for state in values], pa.string())


def _encode_maps(values: list[dict[str, str]], type_: pa.MapType) -> pa.Array:
    return pa.array([[*value.items()] for value in values], type_)


def _encode_structs(values: list[Any], type_: pa.DataType) -> pa.Array:
    return pa.array(msgspec.to_builtins(values, builtin_types=(bytes,)), type_)


def _encoder_of(column: ColumnType) -> Callable[[list[Any]], pa.Array] | None:
    """Return what encodes a column that is not as plain as its values."""
    if Mark.AS_JSON in column.marks:
        return _encode_names
    if column.python in (Spans, Holding):
        return partial(_encode_ranges, type_=column.arrow)
    if get_origin(column.python) is dict:
        return partial(_encode_maps, type_=column.arrow)
    if has_structs(column.arrow):
        return partial(_encode_structs, type_=column.arrow)
    if column.python is MemberState:
        return _encode_states
    return _encode_hashes if Mark.UINT64 in column.marks else None


_ENCODERS = {name: _encoder_of(column) for name, column in COLUMN_TYPES.items()}
_KINDS_OF_ROWS: dict[type, str] = {
    MemberRows: MemberMetadata.kind,
    TargetRows: TargetMember.kind,
    CurrentRows: CurrentMember.kind,
}
_SPANS = {
    kind: names
    for kind, fields in FIELDS.items()
    if (names := [f.name for f in fields if COLUMN_TYPES[f.column].python in (Spans, Holding)])
}
"""The fields of each kind that are spans."""
_WITH_FLOATS = {
    kind
    for kind, fields in FIELDS.items()
    if any("double" in str(COLUMN_TYPES[field.column].arrow) for field in fields)
}
