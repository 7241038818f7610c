"""Sort, filter and cut tables for a page, as its address says, which is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.web.errors import QueryError

ROWS = 50
ROWS_MAX = 500
PAGE_MAX = 10**7
TEXT_MAX = 255
TIME_MAX_MS = 253_402_300_799_000
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Paging:
    """Which rows of a table a page shows.

    Attributes
    ----------
    sort, descending
        The column to sort by.
    page, rows
        The number of the page, from 1 on, and how many rows it has.
    """

    sort: str
    descending: bool
    page: int
    rows: int

    @classmethod
    def of(
        cls, query: Mapping[str, str], columns: Sequence[str], default: str, *, prefix: str = ""
    ) -> Paging:
        """Read it from an address: `sort=members` or, descending, `sort=-members`.

        Raises
        ------
        QueryError
            The column or page does not exist.
        """
        sort = query.get(f"{prefix}sort") or default
        name = sort.removeprefix("-")
        if name not in columns:
            raise QueryError(f"sort is {name[:TEXT_MAX]!r}: give one of {', '.join(columns)}")
        page = read_number(query, f"{prefix}page", 1, PAGE_MAX) or 1
        rows = read_number(query, "rows", 1, ROWS_MAX) or ROWS
        return cls(name, sort.startswith("-"), page, rows)

    def cut(self, table: pa.Table, *ties: str) -> Page:
        """Return the page of a table; rows that are equal are sorted by `name` or `-name`."""
        names = [name.removeprefix("-") for name in ties]
        orders = ["descending" if name.startswith("-") else "ascending" for name in ties]
        keys = [(self.sort, "descending" if self.descending else "ascending")]
        keys += [tie for tie in zip(names, orders, strict=True) if tie[0] != self.sort]
        last = max(1, -(-len(table) // self.rows))
        page = min(self.page, last)
        first = (page - 1) * self.rows
        until = min(first + self.rows, len(table))
        if until <= ROWS_MAX and until * 4 < len(table):  # a page near the begin needs no full sort
            order_of = pc.select_k_unstable(table, until, sort_keys=keys)
        else:
            order_of = pc.sort_indices(table, sort_keys=keys)
        shown = table.take(order_of[first:until])
        return Page(shown, len(table), first, page, last, self)


@dataclass(frozen=True, slots=True)
class Page:
    """The rows that a page shows, and where they are among all."""

    table: pa.Table
    total: int
    first: int
    number: int
    last: int
    paging: Paging

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as values."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


def read_number(query: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """Return a whole number of an address, None where it has none.

    Raises
    ------
    QueryError
        It is not a number, or out of bounds.
    """
    text = query.get(name)
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(text) > len(str(-most)):
        raise QueryError(f"{name} is {text[:TEXT_MAX]!r}: give a whole number")
    if not least <= int(text) <= most:
        raise QueryError(f"{name} is {text}: give {least} to {most}")
    return int(text)


def read_time(query: Mapping[str, str], name: str) -> datetime:
    """Return a time of an address, which has it in ms since 1970.

    Raises
    ------
    QueryError
        It is not a time.
    """
    ms = read_number(query, name, 0, TIME_MAX_MS)
    if ms is None:
        raise QueryError(f"{name} is missing: give a time in ms since 1970")
    return datetime.fromtimestamp(ms / 1000, UTC)


def contains(table: pa.Table, columns: Sequence[str], text: str) -> pa.Table:
    """Return the rows that have a text in one of some columns, in any case."""
    if not text:
        return table
    found = None
    for name in columns:
        here = pc.fill_null(
            pc.match_substring(table[name], text, ignore_case=True), fill_value=False
        )
        found = here if found is None else pc.or_(found, here)
    return table.filter(found)


def link(path: str, query: Mapping[str, object], **changed: object) -> str:
    """Return an address with some of its words changed; those that are None or "" are left out."""
    words = {**query, **changed}
    kept = {name: str(value) for name, value in words.items() if value not in {None, ""}}
    return f"{path}?{urlencode(kept, errors='surrogatepass')}" if kept else path
