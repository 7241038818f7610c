"""A group as DataFrames: members numbered, subscriptions compressed, claims settled.

The twin of `assignors.spec`: what fits the driver (classes, topics) is there as arrays and goes
through the same code; members and ranges stay distributed. Bad input is refused whole, before
anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import PARTITIONS_MAX, Ints, Longs, offsets_of
from assignors.expand import Line
from assignors.parse import topics_of_arrow
from assignors.problem import Problem
from spark_jobs.frames import select_members, select_topics, small
from spark_jobs.prefix import BUCKET_ROWS, Scratch

ORDER = ("dynamic", "instance", "member_id")
"""Member order: static members first by instance id, then by member id."""

MEMBERS = ("member_id", "key", "class", *ORDER[:2])
"""Columns of members. `key` is a hash of the id: it groups rows faster than text, and never orders
anything that can be seen."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics table, on the driver: sorted by name."""

    names: pa.StringArray
    partitions: Longs

    @classmethod
    def of(cls, frame: DataFrame) -> Topics:
        """Read and check the topics.

        Raises
        ------
        SpecError
            A topic twice, without a name, or with a partition count that is none.
        """
        return cls(*topics_of_arrow(select_topics(frame).toArrow()))


@dataclass(frozen=True, slots=True)
class Classes:
    """The subscription classes, on the driver, numbered by their first member."""

    size: Longs
    offsets: Longs
    topics: Ints

    def problem(self, topics: Topics) -> Problem:
        """Compress the group."""
        return Problem.of_classes(self.size, self.offsets, self.topics, topics.partitions)


@dataclass(frozen=True, slots=True)
class FrameGroup:
    """A group whose members and ranges are distributed.

    Attributes
    ----------
    spark, scratch
        Where it lives, and what it keeps.
    topics, classes, problem
        On the driver.
    members
        `MEMBERS`, hash-partitioned by member_id into `tasks`.
    member_count, tasks
        Members; and into how many parts frames of members and ranges are cut.
    """

    spark: SparkSession
    scratch: Scratch
    topics: Topics
    classes: Classes
    problem: Problem
    members: DataFrame
    member_count: int
    tasks: int

    @classmethod
    def of(
        cls, spark: SparkSession, scratch: Scratch, members: DataFrame, topics: DataFrame, rows: int
    ) -> FrameGroup:
        """Read members and topics.

        Parameters
        ----------
        rows
            Rows of the previous assignment, which share the cut into tasks.

        Raises
        ------
        SpecError
            As `GroupSpec.from_arrow`.
        """
        known = Topics.of(topics)
        named = _named(select_members(members))
        classes = _classes(named, known)
        count = int(classes.size.sum())
        tasks = max(-(-max(count, rows) // BUCKET_ROWS), spark.sparkContext.defaultParallelism)
        labelled = _labelled(spark, named, classes, known).repartition(tasks, "member_id")
        kept = scratch.keep(labelled)
        _refuse_twice(kept)
        return cls(spark, scratch, known, classes, classes.problem(known), kept, count, tasks)

    def line(self, problem: Problem) -> Line:
        """Lay out all partitions by topic class."""
        return Line.of(problem.topic_class, self.topics.partitions)


def _named(members: DataFrame) -> DataFrame:
    """Bring members into the form of their total order, subscriptions sorted and without repeats."""
    return members.select(
        "member_id",
        F.col("instance_id").isNull().alias("dynamic"),
        F.coalesce("instance_id", F.lit("")).alias("instance"),
        F.sort_array(F.array_distinct("subscribed")).alias("subscribed"),
    )


def _classes(members: DataFrame, topics: Topics) -> Classes:
    """Collect the distinct subscriptions: as many rows as there are classes."""
    found = members.groupBy("subscribed").agg(
        F.count(F.lit(1)).alias("size"), F.min(F.struct(*ORDER)).alias("head")
    )
    rows = sorted(found.collect(), key=_by_head)
    place = {name: at for at, name in enumerate(topics.names.to_pylist())}
    lists: list[list[int]] = []
    for row in rows:
        if row["head"]["member_id"] is None:
            raise SpecError("members: column 'member_id' has a null: give every row a value")
        if row["subscribed"] is None:
            raise SpecError("members: column 'subscribed' has a null: give [] for no subscription")
        lists.append([_place(place, name, row["head"]["member_id"]) for name in row["subscribed"]])
    size = np.array([row["size"] for row in rows], dtype=np.int64)
    offsets = offsets_of(np.array([len(item) for item in lists], dtype=np.int64))
    flat = np.array([at for item in lists for at in item], dtype=np.int64)
    classes = Classes(size, offsets, flat)
    _refuse_too_large(topics, classes)
    return classes


def _by_head(row: Row) -> tuple[bool, str, str]:
    dynamic, instance, member = row["head"]
    return dynamic, instance, member or ""


def _place(place: dict[str, int], topic: str | None, member: str) -> int:
    if topic is None:
        raise SpecError("members: column 'subscribed' lists a null topic: give topic names")
    if topic not in place:
        raise SpecError(
            f"member {member!r} subscribes to topic {topic!r}, which is not in topics: "
            "add it to topics, or drop the subscription"
        )
    return place[topic]


def _refuse_too_large(topics: Topics, classes: Classes) -> None:
    used = np.unique(classes.topics)
    total = int(topics.partitions[used].sum())
    if total > PARTITIONS_MAX:
        raise SpecError(
            f"the group subscribes to {total} partitions, above the limit of {PARTITIONS_MAX} "
            "(2^30): split the group"
        )


def _labelled(
    spark: SparkSession, members: DataFrame, classes: Classes, topics: Topics
) -> DataFrame:
    """Put the class in place of the subscription: `MEMBERS`."""
    if len(classes.size) == 1:
        labelled = members.withColumn("class", F.lit(0))
    else:
        lists = [
            topics.names.take(pa.array(classes.topics[start:end])).to_pylist()
            for start, end in zip(classes.offsets[:-1], classes.offsets[1:], strict=True)
        ]
        labels = {
            "subscribed": pa.array(lists, pa.list_(pa.string())),
            "class": np.arange(len(lists), dtype=np.int32),
        }
        labelled = members.join(small(spark, labels), "subscribed", "inner")
    return labelled.withColumn("key", F.xxhash64("member_id")).select(*MEMBERS)


def _refuse_twice(members: DataFrame) -> None:
    again = members.groupBy("key", "member_id").count().where("count > 1")
    name = again.agg(F.min("member_id")).collect()[0][0]
    if name is not None:
        raise SpecError(f"member {name!r} is there twice: give each member one row")
