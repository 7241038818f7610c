"""Encode responses by kio's schemas, from their fields by name.

kio's own writer makes an object of every part first, which takes ten times as long where there are
thousands of partitions. Both write the same bytes (tests compare them).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from coordinator.wire.decoder import NO_ID, field_shape

Values: TypeAlias = Mapping[str, object]
"""A message, or a part of one, as its fields by name."""
Writer: TypeAlias = Callable[[bytearray, Any], None]
EntityWriter: TypeAlias = Callable[[bytearray, Values], None]

MILLISECOND = timedelta(milliseconds=1)


class EncodedPart(bytes):
    """A part of a message that is written already."""

    __slots__ = ()


def _number(form: str) -> Writer:
    pack = struct.Struct(f">{form}").pack

    def write(out: bytearray, value: int) -> None:
        out += pack(value)

    return write


_int8, _int16, _int32, _int64 = map(_number, "bhiq")
_uint16, _float64 = map(_number, "Hd")


def _varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _legacy_bytes(length: Writer) -> Writer:
    def write(out: bytearray, value: bytes | None) -> None:
        length(out, -1 if value is None else len(value))
        out += value or b""

    return write


def _compact_bytes(out: bytearray, value: bytes | None) -> None:
    _varint(out, 0 if value is None else len(value) + 1)
    out += value or b""


def _moment(out: bytearray, value: datetime | int | None) -> None:
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1000)
    _int64(out, -1 if value is None else value)


def _text(write_bytes: Writer) -> Writer:
    def write(out: bytearray, value: str | None) -> None:
        write_bytes(out, None if value is None else value.encode())

    return write


def _uuid(out: bytearray, value: UUID | None) -> None:
    out += NO_ID if value is None else value.bytes


_LEGACY = {
    "string": _text(_legacy_bytes(_int16)),
    "bytes": _legacy_bytes(_int32),
    "records": _legacy_bytes(_int32),
}
_COMPACT = {"string": _text(_compact_bytes), "bytes": _compact_bytes, "records": _compact_bytes}
_PLAIN: dict[str, Writer] = {
    "int8": _int8,
    "int16": _int16,
    "int32": _int32,
    "int64": _int64,
    "uint16": _uint16,
    "float64": _float64,
    "error_code": _int16,
    "bool": lambda out, value: out.append(bool(value)),
    "uuid": _uuid,
    "timedelta_i32": _int32,
    "timedelta_i64": _int64,
    "datetime_i64": _moment,
}


@dataclass(slots=True)
class EncodedList:
    """An array whose elements are written already."""

    count: int = 0
    data: bytearray = field(default_factory=bytearray)


def _array(write_one: Writer, *, flexible: bool) -> Writer:
    def write(out: bytearray, values: Sequence[Any] | EncodedList | None) -> None:
        if isinstance(values, EncodedList):
            count = values.count
        else:
            count = -1 if values is None else len(values)
        if flexible:
            _varint(out, count + 1)
        else:
            _int32(out, count)
        if isinstance(values, EncodedList):
            out += values.data
            return
        if not values:
            return
        if write_one is _int32:  # partitions: many, and all at once
            out += struct.pack(f">{count}i", *values)
            return
        for value in values:
            if isinstance(value, EncodedPart):
                out += value
            else:
                write_one(out, value)

    return write


@cache
def entity_writer(entity: type[Any]) -> EntityWriter:
    """Return what writes a kio entity from its fields by name.

    Fields that this version does not have are left out; those that are not given are as the schema
    says. A tagged field is sent where it is given (KIP-482).
    """
    flexible: bool = entity.__flexible__
    parts = [
        (field.name, field_writer(field, flexible=flexible), _default(field))
        for field in fields(entity)
        if "tag" not in field.metadata
    ]
    tags = sorted(
        (field.metadata["tag"], field.name, field_writer(field, flexible=flexible))
        for field in fields(entity)
        if "tag" in field.metadata
    )

    def write(out: bytearray, values: Values) -> None:
        for name, write_field, default in parts:
            value = values.get(name, default)
            assert value is not MISSING, f"{entity.__module__} needs {name}"
            write_field(out, value)
        if flexible:
            given = [one for one in tags if one[1] in values] if tags else ()
            _varint(out, len(given))
            for tag, name, write_field in given:
                part = bytearray()
                write_field(part, values[name])
                _varint(out, tag)
                _varint(out, len(part))
                out += part

    return write


def _default(field: Field[Any]) -> object:
    default = field.default
    if field.name == "throttle_time":
        return 0  # most are not throttled
    return default // MILLISECOND if isinstance(default, timedelta) else default


def field_writer(field: Field[Any], *, flexible: bool) -> Writer:
    """Return what writes one field of a kio message."""
    shape = field_shape(field)
    if is_dataclass(shape.kind):
        write: Writer = entity_writer(shape.kind)  # type: ignore[arg-type]
    else:
        name = field.metadata["kafka_type"]
        write = _PLAIN.get(name) or (_COMPACT if flexible else _LEGACY)[name]
    if shape.array:
        return _array(write, flexible=flexible)
    if is_dataclass(shape.kind) and shape.optional:
        return _optional(write, none=0 if "tag" in field.metadata else -1)
    return write


def _optional(write: Writer, none: int) -> Writer:
    """Write an entity that may be missing, after a byte that says so (KIP-893)."""

    def write_marked(out: bytearray, value: Any) -> None:  # noqa: ANN401 - an entity's fields
        _int8(out, none if value is None else 1)
        if value is not None:
            write(out, value)

    return write_marked
