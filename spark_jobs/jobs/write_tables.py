"""Replace the output of a job by the rows of a frame, on a disk or on object storage."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructType

from assignors import SpecError
from coordinator.storage.tables.shared_table import find_data_files, replace_files
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_history import Made, read_history
from coordinator.storage.tables.table_io import RUN_VERSION, BusyError
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.outputs import is_delta_output
from coordinator.table_jobs.parquet_files import join_files
from coordinator.table_jobs.runs import KEY, Run
from spark_jobs.session.object_store import spark_path, write_plain

_REFUSAL = re.compile(r"\[(DELTA_\w+)[.\w]*\] (.+)")
"""What Delta says about a table that it does not write."""
_UNFIT = "DELTA_REPLACE_WHERE_MISMATCH"
"""What it says of rows that a constraint refuses, where a condition replaces all rows."""
_OVERTAKEN = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")


def write_rows(frame: DataFrame, order: Sequence[str], job: AssignmentJob, run: Run) -> int | None:
    """Write the rows in one commit, sorted within each file; return the version of a Delta table.

    Raises
    ------
    SpecError
        Delta does not replace the table, or not by these rows.
    BusyError
        Another program has written it since.
    """
    assert job.output is not None
    rows, output = frame.sortWithinPartitions(*order), job.output
    if is_remote(output):
        return _put(rows, output, job.output_version, run)
    if not is_delta_output(output):
        _replace_file(rows, output, run)
        return None
    with delta_refusals(output):
        _replace_table(frame, order, output, run)
    version = job.output_version + 1
    made = next(read_history(DeltaTable(output, version)))
    check_made_by(made, run, output)
    return version


@contextmanager
def delta_refusals(output: str) -> Iterator[None]:
    """Say in words what Delta says about a table that it does not write.

    Raises
    ------
    SpecError
        It does not replace the table, or not by these rows.
    BusyError
        Another program has written it since.
    """
    try:
        yield
    except Exception as error:
        refusal = _REFUSAL.search(str(error))
        if refusal is None:
            raise
        if refusal[1].startswith(_OVERTAKEN):
            raise BusyError(
                f"{output} was written by another program since this run began: nothing was "
                "replaced; try again"
            ) from None
        why = refusal[2]
        if refusal[1] == _UNFIT:
            why = (
                "a CHECK or NOT NULL of the table refuses rows of the assignment: drop it from the "
                "table, or name another"
            )
        raise SpecError(f"--output {output!r}: nothing was replaced: {why}") from None


def check_made_by(made: Made | None, run: Run, output: str) -> None:
    """Check that a run made a version, to detect others that write without its lock."""
    found = None if made is None else Run.of_json(made.user_metadata)
    if found is None or (found.run_id, found.asked) != (run.run_id, run.asked):
        raise RuntimeError(
            f"{output} was written by another program while this run was: check who writes this "
            "table, and run again"
        )


def _replace_file(rows: DataFrame, output: str, run: Run) -> None:
    """Replace a Parquet file: one, as the local engine writes it, so that either may continue."""
    unfinished = f"{os.path.abspath(output)}.{uuid.uuid4()}"
    try:
        rows.write.parquet(spark_path(unfinished))
        join_files(unfinished, output, {KEY: run.to_json()})
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _replace_table(frame: DataFrame, order: Sequence[str], output: str, run: Run) -> None:
    """Replace the rows of a Delta table, or make it; one that is there keeps its layout."""
    path = os.path.abspath(output)
    there, number = spark_path(path), RUN_VERSION
    layout, partitions = {"partitionOverwriteMode": "static"}, list[str]()
    if DeltaTable.is_deltatable(path):
        number += int(DeltaTable(path).transaction_version(run.run_id) or 0)
        frame, layout, partitions = _keep_layout(frame, there, output)
    writer = frame.sortWithinPartitions(*partitions, *order).write.format("delta")
    if partitions:
        writer = writer.partitionBy(*partitions)
    options = layout | {
        "txnAppId": run.run_id,
        "txnVersion": str(number),  # Delta skips one that it has, also if RESTORE undid that run
        "userMetadata": run.to_json(),
    }
    writer.mode("overwrite").options(**options).save(there)


def _keep_layout(
    frame: DataFrame, there: str, output: str
) -> tuple[DataFrame, dict[str, str], list[str]]:
    """Return the rows in a table's types, how they replace it, and what it is partitioned by.

    Raises
    ------
    SpecError
        The rows lack a column by which it is laid out.
    """
    spark, name = frame.sparkSession, there.replace("`", "``")
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{name}`").collect()
    partitions = list(detail["partitionColumns"])
    clusters = list(detail.asDict().get("clusteringColumns") or [])
    known = spark.read.format("delta").load(there).schema
    fits = _fit(frame.schema, known)
    for column in (*partitions, *clusters):
        if column not in frame.columns or (clusters and not fits):
            raise SpecError(
                f"--output {output!r} is laid out by its column {column!r}, which cannot be kept "
                "with the columns of the assignment: name another output"
            )
    if fits:  # comments and NOT NULL stay, too
        frame = frame.select(*[F.col(at.name).cast(at.dataType) for at in known.fields])
    if clusters:  # Delta forgets them where it replaces a table, but not where it replaces rows
        return frame, {"replaceWhere": "true"}, []
    # a session's default may be to leave partitions as they are that get no rows
    options = {"partitionOverwriteMode": "static"}
    return frame, options if fits else options | {"overwriteSchema": "true"}, partitions


def _fit(rows: StructType, table: StructType) -> bool:
    """Whether a table has the columns of the rows, and types that hold their values."""
    kinds = {field.name: field.dataType for field in table.fields}
    if kinds.keys() != set(rows.names):
        return False
    pairs = [(field.dataType, kinds[field.name]) for field in rows.fields]
    return all(ours == its or (ours, its) == (IntegerType(), LongType()) for ours, its in pairs)


def _put(rows: DataFrame, output: str, seen: int, run: Run) -> int:
    """Write files below the output, then commit them; it is replaced then, or as it was."""
    folder = f"run-{uuid.uuid4().hex}"
    write_plain(rows, f"{output}/{folder}")
    added = find_data_files(output, folder)
    return replace_files(
        output, seen, added, to_arrow_schema(rows.schema), run.run_id, run.to_json()
    )
