"""Decode requests, and answers of other brokers, from untrusted bytes, by kio's schemas.

kio's own reader is not used for them: it reserves memory for as many elements as a count says
before it looks whether their bytes are there, so that nine bytes abort the process. Here a count is
never larger than the bytes that are left. Tags that a newer client sends are skipped (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""From bytes and where to read to the value and where it ends."""

VARINT_BYTES_MAX = 5
TEXT_BYTES_MAX = 32_767
"""The longest text in any encoding: a longer compact one could not be sent in another."""
UUID_BYTES = 16
NO_ID = bytes(UUID_BYTES)
ONE_BYTE_LENGTH = 127
"""Shorter texts have one byte for their length, plus one."""
_SHORT = struct.Struct(">h")


class Body(bytes):
    """The bytes of a request, with how many elements of arrays may still be read from them."""

    elements = 1 << 62


class WireError(Exception):
    """The peer's bytes are not a request that we serve: close its connection."""


class TooManyError(WireError):
    """A request has more elements than may be."""


class StandsByError(WireError):
    """What is asked only the coordinator knows, and this server stands by: close the connection.

    The client then asks another one, as if no server listened here.
    """


def read_whole(read: Reader, data: bytes, at: int = 0) -> tuple[Any, int]:
    """Read one value.

    Raises
    ------
    WireError
        The bytes are not such a value.
    """
    try:
        return read(data, at)
    except (struct.error, IndexError) as error:
        raise WireError(f"a message of {len(data)} bytes is cut short") from error
    except (UnicodeDecodeError, OverflowError) as error:
        raise WireError(f"it holds no valid value: {error}") from error


def _number(form: str) -> Reader:
    packed = struct.Struct(f">{form}")
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


_int8, _int16, _int32, _int64 = map(_number, "bhiq")
_uint16, _float64 = map(_number, "Hd")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length, at most of five bytes."""
    value = 0
    for byte in range(VARINT_BYTES_MAX):
        found = data[at + byte]
        value |= (found & 0x7F) << (7 * byte)
        if found < 0x80:  # noqa: PLR2004 - the bit that says there is more
            return value, at + byte + 1
    raise WireError("a number of variable length is longer than five bytes")


def _take_bytes(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if not at <= end <= len(data):
        raise WireError(f"{length} bytes are announced where {len(data) - at} are left")
    return data[at:end], end


def _bytes(length_of: Reader, less: int) -> Reader:
    """Read bytes after their length; `less` is taken from it (compact ones count one more)."""

    def read(data: bytes, at: int) -> tuple[bytes | None, int]:
        length, at = length_of(data, at)
        if length - less == -1:
            return None, at
        return _take_bytes(data, at, length - less)

    return read


def legacy_text(data: bytes, at: int) -> tuple[str | None, int]:
    """Read a text after its length. Texts are most of what members send, so in one function."""
    (length,) = _SHORT.unpack_from(data, at)
    at += _SHORT.size
    if length == -1:
        return None, at
    found, end = _take_bytes(data, at, length)
    return found.decode(), end


def compact_text(data: bytes, at: int) -> tuple[str | None, int]:
    """Read a text of a flexible version after its length."""
    length = data[at] - 1
    if length < ONE_BYTE_LENGTH:
        at += 1
    else:
        length, at = varint(data, at)
        length -= 1
    if length == -1:
        return None, at
    found, end = _take_bytes(data, at, length)
    if length > TEXT_BYTES_MAX:
        raise WireError(f"a text of {length} bytes is longer than {TEXT_BYTES_MAX}")
    return found.decode(), end


def _not_null(read_any: Reader, name: str) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read_any(data, at)
        if value is None:
            raise WireError(f"{name} is null: give a value")
        return value, at

    return read


def _nullable(marker: Reader, read_entity: Reader) -> Reader:
    """Read an entity after its marker: 1, or for none 0 in a tagged field and -1 elsewhere."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        there, at = marker(data, at)
        return read_entity(data, at) if there > 0 else (None, at)

    return read


def _bool(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _uuid(data: bytes, at: int) -> tuple[UUID | None, int]:
    found, at = _take_bytes(data, at, UUID_BYTES)
    return None if found == NO_ID else UUID(bytes=found), at


def _milliseconds(read_number: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[timedelta, int]:
        value, at = read_number(data, at)
        return timedelta(milliseconds=value), at

    return read


_LEGACY = {
    "string": legacy_text,
    "bytes": _bytes(_int32, 0),
    "records": _bytes(_int32, 0),
}
_COMPACT = {
    "string": compact_text,
    "bytes": _bytes(varint, 1),
    "records": _bytes(varint, 1),
}


def _error_code(data: bytes, at: int) -> tuple[ErrorCode, int]:
    """Read an error; an unknown one, as of a newer broker, becomes unknown_server_error."""
    code, at = _int16(data, at)
    return _ERRORS.get(code, ErrorCode.unknown_server_error), at


_ERRORS = {int(one): one for one in ErrorCode}
_PLAIN: dict[str, Reader] = {
    "error_code": _error_code,
    "int8": _int8,
    "int16": _int16,
    "int32": _int32,
    "int64": _int64,
    "uint16": _uint16,
    "float64": _float64,
    "bool": _bool,
    "uuid": _uuid,
    "timedelta_i32": _milliseconds(_int32),
    "timedelta_i64": _milliseconds(_int64),
    "datetime_i64": _int64,
}


def _array(read_one: Reader, *, flexible: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = varint(data, at) if flexible else _int32(data, at)
        count -= flexible
        if count == -1:
            return None, at
        if not 0 <= count <= len(data) - at:
            raise WireError(f"{count} elements are announced where {len(data) - at} bytes are left")
        if read_one is _int32:  # partitions: many, and all at once
            return struct.unpack_from(f">{count}i", data, at), at + 4 * count
        if isinstance(data, Body):
            data.elements -= count
            if data.elements < 0:
                raise TooManyError("has more elements than are allowed (server.elements_max)")
        found = []
        for _ in range(count):
            value, at = read_one(data, at)
            found.append(value)
        return tuple(found), at

    return read


@cache
def entity_reader(entity: type[Any]) -> Reader:
    """Return what reads a kio entity: a request, or a part of one."""
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    defaults: dict[str, object] = {}
    flexible: bool = entity.__flexible__
    for field in fields(entity):
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, field_reader(field, flexible=flexible)
            defaults[field.name] = _left_out(field)
        else:
            plain.append((field.name, field_reader(field, flexible=flexible)))

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, read_field in plain:
            values[name], at = read_field(data, at)
        if flexible:
            at = _read_tags(data, at, tagged, values)
        return entity(**values), at

    return read


def _left_out(field: Field[Any]) -> object:
    """Return the value of a tagged field that is not sent; of a struct's numbers it is zero."""
    if field.default is not MISSING:
        return field.default
    kind = field_shape(field).kind
    assert is_dataclass(kind), f"{field.name} has no default"
    return kind(  # type: ignore[operator]
        **{one.name: 0 if one.default is MISSING else one.default for one in fields(kind)}
    )


def client_id_reader(*, flexible: bool) -> Reader:
    """Return what reads the rest of a request's header, after its correlation id.

    The text is compact in no version.
    """

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        found, at = legacy_text(data, at)
        return found, _read_tags(data, at, {}, {}) if flexible else at

    return read


def _read_tags(
    data: bytes, at: int, tagged: dict[int, tuple[str, Reader]], values: dict[str, object]
) -> int:
    count, at = varint(data, at)
    for _ in range(count):
        tag, at = varint(data, at)
        length, at = varint(data, at)
        found, end = _take_bytes(data, at, length)
        if tag in tagged:
            name, read_field = tagged[tag]
            values[name], _ = read_field(found, 0)
        at = end
    return at


class FieldShape(NamedTuple):
    """What a field of a kio message is: one of `kind` or an array of them, and whether or none."""

    kind: Any
    array: bool
    optional: bool


def field_shape(field: Field[Any]) -> FieldShape:
    """Return what kio's annotation says of a field."""
    kinds = [kind for kind in get_args(field.type) if kind is not NoneType]
    optional = NoneType in get_args(field.type)
    kind = kinds[0] if optional else field.type
    if get_origin(kind) is tuple:
        return FieldShape(get_args(kind)[0], array=True, optional=optional)
    return FieldShape(kind, array=False, optional=optional)


def field_reader(field: Field[Any], *, flexible: bool) -> Reader:
    """Return what reads one field of a kio message."""
    shape = field_shape(field)
    kafka_type = field.metadata.get("kafka_type", "")
    if not is_dataclass(shape.kind):
        read = _PLAIN.get(kafka_type) or (_COMPACT if flexible else _LEGACY)[kafka_type]
    elif shape.optional and not shape.array:
        marker = varint if "tag" in field.metadata else _int8
        read = _nullable(marker, entity_reader(shape.kind))  # type: ignore[arg-type]
    else:
        read = entity_reader(shape.kind)  # type: ignore[arg-type]
    if shape.array:
        may_be_null = is_dataclass(shape.kind) or NoneType in get_args(shape.kind)
        one = read if may_be_null else _not_null(read, field.name)
        read = _array(_int32 if read is _int32 else one, flexible=flexible)
    if shape.optional or (kafka_type in _PLAIN and not shape.array):
        return read
    return _not_null(read, field.name)
