"""Rules on where partitions may be: rows of a table or of JSON, resolved against a group.

A rule that names a member or partition that the group does not have now, or that has expired, is
idle: members come and go while their rules stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

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


class _Shape(NamedTuple):
    """What the fields of a kind of rule hold, as messages say it; `value` None: it has none."""

    selector: str
    value: str | None
    word: str = " "
    pattern: str = "(?s:.+)"


_PARTITIONS = 'partitions: "topic", "topic/3" or "topic/3-7"'
_LABEL = 'a label; "{partition}" in it is the number'
_SHAPES = {
    PIN: _Shape(_PARTITIONS, "a member", " to "),
    EXCLUDE: _Shape(_PARTITIONS, "a member", " from "),
    COLOCATE: _Shape(_PARTITIONS, _LABEL, " as "),
    ANTI_AFFINITY: _Shape(_PARTITIONS, _LABEL, " as "),
    MAX_PARTITIONS: _Shape(
        'a member, or "*" for every member', "a whole number of partitions, 0 or more",
        pattern="[0-9]{1,10}",
    ),
    DRAIN: _Shape("a member", None),
}  # fmt: skip
KINDS = tuple(_SHAPES)


@dataclass(frozen=True, slots=True)
class ConstraintRow:
    """A rule as it was written (docs/reference/formats.md#tables), also in the log's records.

    `FIELDS`, each of its type; `until` as ms since 1970.

    One type, and `kind` its tag, not a class for each kind: a row of a table, and the struct in the
    log's column, have the same six fields for every kind, so classes would all be equal, and would
    be taken apart again where rules are solved, which is by arrays of each kind. `_SHAPES` has what
    differs. (msgspec, which could tell classes apart by a tag, is not on executors, which read
    rules too.)
    """

    kind: str
    selector: str
    value: str | None = None
    hard: bool = True
    reason: str | None = None
    until_ms: int | None = None

    @property
    def name(self) -> str:
        """The rule in words."""
        shape = _SHAPES.get(self.kind, _SHAPES[DRAIN])  # a newer version may know more kinds
        value = "" if self.value is None else shape.word + self.value
        return f"{self.kind} {self.selector}{value}"


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
        for name, kind in zip(FIELDS, kinds, strict=False)
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
    kind, selector, value = row.get("kind"), row.get("selector"), row.get("value")
    if not isinstance(kind, str) or (shape := _SHAPES.get(kind)) is None:
        raise SpecError(f"{where}: kind is {show(kind)}: give one of {', '.join(KINDS)}")
    if not isinstance(selector, str) or not selector:
        raise SpecError(f"{where}: selector is {show(selector)}: give {shape.selector}")
    if kind == MAX_PARTITIONS and type(value) is int:
        value = str(value)
    if shape.value is None:
        if value is not None:
            raise SpecError(f"{where}: {kind} has value {show(value)}: leave the value out")
    elif not isinstance(value, str) or not re.fullmatch(shape.pattern, value):
        raise SpecError(f"{where}: {kind} has value {show(value)}: give {shape.value}")
    hard, reason = row.get("hard"), row.get("reason")
    if hard is not None and not isinstance(hard, bool):
        raise SpecError(f"{where}: hard is {show(hard)}: give true or false")
    if reason is not None and not isinstance(reason, str):
        raise SpecError(f"{where}: reason is {show(reason)}: give text")
    until = _parse_time(row.get("until"), where)
    return ConstraintRow(kind, selector, value, hard is not False, reason, until)


def _parse_time(value: Any, where: str) -> int | None:  # noqa: ANN401 - what a user gave
    """Return ms since 1970; a time without a zone is UTC.

    Raises
    ------
    SpecError
        It is not a time, or a number that may be seconds or microseconds.
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
    own = {row.value or "" for row in rows if row.kind in (COLOCATE, ANTI_AFFINITY)}
    labels = {text: at for at, text in enumerate(sorted(own))}  # in no order of the rules
    for row in rows:
        if as_of_ms is not None and row.until_ms is not None and row.until_ms <= as_of_ms:
            idle.append(f"{row.name}: expired at {show_time(row.until_ms)}")
            continue
        found = _resolve_row(row, names, labels)
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

    A partition has one: that of a hard rule, else of the rule whose name comes first.

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
    for at, rule in sorted(enumerate(own), key=lambda one: (not one[1].hard, one[1].name)):
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


def _resolve_row(row: ConstraintRow, names: Names, labels: dict[str, int]) -> Constraint | str:
    first, count, members, label, limit = _NONE, _NONE, _NONE, _NONE, 0
    if row.kind in (DRAIN, MAX_PARTITIONS):
        everyone = row.kind == MAX_PARTITIONS and row.selector == EVERY_MEMBER
        found = np.arange(names.count) if everyone else names.find_members(row.selector)
        if isinstance(found, str):
            return found
        members, limit = found, int(row.value or 0)
    else:
        run = names.find_partitions(row.selector)
        if isinstance(run, str):
            return run
        first, count = np.array(run[:1]), np.array(run[1:])
        if row.kind in (PIN, EXCLUDE):
            named = names.find_members(row.value or "")
            if isinstance(named, str):
                return named
            members = named
        else:
            places = np.arange(run[0], sum(run))
            label = _number_label(row.value or "", places, names.topic_start, labels)
    return Constraint(row.kind, row.name, row.reason, row.hard, first, count, label, members, limit)


def _number_label(
    value: str, partitions: Longs, topic_start: Longs, labels: dict[str, int]
) -> Longs:
    """Return a number for each partition's label: rules with the same text share labels."""
    base = np.int64(labels[value]) << _NUMBER_BITS
    if _PLACEHOLDER not in value:
        return np.full(len(partitions), base)
    topic = np.searchsorted(topic_start, partitions, side="right") - 1
    return base + 1 + partitions - topic_start[topic]
