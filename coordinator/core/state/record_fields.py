"""What the fields of records say beside their Python type: the schema of the log.

records.py is the one table of it. From a field's annotation follow its column and how it is written
and read (storage/record_schema.py), its place in Kafka's JSON (trace/kafka_json.py), and its line
in docs/design/log_format.md:

    regex: Annotated[Key[str], Kafka("regularExpression"), "what the column means"]

A column bears the name of the field. What may be left out is what is usual: a field is in no key,
Kafka has it under the same name in camel case, and the column needs no words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum, auto
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import msgspec.inspect

T = TypeVar("T")
FieldInfo: TypeAlias = msgspec.structs.FieldInfo | msgspec.inspect.Field


class Mark(Enum):
    """What an annotation can say without a value."""

    KEY = auto()
    OWN = auto()
    TAGGED = auto()
    IN_MEMORY = auto()
    INT32 = auto()
    INT64 = auto()
    UINT64 = auto()
    DISTINCT = auto()
    AS_JSON = auto()


class Column(NamedTuple):
    """The name of the column, where it is not the field's."""

    name: str


class Kafka(NamedTuple):
    """Kafka's name of the field, where it is not ours in camel case."""

    name: str


Int: TypeAlias = Annotated[int, Mark.INT32]
Long: TypeAlias = Annotated[int, Mark.INT64]
Hash: TypeAlias = Annotated[int, Mark.UINT64]
"""Unsigned 64 bits, which are written, and sent, as a signed number."""
MemberId: TypeAlias = Annotated[str, Mark.DISTINCT]
"""A text of which hardly two rows have the same."""
Names: TypeAlias = Annotated[tuple[str, ...], Mark.AS_JSON]
"""A list of names that many rows share: written as one text, JSON."""

Key: TypeAlias = Annotated[T, Mark.KEY]
"""A part of the key of its kind: a tombstone has it too."""
Own: TypeAlias = Annotated[T, Mark.OWN]
"""Ours: Kafka's record does not have it."""
Tagged: TypeAlias = Annotated[T, Mark.TAGGED]
"""A tagged field of Kafka's record, which leaves it out where it is 0 or empty."""
InMemory: TypeAlias = Annotated[T, Mark.IN_MEMORY]
"""Not written to the log at all."""


class RecordField(NamedTuple):
    """A field of a record that is written.

    Attributes
    ----------
    name
        In the record.
    column
        In the log.
    kafka
        In Kafka's record.
    type
        Of its values in Python, None left out.
    optional
        Whether a value may be None.
    marks
        What the annotation says besides.
    text
        What the column means, for the documentation.
    default
        Makes the value of a row that an older version wrote; None: no record is without it.
    """

    name: str
    column: str
    kafka: str
    type: Any
    optional: bool
    marks: frozenset[Mark]
    text: str
    default: Callable[[], Any] | None


@cache
def fields_of(record_type: type[Any]) -> tuple[RecordField, ...]:
    """Return the fields of a record that are written, in their order.

    A value of a record may be a dataclass of the assignors', whose integers are Long.

    Raises
    ------
    TypeError
        An annotation is a union of several types.
    """
    hints = get_type_hints(record_type, include_extras=True)
    if issubclass(record_type, msgspec.Struct):
        found = [_field_of(info, hints[info.name]) for info in msgspec.structs.fields(record_type)]
    else:
        infos = msgspec.inspect.type_info(record_type).fields  # type: ignore[attr-defined]
        found = [_field_of(info, _as_long(hints[info.name])) for info in infos]
    return tuple(field for field in found if Mark.IN_MEMORY not in field.marks)


def take_apart(annotation: Any) -> tuple[Any, bool, list[Any]]:  # noqa: ANN401 - of any type
    """Return the type that is annotated, whether it may be None, and its documentation.

    Raises
    ------
    TypeError
        It is a union of several types.
    """
    metadata: list[Any] = []
    optional = False
    while True:
        if get_origin(annotation) is Annotated:
            metadata += annotation.__metadata__
            annotation = annotation.__origin__
        elif get_origin(annotation) in {Union, UnionType}:
            types = [one for one in get_args(annotation) if one is not NoneType]
            if len(types) > 1:
                raise TypeError(
                    f"{annotation} is several types: a column has one, and perhaps None"
                )
            annotation, optional = types[0], True
        else:
            return annotation, optional, metadata


def camel_case(name: str) -> str:
    """Return a name as Kafka writes it: group_id is groupId."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _as_long(annotation: Any) -> Any:  # noqa: ANN401 - of any type
    return Annotated[annotation, Mark.INT64] if take_apart(annotation)[0] is int else annotation


def is_struct(type_: object) -> bool:
    """Whether values of a type have fields: a struct, or a dataclass of the assignors'."""
    return isinstance(type_, type) and (issubclass(type_, msgspec.Struct) or is_dataclass(type_))


def _field_of(info: FieldInfo, annotation: object) -> RecordField:
    python_type, optional, metadata = take_apart(annotation)
    column = next((one.name for one in metadata if isinstance(one, Column)), info.name)
    kafka = next((one.name for one in metadata if isinstance(one, Kafka)), camel_case(info.name))
    marks = frozenset(one for one in metadata if isinstance(one, Mark))
    text = next((one for one in metadata if isinstance(one, str)), "")
    default = None if info.required else partial(_default_of, info)
    return RecordField(info.name, column, kafka, python_type, optional, marks, text, default)


def _default_of(info: FieldInfo) -> object:
    made = info.default_factory is not msgspec.NODEFAULT
    return info.default_factory() if made else info.default
