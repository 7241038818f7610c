"""Write the batches of a stream from the driver that owns their partitions, each row once."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import functions as F
from pyspark.sql import types as T

from coordinator import ExactlyOnceTable, GroupError, TopicPartition
from coordinator.member.exactly_once import TRIES_MAX, Owner
from coordinator.storage.tables.protocol import FEATURES_APPENDED, find_unwritten
from coordinator.storage.tables.store_files import ELSEWHERE
from spark_jobs.jobs.batch_rows import fit_rows, refuse_odd_place, refuse_unnamed
from spark_jobs.session.object_store import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Bounds: TypeAlias = dict[TopicPartition, tuple[int, int]]


def foreach_partition_owner(
    member: Owner,
    table: str | Path,
    *,
    topic: str = "topic",
    partition: str = "partition",
    offset: str = "offset",
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends batches to a Delta table, each row once.

    >>> write = foreach_partition_owner(member, "output")  # doctest: +SKIP
    >>> stream.writeStream.foreachBatch(write).start().awaitTermination()  # doctest: +SKIP

    Executors write a batch's files; one commit adds them, with Delta's transaction for each
    partition: `txnAppId` is the group and the partition, `txnVersion` its last offset. Rows that
    are in the table are left out, so a batch may run again, here or in another driver. The driver
    collects a row for each partition of the batch, and no more.

    Parameters
    ----------
    member
        The `Member` of this driver.
    table
        The Delta table, on a file system that this machine and the executors mount; the first
        batch makes it. It has no partition columns and no NOT NULL.
    topic, partition, offset
        The columns that say where a row is from, as those of Spark's Kafka source: a string and
        integers. Offsets grow within a partition, from 0; the table need not have these columns,
        but all others of the batch.

    Returns
    -------
    function
        Takes a DataFrame and the batch's number. It raises Fenced if the member does not own a
        partition with new rows: restart the stream with those that it owns. ValueError: the rows,
        or the table, cannot be written like that.

    Raises
    ------
    ValueError
        The table is a URL, or has a character in its path that Delta would read otherwise.
    """
    path = str(table)
    if "://" in path:
        raise ValueError(f"table is {path!r}: give a folder: files are added to it by name")
    if odd := ELSEWHERE.search(os.path.abspath(path)):
        raise ValueError(
            f"table is {path!r}, which has {odd[0]!r} in its path, and Delta would take that for "
            "another path: give another folder"
        )
    columns = [topic, partition, offset]

    def write_batch(rows: DataFrame, _number: int) -> None:
        refuse_odd_place(rows, columns)
        rows = rows.persist()
        try:
            bounds = _find_bounds(rows, columns)
            if bounds:
                _make_table(rows, path)
                out = ExactlyOnceTable(member, path)
                _write(out, path, rows, columns, bounds)
                ends = {place: last + 1 for place, (_, last) in bounds.items()}
                member.commit_later({p: end for p, end in ends.items() if p in member.owned})
        finally:
            rows.unpersist()

    return write_batch


def _find_bounds(rows: DataFrame, columns: list[str]) -> Bounds:
    """Return the first and the last offset of each partition in a batch."""
    topic, partition, offset = columns
    count = F.count(F.when(F.col(offset).isNotNull(), 1))
    found = rows.groupBy(topic, partition).agg(F.min(offset), F.max(offset), F.count("*") - count)
    bounds: Bounds = {}
    for name, number, first, last, nulls in found.collect():
        if name is None or number is None or nulls:
            raise ValueError(
                f"{nulls or 'some'} rows of {name}-{number} have no {', '.join(columns)}: a row "
                "without its place cannot be written once"
            )
        if first < 0:
            raise ValueError(
                f"{name}-{number} has {first} in column {offset}: offsets begin at 0, and a row "
                "before that cannot be written once; leave it out, or renumber the rows"
            )
        bounds[TopicPartition(name, int(number))] = int(first), int(last)
    return bounds


def _make_table(rows: DataFrame, path: str) -> None:
    """Make the table unless it is there; refuse one that plain files cannot be added to.

    It is made as plain as Delta has it: a session may have defaults by which Spark would make one
    that is refused, and drivers that start together would be in each other's way.
    """
    if not DeltaTable.is_deltatable(path):
        refuse_unnamed(rows)
        try:
            DeltaTable.create(path, Schema.from_json(_nullable(rows.schema).json()), mode="ignore")
        except DeltaError:
            if not DeltaTable.is_deltatable(path):  # another driver did not make it either
                raise
    table = DeltaTable(path)
    asked = find_unwritten(table, FEATURES_APPENDED)
    parted = table.metadata().partition_columns
    filled = [field.name for field in table.schema().fields if not field.nullable]
    for wrong in (
        asked and f"it asks for {asked}",
        parted and f"it has partition columns ({', '.join(parted)})",
        filled and f"it has columns that are NOT NULL ({', '.join(filled)})",
    ):
        if wrong:
            raise ValueError(f"{path} cannot be written exactly once: {wrong}; give another table")


def _nullable(kind: Any) -> Any:  # noqa: ANN401 - a type of Spark's
    """Return a type as Spark's writer makes it: with a null everywhere."""
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(f.name, _nullable(f.dataType), True, f.metadata) for f in kind]
        )
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def _write(
    out: ExactlyOnceTable, path: str, rows: DataFrame, columns: list[str], bounds: Bounds
) -> None:
    """Write what is not in the table yet, as often as another writer comes first."""
    for _ in range(TRIES_MAX):
        positions = out.positions(bounds)
        out.warn_of_lost({place: first for place, (first, _) in bounds.items()})
        new = {place: last for place, (_, last) in bounds.items() if last >= positions[place]}
        if not new:
            return
        out.refuse_foreign(new)
        whole = all(first >= positions[place] for place, (first, _) in bounds.items())
        wanted = rows if whole else _leave_out(rows, columns, positions)
        fitting = fit_rows(wanted, _columns_of(out), path, columns)
        if _write_and_commit(out, path, fitting, new):
            return
    raise TimeoutError(
        f"other writers of {path} committed first, {TRIES_MAX} times in a row: try again later"
    )


def _leave_out(
    rows: DataFrame, columns: list[str], positions: Mapping[TopicPartition, int]
) -> DataFrame:
    """Return the rows that the table does not have."""
    topic, partition, offset = columns
    at = rows.sparkSession.createDataFrame(
        [(name, number, position) for (name, number), position in positions.items()],
        "_topic string, _partition int, _position long",
    )
    same = (rows[topic] == at["_topic"]) & (rows[partition] == at["_partition"])
    joined = rows.join(F.broadcast(at), same, "inner").where(rows[offset] >= at["_position"])
    return joined.drop("_topic", "_partition", "_position")


def _columns_of(out: ExactlyOnceTable) -> T.StructType:
    """Return the columns of the table, without asking Delta on Spark, which takes longer."""
    columns: T.StructType = T.StructType.fromJson(json.loads(out.schema().to_json()))
    return columns


def _write_and_commit(
    out: ExactlyOnceTable, path: str, rows: DataFrame, new: Mapping[TopicPartition, int]
) -> bool:
    """Write rows and add them; False when another writer came first.

    Files that are surely in no commit are removed. What may be in one, VACUUM removes if it is not.
    """
    folder = os.path.join(path, str(uuid.uuid4()))
    in_commit = False
    try:
        files = _write_files(rows, path, folder)
        in_commit = True  # it may be, if the commit fails
        in_commit = out.commit_files(files, {place: last + 1 for place, last in new.items()})
    except GroupError:  # refused before the commit
        in_commit = False
        raise
    finally:
        if not in_commit:
            shutil.rmtree(folder, ignore_errors=True)
    return in_commit


def _write_files(rows: DataFrame, path: str, folder: str) -> list[AddAction]:
    """Write rows, and return the files."""
    rows.write.parquet(spark_path(folder))
    found = []
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        if not name.endswith(".parquet"):
            continue
        count, seen = pq.read_metadata(file).num_rows, os.stat(file)
        if count == 0:
            os.remove(file)
            continue
        relative, at_ms = os.path.relpath(file, path), int(seen.st_mtime * 1_000)
        stats = json.dumps({"numRecords": count})
        found.append(AddAction(relative, seen.st_size, {}, at_ms, data_change=True, stats=stats))
    return found
