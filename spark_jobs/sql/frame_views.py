"""Views whose rows one Python worker computes as Arrow, with `coordinator.history.frame`.

On one machine, with a log of some hundred thousand rows, this is faster than SQL: Spark would plan,
compile and shuffle a query of a dozen steps. The rows are those of the SQL views, which tests
compare, and each query reads them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from coordinator.history.view_schemas import VIEW_SCHEMAS
from spark_jobs.session.kinds import kind_of

LOG_ROWS_MAX = 1_000_000
"""For a longer log, one worker would need more than a GiB, and more time than Spark's executors."""
BATCH_ROWS = 10_000


def are_readable_here(spark: SparkSession, log_rows: int) -> bool:
    """Whether the session's workers are on this machine and have Muster, and the log is small."""
    return kind_of(spark).has_own_python() and log_rows <= LOG_ROWS_MAX


def frame_view(spark: SparkSession, store: str, view: str, position: int | None) -> DataFrame:
    """Return a view of a store as a frame, which each query computes anew.

    Parameters
    ----------
    store
        Its folder.
    view
        One of `VIEW_SCHEMAS`.
    position
        The position of the log to read up to; None for the newest when a query begins.
    """
    schema = from_arrow_schema(VIEW_SCHEMAS[view])
    return spark.range(0, 1, 1, 1).mapInArrow(_reader(store, view, position), schema)


def _reader(
    store: str, view: str, position: int | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(row: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from coordinator.history import frame  # noqa: PLC0415 - in the worker

        for _ in row:  # Spark reuses a worker only if it has read all its input
            pass
        yield from frame(store, view, as_of=position).to_batches(max_chunksize=BATCH_ROWS)

    return read
