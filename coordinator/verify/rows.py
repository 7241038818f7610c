"""Check the rows of the log, a column at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.storage.record_log import CLAIM, CorruptLog
from coordinator.storage.record_schema import FIELDS, NAME_COLUMN, SCHEMA
from coordinator.storage.tables.recovery import RESTORE

Longs: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

ALWAYS = ("coordinator_epoch", "position", "at_ms", "at", "kind", "tombstone")
RANGES = ("target", "assigned", "pending")


REQUIRED = {
    kind: [field.column for field in fields if field.default is None]
    for kind, fields in FIELDS.items()
}
"""The columns that must not be null in a row, by kind."""


def check_columns(rows: pa.Table, path: str) -> None:
    """Refuse unknown columns, wrong types, and nulls where a row's kind needs a value.

    Raises
    ------
    CorruptLog
        The message names the file and the first wrong position.
    """
    for field in rows.schema:
        known = SCHEMA.field(field.name) if field.name in SCHEMA.names else None
        if known is None or not _same_type(field.type, known.type):
            raise CorruptLog(
                f"{path} is damaged: the log has no column {field.name!r} of type {field.type}; "
                f"{RESTORE}"
            )
    for name in ALWAYS:
        if name not in rows.column_names or rows.column(name).null_count:
            raise CorruptLog(f"{path} is damaged: a row has no {name!r}; {RESTORE}")
    at = rows["at_ms"].cast(pa.timestamp("ms", tz="UTC")).cast(SCHEMA.field("at").type)
    _refuse(rows, pc.not_equal(rows["at"], at), path, "columns at and at_ms differ")
    for kind, names in REQUIRED.items():
        of_kind = pc.and_(pc.equal(rows["kind"], kind), pc.invert(rows["tombstone"]))
        _refuse_nulls(rows, of_kind, names, path, f"a record of kind {kind!r}")
    for kind, name in NAME_COLUMN.items():
        ended = pc.and_(pc.equal(rows["kind"], kind), rows["tombstone"])
        _refuse_nulls(rows, ended, [name], path, f"a tombstone of kind {kind!r}")
    for name in RANGES:
        if name in rows.column_names:
            _check_ranges(rows, name, path)


def check_positions(rows: pa.Table, expected: int, path: str) -> None:
    """Refuse rows whose positions do not continue from `expected` without a gap.

    Raises
    ------
    CorruptLog
        The message names the position.
    """
    found = rows["position"].to_numpy()
    wrong = np.flatnonzero(found != np.arange(expected, expected + len(found)))
    if len(wrong):
        at = int(wrong[0])
        raise CorruptLog(
            f"{path}: position {expected + at} is missing, {found[at]} stands in its place: "
            f"{RESTORE}"
        )


def check_epochs(rows: pa.Table, epoch: int, path: str) -> int:
    """Refuse rows of a coordinator that had not claimed the log, or had been fenced.

    Every coordinator starts with a claim, whose epoch is higher than all before.

    Parameters
    ----------
    epoch
        The epoch of the last claim before these rows, 0 without one.

    Returns
    -------
    int
        The epoch of the last row.

    Raises
    ------
    CorruptLog
        The message names the position.
    """
    epochs = rows["coordinator_epoch"].to_numpy()
    claims = pc.equal(rows["kind"], CLAIM).to_numpy()
    before = np.concatenate([[epoch], epochs[:-1]])
    wrong = np.flatnonzero(np.where(claims, epochs <= before, epochs != before))
    if len(wrong):
        at = int(wrong[0])
        what = "claims the log" if claims[at] else "is written"
        raise CorruptLog(
            f"{path}: position {rows['position'][at]} {what} with coordinator epoch {epochs[at]}, "
            f"after epoch {before[at]}: its coordinator had not claimed the log, or had been "
            f"fenced; {RESTORE}"
        )
    return int(epochs[-1]) if len(epochs) else epoch


def _same_type(found: pa.DataType, known: pa.DataType) -> bool:
    """Whether two types are equal, ignoring the names that Parquet gives to list elements."""
    if pa.types.is_list(found) and pa.types.is_list(known):
        return _same_type(found.value_type, known.value_type)
    if pa.types.is_map(found) and pa.types.is_map(known):
        return _same_type(found.key_type, known.key_type) and _same_type(
            found.item_type, known.item_type
        )
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        names = [field.name for field in found.fields]
        same = names == [field.name for field in known.fields]
        pairs = zip(found.fields, known.fields, strict=False)
        return same and all(_same_type(one.type, other.type) for one, other in pairs)
    return bool(found == known)


def _refuse_nulls(
    rows: pa.Table, where: pa.ChunkedArray, names: list[str], path: str, what: str
) -> None:
    for name in names:
        if name in rows.column_names:
            _refuse(rows, pc.and_(where, pc.is_null(rows[name])), path, f"{what} has no {name!r}")
        else:
            _refuse(rows, where, path, f"{what} has no {name!r}")


def _check_ranges(rows: pa.Table, name: str, path: str) -> None:
    """Refuse ranges that have no topic, start before partition 0, or are empty."""
    lists = rows[name].combine_chunks()
    flat = lists.flatten()
    if not len(flat):
        return
    columns = flat.flatten()
    if flat.null_count or any(column.null_count for column in columns):
        raise CorruptLog(f"{path} is damaged: a range in {name!r} is incomplete; {RESTORE}")
    first = flat.field("first_partition").to_numpy().astype(np.int64)
    count = flat.field("partition_count").to_numpy().astype(np.int64)
    if (first < 0).any() or (count < 1).any() or (first + count > np.iinfo(np.int32).max).any():
        raise CorruptLog(f"{path} is damaged: a range in {name!r} is empty or negative; {RESTORE}")


def _refuse(rows: pa.Table, wrong: pa.ChunkedArray, path: str, what: str) -> None:
    if pc.any(wrong).as_py():
        (position,) = rows["position"].filter(wrong).slice(0, 1).to_pylist()
        raise CorruptLog(f"{path} is damaged: {what}, at position {position}; {RESTORE}")
