"""Resolve the claims of the previous assignment, and find the gaps between them.

This is the twin of `assignors.prior_ownership`. One pass over the line of partitions finds
partitions without an owner, partitions owned twice, and touching ranges of one member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import Longs
from spark_jobs.assignors.group import MEMBERS, ORDER, FrameGroup, key_of
from spark_jobs.session.schemas import select_owned, small

RANGES = ("key", "class", "topic_index", "first", "count")
"""Columns of resolved ranges. Touching ranges of a member are merged, and no partition is owned
twice."""

_UNKNOWN_TOPIC, _OUTSIDE = 1, 2
_GAP, _OVERLAP, _TOUCH = "gap", "overlap", "touch"
_BUCKET_START, _BUCKET_END = "bucket start", "bucket end"


@dataclass(frozen=True, slots=True)
class ResolvedOwnership:
    """What members own, and which partitions have no owner.

    Attributes
    ----------
    ranges
        A frame of `RANGES`, hash-partitioned by key.
    gaps
        topic_index, first, length: partitions of subscribed topics without an owner. A gap may be
        several touching rows.
    rows, owned
        The number of ranges, and of partitions in them.
    gap_rows, free
        The number of rows of `gaps`, and of partitions in them.
    """

    ranges: DataFrame
    gaps: DataFrame
    rows: int
    owned: int
    gap_rows: int
    free: int


def check_previous(previous: DataFrame, where: str = "owned") -> tuple[DataFrame, int]:
    """Check the columns and values of claims, and count the rows.

    Parameters
    ----------
    where
        The table's name in errors.

    Raises
    ------
    SpecError
        A column is missing, has another type or a null, or a range is invalid.
    """
    claims = select_owned(previous, where)
    null = F.lit(False)
    for name in claims.columns:
        null = null | F.col(name).isNull()
    most = 2**31 - 1
    first, count = F.col("first_partition"), F.col("partition_count")
    wrong = (first < 0) | (count < 1) | (first > most) | (count > most)
    found = claims.agg(
        F.count(F.lit(1)).alias("rows"),
        F.max(null).alias("null"),
        F.max(F.coalesce(wrong, F.lit(False))).alias("wrong"),
    ).collect()[0]
    if found["null"]:
        raise SpecError(f"{where}: a row has a null: give every row all four values")
    if found["wrong"]:
        member, topic, at, size = claims.where(wrong).agg(F.min(F.struct("*"))).collect()[0][0]
        raise SpecError(
            f"{where}: member {member!r}, topic {topic!r} has first_partition {at} and "
            f"partition_count {size}: give a first partition of 0 or more and a count of 1 or more"
        )
    return claims, int(found["rows"])


def resolve_claims(group: FrameGroup, claims: DataFrame) -> ResolvedOwnership:
    """Resolve all claims (docs/design/algorithm.md#prior-ownership).

    Raises
    ------
    SpecError
        A live member claims partitions that do not exist, or a partition twice.
    """
    session, wanted = group.work_session, F.when(F.col("subscribed"), F.col("count"))
    judged, found = session.keep_and_measure(
        _judge_claims(group, claims), rows=F.count(F.lit(1)), fault=F.max("fault"),
        ranges=F.count(wanted), owned=F.sum(wanted),
    )  # fmt: skip
    if found["fault"]:
        _refuse_invalid(group, judged)
    ranges = judged.where("subscribed").select(*RANGES)
    marks = _Line.of(group, found["rows"]).find_marks(ranges)
    sums = {"ranges": F.count(F.lit(1)), "owned": F.sum("count")}
    if marks.found["overlaps"]:
        _refuse_own_overlap(group, judged)
        ranges, found = session.keep_and_measure(_resolve_overlaps(group, ranges), **sums)
    elif marks.has_touching():
        ranges, found = session.keep_and_measure(merge_touching(ranges), **sums)
    pieces, free = marks.found["pieces"], marks.found["free"] or 0
    return ResolvedOwnership(
        ranges, marks.gaps(), found["ranges"], found["owned"] or 0, pieces, free
    )


def _judge_claims(group: FrameGroup, claims: DataFrame) -> DataFrame:
    """Look up members and topics, and mark invalid claims."""
    members = group.members.select("key", "class", F.col("member_id").alias("name"))
    claims = claims.withColumn("key", key_of("member_id", group.seed))
    live = claims.repartition(group.work_session.tasks, "key").join(
        members.hint("shuffle_hash"), "key", "inner"
    )
    known = _add_topics(group, live)
    # This is a column and not a filter: Spark would push a filter into the join, for one shuffle
    # more.
    same = F.col("member_id") == F.col("name")
    end = F.col("first_partition") + F.col("partition_count")
    fault = F.when(same & F.col("topic_index").isNull(), _UNKNOWN_TOPIC).when(
        same & (end > F.col("partitions")), _OUTSIDE
    )
    return known.select(
        "key",
        "class",
        "topic_index",
        F.col("first_partition").cast("int").alias("first"),
        F.col("partition_count").cast("int").alias("count"),
        F.coalesce(fault, F.lit(0)).alias("fault"),
        F.when(fault.isNotNull(), F.col("topic")).alias("topic"),
        (F.col("subscribed") & same).alias("subscribed"),
    )


def _add_topics(group: FrameGroup, claims: DataFrame) -> DataFrame:
    """Add topic_index, partitions, and whether the owner subscribes to the topic."""
    names, classes = group.topics.names, group.classes
    topics: dict[str, npt.ArrayLike] = {
        "topic": names,
        "topic_index": np.arange(len(names), dtype=np.int32),
        "partitions": group.topics.partitions,
    }
    if len(classes.size) <= 1:
        topics["subscribed"] = np.isin(np.arange(len(names)), classes.topics)
        return claims.join(small(group.spark, topics), "topic", "left")
    known = claims.join(small(group.spark, topics), "topic", "left")
    class_ = np.repeat(np.arange(len(classes.size), dtype=np.int32), np.diff(classes.offsets))
    pairs = {
        "class": class_,
        "topic_index": classes.topics.astype(np.int32),
        "subscribed": np.ones(len(class_), dtype=np.bool_),
    }
    return known.join(small(group.spark, pairs), ["class", "topic_index"], "left").fillna(
        value=False, subset=["subscribed"]
    )


def _refuse_invalid(group: FrameGroup, judged: DataFrame) -> None:
    named = judged.where("fault > 0").join(group.members.select("key", "member_id"), "key", "inner")
    row = named.agg(F.min(F.struct("fault", "member_id", "topic", "first", "count", "topic_index")))
    fault, member, topic, first, count, index = row.collect()[0][0]
    if fault == _UNKNOWN_TOPIC:
        raise SpecError(
            f"member {member!r} owns partitions of topic {topic!r}, which is not in topics: "
            "add it, or drop the claim"
        )
    raise SpecError(
        f"member {member!r} owns partition {first + count - 1} of topic {topic!r}, which has "
        f"{int(group.topics.partitions[index])}: correct the claim or the partition count"
    )


def _refuse_own_overlap(group: FrameGroup, judged: DataFrame) -> None:
    order = Window.partitionBy("key", "topic_index").orderBy("first", "count")
    end = F.col("first") + F.col("count")
    again = judged.withColumn("before", F.lag(end).over(order)).where("before > first")
    named = again.join(group.members.select("key", "member_id"), "key", "inner")
    row = named.agg(F.min(F.struct("member_id", "topic_index", "first"))).collect()[0][0]
    if row is not None:
        member, index, first = row
        raise SpecError(
            f"member {member!r} owns partition {first} of topic "
            f"{group.topics.names[index].as_py()!r} twice: its ranges overlap; "
            "give each partition once"
        )


@dataclass(frozen=True, slots=True)
class _LineMarks:
    """The result of one pass over the line; each method returns one kind of rows.

    Attributes
    ----------
    rows
        kind, topic_index, first, length, key. In a row for a gap, first and length are the gap's.
        In a row for a range that begins or ends with its bucket, first is that place, and key the
        member.
    found
        `pieces` and `free`: the number of gaps, and of partitions in them. `overlaps`: how often a
        partition is owned twice. `touching`, `starts`, `ends`: how often ranges of one member touch
        in a bucket, and begin or end with one.
    """

    rows: DataFrame
    found: Mapping[str, Any]

    def gaps(self) -> DataFrame:
        """Return the partitions without an owner: topic_index, first, length."""
        return self._of(_GAP).select("topic_index", "first", "length")

    def has_touching(self) -> bool:
        """Whether two ranges of one member touch, in one bucket or at the end of a bucket."""
        if self.found["touching"]:
            return True
        if not self.found["starts"] or not self.found["ends"]:
            return False
        place = ["topic_index", "first", "key"]
        start = self._of(_BUCKET_START).select(*place)
        end = self._of(_BUCKET_END).select(*place)
        return bool(start.join(end, place, "left_semi").limit(1).count())

    def _of(self, kind: str) -> DataFrame:
        return self.rows.where(F.col("kind") == kind)


@dataclass(frozen=True, slots=True)
class _Line:
    """The partitions of all subscribed topics, each topic cut into buckets of equal width."""

    group: FrameGroup
    width: int
    topic: Longs
    low: Longs
    high: Longs

    @classmethod
    def of(cls, group: FrameGroup, rows: int) -> _Line:
        """Choose the width so that a bucket holds about `WorkSession.bucket_rows` ranges."""
        used = np.flatnonzero(group.problem.topic_class >= 0)
        partitions = group.topics.partitions[used]
        width = max(int(partitions.sum()) * group.work_session.bucket_rows // max(rows, 1), 1)
        buckets = -(-partitions // width)
        topic = np.repeat(used, buckets)
        bucket = np.arange(len(topic)) - np.repeat(np.cumsum(buckets) - buckets, buckets)
        low = bucket * width
        return cls(
            group, width, topic, low, np.minimum(low + width, group.topics.partitions[topic])
        )

    def find_marks(self, ranges: DataFrame) -> _LineMarks:
        """Pass over the line once, bucket by bucket."""
        found = self._cut_into_buckets(ranges).unionByName(self._edges(), allowMissingColumns=True)
        order = Window.partitionBy("topic_index", "bucket").orderBy("from", "until")
        earlier = order.rowsBetween(Window.unboundedPreceding, -1)
        found = found.withColumns(
            {"before": F.max("until").over(earlier), "neighbour": F.lag("key").over(order)}
        )
        low = F.col("bucket") * self.width
        real = F.col("until") > F.col("from")  # not an edge of a bucket
        kind = (
            F.when(F.col("from") > F.col("before"), _GAP)
            .when(real & (F.col("from") < F.col("before")), _OVERLAP)
            .when(real & (F.col("neighbour") == F.col("key")), _TOUCH)
            .when(F.col("starts") & (F.col("from") == low) & (low > 0), _BUCKET_START)
            .when(F.col("ends") & (F.col("until") == low + self.width), _BUCKET_END)
        )
        place = F.when(kind == _GAP, F.col("before")).when(kind == _BUCKET_END, F.col("until"))
        marks = found.withColumn("kind", kind).where("kind is not null").select(
            "kind", "topic_index", F.coalesce(place, F.col("from")).alias("first"),
            (F.col("from") - F.col("before")).alias("length"), "key",
        )  # fmt: skip
        kinds = {"overlaps": _OVERLAP, "touching": _TOUCH, "pieces": _GAP}
        kinds |= {"starts": _BUCKET_START, "ends": _BUCKET_END}
        counts = {name: F.count_if(F.col("kind") == kind) for name, kind in kinds.items()}
        free = F.sum(F.when(F.col("kind") == _GAP, F.col("length")))
        return _LineMarks(*self.group.work_session.keep_and_measure(marks, **counts, free=free))

    def _cut_into_buckets(self, ranges: DataFrame) -> DataFrame:
        """Cut ranges at the ends of buckets.

        Returns
        -------
        DataFrame
            key, topic_index, bucket, from, until (long), and whether the piece starts or ends the
            range.
        """
        end = (F.col("first") + F.col("count")).cast("long")
        first = F.col("first").cast("long")
        buckets = F.sequence(_floor_div(first, self.width), _floor_div(end - 1, self.width))
        cut = ranges.select(
            "key",
            "topic_index",
            first.alias("from"),
            end.alias("until"),
            F.explode(buckets).alias("bucket"),
        )
        low = F.col("bucket") * self.width
        return cut.select(
            "key",
            "topic_index",
            "bucket",
            F.greatest("from", low).alias("from"),
            F.least("until", low + self.width).alias("until"),
            (F.col("from") >= low).alias("starts"),
            (F.col("until") <= low + self.width).alias("ends"),
        )

    def _edges(self) -> DataFrame:
        """Return an empty range at both ends of every bucket, to find gaps there."""
        bucket = self.low // self.width
        return small(
            self.group.spark,
            {
                "topic_index": np.concatenate([self.topic, self.topic]).astype(np.int32),
                "bucket": np.concatenate([bucket, bucket]),
                "from": np.concatenate([self.low, self.high]),
                "until": np.concatenate([self.low, self.high]),
            },
        )


def _floor_div(column: Column, width: int) -> Column:
    return F.floor(column / F.lit(width)).cast("long")


def _resolve_overlaps(group: FrameGroup, ranges: DataFrame) -> DataFrame:
    """Give each partition that is claimed twice to the first of its members in member order.

    Only overlapping ranges are cut into segments; the others pass through.
    """
    rows = ranges.withColumn("until", F.col("first") + F.col("count"))
    line = Window.partitionBy("topic_index").orderBy("first", "until", "key")
    before = F.max("until").over(line.rowsBetween(Window.unboundedPreceding, -1))
    fresh = F.coalesce(F.col("first") >= before, F.lit(True)).cast("int")
    rows = rows.withColumn("fresh", fresh)
    run = F.sum("fresh").over(line.rowsBetween(Window.unboundedPreceding, 0))
    rows = rows.withColumn("run", run)
    whole = Window.partitionBy("topic_index", "run")
    rows = group.work_session.keep(rows.withColumn("crowd", F.count(F.lit(1)).over(whole)))
    owners = group.members.select(*MEMBERS).drop("class").hint("shuffle_hash")
    crowded = rows.where("crowd > 1").join(owners, "key", "inner")
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
        "best.key", "best.class", "topic_index",
        F.col("cut").alias("first"), (F.col("next") - F.col("cut")).alias("count"),
    )  # fmt: skip
    rest = rows.where("crowd = 1").select(*RANGES)
    together = rest.unionByName(won.select(*RANGES))
    return merge_touching(together.repartition(group.work_session.tasks, "key"))


def merge_touching(ranges: DataFrame) -> DataFrame:
    """Merge touching ranges (key, topic_index, first, count) of the same member and topic."""
    order = Window.partitionBy("key").orderBy("topic_index", "first")
    same = F.lag("topic_index").over(order) == F.col("topic_index")
    touches = same & (F.lag(F.col("first") + F.col("count")).over(order) == F.col("first"))
    rows = ranges.withColumn("head", (~F.coalesce(touches, F.lit(False))).cast("int"))
    run = F.sum("head").over(order.rowsBetween(Window.unboundedPreceding, 0))
    keys = [name for name in ranges.columns if name not in ("first", "count")]
    merged = (
        rows.withColumn("run", run)
        .groupBy(*keys, "run")
        .agg(F.min("first").alias("first"), F.sum("count").cast("int").alias("count"))
    )
    return merged.select(*ranges.columns)
