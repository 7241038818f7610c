"""A group in blocks: which tasks an engine runs, one after another, and what it asks in between.

1. `DealRows` sends rows to blocks, and `ReadMembers` makes them blocks of members. If some are
   static, `SplitMembers` and `JoinMembers` put these into blocks before all others. `settle` finds
   how much members keep and get.
2. `PlaceMembers`: what members keep goes to stretches of the line; `FreeLine` finds what is free.
   Where two claim the same, `TakeLostClaims` takes it from the later one, and all begins again.
3. `SharePieces` cuts what is free where another class's share begins, if classes share topics.
4. `DealPieces`: free pieces go to the blocks of those who get them; `PlaceMembers` yields those
   blocks again, and `HandOut` joins both.

For `range`, `DivideTopics` follows 1: no member has to know what others own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints, Longs, offsets_of
from assignors.blocks.deal_rows import SAMPLES, DealRows, find_edges
from assignors.blocks.drops import BlockDrops
from assignors.blocks.kinds import BlockKinds
from assignors.blocks.line_blocks import DealPieces, FreeLine, MovesLimit, SharePieces, Shares
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import (
    AFTER,
    CLAIMED_TWICE,
    DIVIDED,
    FAULT,
    LEFT,
    LOADS,
    MEMBERS,
    MOVES,
    PACKET,
    PIECES,
    WANTS,
    Batches,
    Packet,
    join_packets,
)
from assignors.blocks.place_members import CountLeft, HandOut, ListRows, PlaceMembers, Seats
from assignors.blocks.range_blocks import DivideTopics, TopicShares
from assignors.blocks.read_members import (
    OWNED,
    Labels,
    ListOwned,
    ReadMembers,
    TakeLostClaims,
    raise_fault,
)
from assignors.blocks.regroup import JoinMembers, SplitMembers
from assignors.blocks.totals import Settled, find_free, find_wanted, settle
from assignors.materialize import PartitionLine
from assignors.ownership import ArrayOwnership
from assignors.partition_ranges import ARROW_SCHEMA, Verdict
from assignors.plan import solve_sticky_plan
from assignors.water_level import Histogram

STRETCHES_MAX = 256
"""Each block of members sends a packet to each stretch of the line."""
ASSIGNMENT = dict(zip(ARROW_SCHEMA.names, ARROW_SCHEMA.types, strict=True))
NUMBERS_MAX = 1 << 22
"""Of blocks times classes and topic classes: every task gets so many numbers."""

Frame = TypeVar("Frame")


class Task(Protocol):
    """What an engine runs on packets, or on rows."""

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of them."""


class Engine(Protocol[Frame]):
    """Runs tasks on frames of packets."""

    def rows(self, blocks: int | None) -> tuple[Frame, ...]:
        """Return rows of members and, if there are any, of claims: `read_members.KINDS_OF_ROWS`.

        Parameters
        ----------
        blocks
            Of how many blocks each names one in a column `block`, by a hash of its id.
        """

    def sample(self, count: int) -> pa.StringArray:
        """Return the ids of about so many rows, of members and of claims alike."""

    def run(
        self,
        task: Task,
        *frames: Frame,
        seats: Seats | None = None,
        columns: Mapping[str, pa.DataType] = PACKET,
    ) -> Frame:
        """Run a task on the packets of some frames, dealt by their seats first if given.

        Parameters
        ----------
        columns
            What the task yields.
        """

    def keep(self, frame: Frame, *kinds: str) -> tuple[Frame, list[Packet]]:
        """Compute a frame, keep it, and return the packets of some kinds, by block."""

    def collect(self, frame: Frame, *kinds: str) -> list[Packet]:
        """Return the packets of some kinds, by block."""

    def find_seats(self, count: int) -> Seats:
        """Return a seat for each of `count` blocks, in as many tasks."""

    def no_rows(self) -> Frame:
        """Return an empty assignment."""


@dataclass(frozen=True, slots=True)
class Options:
    """What decides an assignment with the fewest moves."""

    imbalance: int | Fraction
    max_moves: int | None
    exact_edges: int


@dataclass(frozen=True, slots=True, eq=False)
class Assigned(Generic[Frame]):
    """An assignment: its rows, and what is known of it.

    Attributes
    ----------
    loads
        Members by class and load; classes are numbered by their first member.
    moved, orphans
        Partitions that change hands, and those that had no owner.
    """

    rows: Frame
    verdict: Verdict
    loads: Histogram
    moved: int
    orphans: int


@dataclass(frozen=True, eq=False)
class BlockGroup(Generic[Frame]):
    """A group that was read: its blocks in member order.

    Attributes
    ----------
    engine
        Runs the tasks.
    given, known
        What tasks know: of classes as given, and of classes by their first member.
    blocks
        How many there are.
    held, packets
        The blocks, and their `LOADS`.
    """

    engine: Engine[Frame]
    given: KnownGroup
    known: KnownGroup
    blocks: int
    held: Frame
    packets: tuple[Packet, ...]

    @classmethod
    def read(
        cls,
        engine: Engine[Frame],
        topics: pa.StringArray,
        partitions: Longs,
        size: Longs,
        class_offsets: Longs,
        class_topics: Ints,
        labels: Labels,
        blocks: int,
        block_rows: int,
        *,
        static: bool,
    ) -> BlockGroup[Frame]:
        """Read a group.

        Parameters
        ----------
        size, class_offsets, class_topics
            The members of each class, and its topics.
        labels
            The class of each label in rows.
        blocks
            Into how many to cut the rows, unless driver and tasks would know too much of each.
        block_rows
            About so many members to a block of static members.
        static
            Whether some are static: they are put in order once more, so rows need not be in any.

        Raises
        ------
        SpecError
            Bad members or claims.
        """
        given = KnownGroup.of(topics, partitions, size, class_offsets, class_topics)
        numbers = len(size) + len(given.parts.problem.partitions)
        blocks = max(min(blocks, NUMBERS_MAX // max(numbers, 1)), 1)
        edges = None
        if not static:
            samples = engine.sample(SAMPLES * blocks) if blocks > 1 else pa.array([], pa.string())
            edges = find_edges(samples, np.ones(len(samples)), blocks)
            blocks = len(edges) + 1
        seats = engine.find_seats(blocks)
        rows = engine.rows(blocks if static else None)
        dealt = [engine.run(DealRows(edges, seats), frame) for frame in rows]
        held, packets = engine.keep(
            engine.run(ReadMembers(given, labels), *dealt, seats=seats), LOADS, FAULT
        )
        raise_fault(packets)
        if static or (packets and join_packets(packets, "static")[0].any()):
            split = SplitMembers.of(packets, blocks, block_rows, engine.find_seats)
            blocks, seats = len(split.seats), split.seats
            sent = engine.run(split, held)
            held, packets = engine.keep(engine.run(JoinMembers(given), sent, seats=seats), LOADS)
        return cls(engine, given, _renumber(given, packets), blocks, held, tuple(packets))

    @cached_property
    def kinds(self) -> BlockKinds:
        """Members that own alike."""
        return BlockKinds.of(self.blocks, self.known, list(self.packets))

    @property
    def members(self) -> Longs:
        """Members of each class as given."""
        class_, count = join_packets(list(self.packets), "class", "members")
        kind_class, kind_count = join_packets(list(self.packets), "kind_class", "kind_members")
        total = np.zeros(len(self.given.class_offsets) - 1, dtype=np.int64)
        np.add.at(total, np.concatenate([class_, kind_class]), np.concatenate([count, kind_count]))
        return total

    @property
    def partitions(self) -> int:
        """Partitions of subscribed topics."""
        return int(self.known.parts.problem.partitions.sum())

    def list_members(self) -> list[MemberBlock]:
        """Return all members, in member order."""
        found = self.engine.collect(self.held, MEMBERS)
        return [MemberBlock.unpack(packet) for packet in found]

    def assign(self, options: Options) -> Assigned[Frame]:
        """Assign with the fewest moves within an imbalance."""
        group: BlockGroup[Frame] = self
        if not self.partitions:
            return self._assign_nothing(Verdict(moved_minimum=0))
        while True:
            owned = ArrayOwnership(group.kinds.group, group.kinds.times)
            plan = solve_sticky_plan(
                group.known.parts.problem, options.imbalance, owned, options.exact_edges
            )
            settled = settle(plan, group.kinds, owned, group.count_left)
            limit = options.max_moves
            line = _Line.of(group, plan.cells.problem.topic_class, settled, limit)
            if not line.claimed_twice:
                assert settled is not None, "more is owned than there is"
                return line.hand_out(settled)
            group = line.take_lost_claims()

    def divide(self) -> Assigned[Frame]:
        """Divide each topic among its subscribers, as `range` does."""
        if not self.partitions:
            return self._assign_nothing(Verdict())
        group = self.resolved()
        kinds, known, engine = group.kinds, group.known, group.engine
        every = np.arange(len(kinds.block))
        shares = TopicShares.of(
            known.parts.problem, known.partitions, kinds.by_block(every, kinds.times)
        )
        found = engine.collect(
            engine.run(DivideTopics(known, shares, sum_up=True), group.held), DIVIDED
        )
        classes = kinds.group.class_count
        after = Histogram.of(classes, *join_packets(found, "class", "load", "members"))
        moved = kinds.owned - int(join_packets(found, "stayed")[0].sum())
        task = DivideTopics(known, shares, sum_up=False)
        rows = engine.run(task, group.held, columns=ASSIGNMENT)
        return Assigned(rows, Verdict(), after, moved, group.partitions - kinds.owned)

    def resolved(self) -> BlockGroup[Frame]:
        """Return the group with each partition claimed twice the first one's in member order."""
        if not self.kinds.owned:
            return self
        line = _Line.of(self, self.known.parts.problem.topic_class, None, None)
        return line.take_lost_claims() if line.claimed_twice else self

    def list_owned(self) -> Frame:
        """Return what members own: rows of `read_members.OWNED`."""
        kinds = self.kinds
        members = kinds.by_block(np.arange(len(kinds.block)), kinds.times).sum(axis=1)
        return self.engine.run(ListOwned(offsets_of(members)), self.held, columns=OWNED)

    def count_left(self, drops: BlockDrops) -> list[Packet]:
        """Count what is left to members once they have given up something."""
        return self.engine.collect(self.engine.run(CountLeft(self.known, drops), self.held), LEFT)

    def _assign_nothing(self, verdict: Verdict) -> Assigned[Frame]:
        kinds = self.kinds
        class_ = kinds.group.member_class.astype(np.int64)
        loads = Histogram.of(kinds.group.class_count, class_, np.zeros_like(class_), kinds.times)
        return Assigned(self.engine.no_rows(), verdict, loads, 0, 0)


@dataclass(frozen=True, eq=False)
class _Line(Generic[Frame]):
    """What members keep, laid on the line: `free` is what they do not."""

    group: BlockGroup[Frame]
    line: PartitionLine
    stretch: int
    taker: Longs | None
    limit: int | None
    free: Frame
    packets: list[Packet]

    @classmethod
    def of(
        cls,
        group: BlockGroup[Frame],
        topic_class: Longs,
        settled: Settled | None,
        max_moves: int | None,
    ) -> _Line[Frame]:
        """Lay what members keep, all where nothing is settled."""
        line, engine = PartitionLine.of(topic_class, group.known.partitions), group.engine
        stretch = -(-line.length // min(group.blocks, STRETCHES_MAX, line.length))
        limit = max_moves if settled and max_moves is not None else None
        if limit is not None and settled is not None and settled.moved <= limit:
            limit = None
        taker = None if settled is None else _find_takers(settled, topic_class)
        seats = engine.find_seats(-(-line.length // stretch))
        sent = engine.run(
            PlaceMembers(
                group.known, line, None if settled is None else settled.drops,
                None if settled is None else settled.filled, stretch, seats, keep=False,
            ),
            group.held,
        )  # fmt: skip
        blocks = engine.find_seats(group.blocks)
        task = FreeLine(line, stretch, blocks, taker, note_moves=limit is not None)
        free, packets = engine.keep(engine.run(task, sent, seats=seats), WANTS, PIECES, MOVES)
        return cls(group, line, stretch, taker, limit, free, packets)

    def _of(self, kind: str) -> list[Packet]:
        return [packet for packet in self.packets if packet.kind == kind]

    @property
    def claimed_twice(self) -> bool:
        """Whether two members claim the same partition."""
        return any(packet["twice"][0] for packet in self._of(PIECES))

    def take_lost_claims(self) -> BlockGroup[Frame]:
        """Return the group with each partition claimed twice the first one's in member order."""
        group, engine = self.group, self.group.engine
        seats = engine.find_seats(group.blocks)
        sent = engine.run(SendTo(seats, (MEMBERS,)), group.held)
        lost = engine.run(SendTo(seats, (CLAIMED_TWICE,)), self.free)
        task = TakeLostClaims(group.given, self.line)
        held, packets = engine.keep(engine.run(task, sent, lost, seats=seats), LOADS)
        return replace(group, held=held, packets=tuple(packets))

    def hand_out(self, settled: Settled) -> Assigned[Frame]:
        """Deal what is free, and return the assignment."""
        group, engine, known = self.group, self.group.engine, self.group.known
        pieces, shares = self._of(PIECES), None
        if self.taker is None:
            shares = self._share(settled, pieces)
            task = SharePieces(self.line, self.stretch, shares)
            pieces = engine.collect(engine.run(task, self.free), PIECES)
        seams, starts, free = find_free(pieces)
        wanted = find_wanted(self._of(WANTS))
        assert free.start[-1] == wanted.start[-1], "more is free than is wanted"
        limit = None if self.limit is None else MovesLimit.of(self._of(MOVES), self.limit)
        seats = engine.find_seats(group.blocks)
        dealt = engine.run(
            DealPieces(
                self.line, self.taker, shares, seams, starts, free, wanted, limit, seats
            ),
            self.free,
        )  # fmt: skip
        stay = engine.run(
            PlaceMembers(
                known, self.line, settled.drops, settled.filled, self.stretch, seats, keep=True
            ),
            group.held,
        )
        hand_out = HandOut(known, self.line, wanted, sum_up=limit is not None)
        plan, moved, loads = settled.plan, settled.moved, settled.loads
        if limit is None or self.limit is None:
            rows = engine.run(hand_out, stay, dealt, seats=seats, columns=ASSIGNMENT)
        else:
            done, after = engine.keep(engine.run(hand_out, stay, dealt, seats=seats), AFTER)
            loads = Histogram.of(
                len(loads.offsets) - 1, *join_packets(after, "class", "load", "members")
            )
            rows = engine.run(ListRows(known.topics), done, columns=ASSIGNMENT)
            moved = self.limit
        verdict = Verdict(limit is not None, plan.moved, plan.exact)
        orphans = group.partitions - group.kinds.owned
        return Assigned(rows, verdict, loads, moved, orphans)

    def _share(self, settled: Settled, pieces: list[Packet]) -> Shares:
        (free,) = join_packets(pieces, "free")
        some = np.flatnonzero(settled.shares)
        class_ = settled.plan.cells.problem.pair_class[some]
        return Shares(np.cumsum(free) - free, np.cumsum(settled.shares[some]), class_)


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send packets of some kinds to the seats of their blocks."""

    seats: Seats
    kinds: tuple[str, ...]

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the packets of these kinds."""
        for batch in batches:
            ours = pa.compute.is_in(batch["kind"], value_set=pa.array(self.kinds))
            mine = batch.filter(ours)
            if mine.num_rows:
                seat = pa.array(self.seats[np.asarray(mine["block"])], pa.int32())
                yield mine.set_column(mine.schema.get_field_index("seat"), "seat", seat)


def _find_takers(settled: Settled, topic_class: Longs) -> Longs | None:
    """Return the class that gets what is free of each topic; None where classes share some."""
    problem = settled.plan.cells.problem
    if not settled.plan.cells.alone[settled.plan.cells.of_class].all():
        return None
    taker = np.full(len(problem.partitions), -1, dtype=np.int64)
    taker[problem.pair_topic] = problem.pair_class
    return np.where(topic_class >= 0, np.append(taker, -1)[topic_class], -1)


def _renumber(given: KnownGroup, packets: list[Packet]) -> KnownGroup:
    """Number classes by their first member, from packets of `LOADS` in member order."""
    (heads,) = join_packets(packets, "head_class")
    found, first = np.unique(heads, return_index=True)
    return given.renumbered(found[np.argsort(first)].astype(np.int64))
