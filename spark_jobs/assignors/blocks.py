"""A group in blocks: `assignors.blocks` on Spark.

Where Spark reads rows of members and of what was theirs, they are packed for blocks of neighbouring
ids. From then on a row is a packet, so that Spark moves arrays: what members keep goes to stretches
of the line, which find what is free, and send it to those who get it. A block finds by itself what
it does, from totals of the blocks before it, which the driver adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from assignors.blocks.assign_blocks import BlockGroup, Engine, Task
from assignors.blocks.packets import CLAIMS, PACKET, ROWS, Packet, read_packets
from assignors.blocks.place_members import Seats
from assignors.blocks.read_members import KINDS_OF_ROWS
from assignors.partition_ranges import ARROW_SCHEMA
from spark_jobs.assignors.group import refuse_changed
from spark_jobs.assignors.small_group import GivenTables
from spark_jobs.session.cluster import failures_explained
from spark_jobs.session.schemas import frame_of
from spark_jobs.session.work_session import WorkSession


def read_blocks(session: WorkSession, given: GivenTables) -> BlockGroup[DataFrame]:
    """Read a group into blocks.

    Raises
    ------
    SpecError
        Bad members or claims, or members are others when they are read again.
    """
    topics, classes = given.topics, given.members.count(given.topics)
    rows = max(int(classes.size.sum()), given.rows)
    group = BlockGroup.read(
        FrameEngine(session, given), topics.names, topics.partitions,
        classes.size, classes.offsets, classes.topics, given.members.labels,
        max(-(-rows // session.bucket_rows), session.tasks), session.bucket_rows,
        static=given.members.static,
    )  # fmt: skip
    refuse_changed(classes.size, group.members)
    return group


@dataclass(frozen=True, slots=True)
class FrameEngine(Engine[DataFrame]):
    """Runs tasks on DataFrames of packets."""

    session: WorkSession
    given: GivenTables

    def rows(self, blocks: int | None) -> tuple[DataFrame, ...]:
        """See `Engine`."""
        members, claims = self.given.members.rows, self.given.previous
        named: list[Column] = []
        if blocks is not None:
            named.append(F.pmod(F.xxhash64("member_id"), F.lit(blocks)).alias("block"))
        rows = members.select(*KINDS_OF_ROWS[ROWS], *named)
        return (rows,) if claims is None else (rows, claims.select(*KINDS_OF_ROWS[CLAIMS], *named))

    def sample(self, count: int) -> pa.StringArray:
        """See `Engine`. Rows are chosen by a hash, so they are the same in every run.

        `DataFrame.sample` has its seed in the code that Spark generates: each run would compile
        that again.
        """
        assert self.given.members.sizes is not None
        there = int(self.given.members.sizes.sum()) + self.given.rows
        mask = (1 << max(there // count, 1).bit_length() - 1) - 1
        tables = zip(self.rows(None), (("member_id",), tuple(KINDS_OF_ROWS[CLAIMS])), strict=False)
        chosen = [
            rows.where(F.xxhash64(*key).bitwiseAND(F.lit(mask)) == 0).select("member_id")
            for rows, key in tables
        ]
        with failures_explained():
            found = reduce(DataFrame.unionAll, chosen).toArrow()["member_id"].combine_chunks()
        return found.cast(pa.string()).drop_null()

    def run(
        self,
        task: Task,
        *frames: DataFrame,
        seats: Seats | None = None,
        columns: Mapping[str, pa.DataType] = PACKET,
    ) -> DataFrame:
        """See `Engine`."""
        rows = reduce(DataFrame.unionAll, frames)
        if seats is not None:
            rows = rows.repartition(len(seats), "seat")
        return rows.mapInArrow(_in_worker(task), from_arrow_schema(pa.schema(columns)))

    def keep(self, frame: DataFrame, *kinds: str) -> tuple[DataFrame, list[Packet]]:
        """See `Engine`."""

        def collect(kept: DataFrame) -> pa.Table:
            return _select(kept, kinds).toArrow()

        kept, table = self.session.keep_and_collect(frame, collect)
        return kept, _sort(table)

    def collect(self, frame: DataFrame, *kinds: str) -> list[Packet]:
        """See `Engine`."""
        with failures_explained():
            return _sort(_select(frame, kinds).toArrow())

    def find_seats(self, count: int) -> Seats:
        """See `Engine`."""
        return find_seats(count)

    def no_rows(self) -> DataFrame:
        """See `Engine`."""
        return frame_of(self.session.spark, ARROW_SCHEMA.empty_table())


def _in_worker(task: Task) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what runs a task in one of Spark's Python processes.

    Such a process looks at all its objects for garbage after every task, 30 ms of CPU for modules
    alone. So those that were there before the first of our tasks are passed over from then on.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc  # noqa: PLC0415 - executors have no module of this package

        if not gc.get_freeze_count():
            gc.freeze()
        yield from task.run(batches)

    return run


def _select(packets: DataFrame, kinds: tuple[str, ...]) -> DataFrame:
    return packets.where(F.col("kind").isin(*kinds))


def _sort(table: pa.Table) -> list[Packet]:
    return sorted(read_packets(table.to_batches()), key=lambda packet: packet.block)


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
