"""Members with a label in place of their subscription: lists of topics are few, but long.

The label is a hash that Spark computes of each row. The driver, which reads every list with its
labels once, knows which class a label stands for; so no row is joined with the lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assignors import SpecError
from assignors.arrays import Ints, Longs, sum_by
from assignors.blocks.read_members import Labels
from assignors.parse import refuse_unknown_topic
from assignors.parse_tables import NO_TEXT, get_string_lists, parse_topics_table
from spark_jobs.assignors.group import Classes, TopicTable, refuse_too_large
from spark_jobs.session.schemas import select_members
from spark_jobs.session.work_session import WorkSession

FORMS_MAX = 2
"""If a list is written in more orders, each member's is sorted before it is labelled."""


@dataclass(frozen=True, slots=True)
class LabelledMembers:
    """Members with a label in place of their subscription.

    Attributes
    ----------
    rows
        A frame of member_id, instance_id (nullable) and label.
    labels
        The class of each label.
    offsets, listed
        The topics of each class, sorted, by their place among all names; not all classes need have
        a member.
    sizes
        How many members have each, if that is known.
    static
        Whether some members are static, if that is known.
    """

    rows: DataFrame
    labels: Labels
    offsets: Longs
    listed: Ints
    sizes: Longs | None = None
    static: bool = False

    def adopted(self, work_session: WorkSession) -> LabelledMembers:
        """Return the same in another session."""
        return replace(self, rows=work_session.adopt(self.rows))

    def counted(self, claims: DataFrame | None = None) -> tuple[LabelledMembers, int]:
        """Return the same with `sizes`, and the number of rows of claims."""
        static = F.col("instance_id").isNotNull().cast("int").alias("static")
        rows = self.rows.select("label", static)
        if claims is not None:
            rows = rows.unionAll(claims.select(_null("label", "bigint"), F.lit(0)))
        counted = rows.groupBy("label")
        found = counted.agg(F.count("*").alias("count"), F.sum("static").alias("static")).toArrow()
        of_claims = found["label"].is_null()
        members = found.filter(pc.invert(of_claims))
        sizes = self.sum_up(np.asarray(members["label"]), np.asarray(members["count"]))
        some = bool(pc.any(pc.greater(found["static"], 0)).as_py())
        known = replace(self, sizes=sizes, static=some)
        return known, pc.sum(found.filter(of_claims)["count"]).as_py() or 0

    def sum_up(self, label: Longs, members: Longs) -> Longs:
        """Return how many members each class has, by label."""
        class_ = self.labels.find(label)
        known = class_ >= 0
        return sum_by(class_[known], members[known], len(self.offsets) - 1)

    def count(self, topics: TopicTable) -> Classes:
        """Return the classes with the number of members that each has.

        Raises
        ------
        SpecError
            They subscribe to too many partitions.
        """
        assert self.sizes is not None
        classes = Classes(self.sizes, self.offsets, self.listed)
        refuse_too_large(topics, classes)
        return classes


def read_members(
    members: DataFrame, topics: DataFrame, claims: DataFrame | None
) -> tuple[TopicTable, LabelledMembers, int]:
    """Read topics, label members, and count them, and the rows of claims, in one job.

    Raises
    ------
    SpecError
        Bad topics, a member without an id or a subscription, a subscription to an unknown topic.
    """
    frame = select_members(members)
    for salt in count():
        found = _collect_lists(frame, topics, claims, salt)
        of_topic = found["size"].is_null()
        known = TopicTable(
            *parse_topics_table(found.filter(of_topic).select(["topic", "partitions"]))
        )
        lists = found.filter(pc.invert(of_topic))
        _refuse_bad_members(lists)
        held = lists.filter(pc.greater(lists["size"], 0))
        labelled = _number_lists(frame, held, known, salt)
        if labelled is not None:
            return known, labelled, pc.sum(lists["claims"]).as_py() or 0
    raise AssertionError("there is always another salt")


def _collect_lists(
    members: DataFrame, topics: DataFrame, claims: DataFrame | None, salt: int
) -> pa.Table:
    """Collect lists, their labels, how many members have each, and the topics, which have no size.

    Rows of claims are counted with the lists: as jobs of their own, they and the topics would take
    more stages. Lists are counted as they are written first, so that few are sorted.
    """
    counts = {
        "size": F.lit(1),
        "nameless": F.col("member_id").isNull().cast("int"),
        "unreadable": F.coalesce((~F.is_valid_utf8("member_id")).cast("int"), F.lit(0)),
        "static": F.col("instance_id").isNotNull().cast("int"),
        "claims": F.lit(0),
    }
    every = members.select("subscribed", *[column.alias(name) for name, column in counts.items()])
    if claims is not None:
        claimed = [F.lit(int(name == "claims")).alias(name) for name in counts]
        every = every.unionAll(claims.select(_null("subscribed", "array<string>"), *claimed))
    sums = [F.sum(name).alias(name) for name in counts]
    written, label = every.groupBy("subscribed").agg(*sums), _label("subscribed", salt)
    sets = written.groupBy(_as_set("subscribed").alias("subscribed")).agg(
        *sums, F.count(F.lit(1)).alias("forms"), F.min(label).alias("least"),
        F.max(label).alias("most"),
    )  # fmt: skip
    lists = sets.withColumn("label", label).withColumn("topic", _null("topic", "string"))
    lists = lists.withColumn("partitions", _null("partitions", "bigint"))
    nothing = [_null(name, "bigint") for name in lists.columns[1:-2]]
    return lists.unionAll(
        topics.select(_null("subscribed", "array<string>"), *nothing, "topic", "partitions")
    ).toArrow()


def _label(subscribed: str | Column, salt: int) -> Column:
    return F.xxhash64(F.lit(salt), subscribed)


def _as_set(name: str) -> Column:
    return F.sort_array(F.array_distinct(name))


def _null(name: str, kind: str) -> Column:
    return F.lit(None).cast(kind).alias(name)


def _refuse_bad_members(lists: pa.Table) -> None:
    if pc.any(pc.greater(lists["nameless"], 0)).as_py():
        raise SpecError("members: column 'member_id' has a null: give every row a value")
    if pc.any(pc.greater(lists["unreadable"], 0)).as_py():
        raise SpecError(NO_TEXT.format("members", "member_id"))


def _number_lists(
    members: DataFrame, lists: pa.Table, topics: TopicTable, salt: int
) -> LabelledMembers | None:
    """Number lists; None if two have the same label, as hardly ever."""
    offsets, names = get_string_lists(lists, "members", "subscribed")
    at = pc.index_in(names, value_set=topics.names)
    if at.null_count:
        _refuse_unknown(members, names.filter(at.is_null())[0])
    every, label = np.arange(len(lists)), _label("subscribed", salt)
    least, most = (np.asarray(lists[name]) for name in ("least", "most"))
    labels = None
    if (np.asarray(lists["forms"]) <= FORMS_MAX).all():
        two = least != most
        labels = Labels.of(np.append(least, most[two]), np.append(every, every[two]))
    if labels is None:
        label = _label(_as_set("subscribed"), salt)
        labels = Labels.of(np.asarray(lists["label"]), every)
    if labels is None:
        return None
    if len(lists) == 1:  # the same for all such groups: Spark compiles it once
        label, labels = F.lit(0).cast("bigint"), Labels.numbers(1)
    rows = members.select("member_id", "instance_id", label.alias("label"))
    static = bool(pc.any(pc.greater(lists["static"], 0)).as_py())
    size = np.asarray(lists["size"])
    return LabelledMembers(rows, labels, offsets, np.asarray(at, dtype=np.int64), size, static)


def _refuse_unknown(members: DataFrame, topic: pa.StringScalar) -> None:
    try:
        name = topic.as_py()
    except UnicodeDecodeError:
        raise SpecError(NO_TEXT.format("members", "subscribed")) from None
    who = members.where(F.array_contains("subscribed", name)).agg(F.min("member_id"))
    refuse_unknown_topic(who.collect()[0][0], name)
