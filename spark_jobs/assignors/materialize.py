"""Turn a plan into ranges, as DataFrames. Twin of `assignors.materialize`: same steps, same rows.

1. The plan's drops are distributed to members (`relinquish.py`). The remaining loads give the
   wants: how many partitions each member gains.
2. Members that lose or gain partitions are *touched*; the ranges of all others pass through.
3. Touched members keep their longest ranges. What they give up joins the gaps in the pool.
4. Pool and wants are matched class by class: the longest ranges go to the largest wants first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from assignors.arrays import Longs, offsets_of, sum_by, sum_segments
from assignors.group_spec import GroupSpec
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.plan import Plan
from assignors.water_level import Histogram, WaterLevel, fill_loads
from spark_jobs.assignors.group import MEMBERS, ORDER, FrameGroup
from spark_jobs.assignors.ordered_ops import add_running_sum, join_neighbours, lay_beside
from spark_jobs.assignors.ownership import CellView, FrameOwnership, count_by_load, sum_by_key
from spark_jobs.assignors.prior_ownership import merge_touching
from spark_jobs.assignors.relinquish import relinquish
from spark_jobs.session.schemas import look_up, select_assignment, small
from spark_jobs.session.work_session import BUCKET_ROWS, DRIVER_ROWS, WorkSession, release_with

GAINED = ("key", "topic_index", "first", "count")
"""Columns of the ranges that members gain, or keep after a change."""


@dataclass(frozen=True, slots=True)
class FrameAssignment:
    """An assignment as rows, and the facts about it that need no reading of the rows.

    Attributes
    ----------
    rows
        A frame of `ASSIGNMENT`: one row per range, in no order.
    verdict
        What the plan proved about the number of moves.
    loads
        The number of members by class and load after the assignment.
    moved, orphans
        The number of owned partitions that change their owner, and of partitions without an owner
        before.
    held
        The group and its ranges, where the driver has assigned it.
    """

    rows: DataFrame
    verdict: Verdict
    loads: Histogram
    moved: int
    orphans: int
    held: tuple[GroupSpec, PartitionRanges] | None = None

    @property
    def members(self) -> int:
        """The number of members."""
        return int(self.loads.members.sum())

    @property
    def partitions(self) -> int:
        """Partitions assigned."""
        return int((self.loads.load * self.loads.members).sum())

    def totals(self) -> dict[str, Any]:
        """Return those of `quality.Report.totals` that need no reading of the rows."""
        present = self.loads.load[self.loads.members > 0]
        low, high = (int(present.min()), int(present.max())) if len(present) else (0, 0)
        return {
            "members": self.members,
            "partitions": self.partitions,
            "loads": {
                "min": low,
                "max": high,
                "mean": self.partitions / max(self.members, 1),
                "spread": high - low,
            },
            "moved": self.moved,
            "moved_minimum": self.verdict.moved_minimum,
            "exact": self.verdict.exact,
            "partial": self.verdict.partial,
            "orphans": self.orphans,
        }


def assign_in_work_session(
    spark: SparkSession,
    assign: Callable[[WorkSession], FrameAssignment],
    bucket_rows: int = BUCKET_ROWS,
    driver_rows: int = DRIVER_ROWS,
) -> FrameAssignment:
    """Assign in a separate session, and return the rows as a frame of the user's session.

    Spark keeps the frames that the rows need until the result is no longer referenced.
    """
    work_session = WorkSession(spark, bucket_rows, driver_rows)
    try:
        assigned = assign(work_session)
    except BaseException:
        work_session.release()
        raise
    rows = work_session.give_back(assigned.rows)
    release_with(rows, work_session)
    return replace(assigned, rows=rows)


def materialize(plan: Plan, owned: FrameOwnership, max_moves: int | None = None) -> FrameAssignment:
    """Materialize a plan.

    Parameters
    ----------
    max_moves
        Most partitions to take from live owners; None for as many as the plan says.
    """
    view = owned.view(plan.cells)
    drops, new = relinquish(view, plan, owned)
    lost = _count_lost(view, drops)
    shares = _share_pools(plan, view.orphans + lost, new)
    moved, pool, orphans = int(lost.sum()), int(shares.sum()), int(view.orphans.sum())
    if pool == 0:
        verdict = Verdict(partial=False, moved_minimum=plan.moved, exact=plan.exact)
        return FrameAssignment(add_names(view.group, view.ranges), verdict, view.loads, 0, orphans)
    members = _subtract_lost(view, drops)
    loads = view.loads
    if drops is not None:
        loads = count_by_load(members, "load", len(plan.cells.low))
    level = fill_loads(loads, sum_by(plan.cells.problem.pair_class, shares, len(plan.cells.low)))
    wants, counted = view.group.work_session.keep_and_measure(
        _find_demand(view, members, loads, level), rows=F.count(F.lit(1))
    )
    touched = wants.select("key")
    if drops is not None:
        touched = touched.unionByName(drops.select("key"))
    touched = touched.hint("shuffle_hash")
    mine = _add_kept(view, view.ranges.join(touched, "key", "left_semi"), drops)
    pieces, found = _build_pool(view, mine, drops)
    gained = _match_demand(view, pieces, found, shares, wants, counted["rows"], pool)
    partial = max_moves is not None and moved > max_moves
    if partial and max_moves is not None:
        moved, gained = max_moves, _limit_moves(view, gained, mine, max_moves)
    kept = mine.where("kept > 0").select(*GAINED[:3], F.col("kept").cast("int").alias("count"))
    merged = merge_touching(kept.unionByName(gained))
    rest = view.ranges.join(touched, "key", "left_anti")
    rows = add_names(view.group, rest).unionByName(add_names(view.group, merged))
    verdict = Verdict(partial, plan.moved, plan.exact)
    after = _add_filled(loads, level)
    if partial:
        after = count_loads(view.group, rest.select(*GAINED).unionByName(merged))
    return FrameAssignment(rows, verdict, after, moved, orphans)


def count_loads(group: FrameGroup, ranges: DataFrame) -> Histogram:
    """Count members by class and load, members without ranges included."""
    sums = ranges.groupBy("key").agg(F.sum("count").alias("load"))
    members = group.members.join(sums.hint("shuffle_hash"), "key", "left").fillna(0, ["load"])
    return count_by_load(members, "load", len(group.classes.size))


def _count_lost(view: CellView, drops: DataFrame | None) -> Longs:
    """Return what members give up of each topic class."""
    size = len(view.cells.problem.partitions)
    if drops is None:
        return np.zeros(size, dtype=np.int64)
    return sum_by_key(drops, "topic_class", "amount", size)


def _share_pools(plan: Plan, pool: Longs, new: Longs) -> Longs:
    """Return per pair what the class gets of the topic class's pool: alone in its cell, all."""
    problem = plan.cells.problem
    alone = plan.cells.alone[plan.cells.of_class[problem.pair_class]]
    return np.where(alone, pool[problem.pair_topic], new)


def _subtract_lost(view: CellView, drops: DataFrame | None) -> DataFrame:
    """All members with what they still have."""
    rows, left = view.members, F.col("owned")
    if drops is not None:
        given = drops.groupBy("key").agg(F.sum("amount").alias("dropped"))
        rows = rows.join(given.hint("shuffle_hash"), "key", "left")
        left = left - F.coalesce("dropped", F.lit(0))
    rows = rows.select(*MEMBERS, left.alias("load"))
    return rows if drops is None else view.group.work_session.keep(rows)


def _find_demand(
    view: CellView, members: DataFrame, loads: Histogram, level: WaterLevel
) -> DataFrame:
    """Fill the emptiest members of each class: `MEMBERS`, want."""
    low_enough = np.where(loads.load <= level.height[loads.class_], loads.members, 0)
    low_enough = np.where(level.first[loads.class_] > 0, low_enough, 0)
    classes = {
        "height": level.height,
        "more": level.first,
        "earlier": offsets_of(sum_segments(low_enough, loads.offsets))[:-1],
    }
    rows = look_up(members, "class", classes)
    want = F.greatest(F.col("height") - F.col("load"), F.lit(0))
    rows = rows.withColumn("want", want)
    if level.first.any():
        may = (F.col("load") <= F.col("height")) & (F.col("more") > 0)
        rest = rows.where((~may) & (F.col("want") > 0))
        ranked = add_running_sum(
            view.group.work_session, rows.where(may).withColumn("one", F.lit(1)), ["class", *ORDER],
            "one", "rank", int(low_enough.sum()),
        )  # fmt: skip
        one = (F.col("rank") - F.col("earlier") < F.col("more")).cast("long")
        ranked = ranked.withColumn("want", F.col("want") + one)
        rows = rest.unionByName(ranked.select(*rest.columns))
    return rows.where("want > 0").select(*MEMBERS, "want")


def _add_filled(loads: Histogram, level: WaterLevel) -> Histogram:
    """Return the loads after every member was filled to its level."""
    low = loads.load <= level.height[loads.class_]
    lifted = sum_segments(np.where(low, loads.members, 0), loads.offsets)
    height = level.height
    class_ = np.arange(len(height))
    every = (lifted > 0) | (level.first > 0)
    return Histogram.of(
        len(height),
        np.concatenate([loads.class_[~low], class_[every], class_[every]]),
        np.concatenate([loads.load[~low], height[every], height[every] + 1]),
        np.concatenate([loads.members[~low], (lifted - level.first)[every], level.first[every]]),
    )


def _add_kept(view: CellView, rows: DataFrame, drops: DataFrame | None) -> DataFrame:
    """Add `kept`: how much of each range its owner keeps. The longest are kept; the last is cut."""
    if drops is None:
        return view.group.work_session.keep(rows.withColumn("kept", F.col("count").cast("long")))
    lost = drops.select("key", "topic_class", F.col("owned").alias("had"), "amount")
    rows = rows.join(lost.hint("shuffle_hash"), ["key", "topic_class"], "left")
    order = Window.partitionBy("key", "topic_class").orderBy(
        F.col("count").desc(), "topic_index", "first"
    )
    before = F.coalesce(
        F.sum("count").over(order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)
    )
    stays = F.greatest(F.lit(0), F.least(F.col("count"), F.col("had") - F.col("amount") - before))
    kept = F.coalesce(stays, F.col("count")).cast("long")
    return view.group.work_session.keep(rows.withColumn("kept", kept))


def _list_given(view: CellView, mine: DataFrame) -> DataFrame:
    """Return what members give up, as places on the line: at, length, topic_index, first, owner."""
    rows = view.add_topics(mine.where("kept < count"), "line_start")
    first = F.col("first") + F.col("kept")
    return rows.select(
        (F.col("line_start") + first).alias("at"),
        (F.col("count") - F.col("kept")).alias("length"),
        "topic_index",
        first.alias("first"),
        "topic_class",
        "key",
    )


def _list_gaps(view: CellView) -> DataFrame:
    """Return the partitions without an owner, as places on the line."""
    rows = view.add_topics(view.resolved.gaps, "line_start", "topic_class")
    return rows.select(
        (F.col("line_start") + F.col("first")).alias("at"),
        "length",
        "topic_index",
        "first",
        "topic_class",
    )


def _build_pool(view: CellView, mine: DataFrame, drops: DataFrame | None) -> tuple[DataFrame, int]:
    """Return the pool: at, length, topic_index, first, topic_class; touching ranges are merged.

    The second value is the number of rows.
    """
    pool, rows = _list_gaps(view), view.resolved.gap_rows
    if drops is not None:
        pool = pool.unionByName(_list_given(view, mine).select(*pool.columns))
        rows += view.resolved.rows // 8
    merged = join_neighbours(view.group.work_session, pool, rows)
    kept, found = view.group.work_session.keep_and_measure(merged, rows=F.count(F.lit(1)))
    return kept, found["rows"]


def _match_demand(
    view: CellView,
    pool: DataFrame,
    pieces: int,
    shares: Longs,
    wants: DataFrame,
    seekers: int,
    total_: int,
) -> DataFrame:
    """Match pool and wants, class by class; return a frame of `GAINED`.

    Parameters
    ----------
    pieces, seekers
        The number of rows of `pool` and of `wants`.
    """
    work_session, problem = view.group.work_session, view.cells.problem
    some = np.flatnonzero(shares)
    if len(some) == 1:
        pool = pool.withColumn("class", F.lit(int(problem.pair_class[some[0]])))
    else:
        pool = _split_by_class(view, pool, shares, some, pieces)
    pool = pool.withColumn("longest", -F.col("length"))
    left = add_running_sum(work_session, pool, ["class", "longest", "at"], "length", "laid", pieces)
    seek = wants.withColumn("greatest", -F.col("want"))
    right = add_running_sum(
        work_session, seek, ["class", "greatest", *ORDER], "want", "laid", seekers
    )
    beside = lay_beside(
        work_session,
        left.select(F.col("laid").alias("at"), "length", "topic_index", "first"),
        right.select(F.col("laid").alias("at"), F.col("want").alias("length"), "key"),
        total_,
        pieces + seekers,
    )
    return beside.select(
        "right.key",
        "left.topic_index",
        (F.col("left.first") + F.col("left_offset")).cast("int").alias("first"),
        F.col("count").cast("int").alias("count"),
    )


def _split_by_class(
    view: CellView, pool: DataFrame, shares: Longs, some: Longs, rows: int
) -> DataFrame:
    """Divide the pool of each topic class among its classes, in line order."""
    problem, edges = view.cells.problem, offsets_of(shares)
    segments = {
        "topic_class": problem.pair_topic[some].astype(np.int32),
        "class": problem.pair_class[some].astype(np.int32),
        "low": edges[:-1][some],
        "high": edges[1:][some],
    }
    laid = add_running_sum(view.group.work_session, pool, ["at"], "length", "pool_at", rows)
    cut = laid.join(small(view.group.spark, segments), "topic_class", "inner")
    start = F.greatest("pool_at", "low")
    end = F.least(F.col("pool_at") + F.col("length"), F.col("high"))
    skip = start - F.col("pool_at")
    return cut.where(end > start).select(
        "class",
        (F.col("at") + skip).alias("at"),
        (end - start).alias("length"),
        "topic_index",
        (F.col("first") + skip).alias("first"),
    )


def _limit_moves(view: CellView, gained: DataFrame, mine: DataFrame, most: int) -> DataFrame:
    """Move at most `most` partitions of live owners; the others stay where they are.

    The owner with the largest surplus gives first; ties are broken by the line.

    Returns
    -------
    DataFrame
        `GAINED`: ranges from the pool, ranges that move, and ranges that their owners keep instead.
    """
    work_session = view.group.work_session
    laid = work_session.keep(_lay_on_line(view, gained))
    end = int(view.cells.problem.partitions.sum()) + len(view.group.topics.names)
    rows = laid.count() + view.resolved.gap_rows
    first = (F.col("left.first") + F.col("left_offset")).alias("first")

    pool = _list_gaps(view).select("at", "length")
    from_pool = lay_beside(work_session, laid, pool, end, rows).select(
        "left.key", "left.topic_index", first, "count"
    )
    given = _add_surplus(view, _list_given(view, mine).select("at", "length", "key"))
    moves = lay_beside(work_session, laid, given, end, rows).select(
        (F.col("left.at") + F.col("left_offset")).alias("at"),
        F.col("left.key").alias("taker"),
        F.col("right.key").alias("owner"),
        (-F.col("right.surplus")).alias("order"),
        "left.topic_index",
        first,
        "count",
    )
    ranked = add_running_sum(work_session, moves, ["order", "at"], "count", "before", rows)
    after = from_pool.unionByName(_cut_moves(work_session, ranked, most))
    ints = [F.col(name).cast("int") for name in ("topic_index", "first", "count")]
    return after.select("key", *ints)


def _lay_on_line(view: CellView, gained: DataFrame) -> DataFrame:
    """Add the places on the line to `GAINED`: at and length, in place of count."""
    return view.add_topics(gained, "line_start").select(
        (F.col("line_start") + F.col("first")).alias("at"),
        F.col("count").cast("long").alias("length"),
        *GAINED[:3],
    )


def _cut_moves(work_session: WorkSession, ranked: DataFrame, most: int) -> DataFrame:
    """Move the first `most` partitions of ranked moves; the rest stays with its owners."""
    moving = F.greatest(F.lit(0), F.least(F.lit(most) - F.col("before"), F.col("count")))
    ranked = work_session.keep(ranked.withColumn("moving", moving))
    moved = ranked.where("moving > 0").select(
        F.col("taker").alias("key"), "topic_index", "first", F.col("moving").alias("count")
    )
    kept = ranked.where("moving < count").select(
        F.col("owner").alias("key"),
        "topic_index",
        (F.col("first") + F.col("moving")).alias("first"),
        (F.col("count") - F.col("moving")).alias("count"),
    )
    return moved.unionByName(kept)


def _add_surplus(view: CellView, given: DataFrame) -> DataFrame:
    """Add the owner's surplus: its load minus the least that it may have."""
    surplus = (F.col("owned") - F.col("low")).alias("surplus")
    who = view.add_bounds(view.members, "low").select("key", surplus)
    return given.join(who.hint("shuffle_hash"), "key", "inner").select(
        "at", "length", "key", "surplus"
    )


def add_names(group: FrameGroup, ranges: DataFrame) -> DataFrame:
    """Add the names of members and topics; return a frame of `ASSIGNMENT`."""
    members = group.members.select("key", "member_id").hint("shuffle_hash")
    rows = ranges.join(members, "key", "inner")
    rows = look_up(rows, "topic_index", {"topic": group.topics.names})
    return select_assignment(
        rows.select(
            "member_id",
            "topic",
            F.col("first").alias("first_partition"),
            F.col("count").alias("partition_count"),
        )
    )
