"""Views whose rows one Python worker computes as Arrow, with `coordinator.history.frame`.

On one machine, with a log of some hundred thousand rows, this is faster than SQL: Spark would plan,
compile and shuffle a query of a dozen steps. The rows are those of the SQL views, which tests
compare, and each query rereads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from coordinator.history.view_schemas import TABLE_SCHEMAS, VIEW_SCHEMAS
from spark_jobs.session.kinds import kind_of

LOG_ROWS_MAX = 1_000_000
"""For a longer log, one worker would need more than a GiB, and more time than Spark's executors."""
BATCH_ROWS = 10_000
_Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def are_readable_here(spark: SparkSession, log_rows: int) -> bool:
    """Whether the session's workers are on this machine and have Muster, and the log is small."""
    return kind_of(spark).has_own_python() and log_rows <= LOG_ROWS_MAX


def newest_position(spark: SparkSession, store: str) -> DataFrame:
    """Return a frame of one value, the position of a store's log when a query begins to read.

    Spark computes equal subqueries of a query once, so all views of a query that ask for it by
    `DataFrame.scalar` have the same position, whatever the query makes of them.
    """
    return spark.range(0, 1, 1, 1).mapInArrow(_position_reader(store), "position bigint")


def frame_view(spark: SparkSession, store: str, view: str, position: Column) -> DataFrame:
    """Return a view of a store as a frame, which each query recomputes.

    Parameters
    ----------
    store
        Its folder.
    view
        One of `VIEWS`.
    position
        The position of the log to read up to: a constant, or the scalar of `newest_position`.
    """
    schema = from_arrow_schema((VIEW_SCHEMAS | TABLE_SCHEMAS)[view])
    return spark.range(0, 1, 1, 1).select(position).mapInArrow(_reader(store, view), schema)


def _position_reader(store: str) -> _Task:
    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from assignors import SpecError  # noqa: PLC0415 - in the worker
        from coordinator.history.log_reader import LogReader  # noqa: PLC0415 - in the worker
        from coordinator.storage.record_log import LogError  # noqa: PLC0415 - in the worker

        for _ in rows:  # Spark reuses a worker only if it has read all its input
            pass
        try:
            position = LogReader(store).position
        except (SpecError, LogError):  # a subquery that fails says nothing: the view does
            position = None
        yield pa.record_batch({"position": pa.array([position], pa.int64())})

    return read


def _reader(store: str, view: str) -> _Task:
    def read(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from coordinator.history.frames import frame_pieces  # noqa: PLC0415 - in the worker
        from coordinator.history.log_reader import LogReader  # noqa: PLC0415 - in the worker
        from coordinator.storage.record_log import LogError  # noqa: PLC0415 - in the worker

        (position,) = [row.column(0)[0].as_py() for row in rows]
        if position is None:
            LogReader(store)
            raise LogError(f"{store} could not be read when the query started: try again")
        for piece in frame_pieces(store, view, as_of=position):
            yield from piece.to_batches(max_chunksize=BATCH_ROWS)

    return read
