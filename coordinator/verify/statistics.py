"""Check the statistics in data files and commits: readers skip rows by them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.commit_reader import DataFile
from coordinator.storage.tables.recovery import RESTORE


class ColumnSummary(NamedTuple):
    """The least and greatest value of a column (None if all are null), and its number of nulls."""

    least: Any
    greatest: Any
    nulls: int


class FileSummary:
    """The summaries of all columns of one data file, added one row group at a time."""

    def __init__(self) -> None:
        self._found: dict[str, ColumnSummary] = {}

    def add(self, group: pq.RowGroupMetaData, rows: pa.Table, path: str) -> None:
        """Add a row group, and compare the statistics that the file has of it.

        Raises
        ------
        CorruptLog
            The statistics of a column do not match its values.
        """
        found = {name: summary for name in rows.column_names if (summary := _summarize(rows[name]))}
        for at in range(group.num_columns):
            column = group.column(at)
            name, statistics = column.path_in_schema, column.statistics
            if name not in found or statistics is None:
                continue
            extremes = (statistics.min, statistics.max) if statistics.has_min_max else None
            nulls = statistics.null_count if statistics.has_null_count else None
            if not _matches(extremes, nulls, found[name]):
                raise CorruptLog(
                    f"{path} is damaged: its statistics do not match its rows, which have "
                    f"{_format_summary(name, found[name])}; {RESTORE}"
                )
        for name, summary in found.items():
            self._found[name] = _merge(self._found.get(name), summary)

    def compare(self, file: DataFile, path: str) -> None:
        """Compare the statistics that the commit has of the whole file.

        Raises
        ------
        CorruptLog
            The statistics of a column do not match its values.
        """
        statistics = file.statistics
        least, greatest, nulls = (
            found if isinstance(found := statistics.get(name), dict) else {}
            for name in ("minValues", "maxValues", "nullCount")
        )
        for name, found in self._found.items():
            extremes = None
            if name in least or name in greatest:
                extremes = (least.get(name), greatest.get(name))
                if isinstance(found.least, datetime):
                    extremes = (_parse_time(extremes[0]), _parse_time(extremes[1]))
            if not _matches(extremes, nulls.get(name), found):
                raise CorruptLog(
                    f"the statistics that the commits have of {path} do not match its rows, which "
                    f"have {_format_summary(name, found)}: {RESTORE}"
                )


def _summarize(column: pa.ChunkedArray) -> ColumnSummary | None:
    """Return the summary of a column, or None if its type has no statistics."""
    kind = column.type
    known = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_timestamp)
    if not any(of_kind(kind) for of_kind in known):
        return None
    found = pc.min_max(column).as_py()
    return ColumnSummary(found["min"], found["max"], column.null_count)


def _merge(one: ColumnSummary | None, other: ColumnSummary) -> ColumnSummary:
    if one is None:
        return other
    least = [value for value in (one.least, other.least) if value is not None]
    greatest = [value for value in (one.greatest, other.greatest) if value is not None]
    return ColumnSummary(
        min(least, default=None), max(greatest, default=None), one.nulls + other.nulls
    )


def _matches(extremes: tuple[Any, Any] | None, nulls: int | None, found: ColumnSummary) -> bool:
    """Whether statistics match a column. Bounds of strings may be truncated, and so wider."""
    if nulls is not None and nulls != found.nulls:
        return False
    if extremes is None:
        return True
    if isinstance(found.least, str) and all(isinstance(text, str) for text in extremes):
        return bool(extremes[0] <= found.least and found.greatest <= extremes[1])
    return extremes == (found.least, found.greatest)


def _parse_time(text: object) -> object:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return text


def _format_summary(name: str, found: ColumnSummary) -> str:
    return f"{name} from {found.least} to {found.greatest}, with {found.nulls} nulls"
