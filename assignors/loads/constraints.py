"""Rules on where partitions may be: rows of a table or of JSON, resolved against a group.

A kind of rule is a class: its fields are read and checked by their types, and `resolve` says what
it means in a group. Records of the log have rules as they are here.

A rule that names a member or partition that the group does not have now, or that has expired, is
idle: members come and go while their rules stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, TypeAlias, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import PARTITIONS_MAX, Longs, offsets_of
from assignors.errors import SpecError
from assignors.loads.load_spec import Constraint
from assignors.parse import kind_of, show

PIN, EXCLUDE, COLOCATE, ANTI_AFFINITY = "pin", "exclude", "colocate", "anti_affinity"
MAX_PARTITIONS, DRAIN = "max_partitions", "drain"
FIELDS = ("kind", "selector", "value", "hard", "reason", "until")
EVERY_MEMBER = "*"

_PLACEHOLDER = "{partition}"
_SELECTOR = re.compile(r"(.+)/(\d{1,10})(?:-(\d{1,10}))?", re.DOTALL)
_NUMBER_BITS = 31
_MS_MIN, _MS_MAX = 10**11, 10**14
"""Of a time as a number: as seconds, they would be the year 5138 or later; as microseconds, 1973
or before. So a number between them is milliseconds, and any other may be something else."""
_NONE = np.zeros(0, dtype=np.int64)


def _remedy(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


_PARTITIONS = _remedy('give partitions: "topic", "topic/3" or "topic/3-7"')


@dataclass(frozen=True, slots=True)
class Names:
    """What rules may name: topics with their place on the line, members by any of their names."""

    topic: Mapping[str, int]
    topic_start: Longs
    members: Mapping[str, Longs]
    count: int

    @classmethod
    def of(cls, topics: pa.StringArray, topic_start: Longs, *member_names: pa.StringArray) -> Names:
        """Collect names; a member is known by its id, then instance id, then process."""
        found: dict[str, list[int]] = {}
        for names in member_names:
            own: dict[str, list[int]] = {}
            for at, name in enumerate(names.to_pylist()):
                if name is not None and name not in found:
                    own.setdefault(name, []).append(at)
            found |= own
        members = {name: np.array(at, dtype=np.int64) for name, at in found.items()}
        topic = {name: at for at, name in enumerate(topics.to_pylist())}
        return cls(topic, topic_start, members, len(member_names[0]))

    def find_partitions(self, selector: str) -> tuple[int, int] | str:
        """Return the first and the number of places that a selector names, or why there are none.

        Selectors are `topic`, `topic/3` and `topic/3-7`.
        """
        first, last, topic = 0, PARTITIONS_MAX, selector
        if selector not in self.topic:
            parsed = _SELECTOR.fullmatch(selector)
            if parsed is None:
                return f"topic {show(selector)} is not in the group"
            topic, first = parsed[1], int(parsed[2])
            last = int(parsed[3] or parsed[2])
            if topic not in self.topic:
                return f"topic {show(topic)} is not in the group"
        start, end = self.topic_start[self.topic[topic] : self.topic[topic] + 2].tolist()
        count = min(end, start + last + 1) - (start + first)
        return (
            (start + first, count)
            if count > 0
            else f"topic {show(topic)} has {end - start} partitions"
        )

    def find_members(self, name: str) -> Longs | str:
        """Return the members of a name, or why there are none."""
        found = self.members.get(name)
        return f"member {show(name)} is not in the group" if found is None else found


class _Rule(msgspec.Struct, frozen=True, gc=False, tag_field="kind"):
    """What a rule has as it was written. An error gives a field's description as the remedy."""

    between: ClassVar[str] = " "
    """In the rule's name, between selector and value."""

    selector: str
    value: str | None = None
    hard: Annotated[bool, _remedy("give true or false")] = True
    reason: Annotated[str | None, _remedy("give text")] = None
    until_ms: int | None = None

    @property
    def kind(self) -> str:
        """Its kind, as in the table."""
        return str(self.__struct_config__.tag)

    @property
    def name(self) -> str:
        """The rule in words."""
        value = "" if self.value is None else self.between + self.value
        return f"{self.kind} {self.selector}{value}"

    def hold(
        self,
        run: tuple[int, int] | None = None,
        *,
        label: Longs = _NONE,
        members: Longs = _NONE,
        limit: int = 0,
    ) -> Constraint:
        """Return the rule as it is in a group: about a run of places on the line, or members."""
        first, count = (_NONE, _NONE) if run is None else (np.array(run[:1]), np.array(run[1:]))
        return Constraint(
            self.kind, self.name, self.reason, self.hard, first, count, label, members, limit
        )


class _OfMember(_Rule, frozen=True, gc=False):
    """About partitions and a member."""

    selector: Annotated[str, msgspec.Meta(min_length=1), _PARTITIONS]
    value: Annotated[str, msgspec.Meta(min_length=1), _remedy("give a member")]

    def resolve(self, names: Names, _labels: dict[str, int]) -> Constraint | str:
        """Return the rule in a group, or why it is idle there."""
        run = names.find_partitions(self.selector)
        if isinstance(run, str):
            return run
        members = names.find_members(self.value)
        return members if isinstance(members, str) else self.hold(run, members=members)


class Pin(_OfMember, tag=PIN, frozen=True, gc=False):
    """Its partitions go to this member."""

    between: ClassVar[str] = " to "


class Exclude(_OfMember, tag=EXCLUDE, frozen=True, gc=False):
    """Its partitions go to anybody but this member."""

    between: ClassVar[str] = " from "


class _OfLabel(_Rule, frozen=True, gc=False):
    """About partitions that share a label."""

    between: ClassVar[str] = " as "

    selector: Annotated[str, msgspec.Meta(min_length=1), _PARTITIONS]
    value: Annotated[
        str,
        msgspec.Meta(min_length=1),
        _remedy('give a label; "{partition}" in it is the number'),
    ]

    def resolve(self, names: Names, labels: dict[str, int]) -> Constraint | str:
        """Return the rule in a group, or why it is idle there; rules share `labels` by text."""
        run = names.find_partitions(self.selector)
        if isinstance(run, str):
            return run
        places = np.arange(run[0], sum(run))
        return self.hold(run, label=_number_label(self.value, places, names.topic_start, labels))


class Colocate(_OfLabel, tag=COLOCATE, frozen=True, gc=False):
    """Partitions of a label go to one member."""


class AntiAffinity(_OfLabel, tag=ANTI_AFFINITY, frozen=True, gc=False):
    """Partitions of a label go to different members."""


class MaxPartitions(_Rule, tag=MAX_PARTITIONS, frozen=True, gc=False):
    """A member has at most so many partitions."""

    selector: Annotated[
        str, msgspec.Meta(min_length=1), _remedy('give a member, or "*" for every member')
    ]
    value: Annotated[
        str,
        msgspec.Meta(pattern=r"\A[0-9]{1,10}\Z"),
        _remedy("give a whole number of partitions, 0 or more"),
    ]

    def resolve(self, names: Names, _labels: dict[str, int]) -> Constraint | str:
        """Return the rule in a group, or why it is idle there."""
        everyone = self.selector == EVERY_MEMBER
        members = np.arange(names.count) if everyone else names.find_members(self.selector)
        if isinstance(members, str):
            return members
        return self.hold(members=members, limit=int(self.value))


class Drain(_Rule, tag=DRAIN, frozen=True, gc=False):
    """A member has no partitions."""

    selector: Annotated[str, msgspec.Meta(min_length=1), _remedy("give a member")]
    value: Annotated[None, _remedy("leave the value out")] = None

    def resolve(self, names: Names, _labels: dict[str, int]) -> Constraint | str:
        """Return the rule in a group, or why it is idle there."""
        members = names.find_members(self.selector)
        return members if isinstance(members, str) else self.hold(members=members)


ConstraintRow: TypeAlias = Pin | Exclude | Colocate | AntiAffinity | MaxPartitions | Drain
"""A rule as it was written. Its kind is in the field `kind`; a store has it so too."""
_KINDS: dict[str, type[ConstraintRow]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(ConstraintRow)
}
KINDS = tuple(_KINDS)


def parse_constraints(rows: object, where: str = "constraints") -> list[ConstraintRow]:
    """Read rules from an Arrow table or a list of objects.

    Raises
    ------
    SpecError
        Names the row, counted from 0, what it has and what it should have.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch):
        rows = rows.to_pylist()
    if not isinstance(rows, list | tuple):
        raise SpecError(f"{where}: expected a list of rules, got {kind_of(rows)}: {show(rows)}")
    return [_parse_row(row, f"{where}, row {at}") for at, row in enumerate(rows)]


def to_table(rows: Sequence[ConstraintRow]) -> pa.Table:
    """Return rules as a table that `parse_constraints` reads."""
    kinds = (pa.string(), pa.string(), pa.string(), pa.bool_(), pa.string())
    columns = [
        pa.array([getattr(row, name) for row in rows], kind)
        for name, kind in zip(FIELDS[:-1], kinds, strict=True)
    ]
    until = pa.array([row.until_ms for row in rows], pa.timestamp("ms", "UTC"))
    return pa.table([*columns, until], names=list(FIELDS))


def _parse_row(row: object, where: str) -> ConstraintRow:
    if not isinstance(row, Mapping):
        raise SpecError(f"{where} is {show(row)}: expected an object with {', '.join(FIELDS)}")
    for name in row:
        if name not in FIELDS:
            raise SpecError(
                f"{where}: unknown field {show(name)}: the fields are {', '.join(FIELDS)}"
            )
    kind = row.get("kind")
    if kind not in KINDS:
        raise SpecError(f"{where}: kind is {show(kind)}: give one of {', '.join(KINDS)}")
    given = {name: value for name, value in row.items() if value is not None}
    if kind == MAX_PARTITIONS and type(given.get("value")) is int:
        given["value"] = str(given["value"])
    until = given.pop("until", None)
    try:
        found = msgspec.convert(given, _KINDS[kind])  # a union would be taken apart for each row
    except msgspec.ValidationError:
        raise SpecError(f"{where}: {_find_fault(_KINDS[kind], given)}") from None
    if until is None:
        return found
    return msgspec.structs.replace(found, until_ms=_parse_time(until, where))


def _find_fault(kind: type[_Rule], given: Mapping[str, object]) -> str:
    """Name the first field that is not of its type, what it has and what it should have."""
    for field in msgspec.structs.fields(kind):
        if field.required or field.name in given:
            value = given.get(field.name)
            try:
                msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                tag = kind.__struct_config__.tag
                what = f"{tag} has value" if field.name == "value" else f"{field.name} is"
                remedy = next(m.description for m in field.type.__metadata__ if m.description)
                return f"{what} {show(value)}: {remedy}"
    raise AssertionError(f"each field of {given} is of its type")  # pragma: no cover


def _parse_time(value: Any, where: str) -> int | None:  # noqa: ANN401 - what a user gave
    """Return ms since 1970; a time without a zone is UTC.

    Raises
    ------
    SpecError
        It is no time, or a number that may be seconds or microseconds.
    """
    if value is None or (type(value) is int and _MS_MIN <= value < _MS_MAX):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        raise SpecError(
            f"{where}: until is {show(value)}, which may be seconds, milliseconds or another unit: "
            "give a time such as 2026-12-31T18:00:00Z, or whole milliseconds since 1970"
        )
    kind = pa.timestamp("us", tz="UTC")
    try:
        if isinstance(value, str):
            zoned = re.search(r"(Z|[+-]\d\d:?\d\d)$", value)
            time = pa.array([value]).cast(kind if zoned else pa.timestamp("us"))
        else:
            time = pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise SpecError(
            f"{where}: until is {show(value)}: give a time such as 2026-12-31T18:00:00Z"
        ) from None
    return int(time.cast(pa.int64())[0].as_py()) // 1000


def name_partition(topics: pa.StringArray, counts: Longs, place: int) -> str:
    """Return a place on the line in words."""
    start = offsets_of(counts)
    topic = int(np.searchsorted(start, place, side="right")) - 1
    return f"partition {place - int(start[topic])} of topic {topics[topic].as_py()!r}"


def show_time(ms: int) -> str:
    """Return a time in words, UTC."""
    time = pa.scalar(ms // 1000, pa.timestamp("s"))
    return str(pc.strftime(time, format="%Y-%m-%dT%H:%M:%SZ").as_py())


def resolve_constraints(
    rows: Sequence[ConstraintRow], names: Names, as_of_ms: int | None
) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Return the rules in force, and the idle ones with the cause.

    Parameters
    ----------
    as_of_ms
        What `until` is compared with; None: nothing has expired.
    """
    held, idle = [], []
    labels: dict[str, int] = {}
    for row in rows:
        if as_of_ms is not None and row.until_ms is not None and row.until_ms <= as_of_ms:
            idle.append(f"{row.name}: expired at {show_time(row.until_ms)}")
            continue
        found = row.resolve(names, labels)
        if isinstance(found, str):
            idle.append(f"{row.name}: {found}")
        else:
            held.append(found)
    kept, aside = _set_aside(held, names)
    return kept, (*idle, *aside)


def _set_aside(
    rules: Sequence[Constraint], names: Names
) -> tuple[tuple[Constraint, ...], tuple[str, ...]]:
    """Leave out soft rules that give a partition a second label of anti_affinity.

    A partition has one: that of a hard rule, else of the first rule.

    Returns
    -------
    kept, aside
        The others, and those that were left out, each with the cause.
    """
    own = [rule for rule in rules if rule.kind == ANTI_AFFINITY]
    if all(rule.hard for rule in own):
        return tuple(rules), ()
    total = int(names.topic_start[-1])
    label, whose = np.full((2, total), -1, dtype=np.int64)
    topics = pa.array(list(names.topic), pa.string())
    aside: dict[int, str] = {}
    for at, rule in sorted(enumerate(own), key=lambda one: not one[1].hard):
        places = rule.partitions
        other = np.flatnonzero((label[places] >= 0) & (label[places] != rule.label))
        if len(other) and not rule.hard:
            place = int(places[other[0]])
            there = name_partition(topics, np.diff(names.topic_start), place)
            first = own[whose[place]].name
            aside[id(rule)] = f"{rule.name}: {there} has the label of {first}"
            continue
        label[places], whose[places] = rule.label, at
    kept = tuple(rule for rule in rules if id(rule) not in aside)
    return kept, tuple(aside.values())


def _number_label(
    value: str, partitions: Longs, topic_start: Longs, labels: dict[str, int]
) -> Longs:
    """Return a number for each partition's label: rules with the same text share labels."""
    base = np.int64(labels.setdefault(value, len(labels))) << _NUMBER_BITS
    if _PLACEHOLDER not in value:
        return np.full(len(partitions), base)
    topic = np.searchsorted(topic_start, partitions, side="right") - 1
    return base + 1 + partitions - topic_start[topic]
