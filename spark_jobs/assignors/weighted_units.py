"""Partitions of one large group as rows: who had each, who has it, what it weighs.

What has a row a partition stays on the executors; the driver gets sums by member and counts by
weight. Tasks run `assignors.weighted.unit_tasks`, so executors need Python with Muster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assignors.arrays import Bools, Longs, offsets_of, sum_by
from assignors.loads.load_spec import WEIGHT_BITS
from assignors.loads.parse_loads import NUMBER_MAX, parse_load_tables
from assignors.weighted.problem import find_floor
from assignors.weighted.runs import Pool, Runs
from assignors.weighted.unit_tasks import (
    UNITS,
    JoinRanges,
    PlaceUnits,
    ShedUnits,
    SumWeights,
    WeighUnits,
)
from spark_jobs.assignors.group import FrameGroup
from spark_jobs.assignors.ordered_ops import add_running_sum
from spark_jobs.session.schemas import small
from spark_jobs.session.work_session import WorkSession

_UNITS = ", ".join(f"{name} bigint" for name in UNITS)
_RANGES = "owner bigint, topic bigint, first_partition bigint, partition_count bigint"
_ROUGH_BITS = 31


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
    def of(cls, group: FrameGroup) -> Line:
        """Lay the subscribed topics of a group on a line."""
        topic = np.unique(group.classes.topics).astype(np.int64)
        return cls(topic, offsets_of(group.topics.partitions[topic]))

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
        A frame of `UNITS`; kept.
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
    rows, known = _read_weights(group, line, partitions)
    if owners is not None:
        start = {"topic_index": line.topic.astype(np.int32), "start": line.start[:-1]}
        at = F.col("start") + F.col("first")
        held = owners.join(small(session.spark, start), "topic_index", "inner").select(
            F.explode(F.sequence(at, at + F.col("count") - 1)).alias("place"),
            F.col("owner").alias("prev"),
        )
        rows = rows.join(held.hint("shuffle_hash"), "place", "left")
    else:
        rows = rows.withColumn("prev", F.lit(None).cast("bigint"))
    rows = session.keep(
        rows.select("place", "given", F.coalesce("prev", F.lit(-1).cast("bigint")).alias("prev"))
    )
    greatest = float(rows.agg(F.max("given")).collect()[0][0])
    shift = 0
    if greatest > 0:
        rough = _ROUGH_BITS - int(np.frexp(greatest)[1])
        shift = rough + WEIGHT_BITS - _sum_given(rows, rough).bit_length()
    floor = find_floor(_sum_given(rows, shift), line.partitions)
    shared = session.spark.sparkContext.broadcast(active)
    made = session.keep(rows.mapInArrow(WeighUnits(shift, floor, shared).run, _UNITS))
    found = made.agg(
        F.min("exact"), F.max("exact"), F.sum("exact"), F.max("weight"), F.sum("weight")
    ).collect()[0]
    return Weighed(made, float(np.ldexp(1.0, -shift)), known, *map(int, found))


def _sum_given(rows: DataFrame, shift: int) -> int:
    sums = rows.select("given").mapInArrow(SumWeights(shift).run, "sum bigint")
    return int(sums.agg(F.sum("sum")).collect()[0][0] or 0)


def _read_weights(
    group: FrameGroup, line: Line, partitions: DataFrame | None
) -> tuple[DataFrame, int]:
    """Return place and given weight of every partition, and how many weights were given."""
    spark = group.spark
    every = spark.range(0, line.partitions, 1, group.work_session.tasks).withColumnRenamed(
        "id", "place"
    )
    total = int(group.topics.partitions.sum())
    if partitions is None or "weight" not in partitions.columns:
        if partitions is not None:
            _find_places(group, line, partitions)
        return every.withColumn("given", F.lit(1.0)), total
    found = _find_places(group, line, partitions)
    known, wanted = found.agg(
        F.count("weight"), F.count(F.when(F.col("place").isNotNull(), F.col("weight")))
    ).collect()[0]
    weights = found.where("place is not null").select("place", F.col("weight").alias("given"))
    if wanted == line.partitions:
        return weights, known
    return _fill_medians(group, line, every, weights), known


def _find_places(group: FrameGroup, line: Line, partitions: DataFrame) -> DataFrame:
    """Add the place of each row; null where nobody subscribes. Refuse what local engines refuse."""
    names = group.topics.names
    start = np.full(len(names), -1, dtype=np.int64)
    start[line.topic] = line.start[:-1]
    topics = {
        "topic": names, "topic_index": np.arange(len(names)),
        "partitions": group.topics.partitions, "start": start,
    }  # fmt: skip
    rows = partitions.join(small(group.spark, topics), "topic", "left")
    fault = (
        F.col("topic").isNull() | F.col("partition").isNull() | F.col("topic_index").isNull()
        | (F.col("partition") < 0) | (F.col("partition") >= F.col("partitions"))
    )  # fmt: skip
    if "weight" in partitions.columns:
        good = (F.col("weight") >= 0) & (F.col("weight") <= NUMBER_MAX)  # NaN is above all numbers
        fault = fault | (F.col("weight").isNotNull() & ~good)
    bad = rows.where(F.coalesce(fault, F.lit(True)))
    _refuse(group, bad.select(*partitions.columns).limit(1))
    rows = group.work_session.keep(
        rows.repartition(group.work_session.tasks, "topic_index", "partition")
    )
    twice = rows.groupBy("topic_index", "partition").count().where("count > 1").limit(1)
    again = rows.join(F.broadcast(twice), ["topic_index", "partition"], "left_semi")
    _refuse(group, again.select(*partitions.columns))
    place = F.when(F.col("start") >= 0, F.col("start") + F.col("partition"))
    return rows.withColumn("place", place)


def _refuse(group: FrameGroup, bad: DataFrame) -> None:
    """Let the local engine say what is wrong with some rows, if there are any."""
    rows = bad.toArrow()
    if rows.num_rows:
        nobody = pa.table({"member_id": pa.array([], pa.string())})
        parse_load_tables(nobody, group.topics.names, group.topics.partitions, rows, None, None)


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
    """

    session: WorkSession
    rows: DataFrame
    count: int

    def sum_loads(self, members: int, column: str = "weight", of: str = "owner") -> Longs:
        """Add up what each member has, int64 (members,)."""
        held = self.rows.where(F.col(of) >= 0).groupBy(of).agg(F.sum(F.expr(column)).alias("sum"))
        found = held.toArrow()
        return sum_by(found[of].to_numpy(), found["sum"].to_numpy(), members)

    def count_pool(self) -> Pool:
        """Count the units without an owner by weight."""
        found = self.rows.where("owner < 0").groupBy("weight").count().toArrow()
        return Pool.of(found["weight"].to_numpy(), found["count"].to_numpy())

    def sum_moved(self, column: str) -> int:
        """Add up what has another owner than before."""
        moved = self.rows.where("prev >= 0 and owner <> prev").agg(F.sum(F.expr(column)))
        return int(moved.collect()[0][0] or 0)

    def begin_again(self) -> Units:
        """Take the owners of now as those of before."""
        rows = self.rows.withColumn("prev", F.col("owner"))
        return replace(self, rows=self.session.keep(rows))

    def shed(self, over: Longs, load: Longs, room: Longs, roomy: int, lightest: int) -> Units:
        """Take from some members what exceeds their rooms."""
        hot, cold = self._divide(over)
        shared = self.session.spark.sparkContext.broadcast((load, room))
        task = ShedUnits(shared, roomy, lightest)
        dealt = hot.repartition(self.session.tasks, "owner")
        taken = self.session.keep(dealt.mapInArrow(task.run, _UNITS))
        return replace(self, rows=cold.unionByName(taken))

    def find_lightest(self, over: Longs) -> int:
        """Return the lightest weight that some members have."""
        hot, _ = self._divide(over)
        return int(hot.agg(F.min("weight")).collect()[0][0])

    def place(self, runs: Runs, units: int) -> Units:
        """Give the units without an owner to members, the heaviest first."""
        pool = self.rows.where("owner < 0").drop("owner")
        pool = pool.withColumns({"light": -F.col("weight"), "one": F.lit(1).cast("bigint")})
        ranked = add_running_sum(self.session, pool, ["light", "place"], "one", "rank", units)
        shared = self.session.spark.sparkContext.broadcast((runs.member, runs.end))
        placed = self.session.keep(ranked.mapInArrow(PlaceUnits(shared).run, _UNITS))
        return replace(self, rows=self.rows.where("owner >= 0").unionByName(placed))

    def join_ranges(self, line: Line) -> DataFrame:
        """Return ranges: owner, topic (of the line), first_partition, partition_count."""
        dealt = self.rows.select("place", "owner").repartition(self.session.tasks, "owner")
        return dealt.mapInArrow(JoinRanges(line.start).run, _RANGES)

    def _divide(self, members: Longs) -> tuple[DataFrame, DataFrame]:
        """Return the rows of some members, and all others."""
        some = small(self.session.spark, {"owner": members.astype(np.int64)})
        return (
            self.rows.join(some, "owner", "left_semi").select(*UNITS),
            self.rows.join(some, "owner", "left_anti").select(*UNITS),
        )
