"""Decode rows to records, with errors that name the file."""

from __future__ import annotations

import pyarrow as pa

from coordinator.core.records import Record
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.recovery import RESTORE


def decode_records(rows: pa.Table, path: str) -> list[Record | None]:
    """Return the record of each row; a claim has none.

    Equal texts are shared within these rows only: memory stays bounded.

    Raises
    ------
    CorruptLog
        They are no records.
    NewerLog
        A row is of a kind that this version does not know.
    """
    try:
        return decode_rows(rows, ValueCache())
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise CorruptLog(
            f"{path} is damaged: rows from position {rows['position'][0]} on are no records "
            f"({type(error).__name__}: {error}); {RESTORE}"
        ) from None
