"""The options of the format `muster`, checked: an unknown one is refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from assignors import SpecError
from coordinator.history.log_reader import open_logs, parse_as_of
from coordinator.history.view_schemas import (
    FUNCTION_ARGUMENTS,
    FUNCTION_SCHEMAS,
    SCHEMAS,
    WITHOUT_GROUPS,
)

AS_OF = ("positionAsOf", "timestampAsOf")
ARGUMENTS = {"epoch": "epoch", "otherEpoch": "other_epoch", "without": "without"}
"""Of table functions, by the names of options."""
BEGIN = ("startingPosition", "startingTimestamp")
"""Of streams: the first position or time to read."""
LIMIT = "maxPositionsPerTrigger"
"""Of streams, from Spark 4.2 on: about how many positions a batch has at most."""
DIGITS_MAX = 18
"""Of a number that fits 64 bits with any digits."""
LATEST = "latest"
PUSH = "pushFilters"
"""Whether filters are applied here, from Spark 4.1 on."""
STREAMED = "events"
REMEDIES = {
    "location": "Spark cannot read a table of it: CREATE TEMPORARY VIEW … USING muster instead",
    "paths": "it reads one store: give load one path",
    "versionasof": "give positionAsOf",
}
"""Of options that other formats have, or that Spark gives, in small letters."""
OPTIONS = ("path", "view", "groupId", *AS_OF, PUSH, *BEGIN, LIMIT, *ARGUMENTS)
"""Spark compares their names without case."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read.

    Attributes
    ----------
    store
        Its folder or URL.
    view
        A view, or a table function.
    group_id
        Only rows of this group; None: of all.
    as_of
        The position or time to read up to; None: now, when a task reads.
    arguments
        Of a table function, beside the group.
    begin
        Of a stream: the first position or time to read, or `LATEST`; None: all.
    limit
        Of a stream: about how many positions a batch has at most; None: all.
    push
        Whether filters are pushed down: not by default, because of what Spark makes of them.
    """

    store: str
    view: str
    group_id: str | None
    as_of: int | datetime | None
    arguments: dict[str, object]
    begin: int | str | datetime | None = None
    limit: int | None = None
    push: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Return the options of a read.

        Raises
        ------
        SpecError
            One is unknown, missing or wrong.
        """
        known = {name.lower(): name for name in OPTIONS}
        given = {name.lower(): value for name, value in options.items()}
        for name in options:
            if name.lower() not in known:
                remedy = REMEDIES.get(name.lower(), f"the options are {', '.join(OPTIONS)}")
                raise SpecError(f"unknown option {name!r} of format 'muster': {remedy}")
        store, view = given.get("path"), given.get("view")
        if not store:
            raise SpecError("format 'muster' needs a store: load('STORE'), or the option path")
        if view not in SCHEMAS and view not in FUNCTION_SCHEMAS:
            trouble = "needs an option view" if view is None else f"has no view {view!r}"
            raise SpecError(
                f"format 'muster' {trouble}: the views are {', '.join(sorted(SCHEMAS))}, and the "
                f"functions {', '.join(sorted(FUNCTION_SCHEMAS))}"
            )
        group_id = given.get("groupid")
        if group_id is not None and view in WITHOUT_GROUPS:
            raise SpecError(f"view {view!r} has no group_id: omit groupId={group_id!r}")
        arguments = _parse_arguments(view, given)
        begin = LATEST if _one_of(given, BEGIN)[0] == LATEST else _parse_moment(given, BEGIN)
        as_of, limit = _parse_moment(given, AS_OF), _parse_limit(given)
        push = _parse_push(given)
        return cls(store, view, group_id, as_of, arguments, begin, limit, push)

    def check_batch(self) -> ReadOptions:
        """Check that nothing is asked for that only streams have.

        Raises
        ------
        SpecError
            A beginning is.
        """
        if self.begin is not None:
            raise SpecError(f"{BEGIN[0]} and {BEGIN[1]} are for readStream: omit them, or use that")
        if self.limit is not None:
            raise SpecError(f"{LIMIT} is for readStream: omit it, or use that")
        return self

    def check_stream(self) -> ReadOptions:
        """Check that the view can be read as a stream.

        Raises
        ------
        SpecError
            It is another view than events, or a moment is given.
        """
        if self.view != STREAMED:
            raise SpecError(
                f"view {self.view!r} is not a stream: its rows change; readStream reads view "
                f"{STREAMED!r}"
            )
        if self.as_of is not None:
            raise SpecError(f"a stream has no end: omit {AS_OF[0]} and {AS_OF[1]}")
        if self.push:
            raise SpecError(f"{PUSH} is for read: omit it, and give groupId for one group")
        return self

    def check_store(self) -> ReadOptions:
        """Check that there is a store, and that its logs have what was asked for.

        Raises
        ------
        SpecError
            The store is missing, or its logs do not reach there.
        """
        open_logs(self.store, self.as_of, self.group_id)
        return self

    def columns(self) -> StructType:
        """Return the columns of the view."""
        columns: StructType = from_arrow_schema(self.arrow_schema)
        return columns

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the view, in Arrow's types."""
        return (SCHEMAS | FUNCTION_SCHEMAS)[self.view]

    def check_columns(self, schema: StructType) -> ReadOptions:
        """Check columns that a user gave.

        Raises
        ------
        SpecError
            They are not those of the view.
        """
        ours = self.columns()
        if schema.simpleString() != ours.simpleString():
            raise SpecError(
                f"view {self.view!r} has other columns than the schema given: read it without "
                f".schema(), as {ours.simpleString()}"
            )
        return self


def _parse_arguments(view: str, given: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of a table function, which itself refuses missing ones."""
    wanted = FUNCTION_ARGUMENTS.get(view, {})
    found: dict[str, object] = {}
    for option, argument in ARGUMENTS.items():
        value = given.get(option.lower())
        if value is None:
            if argument in wanted:
                raise SpecError(f"{view} needs an option {option}")
            continue
        if argument not in wanted:
            raise SpecError(f"view {view!r} takes no {option}: omit {option}={value!r}")
        digits = value.removeprefix("-")
        if wanted[argument] is int and not _is_number(digits):
            raise SpecError(
                f"{option} {value!r} is not a whole number of at most {DIGITS_MAX} digits"
            )
        found[argument] = wanted[argument](value)
    if wanted and given.get("groupid") is None:
        raise SpecError(f"{view} needs an option groupId")
    return found


def _parse_limit(given: Mapping[str, str]) -> int | None:
    """Return how many positions a batch may have."""
    text = given.get(LIMIT.lower())
    if text is None:
        return None
    if not (_is_number(text) and int(text)):
        raise SpecError(f"{LIMIT} is {text!r}: give a number of positions, from 1 on")
    return int(text)


def _parse_push(given: Mapping[str, str]) -> bool:
    """Return whether filters are to be pushed down."""
    text = given.get(PUSH.lower(), "false")
    if text.lower() not in {"true", "false"}:
        raise SpecError(f"{PUSH} is {text!r}: give true or false")
    if text.lower() == "true" and not hasattr(DataSourceReader, PUSH):
        raise SpecError(f"{PUSH} needs Spark 4.1 or newer: omit it, and give groupId for one group")
    return text.lower() == "true"


def _is_number(text: str) -> bool:
    """Whether it has digits alone, of a number of 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def _one_of(given: Mapping[str, str], names: tuple[str, str]) -> tuple[str | None, str | None]:
    """Return the values of two options, of which one may be given."""
    position, time = (given.get(name.lower()) for name in names)
    if position is not None and time is not None:
        raise SpecError(f"{names[0]} and {names[1]} exclude each other: give one of them")
    return position, time


def _parse_moment(given: Mapping[str, str], names: tuple[str, str]) -> int | datetime | None:
    """Return the position or the time that one of two options names."""
    position, time = _one_of(given, names)
    if position is not None:
        parsed = parse_as_of(position, names[0])
        if not isinstance(parsed, int):
            raise SpecError(f"{names[0]} {position!r} is a time: give it as {names[1]}")
        return parsed
    if time is not None:
        parsed = parse_as_of(time, names[1])
        if isinstance(parsed, int):
            raise SpecError(f"{names[1]} {time!r} is a position: give it as {names[0]}")
        return parsed
    return None
