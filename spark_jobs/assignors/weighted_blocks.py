"""One large weighted group in which no partition has an owner, as blocks of a million partitions.

Twin of what `weighted_search.py` does in its first step. Rows of partitions are shuffled once, into
blocks; from then on a row is a block, so that Spark moves arrays and not a hundred million rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from assignors.arrays import Longs
from assignors.loads.load_spec import find_rough_shift, find_shift
from assignors.weighted.block_tasks import (
    ENDS,
    FILLED,
    PACKED,
    SUMMED,
    WEIGHED,
    Batches,
    FillBlocks,
    ListRanges,
    PackBlocks,
    Scale,
    Seams,
    SumBlocks,
    WeighBlocks,
    find_ranks,
)
from assignors.weighted.problem import find_floor
from assignors.weighted.runs import Pool, Runs
from assignors.weighted.unit_tasks import RANGES
from spark_jobs.assignors.group import FrameGroup
from spark_jobs.assignors.weighted_units import Line, Weighed, judge_weights
from spark_jobs.session.work_session import WorkSession

BLOCKS_MAX = 256
"""The driver counts the weights of each block."""
_BUCKETS = 4
"""A block has so many times the rows of a bucket: eight bytes each, and no text."""


class _Task(Protocol):
    """One of `block_tasks`."""

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The weights of a line's partitions, packed.

    Attributes
    ----------
    weighed
        What they are; its rows are blocks.
    pool
        How many partitions there are of each weight.
    before
        int64 (blocks, weights): how many come before those of a weight in a block.
    """

    session: WorkSession
    line: Line
    width: int
    scale: Scale
    weighed: Weighed
    pool: Pool
    before: Longs

    @classmethod
    def read(cls, group: FrameGroup, line: Line, partitions: DataFrame | None) -> Blocks | None:
        """Read weights; None if a partition has none, or a topic without subscribers has one.

        Raises
        ------
        SpecError
            A row of `partitions` is not of the group, or has no good number.
        """
        if partitions is None or "weight" not in partitions.columns:
            return None
        rows, found = judge_weights(group, line, partitions)
        if not found["rows"] == found["on_line"] == line.partitions:
            return None
        session, places = group.work_session, line.partitions
        width = max(_BUCKETS * session.bucket_rows, -(-places // BLOCKS_MAX))
        rough = find_rough_shift(float(found["greatest"]))
        dealt = rows.select("place", "given").repartition(
            -(-places // width), F.expr(f"place div {width}")
        )
        packed, sums = session.keep_and_measure(
            _run(dealt, PackBlocks(width, places, Scale(rough)), PACKED),
            rough=F.sum("rough"), whole=F.min("whole"),
        )  # fmt: skip
        if not sums["whole"]:
            return None  # a partition is there twice: reading rows says which
        shift = find_shift(rough, int(sums["rough"]))
        total = _run(packed, SumBlocks(Scale(shift)), SUMMED).agg(F.sum("sum"))
        scale = Scale(shift, find_floor(int(total.collect()[0][0]), places))
        counted = _run(packed, WeighBlocks(scale), WEIGHED).toArrow().sort_by("block")
        weights, counts = (
            [np.frombuffer(it.as_buffer(), np.int64) for it in counted[name]]
            for name in ("weight", "count")
        )
        weight, count, before = find_ranks(weights, counts)
        least, most, exact = (np.asarray(counted[name]) for name in ("least", "most", "sum"))
        weighed = Weighed(
            packed, float(np.ldexp(1.0, -shift)), places, int(least.min()), int(most.max()),
            int(exact.sum()), int(weight[0]), int((weight * count).sum()),
        )  # fmt: skip
        return cls(session, line, width, scale, weighed, Pool.of(weight, count), before)

    def fill(self, runs: Runs) -> DataFrame:
        """Return ranges: owner, topic (of the line), first_partition, partition_count, exact."""
        shared = self.session.share((self.pool.weight, self.before, runs.member, runs.end))
        task = FillBlocks(self.scale, self.width, self.line.start, shared)
        filled = self.session.keep(_run(self.weighed.rows, task, FILLED))
        ends = filled.select("block", "runs", *ENDS).toArrow().sort_by("block")
        seams = Seams.of(ends, self.width, self.line.start)
        listed = ListRanges(self.width, self.line.partitions, self.line.start, seams)
        return _run(filled, listed, dict.fromkeys(RANGES, pa.int64()))


def _run(rows: DataFrame, task: _Task, columns: Mapping[str, pa.DataType]) -> DataFrame:
    return rows.mapInArrow(task.run, from_arrow_schema(pa.schema(columns)))
