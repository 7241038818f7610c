"""How much each member gives up of each topic class, as DataFrames.

This is the twin of `assignors.relinquish`.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from assignors.arrays import Longs, offsets_of, sum_by, sum_segments
from assignors.plan import ABOVE_ALL, CompressedOwnership, Flows, Plan
from assignors.water_level import Histogram, WaterLevel, count_drops_needed, lower_loads
from spark_jobs.assignors.group import ORDER
from spark_jobs.assignors.ordered_ops import add_running_sum
from spark_jobs.assignors.ownership import CellView, FrameOwnership, count_by_load, sum_by_key
from spark_jobs.session.schemas import look_up, small

COLUMNS = ("key", "class", "topic_class", "owned", "amount")
"""The columns of a drop: a member gives up `amount` of its `owned` partitions of a topic class."""


def relinquish(view: CellView, plan: Plan, owned: FrameOwnership) -> tuple[DataFrame | None, Longs]:
    """Distribute a plan's drops to members.

    Returns
    -------
    drops, new
        A frame of `COLUMNS`, or None if no member gives anything up; how much the class gains, per
        pair of class and topic class (int64).
    """
    parts: list[DataFrame] = []
    if view.crossing:
        rows = view.entries(view.ranges.where("not inside"))
        parts.append(rows.withColumn("amount", F.col("owned")))
    if plan.drops.any():
        parts.append(_relinquish_above_level(view, plan))
    new = np.zeros(len(plan.cells.problem.pair_class), dtype=np.int64)
    if plan.flows is not None:
        new = plan.flows.new
        typed = _relinquish_of_types(view, plan.flows, owned)
        below = _relinquish_below_low(view, plan.flows)
        lumped, back = _relinquish_of_classes(view, plan, plan.flows)
        parts += [part for part in (typed, below, lumped) if part is not None]
        new = new + back
    if not parts:
        return None, new
    union = reduce(DataFrame.unionByName, [part.select(*COLUMNS) for part in parts])
    return view.group.work_session.keep(union.where("amount > 0")), new


def add_above_level(
    view: CellView,
    members: DataFrame,
    load: str,
    loads: Histogram,
    level: WaterLevel,
    cut: np.ndarray,
) -> DataFrame:
    """Add `give`: how much each member of the flagged classes has above its class's level.

    Members that have nothing above it are dropped.
    """
    over = np.where(loads.load > level.height[loads.class_], loads.members, 0)
    over = np.where(cut[loads.class_], over, 0)
    classes = {
        "height": np.where(cut, level.height, ABOVE_ALL),
        "first": level.first,
        "earlier": offsets_of(sum_segments(over, loads.offsets))[:-1],
    }
    rows = look_up(members, "class", classes)
    rows = rows.withColumn("give", F.col(load) - F.col("height")).where("give > 0")
    if level.first[cut].any():
        ranked = add_running_sum(
            view.group.work_session,
            rows.withColumn("one", F.lit(1)),
            ["class", *ORDER],
            "one",
            "rank",
            int(over.sum()),
        )
        keeps = (F.col("rank") - F.col("earlier") < F.col("first")).cast("long")
        rows = (
            ranked.withColumn("give", F.col("give") - keeps).where("give > 0").drop("one", "rank")
        )
    return rows.drop("height", "first", "earlier")


def _relinquish_above_level(view: CellView, plan: Plan) -> DataFrame:
    """Lower members with the largest loads, in classes that are alone in their cell."""
    problem = plan.cells.problem
    only = np.zeros(len(problem.size), dtype=np.int64)  # the one topic class of the cell
    only[problem.pair_class] = problem.pair_topic
    cut = plan.drops > 0
    rows = add_above_level(
        view,
        view.members.drop("owned"),
        "load",
        plan.loads,
        lower_loads(plan.loads, plan.drops),
        cut,
    )
    return look_up(rows, "class", {"topic_class": only.astype(np.int32)}).select(
        "key", "class", "topic_class",
        F.col("load").alias("owned"), F.col("give").alias("amount"),
    )  # fmt: skip


def _relinquish_of_types(view: CellView, flows: Flows, owned: FrameOwnership) -> DataFrame | None:
    """Number the units of each type's drops; member j mod w of the type gives up unit j."""
    held = flows.held
    count = int(held.typed.sum())
    offsets = held.node_entries[: count + 1]
    amount = (held.entry_total - flows.kept)[: offsets[-1]]
    losing = sum_segments(amount, offsets) > 0
    if not losing.any():
        return None
    laid = offsets_of(amount)
    entry = np.repeat(np.arange(count), np.diff(offsets))
    start = laid[:-1] - laid[offsets[:-1]][entry]
    types = _build_vectors(view, held, offsets, losing)
    members = owned.find_types(held).join(types, ["class", "vector"], "inner").drop("vector")
    ranked = add_running_sum(
        view.group.work_session, members.withColumn("one", F.lit(1)), ["type", *ORDER], "one",
        "before",
        int(held.node_members[:count][losing].sum()),
    )  # fmt: skip
    at = np.flatnonzero(losing[entry])
    earlier = offsets_of(np.where(losing, held.node_members[:count], 0))[:-1]
    entries = small(
        view.group.spark,
        {
            "type": entry[at].astype(np.int32),
            "topic_class": held.entry_topic[at].astype(np.int32),
            "owned": held.entry_owned[at],
            "start": start[at],
            "lost": amount[at],
            "width": held.node_members[entry[at]],
            "earlier": earlier[entry[at]],
        },
    )
    rank = F.col("before") - F.col("earlier")
    until = F.col("start") + F.col("lost") - 1 - rank
    units = F.floor(until / F.col("width")) - F.floor((F.col("start") - 1 - rank) / F.col("width"))
    return ranked.join(entries, "type", "inner").withColumn("amount", units)


def _build_vectors(
    view: CellView, held: CompressedOwnership, offsets: Longs, losing: np.ndarray
) -> DataFrame:
    """Return the types that lose partitions, to be joined by what they own: class, vector, type."""
    topic = pa.array(held.entry_topic[: offsets[-1]], pa.int32())
    owned = pa.array(held.entry_owned[: offsets[-1]], pa.int64())
    flat = pa.StructArray.from_arrays([topic, owned], ["topic_class", "owned"])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)
    at = np.flatnonzero(losing)
    return small(
        view.group.spark,
        {
            "class": held.node_class[at].astype(np.int32),
            "type": at.astype(np.int32),
            "vector": lists.take(pa.array(at)),
        },
    )


def _sum_entries(rows: DataFrame) -> DataFrame:
    """Sum ranges by (member, topic class), keeping the owner's order and bounds."""
    keys = ("key", "class", *ORDER, "load", "low", "high", "topic_class")
    return rows.groupBy(*keys).agg(F.sum("count").alias("owned"))


def _relinquish_below_low(view: CellView, flows: Flows) -> DataFrame | None:
    """Take what members at or below low lose (which is rare) from the last of them in order."""
    lost = flows.held.below - flows.kept_below
    if not lost.any():
        return None
    rows = _sum_entries(view.competing().where("load <= low"))
    return _take_from_last(_add_pairs(view, rows, np.flatnonzero(lost), lost), "owned")


def _add_pairs(view: CellView, rows: DataFrame, at: Longs, lost: Longs) -> DataFrame:
    """Add `pair` and `lost`, and drop rows of other pairs than those at `at`."""
    problem = view.cells.problem
    pairs = {
        "topic_class": problem.pair_topic[at].astype(np.int32),
        "class": problem.pair_class[at].astype(np.int32),
        "pair": at.astype(np.int32),
        "lost": lost[at],
    }
    return rows.join(small(view.group.spark, pairs), ["topic_class", "class"], "inner")


def _take_from_last(rows: DataFrame, offer: str) -> DataFrame:
    """Take `lost` partitions of each pair from the members that own some, the last one first."""
    order = Window.partitionBy("pair").orderBy(*[F.col(name).desc() for name in ORDER])
    before = F.coalesce(
        F.sum(offer).over(order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)
    )
    take = F.greatest(F.lit(0), F.least(F.col("lost") - before, F.col(offer)))
    return rows.withColumn("amount", take)


def _relinquish_of_classes(
    view: CellView, plan: Plan, flows: Flows
) -> tuple[DataFrame | None, Longs]:
    """Distribute drops of classes that were planned without types (`exact` is then False).

    The steps are those of `assignors.relinquish`. A window spans all members of one pair. This path
    is only taken for groups with millions of different owned vectors.
    """
    held, pairs = flows.held, len(plan.cells.problem.pair_class)
    lost = held.entry_total - flows.kept
    at = np.flatnonzero(~held.typed[held.entry_node] & (lost > 0))
    if not len(at):
        return None, np.zeros(pairs, dtype=np.int64)
    losing, problem = held.node_class[held.entry_node[at]], plan.cells.problem
    keys = problem.pair_topic * len(problem.size) + problem.pair_class
    pair_lost = np.zeros(pairs, dtype=np.int64)
    pair_lost[np.searchsorted(keys, held.entry_topic[at] * len(problem.size) + losing)] = lost[at]
    cut = np.zeros(len(problem.size), dtype=np.bool_)
    cut[losing] = True
    rows = _sum_entries(view.competing().where("load > low"))
    every = np.flatnonzero(cut[problem.pair_class])
    rows = _add_pairs(view, rows, every, pair_lost)
    rows = view.group.work_session.keep(_take_twice(rows))
    return _level_classes(view, plan, flows, rows, cut)


def _take_twice(rows: DataFrame) -> DataFrame:
    """Take what members have above high, the largest loads first; then from the last members."""
    surplus = F.col("load") - F.col("high")
    offer = F.greatest(F.lit(0), F.least(surplus, F.col("owned")))
    rows = rows.withColumn("offer", offer)
    fullest = Window.partitionBy("pair").orderBy(surplus.desc(), *ORDER)
    before = F.coalesce(
        F.sum("offer").over(fullest.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)
    )
    taken = F.greatest(F.lit(0), F.least(F.col("lost") - before, F.col("offer")))
    rows = rows.withColumn("taken", taken)
    left = F.col("lost") - F.sum("taken").over(Window.partitionBy("pair"))
    rows = rows.withColumn("lost", left).withColumn("more", F.col("owned") - F.col("taken"))
    rows = _take_from_last(rows, "more")
    return rows.withColumn("amount", F.col("taken") + F.col("amount")).drop(
        "offer", "taken", "more"
    )


def _level_classes(
    view: CellView, plan: Plan, flows: Flows, rows: DataFrame, cut: np.ndarray
) -> tuple[DataFrame, Longs]:
    """Lower members that are still above their bounds, from their last topic classes first."""
    problem, cells = plan.cells.problem, plan.cells
    dropped = rows.groupBy("key").agg(F.sum("amount").alias("dropped"))
    members = view.members.join(dropped.hint("shuffle_hash"), "key", "left").select(
        "key", "class", *ORDER,
        (F.col("load") - F.coalesce("dropped", F.lit(0))).alias("left_load"),
    )  # fmt: skip
    loads = count_by_load(members, "left_load", len(problem.size))
    given = sum_by(problem.pair_class, flows.new, len(problem.size))
    needed = count_drops_needed(loads, cells.low, cells.high, loads.total() + given)
    needed = np.where(cut, needed, 0)
    back = np.zeros(len(problem.pair_class), dtype=np.int64)
    if not needed.any():
        return rows, back
    give = add_above_level(
        view, members, "left_load", loads, lower_loads(loads, needed), needed > 0
    )
    rows = rows.join(give.select("key", "give"), "key", "left")
    left = F.col("owned") - F.col("amount")
    order = Window.partitionBy("key").orderBy(F.col("topic_class").desc())
    before = F.coalesce(
        F.sum(left).over(order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)
    )
    more = F.greatest(F.lit(0), F.least(F.coalesce("give", F.lit(0)) - before, left))
    rows = view.group.work_session.keep(rows.withColumn("more", more))
    back = sum_by_key(rows, "pair", "more", len(back))
    return rows.withColumn("amount", F.col("amount") + F.col("more")), back
