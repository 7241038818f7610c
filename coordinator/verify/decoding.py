"""Decode rows into records, and compare them with their copies; errors name the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from coordinator.core.state.member_rows import CurrentRows, MemberRows, RecordRows, TargetRows
from coordinator.core.state.records import Record
from coordinator.storage.record_decoder import (
    LONG,
    ValueCache,
    decode_rows,
    decode_run,
    find_runs,
    read_copy,
)
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.recovery import RESTORE

T = TypeVar("T")


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
    return _decode(decode_rows, rows, path)


def decode_runs(
    rows: pa.Table, path: str, long: int = LONG
) -> Iterator[RecordRows | list[Record | None]]:
    """Yield the records of rows, in order: those of very many members of a group as columns.

    Parameters
    ----------
    long
        So many rows of one kind, written at one moment, are worth columns.

    Raises
    ------
    CorruptLog, NewerLog
        As for `decode_records`.
    """
    at = 0
    for first, end in find_runs(rows, long):
        found = _decode(decode_run, rows.slice(first, end - first), path)
        if isinstance(found, MemberRows | TargetRows | CurrentRows):
            if at < first:
                yield decode_records(rows.slice(at, first - at), path)
            yield found
            at = end
    if at < len(rows):
        yield decode_records(rows.slice(at), path)


def _decode(decode: Callable[[pa.Table, ValueCache], T], rows: pa.Table, path: str) -> T:
    try:
        return decode(rows, ValueCache())
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise CorruptLog(
            f"{path} is damaged: the rows from position {rows['position'][0]} on do not decode "
            f"({type(error).__name__}: {error}); {RESTORE}"
        ) from None


def check_copy(copy: str, rows: pa.Table, path: str) -> None:
    """Compare the copy that a commit has of the rows of its file with all of them.

    A copy of another version of Muster is passed over, as coordinators do.

    Raises
    ------
    CorruptLog
        They differ.
    """
    wrong = f"the copy that its commit has of the rows of {path} is damaged"
    try:
        found = read_copy(copy)
    except ValueError as error:
        raise CorruptLog(f"{wrong}: {error}; {RESTORE}") from None
    if found is None:
        return
    first, last = (rows["position"][at].as_py() for at in (0, -1))
    expected = [(first, last), {found.at_ms}, {found.epoch}, found.records]
    there = [set(rows[name].to_pylist()) for name in ("at_ms", "coordinator_epoch")]
    if expected != [(found.position, found.last), *there, decode_records(rows, path)]:
        raise CorruptLog(f"{wrong}: it says other records than the file; {RESTORE}")
