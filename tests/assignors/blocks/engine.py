"""An engine in this process that cuts groups into blocks, and deals packets in any order."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, Verdict
from assignors.blocks.group import BlockGroup, put_in_one_cell
from assignors.blocks.member_blocks import Levels
from assignors.blocks.packets import LOADS, PIECES, WANTS, join_packets, read_packets
from assignors.blocks.totals import BlockLoads, number_by_head
from assignors.compressed_problem import CompressedProblem
from assignors.partition_ranges import ARROW_SCHEMA
from assignors.plan import find_lone_cells
from assignors.sticky import parse_imbalance
from assignors.water_level import Histogram


@dataclass
class Assigned:
    rows: pa.Table
    verdict: Verdict
    loads: Histogram
    moved: int
    orphans: int


def assign(given, imbalance: int | str, blocks: int, draw: random.Random) -> Assigned | None:
    """Assign tables as `spark_jobs.assignors.blocks` does; None where that gives up."""
    found = _read(
        given, lambda problem: find_lone_cells(problem, parse_imbalance(imbalance)), blocks, draw
    )
    if found is None:
        return None
    group, held, packets, loads = found
    blocks = group.blocks
    settled = group.settle(loads)
    if settled is None:
        return None
    seats = np.arange(max(blocks, group.stretches), dtype=np.int32)
    sent = _run(group.sending(settled.levels, seats[: group.stretches]), [held], draw)
    free = _run(group.freeing(), _by_seat(sent, draw), draw)
    dealt = group.deal(_of(free, WANTS, PIECES))
    if dealt is None:
        return None
    stay = _run(group.staying(settled.levels, seats[:blocks]), [held], draw)
    given_out = _run(group.dealing(dealt, seats[:blocks]), [free], draw)
    rows = _run(group.handing(dealt), _by_seat(stay + given_out, draw), draw)
    return Assigned(
        pa.Table.from_batches(rows, ARROW_SCHEMA),
        Verdict(moved_minimum=settled.plan.moved, exact=settled.plan.exact),
        number_by_head(settled.loads, packets), settled.plan.moved,
        group.line.length - loads.owned,
    )  # fmt: skip


def divide(given, blocks: int, draw: random.Random) -> Assigned | None:
    """Assign as `range` does."""
    found = _read(given, put_in_one_cell, blocks, draw)
    if found is None:
        return None
    group, held, packets, loads = found
    seats = np.arange(group.stretches, dtype=np.int32)
    levels = Levels.as_they_are(group.blocks, loads.classes)
    sent = _run(group.sending(levels, seats), [held], draw)
    if group.is_owned_twice(_of(_run(group.freeing(), _by_seat(sent, draw), draw), PIECES)):
        return None
    totals = list(read_packets(_run(group.dividing(loads, sum_up=True), [held], draw)))
    rows = _run(group.dividing(loads, sum_up=False), [held], draw)
    after = Histogram.of(loads.classes, *join_packets(totals, "class", "load", "members"))
    stayed = int(join_packets(totals, "stayed")[0].sum())
    return Assigned(
        pa.Table.from_batches(rows, ARROW_SCHEMA), Verdict(), number_by_head(after, packets),
        loads.owned - stayed, group.line.length - loads.owned,
    )  # fmt: skip


def _read(given, find_cells, blocks, draw):
    """Return the group, its blocks in member order, and their loads; None where it is wrong."""
    spec = GroupSpec.from_arrow(given[0], given[1])
    order = list(range(spec.class_count))
    draw.shuffle(order)  # an engine finds subscriptions in any order
    lists = np.split(spec.class_topics, spec.class_offsets[1:-1])
    sizes = np.diff(spec.class_members)[order]
    offsets = np.cumsum([0] + [len(lists[at]) for at in order])
    topics = np.concatenate([lists[at] for at in order])
    cells = find_cells(CompressedProblem.of_classes(sizes, offsets, topics, spec.partitions))
    if cells is None:
        return None
    group = BlockGroup.of(cells, spec.topics, spec.partitions, offsets, topics, blocks)
    class_of = dict(zip(spec.member_ids.to_pylist(), spec.member_class.tolist(), strict=True))
    held = _run(group.reading(), _deal(given, class_of, order, blocks, draw), draw)
    packets = _of(held, LOADS)
    if any(packet["fault"][0] for packet in packets):
        return None
    regrouped = group.regroup(packets, draw.choice([2, 5, 100]))
    if regrouped is not None:
        seats = np.arange(regrouped.group.blocks, dtype=np.int32)
        split = _run(group.splitting(regrouped, seats), [held], draw)
        held = _run(group.joining(), _by_seat(split, draw), draw)
        packets, group = _of(held, LOADS), regrouped.group
    loads = BlockLoads.of(group.blocks, len(sizes), packets)
    assert (loads.by_block(loads.members).sum(axis=0) == sizes).all()
    return group, held, packets, loads


def _run(task, inputs, draw):
    """Run a task on each input; what it is given may come in any pieces."""
    out = []
    for batches in inputs:
        pieces = []
        for batch in batches:
            cut = draw.randint(0, batch.num_rows)
            pieces += [batch.slice(0, cut), batch.slice(cut)]
        out += task.run(iter(pieces))
    return out


def _by_seat(batches, draw):
    """Deal packets to tasks, two seats to each, in any order."""
    tasks = defaultdict(list)
    for batch in draw.sample(batches, len(batches)):
        tasks[batch["seat"][0].as_py() // 2].append(batch)
    return list(tasks.values())


def _of(batches, *kinds):
    packets = [packet for packet in read_packets(batches) if packet.kind in kinds]
    return sorted(packets, key=lambda packet: packet.block)


def _deal(given, class_of, order, blocks, draw):
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
         order.index(class_of[row["member_id"]]), None, None, None)
        for row in members.to_pylist()
    ]  # fmt: skip
    rows += [
        (block_of[row["member_id"]], row["member_id"], None, -1, row["topic"],
         row["first_partition"], row["partition_count"])
        for row in owned.to_pylist()
    ]  # fmt: skip
    draw.shuffle(rows)
    kinds = (pa.int32(), pa.string(), pa.string(), pa.int32(), pa.string(), pa.int64(), pa.int64())
    names = (
        "block",
        "member_id",
        "instance_id",
        "class",
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
