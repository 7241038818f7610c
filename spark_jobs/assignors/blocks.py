"""A group in blocks, if its classes do not compete: `assignors.blocks` on Spark.

Rows are shuffled once, into blocks of neighbouring members with what was theirs. From then on a row
is a block, so that Spark moves arrays: what members keep goes to stretches of the line, which find
what is free, and send it to those who get it. A block finds by itself what it does, from totals of
the blocks before it, which the driver adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from assignors.arrays import Longs
from assignors.blocks.group import BlockGroup, put_in_one_cell
from assignors.blocks.member_blocks import CLAIMED, ROWS, Levels
from assignors.blocks.packets import (
    LOADS,
    PACKET,
    PIECES,
    WANTS,
    Batches,
    Packet,
    join_packets,
    read_packets,
)
from assignors.blocks.totals import BlockLoads, Settled, number_by_head
from assignors.compressed_problem import Cells, CompressedProblem
from assignors.long_ranges.keep_long import keeps_long
from assignors.partition_ranges import ARROW_SCHEMA, Verdict
from assignors.plan import find_lone_cells
from assignors.sticky import parse_imbalance
from assignors.water_level import Histogram
from spark_jobs.assignors.group import refuse_changed
from spark_jobs.assignors.materialize import FrameAssignment
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.session.work_session import WorkSession

LEVELS_MAX = 1 << 22
"""Of blocks times classes: every task gets so many numbers."""
_ROWS = dict(zip(ARROW_SCHEMA.names, ARROW_SCHEMA.types, strict=True))


class _Task(Protocol):
    """One of `assignors.blocks`."""

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]: ...


def assign_in_blocks(
    work_session: WorkSession,
    given: GivenTables,
    *,
    imbalance: int | str,
    max_moves: int | None,
    long_ranges: int,
) -> FrameAssignment | None:
    """Assign a group; None for one that has to be assigned otherwise, or refused."""
    found = _Run.begin(
        work_session, given, lambda problem: find_lone_cells(problem, parse_imbalance(imbalance))
    )
    if found is None or keeps_long(found.members, found.group.line.length, long_ranges):
        return None
    found = found.read(given)
    return None if found is None else found.assign(max_moves)


def divide_in_blocks(work_session: WorkSession, given: GivenTables) -> FrameAssignment | None:
    """Do as `assign_in_blocks` for `range`."""
    found = _Run.begin(work_session, given, put_in_one_cell)
    found = None if found is None else found.read(given)
    return None if found is None else found.divide()


@dataclass(frozen=True, eq=False)
class _Run:
    """A group; `held` and `packets` are its blocks in member order and their loads, once read."""

    session: WorkSession
    group: BlockGroup
    sizes: Longs
    held: DataFrame | None = None
    packets: tuple[Packet, ...] = ()

    @classmethod
    def begin(
        cls,
        session: WorkSession,
        given: GivenTables,
        find_cells: Callable[[CompressedProblem], Cells | None],
    ) -> _Run | None:
        topics, classes = given.topics, given.members.count(given.topics)
        problem = classes.problem(topics)
        if not classes.size.all() or not classes.size.sum() or not problem.partitions.sum():
            return None
        cells = find_cells(problem)
        most = max(int(classes.size.sum()), given.rows)
        blocks = max(-(-most // session.bucket_rows), session.tasks)
        if cells is None or blocks * (len(classes.size) + len(problem.partitions)) > LEVELS_MAX:
            return None
        group = BlockGroup.of(
            cells, topics.names, topics.partitions, classes.offsets, classes.topics, blocks
        )
        return cls(session, group, classes.size)

    @property
    def members(self) -> int:
        return int(self.sizes.sum())

    @property
    def blocks(self) -> DataFrame:
        assert self.held is not None
        return self.held

    @cached_property
    def loads(self) -> BlockLoads:
        return BlockLoads.of(self.group.blocks, len(self.sizes), list(self.packets))

    def read(self, given: GivenTables) -> _Run | None:
        """Read the blocks; None where a claim or a member is wrong."""
        group, session = self.group, self.session
        held, packets = self._keep(_run(self._deal(given), group.reading()), LOADS)
        if any(packet["fault"][0] for packet in packets):
            return None
        regrouped = group.regroup(packets, session.bucket_rows)
        if regrouped is not None:
            seats = find_seats(regrouped.group.blocks)
            split = _run(held, group.splitting(regrouped, seats)).repartition(len(seats), "seat")
            held, packets = self._keep(_run(split, group.joining()), LOADS)
            group = regrouped.group
        found = _Run(session, group, self.sizes, held, tuple(packets))
        refuse_changed(self.sizes, found.loads.by_block(found.loads.members).sum(axis=0))
        return found

    def assign(self, max_moves: int | None) -> FrameAssignment | None:
        """Assign with the fewest moves; None where those are too many, or two own the same."""
        settled = self.group.settle(self.loads)
        if settled is None or (max_moves is not None and settled.plan.moved > max_moves):
            return None
        rows, plan = self._hand_out(settled), settled.plan
        if rows is None:
            return None
        verdict = Verdict(moved_minimum=plan.moved, exact=plan.exact)
        return self._return(rows, verdict, settled.loads, plan.moved)

    def divide(self) -> FrameAssignment | None:
        """Divide each topic among its subscribers; None where two own the same."""
        group, loads = self.group, self.loads
        if loads.owned:
            levels = Levels.as_they_are(group.blocks, len(self.sizes))
            free = _run(self._send(levels), group.freeing()).where(F.col("kind") == PIECES)
            if group.is_owned_twice(list(read_packets(free.toArrow().to_batches()))):
                return None
        totals = _run(self.blocks, group.dividing(loads, sum_up=True)).toArrow()
        found = list(read_packets(totals.to_batches()))
        after = Histogram.of(len(self.sizes), *join_packets(found, "class", "load", "members"))
        moved = loads.owned - int(join_packets(found, "stayed")[0].sum())
        rows = _run(self.blocks, group.dividing(loads, sum_up=False), _ROWS)
        return self._return(rows, Verdict(), after, moved)

    def _return(
        self, rows: DataFrame, verdict: Verdict, loads: Histogram, moved: int
    ) -> FrameAssignment:
        orphans = self.group.line.length - self.loads.owned
        named = number_by_head(loads, list(self.packets))
        return FrameAssignment(rows, verdict, named, moved, orphans)

    def _deal(self, given: GivenTables) -> DataFrame:
        """Put rows into blocks of neighbouring ids."""
        nothing = [F.lit(None).cast("string").alias("topic")]
        nothing += [F.lit(None).cast("bigint").alias(name) for name in CLAIMED[1:]]
        class_, claims = F.col("class").cast("int"), given.previous
        rows = given.members.rows.select("member_id", "instance_id", class_, *nothing)
        if claims is not None:
            none = [F.lit(None).cast("string").alias("instance_id"), F.lit(-1).alias("class")]
            rows = rows.unionAll(claims.select("member_id", *none, *CLAIMED))
        dealt = rows.repartitionByRange(self.group.blocks, "member_id")
        return dealt.withColumn("block", F.spark_partition_id()).select(*ROWS)

    def _send(self, levels: Levels) -> DataFrame:
        """Send what members keep to stretches of the line."""
        seats = find_seats(self.group.stretches)
        sent = _run(self.blocks, self.group.sending(levels, seats))
        return sent.repartition(len(seats), "seat")

    def _hand_out(self, settled: Settled) -> DataFrame | None:
        """Return the rows; None where two members own the same partition."""
        group, levels = self.group, settled.levels
        free, packets = self._keep(_run(self._send(levels), group.freeing()), WANTS, PIECES)
        dealt = group.deal(packets)
        if dealt is None:
            return None
        seats = find_seats(group.blocks)
        stay = _run(self.blocks, group.staying(levels, seats))
        sent = stay.unionAll(_run(free, group.dealing(dealt, seats)))
        return _run(sent.repartition(group.blocks, "seat"), group.handing(dealt), _ROWS)

    def _keep(self, frame: DataFrame, *kinds: str) -> tuple[DataFrame, list[Packet]]:
        """Compute packets, and return those of some kinds, by block."""

        def collect(kept: DataFrame) -> pa.Table:
            return kept.where(F.col("kind").isin(*kinds)).toArrow()

        kept, table = self.session.keep_and_collect(frame, collect)
        return kept, sorted(read_packets(table.to_batches()), key=lambda packet: packet.block)


def _run(rows: DataFrame, task: _Task, columns: Mapping[str, pa.DataType] = PACKET) -> DataFrame:
    return rows.mapInArrow(task.run, from_arrow_schema(pa.schema(columns)))


def find_seats(count: int) -> npt.NDArray[np.int32]:
    """Return a number for each of `count` blocks, which Spark's hash puts into as many tasks."""
    tried, seats = 0, np.full(count, -1, dtype=np.int32)
    while (seats < 0).any():
        some = np.arange(tried, tried + 8 * count, dtype=np.uint32)
        task = _hash_as_spark(some).astype(np.int64) % count
        at, first = np.unique(task, return_index=True)
        at, first = at[seats[at] < 0], first[seats[at] < 0]
        seats[at] = some[first]
        tried += len(some)
    return seats


def _hash_as_spark(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Return the hash by which `repartition` deals integers: Murmur3, x86, 32 bits, seed 42."""
    word = _rotate(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotate(np.uint32(42) ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return np.asarray(mixed ^ (mixed >> np.uint32(16))).view(np.int32)


def _rotate(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
