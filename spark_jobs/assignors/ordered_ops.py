"""Totally ordered operations on DataFrames: running sums, merging of neighbours, overlays.

Every operation has two levels. Rows are put into buckets of about `WorkSession.bucket_rows` rows
that follow the order. A window works inside each bucket, and the totals of the buckets before it
are a few numbers on the driver. So no task sorts more than one bucket, and the result does not
depend on where buckets end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

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

    def sum_before(self, per_bucket: Column, combine: str) -> Column:
        """Aggregate each bucket, and return for each row the total of the buckets before its own.

        Parameters
        ----------
        per_bucket
            An aggregate of a bucket, an integer.
        combine
            "sum" or "max" over buckets; 0 or null before the first.
        """
        if self.buckets == 1:
            return F.lit(0 if combine == "sum" else None).cast("long")
        rows = self.frame.groupBy("bucket").agg(per_bucket.alias("value")).collect()
        values: list[int | None] = [None] * self.buckets
        for row in rows:
            values[row["bucket"]] = row["value"]
        before: list[int | None] = [None, *accumulate(values, _max)]
        if combine == "sum":
            before = [0, *accumulate(value or 0 for value in values)]
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
    carried = order.sum_before(F.sum(amount), "sum")
    earlier = order.window().rowsBetween(Window.unboundedPreceding, -1)
    inside = F.coalesce(F.sum(amount).over(earlier), F.lit(0))
    return order.frame.withColumn(into, carried + inside).drop("bucket")


def join_neighbours(work_session: WorkSession, frame: DataFrame, rows: int) -> DataFrame:
    """Merge touching intervals (`at`, `length`) of a line; other columns get their minimum."""
    order = order_rows(work_session, frame, ["at"], rows)
    end = F.col("at") + F.col("length")
    carried = order.sum_before(F.max(end), "max")
    before = F.coalesce(F.lag(end).over(order.window()), carried)
    head = (~F.coalesce(before == F.col("at"), F.lit(False))).cast("long")
    heads = OrderedFrame(order.frame.withColumn("head", head), order.keys, order.buckets)
    upto = order.window().rowsBetween(Window.unboundedPreceding, 0)
    run = heads.sum_before(F.sum("head"), "sum") + F.sum("head").over(upto)
    others = [F.min(name).alias(name) for name in frame.columns if name != "length"]
    merged = heads.frame.withColumn("run", run).groupBy("run")
    return merged.agg(*others, F.sum("length").alias("length")).select(*frame.columns)


def lay_beside(
    work_session: WorkSession, left: DataFrame, right: DataFrame, total: int, rows: int
) -> DataFrame:
    """Intersect two frames of intervals on a line, and return the pieces that both cover.

    Parameters
    ----------
    left, right
        `at`, `length`, and other columns: intervals on [0, total), disjoint within each frame.
    rows
        The approximate number of intervals.

    Returns
    -------
    DataFrame
        One row per piece: structs `left` and `right` with the columns of its two intervals,
        `left_offset` and `right_offset`, where the piece begins within them, and `count`, its
        length.
    """
    buckets = min(max(1, -(-rows // work_session.bucket_rows)), max(total, 1))
    width = max(-(-total // buckets), 1)
    events = _cut_pieces(left, "left", "right", right, width).unionByName(
        _cut_pieces(right, "right", "left", left, width)
    )
    events = events.groupBy("bucket", "from").agg(
        F.max("left").alias("left"), F.max("right").alias("right")
    )
    order = Window.partitionBy("bucket").orderBy("from")
    upto = order.rowsBetween(Window.unboundedPreceding, 0)
    events = events.select(
        "from",
        F.lead("from").over(order).alias("next"),
        F.max("left")
        .over(upto)
        .alias("left"),  # the last one, as intervals are sorted by their start
        F.max("right").over(upto).alias("right"),
    )
    until = F.least("next", "left.until", "right.until")
    covered = F.col("left").isNotNull() & F.col("right").isNotNull()
    return events.where(covered & (until > F.col("from"))).select(
        "left",
        "right",
        (F.col("from") - F.col("left.at")).alias("left_offset"),
        (F.col("from") - F.col("right.at")).alias("right_offset"),
        (until - F.col("from")).alias("count"),
    )


def _cut_pieces(
    frame: DataFrame, own: str, other: str, other_frame: DataFrame, width: int
) -> DataFrame:
    """Cut intervals at bucket ends: bucket, start of the piece, and its interval as a struct."""
    end = F.col("at") + F.col("length")
    first, last = _floor_div(F.col("at"), width), _floor_div(end - 1, width)
    cut = frame.where(F.col("length") > 0).withColumn("bucket", F.explode(F.sequence(first, last)))
    start = F.greatest(F.col("at"), F.col("bucket") * width)
    until = F.least(end, (F.col("bucket") + 1) * width)
    fields: list[Column | str] = [start.alias("from"), until.alias("until"), *frame.columns]
    nothing = F.lit(None).cast(_struct_type(other_frame))
    return cut.select(
        "bucket", start.alias("from"), F.struct(*fields).alias(own), nothing.alias(other)
    )


def _struct_type(frame: DataFrame) -> T.StructType:
    ends = [T.StructField(name, T.LongType()) for name in ("from", "until")]
    return T.StructType(ends + [T.StructField(f.name, f.dataType) for f in frame.schema.fields])


def _floor_div(column: Column, width: int) -> Column:
    """Divide non-negative integers, rounding down."""
    return F.floor(column / F.lit(width)) if width > 1 else column


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


def _max(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)
