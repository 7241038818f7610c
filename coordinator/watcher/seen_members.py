"""When members wrote last, as a store says: a watcher that starts again knows it from there."""

from __future__ import annotations

from datetime import timedelta

import pyarrow.compute as pc

from coordinator.core.events import LEAVE_FOR_A_WHILE
from coordinator.core.state.records import CurrentMember, MemberMetadata
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows

ROWS_MAX = 100_000
"""Rows at the end of a log that are looked at."""
COLUMNS = ("position", "at", "kind", "tombstone", "group_id", "member_id", "member_epoch")


def read_seen(store: str, session_ms: int) -> dict[tuple[str, str], int]:
    """Return by group and member when each wrote last, ms since 1970.

    Only those that wrote within a session before the last one: of others, the time tells nothing.
    """
    reading = LogReader(store)
    kinds = [MemberMetadata.kind, CurrentMember.kind]
    rows = LogRows(reading).past(kinds, COLUMNS, max(0, reading.position - ROWS_MAX))
    if not len(rows):
        return {}
    since = pc.max(rows["at"]).as_py() - timedelta(milliseconds=session_ms)
    found: dict[tuple[str, str], int] = {}
    for row in rows.filter(pc.greater_equal(rows["at"], since)).to_pylist():
        key = row["group_id"], row["member_id"]
        if row["tombstone"] and row["kind"] == MemberMetadata.kind:
            found.pop(key, None)
        elif not row["tombstone"] and row["member_epoch"] != LEAVE_FOR_A_WHILE:
            found[key] = round(row["at"].timestamp() * 1000)
    return found
