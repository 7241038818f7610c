"""An engine in this process that cuts groups into blocks, and deals packets in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

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

    def rows(self, blocks):
        members, _, owned = self.given
        label = pa.array([self.label_of[name] for name in members["member_id"].to_pylist()])
        members = members.select(["member_id", "instance_id"]).append_column(
            "label", label.cast(pa.int64())
        )
        tables = members, owned
        if blocks is not None:
            tables = [_append_blocks(table, blocks) for table in tables]
        return tuple(_scatter(rows, self.draw) for rows in tables)

    def sample(self, count):
        members, _, owned = self.given
        names = [*members["member_id"].to_pylist(), *owned["member_id"].to_pylist()]
        some = self.draw.choices([name for name in names if name], k=count // 64)
        return pa.array(some[: self.draw.choice([0, 1, 5, 99])], pa.string())

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
        draw.choice([2, 5, 100]), static=draw.choice([True, False]),
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


def _scatter(table, draw):
    """Return rows as the batches of some tasks, in any order."""
    table = table.take(draw.sample(range(len(table)), len(table)))
    edges = [0, *sorted(draw.randint(0, len(table)) for _ in range(2)), len(table)]
    return [table.slice(low, high - low).to_batches() for low, high in pairwise(edges)]


def _append_blocks(table, blocks):
    """Put members into blocks in no order, with their claims."""
    block = [crc32((name or "").encode()) % blocks for name in table["member_id"].to_pylist()]
    return table.append_column("block", pa.array(block, pa.int64()))
