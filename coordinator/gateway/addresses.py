"""Put the gateway's addresses into answers of brokers that name brokers.

Only what is in front of the addresses is read, and what follows goes on as it came: an answer to
Metadata may be megabytes of partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from coordinator.wire.codec import LENGTH, Api
from coordinator.wire.decoder import Reader, WireError, entity_reader, field_reader
from coordinator.wire.encoder import Writer, field_writer

PlaceOf: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
"""From a broker's id, host and port to where the gateway serves it; None where it does not."""
LISTS = {"brokers": None, "coordinators": ErrorCode.coordinator_not_available}
"""The lists of answers whose elements have addresses, and the error of one that is not served; None
where it is left out."""
NAMES_BROKERS = {Api.METADATA, Api.DESCRIBE_CLUSTER, Api.FIND_COORDINATOR}
ERROR = struct.Struct(">h")
HEAD_MAX = 1 << 22
"""Bytes of an answer in which its addresses are found."""


class Rewritten(NamedTuple):
    """The beginning of an answer, its length too, and how many bytes it replaces."""

    start: bytes
    taken: int


class _Part(NamedTuple):
    """A field in front of the addresses, or one that has them."""

    name: str
    read: Reader
    write: Writer


def rewrite(api: int, version: int, data: bytes, place_of: PlaceOf) -> Rewritten | None:
    """Return the beginning of an answer with other addresses; None while too little is there.

    Parameters
    ----------
    data
        What there is of it, its length first.

    Raises
    ------
    WireError
        It is no such answer.
    """
    (length,) = LENGTH.unpack_from(data)
    read_header, parts = _parts(api, version)
    out = bytearray()
    try:
        _, at = read_header(data, LENGTH.size)
        found: dict[str, Any] = {}
        begin = LENGTH.size
        for part in parts:
            value, end = part.read(data, at)
            if part.name in LISTS:
                out += data[begin:at]
                part.write(out, _serve_all(value, part.name, place_of))
                begin = end
            elif part.name == "host":
                out += data[begin:at]
            elif part.name == "port":
                begin = end
            elif part.name == "error_code":
                found["error_at"] = at - LENGTH.size
            found[part.name] = value
            at = end
    except (struct.error, IndexError, UnicodeDecodeError, WireError) as error:
        if len(data) >= min(LENGTH.size + length, HEAD_MAX):
            raise WireError(f"an answer of a broker cannot be read: {error}") from None
        return None
    if "port" in found:
        _write_place(out, parts, found, place_of)
    size = len(out) + LENGTH.size + length - begin
    return Rewritten(LENGTH.pack(size) + bytes(out), begin)


def _write_place(
    out: bytearray, parts: list[_Part], found: dict[str, Any], place_of: PlaceOf
) -> None:
    """Write the host and the port of the one coordinator that an answer names."""
    place = found["host"], found["port"]
    if not int(found["error_code"]):
        served = place_of(int(found["node_id"]), *place)
        if served is None:
            ERROR.pack_into(out, found["error_at"], ErrorCode.coordinator_not_available)
        place = served or ("", -1)
    for part, value in zip(parts[-2:], place, strict=True):
        part.write(out, value)


def _serve_all(values: tuple[Any, ...], name: str, place_of: PlaceOf) -> list[dict[str, Any]]:
    """Return nodes as their fields, with the addresses by which the gateway serves them."""
    served = []
    for value in values:
        one = {field.name: getattr(value, field.name) for field in fields(value)}
        if not int(one.get("error_code", 0)):
            node_id = one["broker_id"] if "broker_id" in one else one["node_id"]
            place = place_of(int(node_id), one["host"], one["port"])
            if place is None and LISTS[name] is None:
                continue
            one["host"], one["port"] = place or ("", -1)
            if place is None:
                one["error_code"] = LISTS[name]
        served.append(one)
    return served


@cache
def _parts(api: int, version: int) -> tuple[Reader, list[_Part]]:
    """Return what reads an answer's header, and its fields up to the last address."""
    message: Any = load_response_schema(api, version)
    flexible: bool = message.__flexible__
    found: list[_Part] = []
    last = 0
    for field in fields(message):
        if "tag" in field.metadata:
            continue
        found.append(_part(field, flexible=flexible))
        if field.name in LISTS or field.name == "port":
            last = len(found)
    assert last, f"{message.__module__} names no brokers"
    return entity_reader(message.__header_schema__), found[:last]


def _part(field: Field[Any], *, flexible: bool) -> _Part:
    return _Part(
        field.name,
        field_reader(field, flexible=flexible),
        field_writer(field, flexible=flexible),
    )
