"""The columns of the log, as they follow from the fields of records (core/records.py).

A column bears the name of its field. Its type follows from the field's:

======================== ================================================
type of the field        type of the column
======================== ================================================
str, bool, bytes         string, bool, binary
float                    double
Int, Long                int32, int64
Hash                     int64: the same 64 bits, read as a signed number
MemberState              string: the name of the state
Names                    string: JSON, `["orders","payments"]`
dict[str, str]           map<string, string>
tuple[X, ...]            list of X's type
a struct                 struct of its fields' types
Spans, Holding           list of ranges of partitions
======================== ================================================

Names are text because a million members that subscribe to the same thousand topics are then one
text and a million small numbers in a file; as lists they would be a billion names.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

import msgspec
import pyarrow as pa

from coordinator.core.state.partition_spans import Holding, Spans
from coordinator.core.state.record_fields import (
    Key,
    Long,
    Mark,
    fields_of,
    is_struct,
    take_apart,
)
from coordinator.core.state.records import (
    KINDS,
    PARTITION_METADATA,
    MemberState,
    Record,
    Tombstone,
)
from coordinator.storage.record_log import CLAIM


class Row(msgspec.Struct):
    """What every row has, before the fields of its record."""

    coordinator_epoch: Annotated[Long, "of the coordinator that wrote the row"]
    position: Annotated[Long, "of the row, from 1"]
    at_ms: Annotated[Long, "when it was written, milliseconds since 1970 by the writer's clock"]
    at: Annotated[datetime, "the same as a timestamp"]
    kind: Annotated[str, "see above"]
    tombstone: Annotated[bool, "whether the row deletes its key"]


class LogClaimed(Record, frozen=True, gc=False):
    """A coordinator took the log over; no state."""

    kind: ClassVar[str] = CLAIM
    owner: Annotated[str, "who claims; of an audit, the principal"]
    address: Annotated[str, "where the owner answers"] = ""


class PartitionMetadata(Record, frozen=True, gc=False):
    """Tombstones only, for readers of Kafka's records before 4.1."""

    kind: ClassVar[str] = PARTITION_METADATA
    group_id: Key[str]


class ColumnType(NamedTuple):
    """How the values of a column are typed, in Python and in the log."""

    python: Any
    marks: frozenset[Mark]
    """Of these, what says more of the type than Python's."""
    arrow: pa.DataType


RANGE = [
    pa.field("topic", pa.string()),
    pa.field("topic_id", pa.string()),
    pa.field("first_partition", pa.int32()),
    pa.field("partition_count", pa.int32()),
]
RANGES = pa.list_(pa.struct(RANGE))
HELD_RANGES = pa.list_(pa.struct([*RANGE, pa.field("assignment_epoch", pa.int32())]))
_INTEGERS = {Mark.INT32: pa.int32(), Mark.INT64: pa.int64(), Mark.UINT64: pa.int64()}
_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    bool: pa.bool_(),
    float: pa.float64(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    MemberState: pa.string(),
    Spans: RANGES,
    Holding: HELD_RANGES,
    dict[str, str]: pa.map_(pa.string(), pa.string()),
}
_OF_TYPE = frozenset(_INTEGERS) | {Mark.AS_JSON, Mark.DISTINCT}

ORDER = [
    "coordinator_epoch", "position", "at_ms", "at", "kind", "tombstone", "group_id",
    "member_id", "reason", "epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp",
    "assignor", "moved", "partial", "target", "targets_version", "digest", "members", "ranges",
    "member_epoch", "previous_member_epoch", "state", "assigned", "pending", "member_ids",
    "instance_id", "rack_id", "client_id", "client_host", "subscribed_topic_names",
    "subscribed_topic_regex", "rebalance_timeout_ms", "server_assignor", "regex", "topics",
    "version", "timestamp", "topic", "topic_id", "partitions", "racks", "partition", "offset",
    "leader_epoch", "metadata", "commit_timestamp", "settings", "computation_id", "group_epoch",
    "deadline_ms", "owner", "address",
]  # fmt: skip
"""The columns in the order that stores have them in; those of newer fields follow by themselves."""


def arrow_type(python_type: object, marks: frozenset[Mark] = frozenset()) -> pa.DataType:
    """Return the type of the column, or of the part of one, that has values of a type.

    Raises
    ------
    TypeError
        No column has such values.
    """
    if Mark.AS_JSON in marks:
        return pa.string()
    if python_type in _TYPES:
        return _TYPES[python_type]
    if python_type is int and (widths := marks & _INTEGERS.keys()):
        (width,) = widths
        return _INTEGERS[width]
    if get_origin(python_type) is tuple and get_args(python_type)[1:] == (...,):
        element, _, annotations = take_apart(get_args(python_type)[0])
        return pa.list_(arrow_type(element, frozenset(annotations)))
    if is_struct(python_type):
        fields = fields_of(python_type)
        return pa.struct([(one.name, arrow_type(one.type, one.marks)) for one in fields])
    raise TypeError(
        f"no column has values of type {python_type}: give one of the types that "
        f"coordinator/storage/record_schema.py lists (an integer is Int or Long)"
    )


def has_structs(type_: pa.DataType) -> bool:
    """Whether values of a type are structs, or lists of them."""
    if pa.types.is_list(type_):
        return has_structs(type_.value_type)
    return bool(pa.types.is_struct(type_))


def _collect_columns() -> dict[str, ColumnType]:
    found: dict[str, ColumnType] = {}
    for kind, fields in {"": fields_of(Row), **FIELDS}.items():
        for field in fields:
            marks = field.marks & _OF_TYPE
            column = ColumnType(field.type, marks, arrow_type(field.type, marks))
            if found.setdefault(field.column, column) != column:
                raise TypeError(
                    f"column {field.column!r} has another type in {kind!r} than in the kinds "
                    f"before it: give the field a column of its own"
                )
    return {name: found[name] for name in [*ORDER, *(name for name in found if name not in ORDER)]}


def _find_names() -> dict[str, str]:
    keys = {
        kind: [field.column for field in fields if Mark.KEY in field.marks]
        for kind, fields in FIELDS.items()
    }
    own = {"group_id", "member_id", "partition"}
    return {kind: name for kind, names in keys.items() for name in names if name not in own}


ROWS: tuple[type[Record], ...] = (
    *(record for record in KINDS.values() if record is not Tombstone),
    LogClaimed,
    PartitionMetadata,
)
"""What rows are made of: all kinds of records, and rows that change no state."""
FIELDS = {record.kind: fields_of(record) for record in ROWS}
"""The fields of each kind of row, in their order."""
NAME_COLUMN = _find_names()
"""Where the key that a Tombstone calls `name` is kept, by the kind that it ends."""
COLUMN_TYPES = _collect_columns()
SCHEMA = pa.schema([(name, column.arrow) for name, column in COLUMN_TYPES.items()])
"""All columns of the log."""
CODED = frozenset(
    leaf
    for name, column in COLUMN_TYPES.items()
    for leaf in (
        [f"{name}.list.element.{field.name}" for field in RANGE if field.type == pa.string()]
        if column.python in (Spans, Holding)
        else [name]
        if column.arrow == pa.string() and Mark.DISTINCT not in column.marks
        else []
    )
)
"""Leaves of texts of which many rows have the same."""
