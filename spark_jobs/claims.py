"""Claims of the previous assignment, settled; and the gaps they leave. Twin of `assignors.claims`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import Longs, total_by
from spark_jobs.frames import select_owned, small
from spark_jobs.group import ORDER, FrameGroup
from spark_jobs.prefix import BUCKET_ROWS

RANGES = ("member_id", "key", "class", "topic_index", "first", "count")
"""Columns of settled ranges: canonical within each member, each partition owned once."""

BY_MEMBER = ("key", "member_id")
"""What a window over one member's rows is partitioned by: hash-partitioned frames satisfy it, and
the sort compares numbers first."""

_FINE, _UNKNOWN_TOPIC, _OUTSIDE, _TWICE = range(4)


@dataclass(frozen=True, slots=True)
class Settled:
    """What members own, and what nobody owns.

    Attributes
    ----------
    ranges
        `RANGES`; hash-partitioned by member_id.
    gaps
        topic_index, first, length: partitions of subscribed topics without an owner; a gap may be
        given in several pieces that touch.
    rows
        Ranges, about.
    owned, gap_rows
        Partitions owned; rows of `gaps`.
    free
        (T,) partitions of each topic in `gaps`.
    """

    ranges: DataFrame
    gaps: DataFrame
    rows: int
    owned: int
    gap_rows: int
    free: Longs


def check_previous(previous: DataFrame) -> tuple[DataFrame, int]:
    """Meet the contract of claims; also count them.

    Raises
    ------
    SpecError
        A column is missing, of another type or null; a range is none.
    """
    claims = select_owned(previous)
    null = F.lit(False)
    for name in claims.columns:
        null = null | F.col(name).isNull()
    most = 2**31 - 1
    first, count = F.col("first_partition"), F.col("partition_count")
    wrong = (first < 0) | (count < 1) | (first > most) | (count > most)
    sample = F.struct("member_id", "topic", "first_partition", "partition_count")
    found = claims.agg(
        F.count(F.lit(1)).alias("rows"),
        F.max(null).alias("null"),
        F.min(F.when(wrong, sample)).alias("wrong"),
    ).collect()[0]
    if found["null"]:
        raise SpecError("owned: a row has a null: give every row all four values")
    if found["wrong"]:
        member, topic, at, size = found["wrong"]
        raise SpecError(
            f"owned: member {member!r}, topic {topic!r} has first_partition {at} and "
            f"partition_count {size}: give a first partition of 0 or more and a count of 1 or more"
        )
    return claims, int(found["rows"])


def settle(group: FrameGroup, claims: DataFrame, rows: int) -> Settled:
    """Decide every claim (algorithm.md, 2).

    Raises
    ------
    SpecError
        A live member's claim lies outside its topic, or overlaps another claim of its own.
    """
    judged = _judged(group, claims)
    merged = group.scratch.keep(_merged(judged))
    found = merged.agg(
        F.max("fault").alias("fault"),
        F.sum("count").alias("owned"),
        F.count(F.lit(1)).alias("rows"),
    ).collect()[0]
    if found["fault"]:
        _refuse(judged, group)
    ranges = merged.select(*RANGES)
    gaps, contested = _gaps(group, ranges, found["rows"])
    if contested:
        ranges = group.scratch.keep(_first_in_member_order(group, ranges))
        found = ranges.agg(
            F.sum("count").alias("owned"), F.count(F.lit(1)).alias("rows")
        ).collect()[0]
    sums = gaps.groupBy("topic_index").agg(F.sum("length"), F.count(F.lit(1))).toArrow()
    topic, length, pieces = (column.to_numpy() for column in sums.columns)
    free = total_by(topic, length, len(group.topics.names))
    return Settled(ranges, gaps, found["rows"], found["owned"] or 0, int(pieces.sum()), free)


def _judged(group: FrameGroup, claims: DataFrame) -> DataFrame:
    """Look up members and topics, order each member's claims, and say what is wrong with them."""
    names = group.topics.names
    topics = small(
        group.spark,
        {
            "topic": names,
            "topic_index": np.arange(len(names), dtype=np.int32),
            "partitions": group.topics.partitions,
        },
    )
    members = group.members.select("member_id", "key", "class").hint("shuffle_hash")
    live = claims.repartition(group.tasks, "member_id").join(members, "member_id", "inner")
    known = live.join(topics, "topic", "left")
    first, end = F.col("first_partition"), F.col("first_partition") + F.col("partition_count")
    order = Window.partitionBy(*BY_MEMBER).orderBy("topic_index", "first_partition", "topic")
    before = F.when(
        F.lag("topic_index").over(order) == F.col("topic_index"), F.lag(end).over(order)
    )
    fault = (
        F.when(F.col("topic_index").isNull(), _UNKNOWN_TOPIC)
        .when(end > F.col("partitions"), _OUTSIDE)
        .when(F.coalesce(before > first, F.lit(False)), _TWICE)
        .otherwise(_FINE)
    )
    head = (~F.coalesce(before == first, F.lit(False))).cast("int")
    return _subscribed(group, known).select(
        "member_id",
        "key",
        "class",
        "topic",
        "topic_index",
        first.cast("int").alias("first"),
        F.col("partition_count").cast("int").alias("count"),
        fault.alias("fault"),
        head.alias("head"),
        "subscribed",
    )


def _subscribed(group: FrameGroup, known: DataFrame) -> DataFrame:
    """Add whether the owner still subscribes to the topic."""
    classes = group.classes
    pairs = {"topic_index": classes.topics.astype(np.int32), "subscribed": True}
    if len(classes.size) == 1:
        frame, keys = small(group.spark, _broadcast(pairs)), ["topic_index"]
    else:
        class_ = np.repeat(np.arange(len(classes.size), dtype=np.int32), np.diff(classes.offsets))
        frame = small(group.spark, _broadcast({"class": class_} | pairs))
        keys = ["class", "topic_index"]
    joined = known.join(frame, keys, "left")
    return joined.withColumn("subscribed", F.coalesce("subscribed", F.lit(False)))


def _broadcast(columns: dict[str, object]) -> dict[str, object]:
    """Repeat scalars to the length of the first column."""
    length = len(next(iter(columns.values())))
    return {k: np.full(length, v) if np.isscalar(v) else v for k, v in columns.items()}


def _merged(judged: DataFrame) -> DataFrame:
    """Merge what touches; faulty rows stay, to be seen."""
    order = Window.partitionBy(*BY_MEMBER).orderBy("topic_index", "first")
    run = F.sum("head").over(order.rowsBetween(Window.unboundedPreceding, 0))
    rows = judged.where(F.col("subscribed") | (F.col("fault") > 0)).withColumn("run", run)
    merged = rows.groupBy("key", "member_id", "class", "topic_index", "run").agg(
        F.min("first").alias("first"),
        F.sum("count").cast("int").alias("count"),
        F.max("fault").alias("fault"),
    )
    return merged.select(*RANGES, "fault")


def _refuse(judged: DataFrame, group: FrameGroup) -> None:
    row = judged.where("fault > 0").agg(
        F.min(F.struct("fault", "member_id", "topic", "first", "count", "topic_index"))
    )
    fault, member, topic, first, count, index = row.collect()[0][0]
    if fault == _UNKNOWN_TOPIC:
        raise SpecError(
            f"member {member!r} owns partitions of topic {topic!r}, which is not in topics: "
            "add it, or drop the claim"
        )
    if fault == _OUTSIDE:
        raise SpecError(
            f"member {member!r} owns partition {first + count - 1} of topic {topic!r}, which has "
            f"{int(group.topics.partitions[index])}: correct the claim or the partition count"
        )
    raise SpecError(
        f"member {member!r} owns partition {first} of topic {topic!r} twice: its ranges overlap; "
        "give each partition once"
    )


def _gaps(group: FrameGroup, ranges: DataFrame, rows: int) -> tuple[DataFrame, bool]:
    """Find what nobody owns, bucket by bucket of each topic; tell whether anything is owned twice."""
    used = np.flatnonzero(group.problem.topic_class >= 0)
    partitions = group.topics.partitions[used]
    width = max(int(partitions.sum()) * BUCKET_ROWS // max(rows, 1), 1)
    buckets = -(-partitions // width)
    topic = np.repeat(used, buckets)
    bucket = np.arange(len(topic)) - np.repeat(np.cumsum(buckets) - buckets, buckets)
    low = bucket * width
    high = np.minimum(low + width, group.topics.partitions[topic])
    edges = small(  # an empty range at both ends of every bucket, so that its outer gaps show
        group.spark,
        {
            "topic_index": np.concatenate([topic, topic]).astype(np.int32),
            "bucket": np.concatenate([bucket, bucket]).astype(np.int64),
            "from": np.concatenate([low, high]).astype(np.int64),
            "until": np.concatenate([low, high]).astype(np.int64),
        },
    )
    end = (F.col("first") + F.col("count")).cast("long")
    buckets_of = F.sequence(_div(F.col("first"), width), _div(end - 1, width))
    cut = ranges.select("topic_index", "first", "count", F.explode(buckets_of).alias("bucket"))
    pieces = cut.select(
        "topic_index",
        "bucket",
        F.greatest(F.col("first").cast("long"), F.col("bucket") * width).alias("from"),
        F.least(end, (F.col("bucket") + 1) * width).alias("until"),
    )
    order = Window.partitionBy("topic_index", "bucket").orderBy("from", "until")
    before = F.max("until").over(order.rowsBetween(Window.unboundedPreceding, -1))
    found = pieces.unionByName(edges).withColumn("before", before)
    gap = F.col("from") > F.col("before")
    lap = (F.col("from") < F.col("before")) & (F.col("until") > F.col("from"))
    marked = group.scratch.keep(
        found.where(gap | lap).select(
            "topic_index",
            F.col("before").alias("first"),
            (F.col("from") - F.col("before")).alias("length"),
        )
    )
    contested = bool(marked.where("length < 0").limit(1).count())
    return marked.where("length > 0"), contested


def _div(column: Column, width: int) -> Column:
    return F.floor(column / F.lit(width)).cast("long")


def _first_in_member_order(group: FrameGroup, ranges: DataFrame) -> DataFrame:
    """Give each partition claimed twice to the first member in order.

    Only runs of overlapping ranges are cut into segments; the rest passes through.
    """
    rows = ranges.withColumn("until", F.col("first") + F.col("count"))
    line = Window.partitionBy("topic_index").orderBy("first", "until", "member_id")
    before = F.max("until").over(line.rowsBetween(Window.unboundedPreceding, -1))
    fresh = F.coalesce(F.col("first") >= before, F.lit(True)).cast("int")
    rows = rows.withColumn("fresh", fresh)
    run = F.sum("fresh").over(line.rowsBetween(Window.unboundedPreceding, 0))
    rows = rows.withColumn("run", run)
    whole = Window.partitionBy("topic_index", "run")
    rows = group.scratch.keep(rows.withColumn("crowd", F.count(F.lit(1)).over(whole)))
    crowded = rows.where("crowd > 1").join(
        group.members.select(*ORDER).hint("shuffle_hash"), "member_id", "inner"
    )
    ends = crowded.select("topic_index", "run", F.explode(F.array("first", "until")).alias("cut"))
    cuts = Window.partitionBy("topic_index", "run").orderBy("cut")
    segments = (
        ends.distinct().withColumn("next", F.lead("cut").over(cuts)).where("next is not null")
    )
    covering = crowded.join(segments, ["topic_index", "run"], "inner").where(
        "cut >= first and cut < until"
    )
    best = F.min(F.struct(*ORDER, "key", "class")).alias("best")
    won = covering.groupBy("topic_index", "run", "cut", "next").agg(best).select(
        "best.member_id", "best.key", "best.class", "topic_index",
        F.col("cut").alias("first"), (F.col("next") - F.col("cut")).alias("count"),
    )  # fmt: skip
    rest = rows.where("crowd = 1").select(*RANGES)
    return touching_merged(rest.unionByName(won.select(*RANGES)), group.tasks)


def touching_merged(ranges: DataFrame, tasks: int) -> DataFrame:
    """Merge touching ranges of the same member and topic."""
    order = Window.partitionBy(*BY_MEMBER).orderBy("topic_index", "first")
    same = F.lag("topic_index").over(order) == F.col("topic_index")
    touches = same & (F.lag(F.col("first") + F.col("count")).over(order) == F.col("first"))
    rows = ranges.repartition(tasks, "member_id").withColumn(
        "head", (~F.coalesce(touches, F.lit(False))).cast("int")
    )
    run = F.sum("head").over(order.rowsBetween(Window.unboundedPreceding, 0))
    keys = [name for name in ranges.columns if name not in ("first", "count")]
    merged = (
        rows.withColumn("run", run)
        .groupBy(*keys, "run")
        .agg(F.min("first").alias("first"), F.sum("count").cast("int").alias("count"))
    )
    return merged.select(*ranges.columns)
