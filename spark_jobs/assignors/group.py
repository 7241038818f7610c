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
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import PARTITIONS_MAX, Ints, Longs, offsets_of
from assignors.parse_tables import NO_TEXT, parse_topics_table
from spark_jobs.session.schemas import select_members, select_topics, small
from spark_jobs.session.work_session import WorkSession


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
    """The subscription classes, on the driver: how many members each has, and its topics."""

    size: Longs
    offsets: Longs
    topics: Ints


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
    """A group whose partitions are rows of frames.

    Attributes
    ----------
    work_session
        The session of its frames.
    topics
        The topics, on the driver.
    """

    work_session: WorkSession
    topics: TopicTable

    @property
    def spark(self) -> SparkSession:
        """The session to work in."""
        return self.work_session.spark


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
