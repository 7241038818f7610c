"""Encode records as rows of the log, by whole columns. The way back: record_decoder.py.

One row a record. `kind` says which columns mean something; the others are null. Columns bear the
names of the records' fields. A tombstone is a row with `tombstone` set, of the kind that it ends,
with nothing but its key. Where a field does not read well as it is:

- `state` is the name of the member's state.
- `metadata_hash` is the same 64 bits, read as a signed number.
- `subscribed_topic_names` is JSON text, `["orders","payments"]`. A million members that subscribe
  to the same thousand topics are one text and a million small numbers in a file; as lists they
  would be a billion names. SQL has `from_json(subscribed_topic_names, 'array<string>')`.
- `target`, `assigned` and `pending` are lists of ranges of partitions.

A file leaves out the columns that none of its rows has: in a Delta table that reads as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from coordinator.core.records import (
    IN_MEMORY,
    KINDS,
    ComputationPrepared,
    OffsetCommitted,
    Record,
    RegexResolved,
    Tombstone,
    TopicChanged,
)
from coordinator.storage.record_log import CLAIM

_RANGE = [
    pa.field("topic", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("first_partition", pa.int32()),
    pa.field("partition_count", pa.int32()),
]
_RANGES = pa.list_(pa.struct(_RANGE))
_HELD_RANGES = pa.list_(pa.struct([*_RANGE, pa.field("assignment_epoch", pa.int32())]))
_TEXTS = pa.list_(pa.string())

SCHEMA = pa.schema(
    [
        # Every row. Position, at_ms and at come early: statistics are kept of the first columns.
        ("coordinator_epoch", pa.int64()),
        ("position", pa.int64()),
        ("at_ms", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("tombstone", pa.bool_()),
        ("group_id", pa.string()),
        ("member_id", pa.string()),
        ("reason", pa.string()),
        # Groups and their targets.
        ("epoch", pa.int32()),
        ("metadata_hash", pa.int64()),
        ("assignment_epoch", pa.int32()),
        ("assignment_timestamp", pa.int64()),
        ("assignor", pa.string()),
        ("moved", pa.int64()),
        ("partial", pa.bool_()),
        ("target", _RANGES),
        ("targets_version", pa.int64()),
        ("digest", pa.int64()),
        ("members", pa.int64()),
        ("ranges", pa.int64()),
        # Members.
        ("member_epoch", pa.int32()),
        ("previous_member_epoch", pa.int32()),
        ("state", pa.string()),
        ("assigned", _HELD_RANGES),
        ("pending", _HELD_RANGES),
        ("member_ids", _TEXTS),
        ("instance_id", pa.string()),
        ("rack_id", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("subscribed_topic_names", pa.string()),
        ("subscribed_topic_regex", pa.string()),
        ("rebalance_timeout_ms", pa.int64()),
        ("server_assignor", pa.string()),
        # Regular expressions, topics, offsets, settings, computations.
        ("regex", pa.string()),
        ("topics", _TEXTS),
        ("version", pa.int64()),
        ("timestamp", pa.int64()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partitions", pa.int32()),
        ("racks", pa.list_(_TEXTS)),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp", pa.int64()),
        ("settings", pa.map_(pa.string(), pa.string())),
        ("computation_id", pa.string()),
        ("group_epoch", pa.int32()),
        ("deadline_ms", pa.int64()),
        # Claims; of an audit, the principal.
        ("owner", pa.string()),
        ("address", pa.string()),
    ]
)

_TYPES = {field.name: field.type for field in SCHEMA}
NAME_COLUMN = {
    RegexResolved.kind: "regex",
    TopicChanged.kind: "topic",
    OffsetCommitted.kind: "topic",
    ComputationPrepared.kind: "computation_id",
}
"""Where the key that a Tombstone calls `name` is kept, by the kind that it ends."""
FIELDS = {
    kind: [field for field in record.__struct_fields__ if field != IN_MEMORY]
    for kind, record in KINDS.items()
    if record is not Tombstone
}
"""The fields of a kind of record that are written, in their order."""
COLUMNS = {
    kind: ["target" if field == "spans" else field for field in fields]
    for kind, fields in FIELDS.items()
}
"""The columns that hold them."""
Columns: TypeAlias = dict[str, pa.Array]


def encode_records(records: Sequence[Record], position: int, at_ms: int, epoch: int) -> pa.Table:
    """Return records as rows; the first one has this position."""
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
    if len(parts) > 1:
        rows = rows.take(pa.array(np.argsort(order)))
    return _add_positions(rows, np.arange(position, position + len(records)), at_ms, epoch)


def encode_claim(owner: str, address: str, position: int, at_ms: int, epoch: int) -> pa.Table:
    """Return the row by which a coordinator takes the log."""
    row = {"kind": [CLAIM], "tombstone": [False], "owner": [owner], "address": [address]}
    return _add_positions(pa.table(row), np.array([position]), at_ms, epoch)


def _add_positions(
    rows: pa.Table, positions: np.ndarray[Any, Any], at_ms: int, epoch: int
) -> pa.Table:
    at = pa.array(np.full(len(rows), at_ms))
    columns = {
        "coordinator_epoch": pa.array(np.full(len(rows), epoch)),
        "position": pa.array(positions),
        "at_ms": at,
        "at": at.cast(pa.timestamp("ms", tz="UTC")).cast(_TYPES["at"]),
        **{name: rows.column(name) for name in rows.column_names},
    }
    return pa.table({name: columns[name] for name in SCHEMA.names if name in columns})


def _encode_fields(record_type: type[Record], records: Sequence[Record]) -> Columns:
    columns = {
        "kind": _repeat(record_type.kind, len(records)),
        **_mark_tombstones(False, len(records)),
    }
    kind = record_type.kind
    for name, field in zip(COLUMNS[kind], FIELDS[kind], strict=True):
        values = [getattr(record, field) for record in records]
        encoder = _ENCODERS.get(name)
        columns[name] = encoder(values) if encoder else pa.array(values, _TYPES[name])
    return columns


def _encode_tombstones(tombstones: Sequence[Any]) -> Columns:
    columns: dict[str, list[Any]] = {
        "kind": [t.of for t in tombstones],
        "group_id": [t.group_id or None for t in tombstones],
        "member_id": [t.member_id for t in tombstones],
        "partition": [t.partition for t in tombstones],
    }
    for name in set(NAME_COLUMN.values()):
        columns[name] = [t.name if NAME_COLUMN.get(t.of) == name else None for t in tombstones]
    arrays = {name: pa.array(values, _TYPES[name]) for name, values in columns.items()}
    return arrays | _mark_tombstones(True, len(tombstones))


def _mark_tombstones(tombstone: bool, rows: int) -> Columns:  # noqa: FBT001 - the column's value
    return {"tombstone": pa.array(np.full(rows, tombstone))}


def _repeat(value: str, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value, dtype=object), pa.string())


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


def _encode_ranges(values: list[tuple[tuple[Any, ...], ...]], type_: pa.ListType) -> pa.Array:
    counts = np.fromiter(map(len, values), np.int64, len(values))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    struct = type_.value_type
    if not counts.sum():
        return pa.ListArray.from_arrays(offsets, pa.array([], struct), type_)
    keys, first, end, *epoch = zip(*chain.from_iterable(values), strict=True)
    names, ids = zip(*keys, strict=True)
    first_partition = np.array(first, dtype=np.int32)
    columns = [names, ids, first_partition, np.array(end, dtype=np.int32) - first_partition, *epoch]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, struct.fields, strict=True)]
    ranges = pa.StructArray.from_arrays(arrays, fields=struct.fields)
    return pa.ListArray.from_arrays(offsets, ranges, type_)


_ENCODERS: dict[str, Callable[[list[Any]], pa.Array]] = {
    "metadata_hash": lambda values: pa.array(np.array(values, dtype=np.uint64).view(np.int64)),
    "state": lambda values: pa.array([state.name for state in values], pa.string()),
    "subscribed_topic_names": _encode_names,
    "target": lambda values: _encode_ranges(values, _RANGES),
    "assigned": lambda values: _encode_ranges(values, _HELD_RANGES),
    "pending": lambda values: _encode_ranges(values, _HELD_RANGES),
    "settings": lambda values: pa.array([[*v.items()] for v in values], _TYPES["settings"]),
}
