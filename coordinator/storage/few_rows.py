"""Encode a few records as rows, row by row: what most commits of a coordinator have.

The obvious twin of record_encoder.py, which encodes by whole columns: that calls Arrow for each
column of each kind of record, which takes longer than a few rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias, get_origin

import msgspec
import pyarrow as pa

from coordinator.core.state.partition_spans import Holding, Spans
from coordinator.core.state.record_fields import Mark, RecordField
from coordinator.core.state.records import MemberState, Record, Tombstone
from coordinator.core.state.span_columns import SpanColumns
from coordinator.storage.record_log import Times
from coordinator.storage.record_schema import (
    COLUMN_TYPES,
    FIELDS,
    NAME_COLUMN,
    RANGE,
    SCHEMA,
    ColumnType,
    has_structs,
)

MICROSECONDS = 1_000
"""In a millisecond: Delta's times are in microseconds."""
FEW = 100
"""So many rows cost as much by columns."""
OF_ALL = ("coordinator_epoch", "position", "at_ms", "at", "kind", "tombstone")
OF_TOMBSTONES = ("group_id", "member_id", "partition", *sorted(set(NAME_COLUMN.values())))
Encode: TypeAlias = Callable[[Any], Any]
_UNSIGNED, _SIGN = 1 << 64, 1 << 63
_NAMES, _ID, _FIRST, _COUNT = (field.name for field in RANGE)


def encode_few(
    records: Sequence[Record], position: int, at_ms: int | Times, epoch: int
) -> pa.Table | None:
    """Return records as rows; the first one has this position. None: encode them by columns."""
    if len(records) > FEW:
        return None
    times: Iterable[int] = [at_ms] * len(records) if isinstance(at_ms, int) else at_ms.tolist()
    rows: list[dict[str, Any]] = []
    for number, (record, at) in enumerate(zip(records, times, strict=True), position):
        row = {
            "coordinator_epoch": epoch,
            "position": number,
            "at_ms": at,
            "at": at * MICROSECONDS,
            "kind": record.kind,
            "tombstone": False,
        }
        if isinstance(record, Tombstone):
            _add_tombstone(row, record)
        else:
            get, columns = _READERS[record.kind]
            for (column, encode), value in zip(columns, get(record), strict=True):
                if value is None:
                    continue
                if isinstance(value, SpanColumns):
                    return None
                row[column] = value if encode is None else encode(value)
        rows.append(row)
    kinds = {None if isinstance(record, Tombstone) else record.kind for record in records}
    struct = _find_columns(frozenset(kinds))
    columns_of_all = pa.array(rows, struct).flatten()
    return pa.Table.from_arrays(columns_of_all, names=[field.name for field in struct])


def _add_tombstone(row: dict[str, Any], record: Tombstone) -> None:
    row["kind"], row["tombstone"] = record.of, True
    row["group_id"] = record.group_id or None
    row["member_id"], row["partition"] = record.member_id, record.partition
    if record.of in NAME_COLUMN:
        row[NAME_COLUMN[record.of]] = record.name


@lru_cache(maxsize=1_000)
def _find_columns(kinds: frozenset[str | None]) -> pa.StructType:
    """Return the columns of rows of these kinds; None is that of tombstones."""
    there = {*OF_ALL}
    for kind in kinds:
        there.update(OF_TOMBSTONES if kind is None else (f.column for f in FIELDS[kind]))
    return pa.struct([field for field in SCHEMA if field.name in there])


def _encode_span(span: Sequence[Any]) -> dict[str, Any]:
    key, first, end, *epoch = span
    found = {_NAMES: key.name, _ID: key.topic_id, _FIRST: first, _COUNT: end - first}
    if epoch:
        (found["assignment_epoch"],) = epoch
    return found


def _encode_spans(spans: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    return [_encode_span(span) for span in spans]


def _encode_names(names: tuple[str, ...]) -> str:
    return msgspec.json.encode(names).decode()


def _encode_hash(value: int) -> int:
    return value - _UNSIGNED if value >= _SIGN else value


def _encode_structs(value: object) -> Any:  # noqa: ANN401 - what Arrow takes for a struct
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def _encode_map(value: Mapping[str, str]) -> list[tuple[str, str]]:
    return [*value.items()]


_state_name: Encode = attrgetter("name")


def _encoder_of(column: ColumnType) -> Encode | None:
    """Return what encodes a value that is not as plain as it is."""
    if Mark.AS_JSON in column.marks:
        return _encode_names
    if column.python in (Spans, Holding):
        return _encode_spans
    if get_origin(column.python) is dict:
        return _encode_map
    if has_structs(column.arrow):
        return _encode_structs
    if column.python is MemberState:
        return _state_name
    return _encode_hash if Mark.UINT64 in column.marks else None


def _reader_of(fields: Sequence[RecordField]) -> tuple[Encode, list[tuple[str, Encode | None]]]:
    """Return what reads the values of a record, and of each its column and what encodes it."""
    columns = [(field.column, _encoder_of(COLUMN_TYPES[field.column])) for field in fields]
    names = [field.name for field in fields]
    if len(names) == 1:
        return (lambda record: (getattr(record, names[0]),)), columns
    return attrgetter(*names), columns


_READERS = {kind: _reader_of(fields) for kind, fields in FIELDS.items() if fields}
