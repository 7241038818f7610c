"""Views whose rows one Python worker computes as Arrow, with `coordinator.history.frame`.

On one machine, with a log of some hundred thousand rows, this is faster than SQL: Spark would plan,
compile and shuffle a query of a dozen steps. The rows are those of the SQL views, which tests
compare, and each query rereads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from coordinator.history.view_schemas import OF_EACH_SHARD, TABLE_SCHEMAS, VIEW_SCHEMAS
from spark_jobs.session.kinds import kind_of

LOG_ROWS_MAX = 1_000_000
"""For a longer log, one worker would need more than a GiB, and more time than Spark's executors."""
BATCH_ROWS = 10_000
TASKS_MAX = 8
"""Of a view of many shards: each starts a worker, and reads its part of them."""
NO_LOG = -1
"""The position of a shard that has had no groups yet."""
_Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def are_readable_here(spark: SparkSession, log_rows: int) -> bool:
    """Whether the session's workers are on this machine and have Muster, and the log is small."""
    return kind_of(spark).has_own_python() and log_rows <= LOG_ROWS_MAX


def newest_positions(spark: SparkSession, stores: Sequence[str]) -> DataFrame:
    """Return a frame of one value, the positions of logs when a query begins to read.

    Spark computes equal subqueries of a query once, so all views of a query that ask for it by
    `DataFrame.scalar` have the same positions in every query.
    """
    read = _position_reader(tuple(stores))
    return spark.range(0, 1, 1, 1).mapInArrow(read, "positions array<bigint>")


def frame_view(
    spark: SparkSession, stores: Sequence[str], view: str, positions: Column
) -> DataFrame:
    """Return a view of a store as a frame, which each query recomputes.

    Parameters
    ----------
    stores
        Its folder, or those of all its shards.
    view
        One of `VIEWS`.
    positions
        An array of the position of each log to read up to, `NO_LOG` for a shard that has none: a
        constant, or the scalar of `newest_positions`.
    """
    schema = from_arrow_schema((VIEW_SCHEMAS | TABLE_SCHEMAS)[view])
    tasks = 1 if view in OF_EACH_SHARD else min(len(stores), TASKS_MAX)
    asked = spark.range(0, tasks, 1, tasks).select("id", positions)
    return asked.mapInArrow(_reader(tuple(stores), view, tasks), schema)


def _position_reader(stores: tuple[str, ...]) -> _Task:
    def position_of(store: str) -> int | None:
        from assignors import SpecError  # noqa: PLC0415 - in the worker
        from coordinator.history.log_reader import LogReader  # noqa: PLC0415 - in the worker
        from coordinator.storage.record_log import LogError  # noqa: PLC0415 - in the worker
        from coordinator.storage.store_claim import has_log  # noqa: PLC0415 - in the worker

        try:
            if len(stores) > 1 and not has_log(store):
                return NO_LOG
            return LogReader(store).position
        except (SpecError, LogError):  # a subquery that fails says nothing: the view does
            return None

    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in rows:  # Spark reuses a worker only if it has read all its input
            pass
        found = [position_of(store) for store in stores]
        yield pa.record_batch({"positions": pa.array([found], pa.list_(pa.int64()))})

    return read


def _reader(stores: tuple[str, ...], view: str, tasks: int) -> _Task:
    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from coordinator.history.frames import frame_pieces  # noqa: PLC0415 - in the worker
        from coordinator.history.log_reader import LogReader  # noqa: PLC0415 - in the worker
        from coordinator.storage.record_log import LogError  # noqa: PLC0415 - in the worker

        ((task, positions),) = [
            (row.column(0)[0].as_py(), row.column(1)[0].as_py()) for row in rows
        ]
        ours = list(zip(stores, positions, strict=True))[task::tasks]
        there = [(store, position) for store, position in ours if position != NO_LOG]
        for store, position in there[:1] if view in OF_EACH_SHARD else there:
            if position is None:
                LogReader(store)
                raise LogError(f"{store} could not be read when the query started: try again")
            for piece in frame_pieces(store, view, as_of=position):
                yield from piece.to_batches(max_chunksize=BATCH_ROWS)

    return read
