"""What Kafka's records have no field for, in a header of the record: reasons, assignors, moves.

A node that leads a partition of the topic of groups writes it, and every later reader of the topic
has it again. Kafka's coordinator, and all other readers, look at keys and values only; the cleaner
keeps headers with their records. A header's value is a JSON object: fields of our record, by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from coordinator.core.state.record_fields import Mark, RecordField, fields_of
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    MemberMetadata,
    Record,
    TargetMetadata,
)

R = TypeVar("R", bound=Record)
BEYOND = {"computation_id", "targets_version", "digest", "members", "ranges"}
"""Fields of ours that name rows of Muster's own tables, which the topic does not have."""
READ_WITHOUT: Mapping[type[Record], Mapping[str, object]] = {
    GroupMetadata: {},
    TargetMetadata: {"moved": None},
    ClassicGroupWritten: {},
    MemberMetadata: {},
}
"""Records that may have a header, with what a reader takes in place of a field's default."""
ALSO: Mapping[type[Record], frozenset[str]] = {MemberMetadata: frozenset({"server_assignor"})}
"""Fields that Kafka has too, and that may have to be written otherwise."""
LONG_MAX = 2**63 - 1
logger = logging.getLogger("muster.watch")


def write_own(record: Record, also: Mapping[str, object]) -> bytes:
    """Return the value of a record's header; empty: it needs none.

    Parameters
    ----------
    also
        Fields that Kafka has, and that its form of the record says otherwise (`ALSO`).
    """
    if type(record) not in READ_WITHOUT:
        return b""
    own = {**also}
    for name, usual in _usual(type(record)).items():
        value = getattr(record, name)
        if value != usual:
            own[name] = value
    return msgspec.json.encode(own) if own else b""


def read_own(record: R, header: bytes) -> R:
    """Return a record with what its header says; a header that cannot be read says nothing."""
    if type(record) not in READ_WITHOUT:
        return record
    try:
        own = msgspec.json.decode(header, type=_shape(type(record)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("the header of a record is passed over: %s: %s", error, record)
        return record
    values = msgspec.structs.asdict(own)
    given = {name: value for name, value in values.items() if value is not msgspec.UNSET}
    return msgspec.structs.replace(record, **given)


@cache
def _own(kind: type[Record]) -> tuple[RecordField, ...]:
    """Return the fields of ours that a header may have."""
    return tuple(
        field
        for field in fields_of(kind)
        if Mark.OWN in field.marks and field.name not in BEYOND and field.default is not None
    )


@cache
def _usual(kind: type[Record]) -> dict[str, object]:
    """Return these fields as they are where there is no header."""
    usual = {one.name: one.default() for one in _own(kind) if one.default is not None}
    return {**usual, **READ_WITHOUT[kind]}


@cache
def _shape(kind: type[Record]) -> type[msgspec.Struct]:
    """Return what a header is checked against; what a later version adds to it is passed over."""
    also = [one for one in fields_of(kind) if one.name in ALSO.get(kind, ())]
    unset = msgspec.UNSET
    return msgspec.defstruct(
        kind.__name__,
        [(one.name, _type_of(one) | msgspec.UnsetType, unset) for one in (*_own(kind), *also)],
    )


def _type_of(field: RecordField) -> Any:  # noqa: ANN401 - of any type
    number = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]
    type_ = number if field.type is int else field.type
    return type_ | None if field.optional else type_
