"""The assignor range as DataFrame operations: the same rows as `assignors.range`."""

from __future__ import annotations

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors.arrays import Longs, offsets_of, sum_by
from assignors.partition_ranges import Verdict
from spark_jobs.assignors.blocks import divide_in_blocks
from spark_jobs.assignors.group import ORDER, FrameGroup
from spark_jobs.assignors.materialize import (
    FrameAssignment,
    add_names,
    count_loads,
)
from spark_jobs.assignors.ordered_ops import add_running_sum, lay_beside
from spark_jobs.assignors.prior_ownership import ResolvedOwnership, check_previous, resolve_claims
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.assignors.twin import Twin
from spark_jobs.session.schemas import look_up, small
from spark_jobs.session.work_session import WorkSession


def assign(
    spark: SparkSession,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None = None,
) -> DataFrame:
    """Divide every topic among its subscribers, in member order.

    Parameters
    ----------
    members, topics, previous
        As for `spark_jobs.assignors.uniform.assign`. `previous` is checked, but changes no row.

    Returns
    -------
    DataFrame
        `ASSIGNMENT`: one row per range, in no order. A member has at most one range per topic, so
        there may be as many rows as partitions.

    Raises
    ------
    SpecError
        Bad input. Nothing was computed.
    """
    return TWIN.assign(spark, members, topics, previous).rows


def _cut_topics(group: FrameGroup) -> DataFrame:
    """Return the assigned ranges: key, topic_index, first, count."""
    problem, partitions = group.problem, group.topics.partitions
    subscribers = sum_by(
        problem.pair_topic, group.classes.size[problem.pair_class], len(problem.partitions)
    )
    topic = np.flatnonzero(problem.topic_class >= 0)
    of_topic = problem.topic_class[topic]
    rows = np.minimum(partitions[topic], subscribers[of_topic])  # later subscribers get nothing
    order = np.lexsort((topic, -rows, of_topic))
    topic, of_topic, rows = topic[order], of_topic[order], rows[order]
    start = np.searchsorted(of_topic, of_topic)
    columns = {
        "topic_class": of_topic.astype(np.int32),
        "nth": np.arange(len(topic)) - start,  # by rows, most first
        "topic_index": topic.astype(np.int32),
        "quota": partitions[topic] // subscribers[of_topic],
        "rest": partitions[topic] % subscribers[of_topic],
    }
    placed = _add_place(group, subscribers)
    steps = small(group.spark, _find_steps(of_topic, rows))
    some = placed.join(steps, "topic_class", "inner").where("place >= low and place < high")
    nth = F.explode(F.sequence(F.lit(0).cast("long"), F.col("topics") - 1)).alias("nth")
    each = some.select("key", "topic_class", "place", nth)
    each = each.join(small(group.spark, columns), ["topic_class", "nth"], "inner")
    more = (F.col("place") < F.col("rest")).cast("long")
    return each.select(
        "key",
        "topic_index",
        (F.col("quota") * F.col("place") + F.least("place", "rest")).cast("int").alias("first"),
        (F.col("quota") + more).cast("int").alias("count"),
    )


def _add_place(group: FrameGroup, subscribers: Longs) -> DataFrame:
    """Return members' places among the subscribers of a topic class: key, topic_class, place."""
    problem = group.problem
    pairs = {
        "class": problem.pair_class.astype(np.int32),
        "topic_class": problem.pair_topic.astype(np.int32),
        "earlier": offsets_of(subscribers)[:-1][problem.pair_topic],
    }
    rows = group.members.join(small(group.spark, pairs), "class", "inner")
    rows = rows.withColumn("one", F.lit(1))
    keys = ["topic_class", *ORDER]
    ranked = add_running_sum(group.work_session, rows, keys, "one", "rank", int(subscribers.sum()))
    place = (F.col("rank") - F.col("earlier")).alias("place")
    return ranked.select("key", "topic_class", place)


def _find_steps(of_topic: Longs, rows: Longs) -> dict[str, Longs]:
    """Return the steps of how many topics of a class give partitions to the subscriber at a place.

    Parameters
    ----------
    of_topic
        int64, shape (topics,): the class of each topic.
    rows
        int64, shape (topics,): how many subscribers get partitions of each topic.
    """
    head, last = np.ones(len(rows), dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
    head[1:] = (rows[1:] != rows[:-1]) | (of_topic[1:] != of_topic[:-1])
    last[:-1] = of_topic[1:] != of_topic[:-1]
    edge = np.flatnonzero(head)
    end = np.append(edge[1:], len(rows))[: len(edge)]
    low = np.where(last[end - 1], 0, np.append(rows, 0)[end])
    topics = end - np.searchsorted(of_topic, of_topic[edge])
    return {
        "topic_class": of_topic[edge].astype(np.int32),
        "low": low,
        "high": rows[edge],
        "topics": topics,
    }


def _count_totals(
    group: FrameGroup, rows: DataFrame, resolved: ResolvedOwnership | None
) -> FrameAssignment:
    """Return the totals of the rows: loads, moves, orphans."""
    orphans, moved = int(group.problem.partitions.sum()), 0
    if resolved is not None:
        orphans -= resolved.owned
        moved = resolved.owned - _count_stayed(group, rows, resolved)
    return FrameAssignment(
        add_names(group, rows), Verdict(), count_loads(group, rows), moved, orphans
    )


def _count_stayed(group: FrameGroup, rows: DataFrame, resolved: ResolvedOwnership) -> int:
    """Count partitions that keep their owner."""
    start = offsets_of(np.where(group.problem.topic_class >= 0, group.topics.partitions, 0))

    def laid(frame: DataFrame) -> DataFrame:
        at = (F.col("line") + F.col("first")).alias("at")
        length = F.col("count").cast("long").alias("length")
        return look_up(frame, "topic_index", {"line": start[:-1]}).select(at, length, "key")

    beside = lay_beside(
        group.work_session,
        laid(rows),
        laid(resolved.ranges),
        int(start[-1]),
        resolved.rows + rows.count(),
    )
    same = beside.where("left.key = right.key").agg(F.sum("count")).collect()[0][0]
    return int(same or 0)


def _assign_large(work_session: WorkSession, given: GivenTables) -> FrameAssignment:
    """Assign on executors, and return the rows with their totals."""
    found = divide_in_blocks(work_session, given)
    if found is not None:
        return found
    claims = None if given.previous is None else check_previous(given.previous)[0]
    group = FrameGroup.of(work_session, given.members, given.topics, given.rows)
    resolved = resolve_claims(group, claims) if claims is not None else None
    rows = work_session.keep(_cut_topics(group))
    return _count_totals(group, rows, resolved)


TWIN = Twin("range", _assign_large, owners_of_each_topic=True)
