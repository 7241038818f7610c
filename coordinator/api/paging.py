"""Pages of rows: those after the last row of the page before, by the columns that sort them.

So rows that come and go between two requests move no others from one page to the next, and no
request reads again what was shown.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import SpecError
from assignors.arrays import Bools
from coordinator.api.parameters import cut

Key = list[str | int | None]


def cut_page(
    rows: pa.Table, order: Sequence[str], cursor: str | None, limit: int
) -> tuple[pa.Table, str | None]:
    """Return some rows of a sorted table, and the cursor of the next ones; None at the end.

    Parameters
    ----------
    order
        The columns that rows are sorted by, ascending, nulls last: no two rows are alike in them.

    Raises
    ------
    SpecError
        The cursor is not one of this table's.
    """
    if cursor is not None:
        key = _decode(cursor, [rows.schema.field(name).type for name in order])
        rows = rows.filter(pa.array(_find_after(rows, order, key)))
    page = rows.slice(0, limit)
    if len(page) == len(rows):
        return page, None
    last = page.select(list(order)).slice(limit - 1).to_pylist()[0]
    return page, _encode([last[name] for name in order])


def _find_after(rows: pa.Table, order: Sequence[str], key: Key) -> Bools:
    """Return which rows come after a key."""
    after = np.zeros(len(rows), np.bool_)
    equal = np.ones(len(rows), np.bool_)
    for name, value in zip(order, key, strict=True):
        missing = pc.is_null(rows[name]).to_numpy()
        if value is None:  # nothing comes after it
            equal &= missing
            continue
        greater = _compare(pc.greater, rows[name], value) | missing
        after |= equal & greater
        equal &= _compare(pc.equal, rows[name], value)
    return after


def _compare(how: Any, column: pa.ChunkedArray, value: str | int) -> Bools:  # noqa: ANN401 - Arrow's
    found: Bools = pc.fill_null(how(column, pa.scalar(value, column.type)), False).to_numpy()
    return found


def _encode(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _decode(cursor: str, types: Sequence[pa.DataType]) -> Key:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        key = msgspec.json.decode(raw, type=Key)
        for value, kind in zip(key, types, strict=True):
            pa.scalar(value, kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError, pa.ArrowException, OverflowError):
        raise SpecError(
            f"cursor is {cut(cursor)!r}: take it from `next`, or leave it out to begin again"
        ) from None
    return key
