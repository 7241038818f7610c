"""A group as DataFrames: members with their class, subscriptions compressed.

This is the twin of `assignors.group_spec`. Classes and topics fit the driver: they are arrays
there, and the same code handles them. Members and ranges stay distributed. Bad input is refused
before anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import PARTITIONS_MAX, Ints, Longs, offsets_of
from assignors.compressed_problem import CompressedProblem
from assignors.materialize import PartitionLine
from assignors.parse_tables import NO_TEXT, parse_topics_table
from spark_jobs.session.schemas import select_members, select_topics, small
from spark_jobs.session.work_session import WorkSession

ORDER = ("dynamic", "instance", "member_id")
"""Member order: static members first by instance id, then by member id."""

MEMBERS = ("key", "class", *ORDER)
"""Columns of members. `key` identifies the member in all other frames: it is a hash of the id, and
checked to be unique in the group. It groups rows faster than text. No result is ordered by it."""

_SEEDS = range(16)


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The topics table, on the driver: sorted by name."""

    names: pa.StringArray
    partitions: Longs

    @classmethod
    def of(cls, frame: DataFrame) -> TopicTable:
        """Read and check the topics.

        Raises
        ------
        SpecError
            A topic is listed twice, has no name, or has an invalid partition count.
        """
        return cls(*parse_topics_table(select_topics(frame).toArrow()))


@dataclass(frozen=True, slots=True)
class Classes:
    """The subscription classes, on the driver, numbered by their first member."""

    size: Longs
    offsets: Longs
    topics: Ints

    @classmethod
    def of(cls, sizes: list[int], lists: list[list[int]]) -> Classes:
        """Concatenate lists of topics."""
        lengths = np.array([len(item) for item in lists], dtype=np.int64)
        flat = np.array([at for item in lists for at in item], dtype=np.int64)
        return cls(np.array(sizes, dtype=np.int64), offsets_of(lengths), flat)

    def take(self, order: list[int]) -> Classes:
        """Renumber the classes: class i becomes the old class `order[i]`."""
        lists = np.split(self.topics, self.offsets[1:-1])
        return Classes.of(self.size[order].tolist(), [lists[at].tolist() for at in order])

    def problem(self, topics: TopicTable) -> CompressedProblem:
        """Return the group's compressed problem."""
        return CompressedProblem.of_classes(self.size, self.offsets, self.topics, topics.partitions)


@dataclass(frozen=True, slots=True)
class LabelledMembers:
    """Members with the number of their subscription: lists of topics are few, but long.

    Attributes
    ----------
    rows
        A frame of member_id, instance_id (nullable) and class, the subscription's number.
    lists
        The subscriptions, each sorted, no two alike; not all need have a member.
    sizes
        How many members have each, if that is known.
    """

    rows: DataFrame
    lists: list[list[str]]
    sizes: list[int] | None = None

    @classmethod
    def of(cls, members: DataFrame | LabelledMembers, topics: TopicTable) -> LabelledMembers:
        """Label a frame of members; those that are labelled stay as they are."""
        return cls.with_claims(members, topics, None)[0]

    @classmethod
    def with_claims(
        cls, members: DataFrame | LabelledMembers, topics: TopicTable, claims: DataFrame | None
    ) -> tuple[LabelledMembers, int]:
        """Label members and count them, and the rows of claims, in one job.

        Raises
        ------
        SpecError
            A member without an id or a subscription, a subscription to an unknown topic.
        """
        if isinstance(members, LabelledMembers):
            return members.counted(claims)
        frame = select_members(members)
        lists, sizes, rows = _collect_lists(frame, topics, claims)
        return cls(_label(frame, lists), lists, sizes), rows

    def counted(self, claims: DataFrame | None = None) -> tuple[LabelledMembers, int]:
        """Return the same with `sizes`, and the number of rows of claims."""
        rows = self.rows.select("class")
        if claims is not None:
            rows = rows.unionAll(claims.select(F.lit(-1).alias("class")))
        count = {row["class"]: row["count"] for row in rows.groupBy("class").count().collect()}
        sizes = [count.get(at, 0) for at in range(len(self.lists))]
        return replace(self, sizes=sizes), count.get(-1, 0)

    def classes(self, topics: TopicTable) -> tuple[Longs, Longs]:
        """Return the lists as offsets and indexes of topics."""
        lengths = np.array([len(names) for names in self.lists], dtype=np.int64)
        flat = pa.array([name for names in self.lists for name in names], pa.string())
        at = pc.index_in(flat, value_set=topics.names)
        return offsets_of(lengths), np.asarray(at, dtype=np.int64)

    def count(self, topics: TopicTable) -> Classes:
        """Return the lists with the number of members that have each."""
        counted = self if self.sizes is not None else self.counted()[0]
        classes = Classes(np.array(counted.sizes, dtype=np.int64), *self.classes(topics))
        _refuse_too_large(topics, classes)
        return classes


def adopt_members(
    work_session: WorkSession, members: DataFrame | LabelledMembers
) -> DataFrame | LabelledMembers:
    """Move the user's members to a session."""
    if isinstance(members, LabelledMembers):
        return replace(members, rows=work_session.adopt(members.rows))
    return work_session.adopt(members)


@dataclass(frozen=True, slots=True)
class FrameGroup:
    """A group whose members and ranges are distributed.

    Attributes
    ----------
    work_session
        The session of its frames.
    topics, classes, problem
        Arrays on the driver.
    members
        A frame of `MEMBERS`, hash-partitioned by key.
    seed
        The seed of the hash that makes the key.
    """

    work_session: WorkSession
    topics: TopicTable
    classes: Classes
    problem: CompressedProblem
    members: DataFrame
    seed: int

    @property
    def spark(self) -> SparkSession:
        """The session to work in."""
        return self.work_session.spark

    @classmethod
    def of(
        cls,
        work_session: WorkSession,
        members: DataFrame | LabelledMembers,
        topics: TopicTable,
        rows: int,
    ) -> FrameGroup:
        """Read members and topics.

        Parameters
        ----------
        rows
            Number of rows of the previous assignment: tasks are sized for both.

        Raises
        ------
        SpecError
            As for `GroupSpec.from_arrow`, or members are others when they are read again.
        """
        labelled = LabelledMembers.of(members, topics)
        classes = labelled.count(topics)
        count = int(classes.size.sum())
        work_session.set_shuffle_parts(
            max(-(-max(count, rows) // work_session.bucket_rows), work_session.tasks)
        )
        kept, seed = _add_keys(work_session, _normalize_members(labelled.rows), count)
        if len(classes.size) > 1:
            kept, classes = _renumber_classes(work_session.spark, kept, classes)
        return cls(work_session, topics, classes, classes.problem(topics), kept, seed)

    def line(self, problem: CompressedProblem) -> PartitionLine:
        """Return the line of all partitions, in the order of topic classes."""
        return PartitionLine.of(problem.topic_class, self.topics.partitions)


def refuse_changed(expected: npt.ArrayLike, found: npt.ArrayLike) -> None:
    """Compare the numbers of members, counted when subscriptions were read and when members were.

    A frame is read for each. To keep its rows for the second time would cost more than to read them
    again: ids and lists of topics, before lists are numbers.

    Raises
    ------
    SpecError
        They differ: members with a subscription that no member had before would be lost.
    """
    if not np.array_equal(expected, found):
        raise SpecError(
            "members: the DataFrame gives other rows each time it is read (as random values do): "
            "cache it, or write it to a table and read that"
        )


def key_of(name: str, seed: int) -> Column:
    """Return the key of a member id."""
    return F.xxhash64(F.lit(seed), F.col(name))


def _normalize_members(members: DataFrame) -> DataFrame:
    """Add the columns of the members' total order."""
    return members.select(
        "member_id",
        F.col("instance_id").isNull().alias("dynamic"),
        F.coalesce("instance_id", F.lit("")).alias("instance"),
        "class",
    )


def _to_set(name: str) -> Column:
    """Return a list of topics sorted, without duplicates."""
    return F.sort_array(F.array_distinct(name))


def _collect_lists(
    members: DataFrame, topics: TopicTable, claims: DataFrame | None
) -> tuple[list[list[str]], list[int], int]:
    """Collect the distinct subscriptions, in any order, and how many members have each.

    The third value is the number of rows of claims, which are counted with them: as a job of its
    own that takes two stages.
    """
    counts = {
        "size": F.lit(1),
        "nameless": F.col("member_id").isNull().cast("int"),
        "unreadable": F.coalesce((~F.is_valid_utf8("member_id")).cast("int"), F.lit(0)),
        "claims": F.lit(0),
    }
    every = members.select("subscribed", *[column.alias(name) for name, column in counts.items()])
    if claims is not None:
        claimed = [F.lit(int(name == "claims")).alias(name) for name in counts]
        nothing = F.lit(None).cast(members.schema["subscribed"].dataType).alias("subscribed")
        every = every.unionAll(claims.select(nothing, *claimed))
    alike = every.groupBy("subscribed").agg(  # first unsorted, so that few lists are sorted
        *[F.sum(name).alias(name) for name in counts]
    )
    rows = alike.groupBy(_to_set("subscribed").alias("subscribed")).agg(
        *[F.sum(name).alias(name) for name in counts]
    )
    known = set(topics.names.to_pylist())
    found = rows.collect()
    for row in found:
        if row["nameless"]:
            raise SpecError("members: column 'member_id' has a null: give every row a value")
        if row["unreadable"]:
            raise SpecError(NO_TEXT.format("members", "member_id"))
        if row["subscribed"] is None and row["size"]:
            raise SpecError("members: column 'subscribed' has a null: give [] for no subscription")
        _refuse_unknown(members, row["subscribed"] or [], known)
    lists = [row for row in found if row["subscribed"] is not None]
    rows = sum(row["claims"] for row in found)
    return [row["subscribed"] for row in lists], [row["size"] for row in lists], rows


def _refuse_unknown(members: DataFrame, names: list[str | None], known: set[str]) -> None:
    for name in names:
        if name is None:
            raise SpecError("members: column 'subscribed' lists a null topic: give topic names")
        if name not in known:
            who = members.where(F.array_contains("subscribed", name)).agg(F.min("member_id"))
            raise SpecError(
                f"member {who.collect()[0][0]!r} subscribes to topic {name!r}, which is not in "
                "topics: add it to topics, or drop the subscription"
            )


def _refuse_too_large(topics: TopicTable, classes: Classes) -> None:
    used = np.unique(classes.topics)
    total = int(topics.partitions[used].sum())
    if total > PARTITIONS_MAX:
        raise SpecError(
            f"the group subscribes to {total} partitions, above the limit of {PARTITIONS_MAX} "
            "(2^30): split the group"
        )


def _label(members: DataFrame, lists: list[list[str]]) -> DataFrame:
    """Replace the subscription by its number."""
    if len(lists) <= 1:
        return members.withColumn("class", F.lit(0)).drop("subscribed")
    labels = {
        "subscribed": pa.array(lists, pa.list_(pa.string())),
        "class": np.arange(len(lists), dtype=np.int32),
    }
    sets = members.withColumn("subscribed", _to_set("subscribed"))
    numbers = small(members.sparkSession, labels)
    return sets.join(numbers, "subscribed", "inner").drop("subscribed")


def _add_keys(work_session: WorkSession, members: DataFrame, count: int) -> tuple[DataFrame, int]:
    """Add keys to members and keep the frame; refuse a duplicate member, or others than `count`."""
    for seed in _SEEDS:
        keyed = members.withColumn("key", key_of("member_id", seed)).select(*MEMBERS)
        kept = work_session.keep(keyed.repartition(work_session.tasks, "key"))
        keys = kept.groupBy("key").count()
        found = keys.agg(F.sum("count").alias("rows"), F.max("count").alias("most")).collect()[0]
        refuse_changed(count, found["rows"] or 0)
        if (found["most"] or 0) <= 1:
            return kept, seed
        again = keys.where("count > 1").drop("count")
        shared = kept.join(again.hint("shuffle_hash"), "key", "left_semi")
        twice = shared.groupBy("member_id").count().where("count > 1")
        name = twice.agg(F.min("member_id")).collect()[0][0]
        if name is not None:
            raise SpecError(f"member {name!r} appears twice: give each member one row")
    raise AssertionError("16 seeds clash: the hash of member ids is broken")


def _renumber_classes(
    spark: SparkSession, members: DataFrame, classes: Classes
) -> tuple[DataFrame, Classes]:
    """Renumber the classes by their first member."""
    head, size = F.min(F.struct(*ORDER)).alias("head"), F.count(F.lit(1)).alias("size")
    heads = members.groupBy("class").agg(head, size).collect()
    sizes = {row["class"]: row["size"] for row in heads}
    refuse_changed(classes.size, [sizes.get(at, 0) for at in range(len(classes.size))])
    order = [row["class"] for row in sorted(heads, key=_by_head)]
    ranks = {
        "class": np.array(order, dtype=np.int32),
        "rank": np.arange(len(order), dtype=np.int32),
    }
    ranked = members.join(small(spark, ranks), "class", "inner")
    return ranked.withColumn("class", F.col("rank")).select(*MEMBERS), classes.take(order)


def _by_head(row: Row) -> tuple[bool, str, str]:
    dynamic, instance, member = row["head"]
    return dynamic, instance, member
