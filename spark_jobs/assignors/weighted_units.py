"""Partitions of one large group as rows: who had each, who has it, what it weighs.

What has a row per partition stays on the executors; the driver gets sums by member and counts by
weight. Tasks run `assignors.weighted.unit_tasks`, so executors need Python with Muster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assignors.arrays import Bools, Ints, Longs, offsets_of, sum_by
from assignors.loads.load_spec import find_rough_shift, find_shift
from assignors.loads.parse_loads import NUMBER_MAX, parse_load_tables
from assignors.weighted.budget import Budget
from assignors.weighted.levels import GRID_BITS
from assignors.weighted.problem import find_floor
from assignors.weighted.runs import Pool, Runs
from assignors.weighted.unit_tasks import (
    RANGES,
    UNITS,
    JoinRanges,
    PlaceUnits,
    RankMoves,
    ShedUnits,
)
from spark_jobs.assignors.group import FrameGroup, TopicTable
from spark_jobs.assignors.ordered_ops import add_running_sum
from spark_jobs.session.schemas import small
from spark_jobs.session.work_session import WorkSession

_UNITS, _RANGES = (", ".join(f"{name} bigint" for name in names) for names in (UNITS, RANGES))


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """All partitions that have subscribers, topic by topic.

    Attributes
    ----------
    topic
        int64 (subscribed topics,): their indexes, ascending.
    start
        int64 (subscribed topics + 1,): where each begins.
    """

    topic: Longs
    start: Longs

    @classmethod
    def of(cls, topics: TopicTable, subscribed: Ints) -> Line:
        """Lay the subscribed topics of a group on a line."""
        topic = np.unique(subscribed).astype(np.int64)
        return cls(topic, offsets_of(topics.partitions[topic]))

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return int(self.start[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """Units as rows, with the scale of their weights.

    Attributes
    ----------
    rows
        A frame of `UNITS`.
    unit
        What a weight of 1 is in the user's unit.
    known
        Partitions whose weight was given.
    lightest, heaviest, total
        Of the weights as given, in units.
    heaviest_on_grid, total_on_grid
        Of the weights that are planned with.
    """

    rows: DataFrame
    unit: float
    known: int
    lightest: int
    heaviest: int
    total: int
    heaviest_on_grid: int
    total_on_grid: int


def weigh_units(
    group: FrameGroup,
    line: Line,
    partitions: DataFrame | None,
    owners: DataFrame | None,
    active: Bools,
) -> Weighed:
    """Read weights and owners.

    Parameters
    ----------
    partitions
        topic, partition and, if it is known, weight.
    owners
        topic_index, first, count, owner: what members own, no partition twice.
    active
        bool (members,): may own partitions.

    Raises
    ------
    SpecError
        A row of `partitions` is not of the group, is there twice, or has no good number.
    """
    session = group.work_session
    rows, known, greatest = _read_weights(group, line, partitions)
    no_owner = F.lit(-1).cast("bigint")
    if owners is None:
        rows = rows.withColumns({"prev": no_owner, "owner": no_owner})
    else:
        start = {"topic_index": line.topic.astype(np.int32), "start": line.start[:-1]}
        at = F.col("start") + F.col("first")
        held = owners.join(small(session.spark, start), "topic_index", "inner").select(
            F.explode(F.sequence(at, at + F.col("count") - 1)).alias("place"), "owner"
        )
        idle = np.flatnonzero(~active)
        rules = {"owner": idle, "idle": np.ones(len(idle), dtype=np.bool_)}
        rows = rows.join(held.hint("shuffle_hash"), "place", "left")
        rows = rows.join(small(session.spark, rules), "owner", "left")
        prev = F.coalesce("owner", no_owner)
        owner = F.when(F.col("idle"), no_owner).otherwise(prev)
        rows = session.keep(rows.select("place", "given", prev.alias("prev"), owner.alias("owner")))
    rough = find_rough_shift(greatest)
    shift = find_shift(rough, _sum_given(rows, rough))
    floor = find_floor(_sum_given(rows, shift), line.partitions)
    made = round_to_grid(rows.withColumn("exact", _quantise(shift)), floor)
    if owners is not None:  # a search reads them again and again
        made = session.keep(made)
    found = made.agg(
        F.min("exact"), F.max("exact"), F.sum("exact"), F.max("weight"), F.sum("weight")
    ).collect()[0]
    return Weighed(made, float(np.ldexp(1.0, -shift)), known, *map(int, found))


def _sum_given(rows: DataFrame, shift: int) -> int:
    """Add up weights in a unit of 2^-shift."""
    return int(rows.agg(F.sum(_quantise(shift))).collect()[0][0] or 0)


def _quantise(shift: int) -> Column:
    """Return weights as integers in a unit of 2^-shift, as `load_spec.scale_weights` does."""
    halves = float(np.ldexp(1.0, shift // 2)), float(np.ldexp(1.0, shift - shift // 2))
    scaled = F.col("given") * F.lit(halves[0]) * F.lit(halves[1])  # at once it might overflow
    return F.rint(scaled).cast("bigint")


def round_to_grid(rows: DataFrame, floor: int) -> DataFrame:
    """Return `UNITS` with weights from a floor on, as `levels.round_to_grid` rounds them."""
    raised = F.when(F.col("exact") > 0, F.greatest("exact", F.lit(floor)))
    least = rows.withColumn("least", F.coalesce(raised, F.lit(0).cast("bigint")))
    over = F.greatest(F.length(F.bin("least")) - GRID_BITS, F.lit(0))
    weight = F.expr("shiftleft(shiftright(least + shiftright(shiftleft(1L, over), 1), over), over)")
    return least.withColumn("over", over).withColumn("weight", weight).select(*UNITS)


def _read_weights(
    group: FrameGroup, line: Line, partitions: DataFrame | None
) -> tuple[DataFrame, int, float]:
    """Return place and weight of every partition, how many were given, and the greatest."""
    every = group.spark.range(0, line.partitions, 1, group.work_session.tasks)
    every = every.withColumnRenamed("id", "place")
    weights = None
    if partitions is not None:
        weights, known, count, greatest = _find_places(group, line, partitions)
    if weights is None or partitions is None or "weight" not in partitions.columns:
        return every.withColumn("given", F.lit(1.0)), int(group.topics.partitions.sum()), 1.0
    if count < line.partitions:
        weights = _fill_medians(group, line, every, weights)
        greatest = weights.agg(F.max("given")).collect()[0][0]
    return weights, known, float(greatest)


def _find_places(
    group: FrameGroup, line: Line, partitions: DataFrame
) -> tuple[DataFrame, int, int, float]:
    """Return place and given weight of the rows on the line.

    And how many rows have a weight, how many of them are on the line, and the greatest of these.
    """
    rows, judged = judge_weights(group, line, partitions)
    found, measured = group.work_session.keep_and_measure(
        rows.groupBy("place").agg(F.max("given").alias("given"), F.count(F.lit(1)).alias("rows")),
        twice=F.min(F.when(F.col("rows") > 1, F.col("place"))),
    )
    if measured["twice"] is not None:
        twice = rows.where(F.col("place") == measured["twice"])
        _refuse(group, twice.select(*partitions.columns))
    weights = found.where(F.col("place") < line.partitions).select("place", "given")
    return weights, judged["known"], judged["on_line"], judged["greatest"]


def judge_weights(
    group: FrameGroup, line: Line, partitions: DataFrame
) -> tuple[DataFrame, dict[str, Any]]:
    """Look at the rows of a table of partitions.

    A topic without subscribers has its place behind the line.

    Returns
    -------
    rows
        The table with place, and given (weight).
    found
        rows; how many have a weight (known), how many of these are on the line (on_line), and the
        greatest weight there.

    Raises
    ------
    SpecError
        A row is not of the group, or has no good number.
    """
    names, sizes = group.topics.names, group.topics.partitions
    idle = np.setdiff1d(np.arange(len(names)), line.topic)
    start = np.empty(len(names), dtype=np.int64)
    start[line.topic] = line.start[:-1]
    start[idle] = line.partitions + offsets_of(sizes[idle])[:-1]
    topics = {"topic": names, "partitions": sizes, "start": start}
    rows = partitions.join(small(group.spark, topics), "topic", "left")
    weight = F.col("weight") if "weight" in partitions.columns else F.lit(None).cast("double")
    fault = (
        F.col("partition").isNull() | F.col("start").isNull()
        | (F.col("partition") < 0) | (F.col("partition") >= F.col("partitions"))
        | (weight.isNotNull() & ~((weight >= 0) & (weight <= NUMBER_MAX)))  # NaN is the greatest
    )  # fmt: skip
    fault = F.coalesce(fault, F.lit(True))
    place = F.col("start") + F.col("partition")
    wanted = F.when(place < line.partitions, weight)
    found = rows.agg(
        F.max(fault).alias("bad"), F.count(F.lit(1)).alias("rows"),
        F.count(weight).alias("known"), F.count(wanted).alias("on_line"),
        F.max(wanted).alias("greatest"),
    ).collect()[0]  # fmt: skip
    if found["bad"]:
        _refuse(group, rows.where(fault).select(*partitions.columns).limit(1))
    return rows.withColumns({"place": place, "given": weight}), found.asDict()


def _refuse(group: FrameGroup, bad: DataFrame) -> None:
    """Let the local engine say what is wrong with some rows."""
    no_members = pa.table({"member_id": pa.array([], pa.string())})
    names, sizes = group.topics.names, group.topics.partitions
    parse_load_tables(no_members, names, sizes, bad.toArrow(), None, None)


def _fill_medians(group: FrameGroup, line: Line, every: DataFrame, weights: DataFrame) -> DataFrame:
    """Give places without a weight the median of their topic; without one, of all; else 1."""
    spans = {"topic_index": line.topic, "from": line.start[:-1], "until": line.start[1:]}
    within = (F.col("place") >= F.col("from")) & (F.col("place") < F.col("until"))
    every = every.join(small(group.spark, spans), within).drop("from", "until")
    rows = group.work_session.keep(every.join(weights.hint("shuffle_hash"), "place", "left"))
    middle = F.expr("percentile(given, 0.5)")
    lacking = rows.where("given is null").select("topic_index").distinct()
    some = rows.join(F.broadcast(lacking), "topic_index", "left_semi").where("given is not null")
    medians = some.groupBy("topic_index").agg(middle.alias("median"))
    rest = rows.agg(middle).collect()[0][0]
    filled = rows.join(F.broadcast(medians), "topic_index", "left")
    given = F.coalesce("given", "median", F.lit(1.0 if rest is None else float(rest)))
    return filled.select("place", given.alias("given"))


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """An assignment of units while it is worked out.

    Attributes
    ----------
    session
        The session of the frame.
    rows
        A frame of `UNITS`.
    count
        Number of rows.
    begun_again
        Whether the owners of before are those of an assignment that was only worked out.
    fresh
        Whether no partition had an owner before: then nothing is looked for in the rows.
    """

    session: WorkSession
    rows: DataFrame
    count: int
    begun_again: bool = False
    fresh: bool = False

    def sum_loads(self, members: int, column: str = "weight", of: str = "owner") -> Longs:
        """Add up what each member has, int64 (members,)."""
        if self.fresh and of == "prev":
            return np.zeros(members, dtype=np.int64)
        held = self.rows.where(F.col(of) >= 0).groupBy(of).agg(F.sum(F.expr(column)).alias("sum"))
        found = held.toArrow()
        return sum_by(found[of].to_numpy(), found["sum"].to_numpy(), members)

    def count_pool(self) -> Pool:
        """Count the units without an owner by weight."""
        found = self.rows.where("owner < 0").groupBy("weight").count().toArrow()
        return Pool.of(found["weight"].to_numpy(), found["count"].to_numpy())

    def sum_moved(self) -> tuple[int, int, int]:
        """Count what has another owner than before, and add up weights, planned with and given."""
        if self.fresh:
            return 0, 0, 0
        moved = self.rows.where("prev >= 0 and owner <> prev")
        found = moved.agg(F.count(F.lit(1)), F.sum("weight"), F.sum("exact")).collect()[0]
        return found[0], found[1] or 0, found[2] or 0

    def begin_again(self) -> Units:
        """Take the owners of now as those of before."""
        rows = self.rows.withColumn("prev", F.col("owner"))
        return replace(self, rows=self.session.keep(rows), begun_again=True, fresh=False)

    def restore_owners(self, start: Units) -> Units:
        """Take the owners of before from where the search began."""
        before = start.rows.select("place", "prev").hint("shuffle_hash")
        rows = self.rows.drop("prev").join(before, "place", "inner").select(*UNITS)
        kept = self.session.keep(rows)
        return replace(self, rows=kept, begun_again=False, fresh=start.fresh)

    def is_fresh(self) -> bool:
        """Whether no partition had an owner before."""
        return self.fresh or not self.rows.where("prev >= 0").limit(1).count()

    def is_whole(self) -> bool:
        """Tell whether everything had an owner, and has one."""
        return not self.fresh and not self.rows.where("prev < 0 or owner < 0").limit(1).count()

    def shed(self, over: Longs, load: Longs, room: Longs, roomy: int, lightest: int) -> Units:
        """Take from some members what exceeds their rooms."""
        hot, cold = self._divide(over)
        shared = self.session.share((load, room))
        task = ShedUnits(shared, roomy, lightest)
        dealt = hot.repartition(self.session.tasks, "owner")
        taken = self.session.keep(dealt.mapInArrow(task.run, _UNITS))
        return replace(self, rows=cold.unionByName(taken))

    def find_lightest(self, over: Longs) -> int:
        """Return the lightest weight above nothing that some members have."""
        hot, _ = self._divide(over)
        return int(hot.where("weight > 0").agg(F.min("weight")).collect()[0][0])

    def place(self, pool: Pool, runs: Runs) -> Units:
        """Give the units without an owner, which are the pool, to members, the heaviest first.

        Units of one weight are cut by place where they are too many for one bucket.
        """
        size, most = np.diff(pool.rank), self.session.bucket_rows
        first, cuts = pool.rank[:-1] // most, size // most + 1
        of_weight = {"weight": pool.weight, "first": first, "cuts": cuts}
        bucket = F.expr(f"first + place * cuts div {self.count}").alias("bucket")
        dealt = self.rows.where("owner < 0").join(
            small(self.session.spark, of_weight), "weight", "inner"
        ).select(*UNITS, bucket)  # fmt: skip
        inside = sum_by(first, size, int(first[-1] + cuts[-1]))
        if (cuts > 1).any():
            found = dealt.groupBy("bucket").count().toArrow()
            inside = sum_by(found["bucket"].to_numpy(), found["count"].to_numpy(), len(inside))
        shared = self.session.share((runs.member, runs.end, offsets_of(inside)))
        dealt = dealt.repartition(self.session.tasks, "bucket")
        placed = dealt.mapInArrow(PlaceUnits(shared).run, _UNITS)
        if self.fresh:  # read once, as a rule
            return replace(self, rows=placed)
        placed = self.session.keep(placed)
        return replace(self, rows=self.rows.where("owner >= 0").unionByName(placed))

    def undo_moves(self, budget: Budget, load: Longs, capacity: Longs, active: Bools) -> Units:
        """Do what `budget.keep_budget` does; the same units where nothing is undone.

        Parameters
        ----------
        load
            int64 (members,): what each had and may keep.
        """
        if self.fresh:
            return self
        moved = self.rows.where("prev >= 0 and owner <> prev")
        count, cost = moved.agg(F.count(F.lit(1)), F.sum("exact")).collect()[0]
        if count <= budget.count and (cost or 0) <= budget.cost:
            return self
        idle = small(self.session.spark, {"prev": np.flatnonzero(~active).astype(np.int64)})
        count, cost = (
            moved.join(idle, "prev", "left_semi").agg(F.count(F.lit(1)), F.sum("exact")).collect()
        )[0]
        free = moved.join(idle, "prev", "left_anti").select(*UNITS)
        shared = self.session.share((load, capacity))
        dealt = free.repartition(self.session.tasks, "prev")
        ranked = self.session.keep(
            dealt.mapInArrow(RankMoves(shared).run, f"{_UNITS}, height bigint")
        )
        order = {"low": -F.col("height"), "light": -F.col("weight"), "one": F.lit(1).cast("bigint")}
        ranked = ranked.withColumns(order)
        keys = ["low", "prev", "light", "place"]
        for name, into in (("one", "counts"), ("exact", "costs")):
            ranked = add_running_sum(self.session, ranked, keys, name, into, self.count)
        over = (F.col("counts") + 1 + F.lit(count) > budget.count) | (
            F.col("costs") + F.col("exact") + F.lit(cost or 0) > budget.cost
        )
        owner = F.when(over, F.col("prev")).otherwise(F.col("owner"))
        decided = self.session.keep(ranked.withColumn("owner", owner).select(*UNITS))
        rest = self.rows.where("prev < 0 or owner = prev").unionByName(
            moved.join(idle, "prev", "left_semi").select(*UNITS)
        )
        return replace(self, rows=rest.unionByName(decided))

    def join_ranges(self, line: Line) -> DataFrame:
        """Return ranges: owner, topic (of the line), first_partition, partition_count, exact."""
        dealt = self.rows.select("place", "owner", "exact").repartition(self.session.tasks, "owner")
        return dealt.mapInArrow(JoinRanges(line.start).run, _RANGES)

    def _divide(self, members: Longs) -> tuple[DataFrame, DataFrame]:
        """Return the rows of some members, and all others."""
        some = small(self.session.spark, {"owner": members.astype(np.int64)})
        return (
            self.rows.join(some, "owner", "left_semi").select(*UNITS),
            self.rows.join(some, "owner", "left_anti").select(*UNITS),
        )
