"""The page of what is wrong with groups: the findings of `muster doctor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.display.times import format_time
from coordinator.history.findings import (
    LEVELS,
    Finding,
    Limits,
    examine,
    find_end,
    join_findings,
)
from coordinator.history.findings.limits import parse_length
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import parse_as_of
from coordinator.web.access import Viewer
from coordinator.web.errors import NoGroupError, QueryError
from coordinator.web.pages import Pages, Query, Values, find_group, head, is_past, kept_words
from coordinator.web.paging import ROWS, ROWS_MAX, TEXT_MAX
from coordinator.web.store_reader import Look

WINDOW = "1h"
WINDOWS = ("15m", "1h", "6h", "1d", "7d")
LOOK_MS = 10_000
"""How long it is kept what was found: more and more is too long ago."""
RANGE = ("first_partition", "last_partition", "partition_count", "topic_id")


class DoctorPage:
    """The page of findings. Queries and values are as those of `Pages`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def doctor(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the page: what is wrong with the groups that one may see."""
        group_id = find_group(query, viewer) if query.get("id") else None
        window = query.get("window") or WINDOW
        window_ms = parse_length("window", window[:TEXT_MAX])
        only = query.get("only", "")
        if only and only not in LEVELS:
            raise QueryError(f"only is {only[:TEXT_MAX]!r}: give one of {', '.join(LEVELS)}")
        if group_id is None:
            looks = self._pages.look_at_all(query)
        else:
            looks = [self._pages.look(query, group_id)]
            if not looks[0].has_group(group_id):
                raise NoGroupError(group_id)
        parts = [self._examine(one, query, group_id, window_ms) for one in looks]
        found = parts[0][0] if len(parts) == 1 else join_findings(rows for rows, _ in parts)
        until_ms = max((until for _, until in parts), default=self._pages.now_ms())
        seen = [(one, _see(one.rows, viewer)) for one in found if only in ("", one.name)]
        return self._pages.base(*looks) | {
            "group_id": group_id, "window": window, "windows": WINDOWS, "until_ms": until_ms,
            "only": only, "findings": [_show(one, rows) for one, rows in seen if len(rows)],
            "names": list(LEVELS), "rows_max": ROWS, "past": is_past(query),
            "query": kept_words(query, "id", "at", "at_ms", "window", "only"),
        }  # fmt: skip

    def _examine(
        self, look: Look, query: Query, group_id: str | None, window_ms: int
    ) -> tuple[list[Finding], int]:
        asked = None
        if is_past(query):
            at = query.get("at")
            asked = parse_as_of(at[:TEXT_MAX], "at") if at else look.reading.position
        now_ms = find_end(look.reading, asked, self._pages.now_ms() // LOOK_MS * LOOK_MS)
        limits = Limits(window_ms=window_ms, retention_ms=self._pages.retention_ms)
        key = ("findings", window_ms, now_ms)

        def work() -> list[Finding]:
            return examine(look.rows(group_id), now_ms, limits)

        return look.once(group_id, key, work, followed=False), now_ms


def _see(rows: pa.Table, viewer: Viewer) -> pa.Table:
    """Return the rows of groups and topics that one may see."""
    if viewer.access.acls is None:
        return rows
    rows = _keep(rows, "group_id", viewer.sees)
    if "topic" not in rows.column_names:
        return rows
    return _keep(rows, "topic", lambda topic: viewer.sees_topics([topic]))


def _show(found: Finding, rows: pa.Table) -> Values:
    """Return what the page says of a finding."""
    head = {"finding": found.name, "level": found.level.value, "title": found.title}
    return head | {"rows": rows, "columns": _list_columns(rows), "cells": _list_cells(rows)}


def _keep(rows: pa.Table, name: str, sees: Callable[[str], bool]) -> pa.Table:
    """Return the rows whose value one may see; each value is asked for once."""
    known = [one for one in pc.unique(rows[name]).to_pylist() if sees(one)]
    mask = pc.is_in(rows[name], value_set=pa.array(known, pa.string()))
    return rows.filter(mask)


def _list_columns(rows: pa.Table) -> list[str]:
    """Return the columns to show: ranges are one, and what no row has is left out."""
    names = [name for name in rows.column_names if name not in RANGE]
    some = [name for name in names if _has_values(rows[name])]
    if RANGE[0] in rows.column_names:
        some.insert(some.index("topic") + 1, "partitions")
    return some


def _has_values(column: pa.ChunkedArray) -> bool:
    if pa.types.is_string(column.type):
        return bool(pc.any(pc.not_equal(column, "")).as_py())
    return bool(np.any(pc.is_valid(column).to_numpy()))


def _list_cells(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the first rows, each with its range as a text."""
    found: list[dict[str, Any]] = rows.slice(0, ROWS).to_pylist()
    for row in found:
        if RANGE[0] in row:
            first, last = row["first_partition"], row["last_partition"]
            row["partitions"] = str(first) if first == last else f"{first}–{last}"  # noqa: RUF001
    return found


def doctor_json(values: Values) -> Values:
    """Return the findings as JSON values."""
    findings = [
        {name: one[name] for name in ("finding", "level", "title")}
        | {"total": len(one["rows"]), "rows": to_json_rows(one["rows"].slice(0, ROWS_MAX))}
        for one in values["findings"]
    ]
    until = {"window": values["window"], "until": format_time(values["until_ms"])}
    return head(values) | until | {"findings": findings}
