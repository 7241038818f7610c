"""Pages of rows by what sorts them, against a list that is cut."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import SpecError
from coordinator.api.paging import cut_page

SCHEMA = pa.schema({"name": pa.string(), "number": pa.int64()})
ORDER = ("name", "number")
NAMES = st.none() | st.text("aé\x00\U0001f600 ", max_size=2)
ROWS = st.lists(st.tuples(NAMES, st.none() | st.integers(-2, 2)), unique=True, max_size=12)


def table(rows):
    made = pa.Table.from_pylist([dict(zip(ORDER, row, strict=True)) for row in rows], SCHEMA)
    return made.sort_by([(name, "ascending") for name in ORDER])


@given(ROWS, st.integers(1, 5), st.integers(0, 12))
def test_pages_have_each_row_once_in_order(rows, limit, gone):
    whole, found, cursor = table(rows), [], None
    while True:
        page, cursor = cut_page(whole, ORDER, cursor, limit)
        found += page.to_pylist()
        assert len(page) <= limit
        if cursor is None:
            break
    assert found == whole.to_pylist()
    # Rows that went away since the page before move no others.
    page, cursor = cut_page(whole, ORDER, None, limit)
    if cursor is not None:
        fewer = table(
            [tuple(row.values()) for at, row in enumerate(whole.to_pylist()) if at != gone]
        )
        later, _ = cut_page(fewer, ORDER, cursor, 100)
        assert later.to_pylist() == [
            row for at, row in enumerate(whole.to_pylist()) if at >= limit and at != gone
        ]


@given(st.text(max_size=20) | st.binary(max_size=20).map(bytes.hex))
def test_a_cursor_that_was_made_up_is_refused_or_read(cursor):
    with suppress(SpecError):
        page, _ = cut_page(table([("a", 1)]), ORDER, cursor, 5)
        assert len(page) < 2


@pytest.mark.parametrize("cursor", ["WyJhIl0", "WyJhIiwiMSJd", "WzEsMV0", "WyJhIiwxLDFd", "bnVsbA", "WyJhIiwxZTk5XQ"])  # fmt: skip
def test_a_cursor_of_another_table_is_refused(cursor):
    with pytest.raises(SpecError, match="take it from"):
        cut_page(table([("a", 1)]), ORDER, cursor, 5)
