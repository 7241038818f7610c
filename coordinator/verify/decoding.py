"""Decode rows into records; errors name the file."""

from __future__ import annotations

import pyarrow as pa

from coordinator.core.records import Record
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.recovery import RESTORE


def decode_records(rows: pa.Table, path: str) -> list[Record | None]:
    """Return the record of each row, None for a claim.

    Equal strings are shared within these rows only, so that memory stays bounded.

    Raises
    ------
    CorruptLog
        The rows cannot be decoded.
    NewerLog
        A row has a kind that this version does not know.
    """
    try:
        return decode_rows(rows, ValueCache())
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise CorruptLog(
            f"{path} is damaged: the rows from position {rows['position'][0]} on do not decode "
            f"({type(error).__name__}: {error}); {RESTORE}"
        ) from None
