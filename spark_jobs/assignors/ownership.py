"""What members own, as DataFrames: input of the plan. Twin of `assignors.ownership`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assignors.arrays import Longs, offsets_of, sum_by
from assignors.compressed_problem import Cells
from assignors.ownership import ClassTotals, compress_ownership
from assignors.plan import CompressedOwnership, OwnershipSource
from assignors.water_level import Histogram
from spark_jobs.assignors.group import MEMBERS, ORDER, FrameGroup
from spark_jobs.assignors.prior_ownership import ResolvedOwnership
from spark_jobs.session.schemas import look_up


@dataclass
class CellView:
    """The resolved ranges of a group, divided by one set of cells.

    Attributes
    ----------
    group, resolved, cells
        The group, its resolved ranges, and the cells.
    """

    group: FrameGroup
    resolved: ResolvedOwnership
    cells: Cells

    @cached_property
    def bounds(self) -> dict[str, np.ndarray]:
        """The bounds of classes, to be looked up: low, high, competing, class_cell."""
        cells = self.cells
        competing = ~cells.alone[cells.of_class]
        columns = {"low": cells.low, "high": cells.high, "competing": competing}
        return columns | {"class_cell": cells.of_class}

    @cached_property
    def topics(self) -> dict[str, np.ndarray]:
        """The topics, to be looked up: topic_class, topic_cell, line_start; -1 if unassigned.

        The line is that of `assignors.materialize`, with one free place after each topic, so that
        intervals only touch if they belong to the same topic.
        """
        problem = self.cells.problem
        line = self.group.line(problem)
        of_topic = problem.topic_class[line.topics]
        found: dict[str, np.ndarray] = {
            "topic_class": of_topic.astype(np.int32),
            "topic_cell": self.cells.of_topics[of_topic],
            "line_start": line.start[line.topics] + np.arange(len(line.topics)),
        }
        for name, values in found.items():
            every = np.full(len(self.group.topics.names), -1, dtype=values.dtype)
            every[line.topics] = values
            found[name] = every
        return found

    def add_topics(self, rows: DataFrame, *names: str) -> DataFrame:
        """Add columns of `topics` by topic_index."""
        return look_up(rows, "topic_index", {name: self.topics[name] for name in names})

    def add_bounds(self, rows: DataFrame, *names: str) -> DataFrame:
        """Add columns of `bounds` by class."""
        return look_up(rows, "class", {name: self.bounds[name] for name in names})

    @cached_property
    def ranges(self) -> DataFrame:
        """Resolved ranges with topic_class, and `inside`: whether it is in its owner's cell."""
        rows = self.resolved.ranges
        if len(self.cells.low) == 1:
            return rows.withColumn("topic_class", F.lit(0)).withColumn("inside", F.lit(True))
        rows = self.add_topics(rows, "topic_class", "topic_cell")
        rows = self.add_bounds(rows, "class_cell")
        inside = F.col("topic_cell") == F.col("class_cell")
        return rows.withColumn("inside", inside).drop("topic_cell", "class_cell")

    @cached_property
    def members(self) -> DataFrame:
        """All members: `MEMBERS`, load (partitions owned in the cell), owned (all partitions)."""
        own = F.when(F.col("inside"), F.col("count")).otherwise(0)
        sums = self.ranges.groupBy("key").agg(
            F.sum(own).alias("load"), F.sum("count").alias("owned")
        )
        rows = self.group.members.join(sums.hint("shuffle_hash"), "key", "left")
        zero = F.lit(0).cast("long")
        return self.group.work_session.keep(
            rows.select(
                *MEMBERS,
                F.coalesce("load", zero).alias("load"),
                F.coalesce("owned", zero).alias("owned"),
            )
        )

    @cached_property
    def loads(self) -> Histogram:
        """The number of members by class and load within their cell."""
        return count_by_load(self.members, "load", len(self.cells.low))

    @cached_property
    def crossing(self) -> int:
        """The number of owned partitions that are in another cell than their owner."""
        return int(self.resolved.owned - self.loads.total().sum())

    @cached_property
    def orphans(self) -> Longs:
        """The number of partitions without an owner, by topic class: int64, one per class."""
        problem = self.cells.problem
        if len(problem.partitions) == 1:
            return np.array([self.resolved.free], dtype=np.int64)
        found = self.resolved.gaps.groupBy("topic_index").agg(F.sum("length")).toArrow()
        topic, length = (column.to_numpy() for column in found.columns)
        return sum_by(problem.topic_class[topic], length, len(problem.partitions))

    def entries(self, rows: DataFrame) -> DataFrame:
        """Sum ranges by (member, topic class): key, class, topic_class, owned."""
        return rows.groupBy("key", "class", "topic_class").agg(F.sum("count").alias("owned"))

    def competing(self) -> DataFrame:
        """Ranges in flow cells that are in their owner's cell, with the owner's load, low, high."""
        who = self.members.select("key", *ORDER, "load").hint("shuffle_hash")
        rows = self.add_bounds(self.ranges.where("inside"), "low", "high", "competing")
        return rows.where("competing").drop("competing").join(who, "key", "inner")

    def compress(
        self, above: Longs, entries_max: int
    ) -> tuple[CompressedOwnership | None, DataFrame | None]:
        """Do the same as `OwnershipSource.compress`, and return the typed members' vectors.

        Returns
        -------
        held, types
            The compressed ownership, and the typed members: key, class, `ORDER`, vector (what each
            owns, an array of (topic class, owned)). None, None if there are too many entries.
        """
        rows = look_up(self.competing(), "class", {"above": above})
        keys = ("key", "class", *ORDER)
        typed = rows.where("load > low and load > above").groupBy(*keys, "topic_class")
        # The array is sorted, so it does not depend on the order in which rows are collected.
        vector = F.sort_array(F.collect_list(F.struct("topic_class", "owned"))).alias("vector")
        members = self.group.work_session.keep(
            typed.agg(F.sum("count").alias("owned")).groupBy(*keys).agg(vector)
        )
        types = self.group.work_session.keep(
            members.groupBy("class", "vector").agg(
                F.count(F.lit(1)).alias("members"), F.min(F.struct(*ORDER)).alias("head")
            )
        )
        if (types.agg(F.sum(F.size("vector"))).collect()[0][0] or 0) > entries_max:
            return None, None
        return self._compress(rows, above, types.toArrow()), members

    def _compress(self, rows: DataFrame, above: Longs, types: pa.Table) -> CompressedOwnership:
        cells = self.cells
        below = self._pairs(rows.where("load <= low"))
        between = self._pairs(rows.where("load > low and load <= above"))
        pair = np.flatnonzero(between)
        pair = pair[np.argsort(cells.problem.pair_class[pair], kind="stable")]
        lumps = ClassTotals.of_loads(
            self.loads,
            cells,
            above,
            cells.problem.pair_class[pair],
            cells.problem.pair_topic[pair],
            between[pair],
        )
        heads = types["head"].combine_chunks()
        columns = {"class": types["class"].combine_chunks()}
        columns |= {name: heads.field(name) for name in ORDER}
        order = pa.compute.sort_indices(
            pa.table(columns), [(name, "ascending") for name in columns]
        )
        types = types.take(order)
        lists = types["vector"].combine_chunks()
        flat = lists.flatten()
        return compress_ownership(
            cells,
            below,
            types["class"].to_numpy().astype(np.int64),
            types["members"].to_numpy().astype(np.int64),
            offsets_of(np.asarray(lists.value_lengths(), dtype=np.int64)),
            np.asarray(flat.field("topic_class"), dtype=np.int64),
            np.asarray(flat.field("owned"), dtype=np.int64),
            lumps,
        )

    def _pairs(self, rows: DataFrame) -> Longs:
        """Sum ranges per eligible pair of class and topic class."""
        problem = self.cells.problem
        classes = len(problem.size)
        found = rows.groupBy("topic_class", "class").agg(F.sum("count").alias("owned")).toArrow()
        topic = found["topic_class"].to_numpy().astype(np.int64)
        keys = problem.pair_topic * classes + problem.pair_class
        at = np.searchsorted(keys, topic * classes + found["class"].to_numpy())
        return sum_by(at, found["owned"].to_numpy(), len(keys))


class FrameOwnership(OwnershipSource):
    """Answers the plan's questions with Spark, and caches the answers for materializing."""

    def __init__(self, group: FrameGroup, resolved: ResolvedOwnership) -> None:
        self.group, self.resolved = group, resolved
        self._views: list[tuple[Cells, CellView]] = []
        self._types: list[tuple[CompressedOwnership, DataFrame]] = []

    def view(self, cells: Cells) -> CellView:
        """Return the group divided by `cells`; cached."""
        for known, view in self._views:
            if known is cells:
                return view
        self._views.append((cells, CellView(self.group, self.resolved, cells)))
        return self._views[-1][1]

    def loads(self, cells: Cells) -> Histogram:
        """See `OwnershipSource`."""
        return self.view(cells).loads

    def crossing(self, cells: Cells) -> int:
        """See `OwnershipSource`."""
        return self.view(cells).crossing

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> CompressedOwnership | None:
        """See `OwnershipSource`."""
        held, members = self.view(cells).compress(above, entries_max)
        if held is not None and members is not None:
            self._types.append((held, members))
        return held

    def find_types(self, held: CompressedOwnership) -> DataFrame:
        """Return the typed members of a compression that `compress` returned."""
        return next(members for known, members in self._types if known is held)


def count_by_load(members: DataFrame, load: str, classes: int) -> Histogram:
    """Count members by class and load, on the driver."""
    found = members.groupBy("class", load).count().toArrow()
    return Histogram.of(
        classes,
        found["class"].to_numpy().astype(np.int64),
        found[load].to_numpy().astype(np.int64),
        found["count"].to_numpy(),
    )


def sum_by_key(frame: DataFrame, key: str, amount: str, size: int) -> Longs:
    """Sum `amount` per key in 0 … size − 1, on the driver."""
    found = frame.groupBy(key).agg(F.sum(amount).alias("total")).toArrow()
    return sum_by(found[key].to_numpy(), found["total"].to_numpy(), size)
