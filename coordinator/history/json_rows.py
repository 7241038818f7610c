"""The rows of views as JSON values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Row = dict[str, Any]


def to_json_rows(table: pa.Table) -> list[Row]:
    """Convert rows to JSON values: times become text, maps become objects."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, _format_times(table[field.name]))
    rows: list[Row] = table.to_pylist()
    for name in maps:
        for row in rows:
            row[name] = None if row[name] is None else dict(row[name])
    return rows


def _format_times(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Format times as `format_time` does: ISO 8601 in UTC, with milliseconds."""
    plain_times = times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("ms"))
    return pc.strftime(plain_times, format="%Y-%m-%dT%H:%M:%SZ")
