"""A group whose classes do not compete, in blocks: `assignors.blocks` on Spark.

Rows are shuffled once, into blocks of neighbouring members with what was theirs. From then on a row
is a block, so that Spark moves arrays: what members keep goes to stretches of the line, which find
what is free, and send it to those who get it. A block finds by itself what it does, from totals of
the blocks before it, which the driver adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from assignors.arrays import Longs
from assignors.blocks.group import BlockGroup
from assignors.blocks.member_blocks import CLAIMED, ROWS
from assignors.blocks.packets import LOADS, PACKET, PIECES, WANTS, Batches, Packet, read_packets
from assignors.blocks.totals import BlockLoads, Settled, number_by_head
from assignors.long_ranges.keep_long import keeps_long
from assignors.partition_ranges import ARROW_SCHEMA, Verdict
from assignors.plan import find_lone_cells
from assignors.sticky import parse_imbalance
from spark_jobs.assignors.group import refuse_changed
from spark_jobs.assignors.materialize import FrameAssignment
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.session.work_session import WorkSession

LEVELS_MAX = 1 << 22
"""Of blocks times classes: every task gets so many numbers."""


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
    topics, classes = given.topics, given.members.count(given.topics)
    problem = classes.problem(topics)
    members = int(classes.size.sum())
    partitions = int(problem.partitions.sum())
    if not members or not partitions or keeps_long(members, partitions, long_ranges):
        return None
    cells = find_lone_cells(problem, parse_imbalance(imbalance))
    blocks = max(-(-max(members, given.rows) // work_session.bucket_rows), work_session.tasks)
    if cells is None or blocks * len(classes.size) > LEVELS_MAX:
        return None
    group = BlockGroup.of(
        cells, topics.names, topics.partitions, classes.offsets, classes.topics, blocks
    )
    return _Run(work_session, group, classes.size).assign(given, max_moves)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    session: WorkSession
    group: BlockGroup
    sizes: Longs

    def assign(self, given: GivenTables, max_moves: int | None) -> FrameAssignment | None:
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
        return replace(self, group=group).settle(held, packets, max_moves)

    def settle(
        self, held: DataFrame, packets: list[Packet], max_moves: int | None
    ) -> FrameAssignment | None:
        """Assign blocks in member order."""
        group = self.group
        loads = BlockLoads.of(group.blocks, len(self.sizes), packets)
        refuse_changed(self.sizes, loads.by_block(loads.members).sum(axis=0))
        settled = group.settle(loads)
        if settled is None or (max_moves is not None and settled.plan.moved > max_moves):
            return None
        rows = self._hand_out(held, settled)
        if rows is None:
            return None
        plan = settled.plan
        return FrameAssignment(
            rows, Verdict(moved_minimum=plan.moved, exact=plan.exact),
            number_by_head(settled.loads, packets), plan.moved, group.line.length - loads.owned,
        )  # fmt: skip

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

    def _hand_out(self, held: DataFrame, settled: Settled) -> DataFrame | None:
        """Return the rows; None where two members own the same partition."""
        group, stretches = self.group, find_seats(self.group.stretches)
        there = _run(held, group.sending(settled, stretches)).repartition(len(stretches), "seat")
        free, packets = self._keep(_run(there, group.freeing()), WANTS, PIECES)
        dealt = group.deal(packets)
        if dealt is None:
            return None
        seats = find_seats(group.blocks)
        stay, given = group.staying(settled, seats), group.dealing(dealt, seats)
        sent = _run(held, stay).unionAll(_run(free, given)).repartition(group.blocks, "seat")
        columns = dict(zip(ARROW_SCHEMA.names, ARROW_SCHEMA.types, strict=True))
        return _run(sent, group.handing(dealt), columns)

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
