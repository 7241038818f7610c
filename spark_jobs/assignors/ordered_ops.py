"""Running sums over a total order of a DataFrame's rows.

They have two levels. Rows are put into buckets of about `WorkSession.bucket_rows` rows that follow
the order. A window works inside each bucket, and the totals of the buckets before it are a few
numbers on the driver. So no task sorts more than one bucket, and the result does not depend on
where buckets end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.session.work_session import WorkSession

_SAMPLES_PER_BUCKET = 50
_BUCKETS_MAX = 256  # more would make the expression that searches a row's bucket too long


@dataclass(frozen=True, slots=True)
class OrderedFrame:
    """A frame with a column for the bucket: all rows of a bucket come before those of the next."""

    frame: DataFrame
    keys: tuple[str, ...]
    buckets: int

    def window(self) -> Any:  # noqa: ANN401 - pyspark's window builder
        """Return an ordered window over each bucket."""
        return Window.partitionBy("bucket").orderBy(*self.keys)

    def sum_before(self, amount: str) -> Column:
        """Sum each bucket, and return for each row the total of the buckets before its own."""
        if self.buckets == 1:
            return F.lit(0).cast("long")
        rows = self.frame.groupBy("bucket").agg(F.sum(amount).alias("value")).collect()
        values = [0] * self.buckets
        for row in rows:
            values[row["bucket"]] = row["value"] or 0
        before = [0, *accumulate(values)]
        table = F.array(*[F.lit(value).cast("long") for value in before[:-1]])
        return F.get(table, F.col("bucket"))


def order_rows(
    work_session: WorkSession, frame: DataFrame, keys: Sequence[str], rows: int
) -> OrderedFrame:
    """Put rows into buckets by a total order.

    Parameters
    ----------
    keys
        Columns without nulls, in ascending order; together they are unique.
    rows
        The approximate number of rows.
    """
    buckets = min(max(1, -(-rows // work_session.bucket_rows)), _BUCKETS_MAX)
    edges: list[tuple[Any, ...]] = []
    if buckets > 1:
        frame = work_session.keep(frame)
        edges = _find_edges(frame, keys, rows, buckets)
    if edges:
        kinds = [frame.schema[key].dataType for key in keys]
        bucket = _count_edges(edges, 0, len(edges), F.struct(*keys), kinds)
    else:  # 0, but not as a literal, which Spark would drop from a window's keys
        bucket = F.pmod(F.xxhash64(*keys), F.lit(1))
    return OrderedFrame(frame.withColumn("bucket", bucket), tuple(keys), len(edges) + 1)


def add_running_sum(
    work_session: WorkSession,
    frame: DataFrame,
    keys: Sequence[str],
    amount: str,
    into: str,
    rows: int,
) -> DataFrame:
    """Add a column with the sum of `amount` over all earlier rows in the total order."""
    order = order_rows(work_session, frame, keys, rows)
    carried = order.sum_before(amount)
    earlier = order.window().rowsBetween(Window.unboundedPreceding, -1)
    inside = F.coalesce(F.sum(amount).over(earlier), F.lit(0))
    return order.frame.withColumn(into, carried + inside).drop("bucket")


def _find_edges(
    frame: DataFrame, keys: Sequence[str], rows: int, buckets: int
) -> list[tuple[Any, ...]]:
    """Return keys that cut the frame into buckets of about equal size.

    They come from a sample chosen by a hash, so they are the same in every run. No result depends
    on them.
    """
    every = max(rows // (buckets * _SAMPLES_PER_BUCKET), 1)
    sample = frame.select(*keys).where(F.pmod(F.xxhash64(*keys), F.lit(every)) == 0)
    found = sorted({tuple(row) for row in sample.collect()})
    cuts = {len(found) * k // buckets for k in range(1, buckets)}
    return [found[cut] for cut in sorted(cuts) if cut < len(found)]


def _count_edges(
    edges: Sequence[tuple[Any, ...]], low: int, high: int, key: Column, kinds: Sequence[Any]
) -> Column:
    """Return how many edges are at or below the key, as an expression of a binary search."""
    if low == high:
        return F.lit(low)
    middle = (low + high) // 2
    fields = [F.lit(v).cast(kind) for v, kind in zip(edges[middle], kinds, strict=True)]
    return F.when(
        key >= F.struct(*fields), _count_edges(edges, middle + 1, high, key, kinds)
    ).otherwise(_count_edges(edges, low, middle, key, kinds))
