"""An engine in this process that cuts groups into blocks, and deals packets in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assignors import GroupSpec
from assignors.blocks.assign_blocks import Assigned, BlockGroup, Options
from assignors.blocks.packets import PACKET, read_packets
from assignors.blocks.read_members import Labels
from assignors.partition_ranges import ARROW_SCHEMA
from assignors.sticky import parse_imbalance


@dataclass
class BatchEngine:
    """`assign_blocks.Engine` on lists of tasks' batches."""

    given: tuple
    draw: random.Random
    label_of: dict[str, int]
    ran: list[str]

    def read(self, blocks):
        return _deal(self.given, self.label_of, blocks, self.draw)

    def run(self, task, *frames, seats=None, columns=PACKET):
        self.ran.append(type(task).__name__)
        tasks = [batches for frame in frames for batches in frame]
        if seats is not None:
            assert len(set(seats.tolist())) == len(seats)
            tasks = _by_seat([batch for batches in tasks for batch in batches], self.draw)
        out = [_run(task, batches, self.draw) for batches in tasks]
        assert all(batch.schema.equals(pa.schema(columns)) for batches in out for batch in batches)
        return out

    def keep(self, frame, *kinds):
        return frame, self.collect(frame, *kinds)

    def collect(self, frame, *kinds):
        found = read_packets(batch for batches in frame for batch in batches)
        packets = [packet for packet in found if packet.kind in kinds]
        return sorted(packets, key=lambda packet: packet.block)

    def find_seats(self, count):
        seats = list(range(3, 3 + 2 * count))
        self.draw.shuffle(seats)
        return np.array(seats[:count], dtype=np.int32)

    def no_rows(self):
        return []


def read(given, blocks: int, draw: random.Random, ran: list[str]) -> BlockGroup:
    """Read tables as `spark_jobs.assignors.blocks` does."""
    spec = GroupSpec.from_arrow(given[0], given[1])
    order = [
        *range(spec.class_count),
        *range(spec.class_count, spec.class_count + draw.choice([0, 1])),
    ]
    draw.shuffle(order)  # an engine finds subscriptions in any order, and some without members
    lists = [*np.split(spec.class_topics, spec.class_offsets[1:-1]), np.arange(len(spec.topics))]
    sizes = np.append(np.diff(spec.class_members), 0)[order]
    lists = [lists[at] for at in order]
    names = spec.member_ids.to_pylist(), spec.member_class.tolist()
    drawn = np.array(draw.sample(range(-99, 99 + len(order)), len(order)))
    labels = Labels.of(drawn, np.arange(len(order)))
    label_of = {name: int(drawn[order.index(at)]) for name, at in zip(*names, strict=True)}
    engine = BatchEngine(given, draw, label_of, ran)
    group = BlockGroup.read(
        engine, spec.topics, spec.partitions, sizes, np.cumsum([0, *map(len, lists)]),
        np.concatenate([*lists, spec.class_topics[:0]]).astype(np.int64), labels, blocks,
        draw.choice([2, 5, 100]),
    )  # fmt: skip
    assert (group.members == sizes).all()
    return group


def assign(
    given,
    blocks: int,
    draw: random.Random,
    ran: list[str],
    imbalance=0,
    max_moves=None,
    exact_edges=10**6,
) -> Assigned:
    """Assign tables as `spark_jobs.assignors.balanced` does."""
    group = read(given, blocks, draw, ran)
    return group.assign(Options(parse_imbalance(imbalance), max_moves, exact_edges))


def divide(given, blocks: int, draw: random.Random, ran: list[str]) -> Assigned:
    """Assign as `range` does."""
    return read(given, blocks, draw, ran).divide()


def rows_of(assigned: Assigned) -> pa.Table:
    """Return the rows of an assignment."""
    return pa.Table.from_batches(
        [batch for batches in assigned.rows for batch in batches], ARROW_SCHEMA
    )


def _run(task, batches, draw):
    """Run a task; what it is given may come in any pieces."""
    pieces = []
    for batch in batches:
        cut = draw.randint(0, batch.num_rows)
        pieces += [batch.slice(0, cut), batch.slice(cut)]
    return list(task.run(iter(pieces)))


def _by_seat(batches, draw):
    """Deal packets to tasks, two seats to each, in any order."""
    tasks = defaultdict(list)
    for batch in draw.sample(batches, len(batches)):
        tasks[batch["seat"][0].as_py() // 2].append(batch)
    return list(tasks.values())


def _deal(given, label_of, blocks, draw):
    """Return the rows of each block: ids between two of those drawn."""
    members, _, owned = given
    names = {*members["member_id"].to_pylist(), *owned["member_id"].to_pylist()} - {None}
    names = sorted(names, key=str.encode)
    edges = sorted(draw.randint(0, len(names)) for _ in range(blocks - 1))
    block_of = {None: 0}
    for block, (low, high) in enumerate(zip([0, *edges], [*edges, len(names)], strict=True)):
        block_of |= dict.fromkeys(names[low:high], block)
    rows = [
        (block_of[row["member_id"]], row["member_id"], row["instance_id"],
         label_of[row["member_id"]], None, None, None)
        for row in members.to_pylist()
    ]  # fmt: skip
    rows += [
        (block_of[row["member_id"]], row["member_id"], None, None, row["topic"],
         row["first_partition"], row["partition_count"])
        for row in owned.to_pylist()
    ]  # fmt: skip
    draw.shuffle(rows)
    kinds = (pa.int32(), pa.string(), pa.string(), pa.int64(), pa.string(), pa.int64(), pa.int64())
    names = (
        "block",
        "member_id",
        "instance_id",
        "label",
        "topic",
        "first_partition",
        "partition_count",
    )
    tasks = defaultdict(list)
    for row in rows:
        tasks[row[0]].append(row)
    return [
        pa.table(
            [
                pa.array(column, kind)
                for column, kind in zip(zip(*mine, strict=True), kinds, strict=True)
            ],
            names,
        ).to_batches()
        for mine in tasks.values()
    ]
