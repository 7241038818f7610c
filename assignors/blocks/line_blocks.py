"""Stretches of the line of partitions: which of them no member keeps, and who gets those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignors.arrays import Bools, Longs, count_by, offsets_of, sum_by
from assignors.blocks.lots import Lots
from assignors.blocks.packets import (
    CLAIMED_TWICE,
    GIVEN,
    HELD_BACK,
    LINE,
    MOVES,
    PIECES,
    POOL,
    Batches,
    Packet,
    join_packets,
    make_packet,
    read_packets,
)
from assignors.materialize import PartitionLine
from assignors.partition_ranges import complement, cut_at, find_first_claims, subtract
from assignors.water_level import Histogram

Seats = npt.NDArray[np.int32]
_GIVEN_UP = ("start", "length", "owner", "origin", "surplus")


@dataclass(frozen=True, slots=True)
class Shares:
    """Which class gets which part of the free partitions, in the order of the line.

    Attributes
    ----------
    before
        (stretches,) how many are free before each.
    ends, class_
        (shares,) where each share ends, counted in free partitions, and whose it is.
    """

    before: Longs
    ends: Longs
    class_: Longs

    def cut(self, stretch: int, start: Longs, length: Longs) -> tuple[Longs, Longs, Longs]:
        """Cut free pieces of a stretch where another class's share begins; tell whose each is."""
        place = self.before[stretch] + offsets_of(length)
        at = np.searchsorted(place[:-1], self.ends, side="right") - 1
        inside = (at >= 0) & (self.ends < place[-1])
        points = start[at[inside]] + self.ends[inside] - place[at[inside]] if len(start) else start
        start, length = cut_at(start, length, points)
        place = self.before[stretch] + offsets_of(length)[:-1]
        return start, length, self.class_[np.searchsorted(self.ends, place, side="right")]


@dataclass(frozen=True, slots=True)
class FreeLine:
    """Find what no member keeps of stretches of the line.

    Attributes
    ----------
    seats
        Of blocks of members: for those who claim what is another's.
    topic_taker
        (topics,) the class that gets what is free of each topic; None where classes share some.
    note_moves
        Whether to note who gives what up.
    """

    line: PartitionLine
    stretch: int
    seats: Seats
    topic_taker: Longs | None
    note_moves: bool

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `POOL` and `PIECES` of each stretch, and what is for the driver as it is.

        Where members claim the same, `CLAIMED_TWICE` for all but the first, in place of `POOL`.
        """
        packets: list[Packet] = []
        others: list[pa.RecordBatch] = []
        for batch in batches:
            ours = pa.compute.equal(batch["kind"], LINE)
            packets += read_packets([batch.filter(ours)])
            others.append(batch.filter(pa.compute.invert(ours)))
        yield from (batch for batch in others if batch.num_rows)
        for block, parts in groupby(sorted(packets, key=_block_of), key=_block_of):
            yield from self._find_free(block, list(parts))

    def _find_free(self, block: int, parts: list[Packet]) -> Iterator[pa.RecordBatch]:
        claims = {
            name: found.astype(np.int64)
            for name, found in zip(
                ("start", "length", "stays", "owner", "surplus"),
                join_packets(parts, "start", "length", "stays", "owner", "surplus"),
                strict=True,
            )
        }
        sizes = [len(part["start"]) for part in parts]
        claims["origin"] = np.repeat([int(part["origin"][0]) for part in parts], sizes)
        order = np.argsort(claims["start"], kind="stable")
        claims = {name: column[order] for name, column in claims.items()}
        start, length = claims["start"], claims["length"]
        if (start[1:] < (start + length)[:-1]).any():
            yield make_packet(block, PIECES, twice=[True])
            yield from self._find_claimed_twice(claims)
            return
        low = block * self.stretch
        high = min(low + self.stretch, self.line.length)
        stays = claims["stays"].astype(np.bool_)
        start, length = complement(start[stays] - low, length[stays], high - low)
        start, length = cut_at(start + low, length, self.line.ends)
        given = {name: claims[name][~stays] for name in _GIVEN_UP} if self.note_moves else {}
        yield make_packet(
            block, POOL, start=start, length=length,
            **{f"given_{name}": column for name, column in given.items()},
        )  # fmt: skip
        if self.note_moves:
            found = Histogram.of(1, np.zeros_like(given["start"]), given["surplus"] - _LEAST,
                                 given["length"])  # fmt: skip
            yield make_packet(block, MOVES, surplus=found.load + _LEAST, count=found.members)
        if self.topic_taker is None:
            yield make_packet(block, PIECES, twice=[False], free=[int(length.sum())])
            return
        topic = self.line.topics[np.searchsorted(self.line.ends, start, side="right")]
        yield sum_up_pieces(self.line, self.stretch, block, start, length, self.topic_taker[topic])

    def _find_claimed_twice(self, claims: dict[str, Longs]) -> Iterator[pa.RecordBatch]:
        """Yield for each block of members what an earlier member in order claims, too."""
        start, length, owner, origin = (claims[it] for it in ("start", "length", "owner", "origin"))
        by, claimant = np.unique((origin << 32) | owner, return_inverse=True)
        base, width = start.min(), np.int64(self.stretch + 1)
        won_start, won_end, won_by = find_first_claims(start, start + length, claimant)
        lay, laid_won = claimant * width - base, won_by * width - base
        low, high = subtract(
            start + lay, start + length + lay, won_start + laid_won, won_end + laid_won
        )
        who = low // width
        start, length = low - who * width + base, high - low
        owner, origin = by[who] & (2**32 - 1), by[who] >> 32
        for block in np.unique(origin).tolist():
            mine = origin == block
            yield make_packet(
                block, CLAIMED_TWICE, int(self.seats[block]),
                owner=owner[mine], start=start[mine], length=length[mine],
            )  # fmt: skip


_LEAST = -(2**31)
"""A histogram counts from 0; surpluses may be below."""


def sum_up_pieces(
    line: PartitionLine, stretch: int, block: int, start: Longs, length: Longs, class_: Longs
) -> pa.RecordBatch:
    """Return `PIECES`: pieces by class and length; those that may go on in a neighbour, apart."""
    ends, low = line.ends, block * stretch
    high = min(low + stretch, line.length)
    begun = len(start) > 0 and start[0] == low and low > 0 and not (ends == low).any()
    more = len(start) > 0 and start[-1] + length[-1] == high and not (ends == high).any()
    first, last = (int(length[0]), int(length[-1])) if len(start) else (0, 0)
    whole = slice(int(begun), len(start) - int(more))
    found = Histogram.of(int(class_.max(initial=0)) + 1, class_[whole], length[whole])
    return make_packet(
        block, PIECES, twice=[False], free=[int(length.sum())],
        **{"class": found.class_}, size=found.load, pieces=found.members,
        begun=[first if begun else 0], more=[last if more else 0],
        through=[int(begun and more and len(start) == 1)],
        first_class=class_[:1] if begun else [-1], last_class=class_[-1:] if more else [-1],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharePieces:
    """Share the free pieces of stretches out among classes."""

    line: PartitionLine
    stretch: int
    shares: Shares

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `PIECES` of each stretch."""
        for packet in read_packets(batches):
            if packet.kind == POOL:
                cut = self.shares.cut(packet.block, packet["start"], packet["length"])
                yield sum_up_pieces(self.line, self.stretch, packet.block, *cut)


@dataclass(frozen=True, slots=True)
class Seams:
    """Pieces that go on in the next stretch belong to the one in which they begin.

    Attributes
    ----------
    begun
        (stretches,) whether the first piece of each begins before it.
    last
        (stretches,) the length of the last piece of each, as far as it goes; 0 if it ends there.
    """

    begun: Bools
    last: Longs

    @classmethod
    def of(cls, begun: Longs, more: Longs, through: Longs, same: Bools) -> Seams:
        """Join what stretches, in order, say of their first and last pieces.

        Parameters
        ----------
        begun, more
            (stretches,) the length of a first piece that may begin before, of a last one that may
            go on; 0 where there is none.
        through
            (stretches,) 1 where both are the same piece.
        same
            (stretches - 1,) whether the last piece of each and the next one's first are of a class.
        """
        size = len(begun)
        joined = np.zeros(size + 1, dtype=np.bool_)
        joined[1:-1] = (more[:-1] > 0) & (begun[1:] > 0) & same
        last, after = np.zeros(size, dtype=np.int64), 0
        for at in range(size - 1, -1, -1):  # of stretches, which are few
            whole = more[at] + (after if joined[at + 1] else 0)
            if joined[at] and through[at]:
                after = whole
            else:
                last[at] = whole
                after = begun[at]
        return cls(joined[:-1], last)


@dataclass(frozen=True, slots=True)
class MovesLimit:
    """Of what members give up, the part that goes: from the greatest surplus on, by the line.

    Attributes
    ----------
    surplus
        All with a greater one goes, and nothing with a smaller one.
    most
        (stretches,) how much goes of those that have it.
    """

    surplus: int
    most: Longs

    @classmethod
    def of(cls, packets: list[Packet], most: int) -> MovesLimit:
        """Find it, from packets of `MOVES` by stretch, of which more than `most` is given up."""
        surplus, count = join_packets(packets, "surplus", "count")
        block = np.repeat(np.arange(len(packets)), [len(packet["count"]) for packet in packets])
        values, at = np.unique(-surplus, return_inverse=True)  # the greatest first
        upto = np.cumsum(sum_by(at, count, len(values)))
        last = int(np.searchsorted(upto, most, side="right"))
        there = sum_by(block[at == last], count[at == last], len(packets))
        rest = most - (int(upto[last - 1]) if last else 0)
        return cls(int(-values[last]), np.clip(rest - (np.cumsum(there) - there), 0, there))

    def hold_back(self, packet: Packet) -> dict[str, Longs]:
        """Return what does not go, of a packet of `POOL`: start, length, owner, origin."""
        start, length, owner, origin, surplus = (packet[f"given_{name}"] for name in _GIVEN_UP)
        at = surplus == self.surplus
        upto = np.cumsum(np.where(at, length, 0))
        part = np.clip(self.most[packet.block] - (upto - length), 0, length)
        goes = np.where(at, part, np.where(surplus > self.surplus, length, 0))
        some = goes < length
        return {
            "start": (start + goes)[some], "length": (length - goes)[some],
            "owner": owner[some], "origin": origin[some],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class DealPieces:
    """Send the free pieces of stretches to the blocks of those who get them.

    Attributes
    ----------
    starts
        (stretches,) where a first piece that begins before the stretch is laid.
    shares
        See `SharePieces`; None where `topic_taker` of `FreeLine` says whose a piece is.
    free, wanted
        Lots of both, over which both are laid end to end.
    limit
        What of it goes to others; None for all.
    seats
        Of blocks of members.
    """

    line: PartitionLine
    topic_taker: Longs | None
    shares: Shares | None
    seams: Seams
    starts: Longs
    free: Lots
    wanted: Lots
    limit: MovesLimit | None
    seats: Seats

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield `GIVEN` for each block that gets something, `HELD_BACK` for one that keeps it."""
        for packet in read_packets(batches):
            if packet.kind == POOL:
                yield from self._deal(packet)

    def _deal(self, packet: Packet) -> Iterator[pa.RecordBatch]:
        start, length, laid = self._lay(packet)
        held: dict[str, Longs] = {}
        if self.limit is not None:
            held = self.limit.hold_back(packet)
            edges = np.concatenate([held["start"], held["start"] + held["length"]])
            order = np.argsort(start)
            start, length, laid = start[order], length[order], laid[order]
            cut, cut_length = cut_at(start, length, edges)
            piece = np.searchsorted(start, cut, side="right") - 1
            start, length, laid = cut, cut_length, laid[piece] + cut - start[piece]
        piece, row, skip = self.wanted.cut(laid, length)
        at = laid[piece] + skip
        count = np.minimum(self.wanted.start[row + 1], (laid + length)[piece]) - at
        first = start[piece] + skip
        goes = np.ones(len(first), dtype=np.bool_)
        if held:
            lies = np.searchsorted(held["start"], first, side="right") - 1
            ends = np.append(held["start"] + held["length"], 0)
            goes = (lies < 0) | (first >= ends[lies])
        given = {"at": at, "start": first, "count": count, "goes": goes}
        yield from self._send(GIVEN, self.wanted.block[row], given)
        if held:
            back = {name: held[name] for name in ("owner", "start", "length")}
            yield from self._send(HELD_BACK, held["origin"], back)

    def _lay(self, packet: Packet) -> tuple[Longs, Longs, Longs]:
        """Return the free pieces of a stretch, and where each is laid."""
        block, seams = packet.block, self.seams
        start, length = packet["start"], packet["length"]
        if self.shares is not None:
            start, length, class_ = self.shares.cut(block, start, length)
        else:
            assert self.topic_taker is not None
            topic = self.line.topics[np.searchsorted(self.line.ends, start, side="right")]
            class_ = self.topic_taker[topic]
        whole, skip = length.copy(), int(seams.begun[block])
        if seams.last[block]:
            whole[-1] = seams.last[block]
        lot, laid = self.free.place(block, class_[skip:], whole[skip:])
        if not skip:
            return start[lot], length[lot], laid
        lot = np.append(lot + 1, 0)
        return start[lot], length[lot], np.append(laid, self.starts[block])

    def _send(self, kind: str, to: Longs, columns: dict[str, Longs]) -> Iterator[pa.RecordBatch]:
        order = np.argsort(to, kind="stable")
        ends = offsets_of(count_by(to, len(self.seats))).tolist()
        for taker in range(len(self.seats)):
            mine = order[ends[taker] : ends[taker + 1]]
            if len(mine):
                sent = {name: column[mine] for name, column in columns.items()}
                yield make_packet(taker, kind, int(self.seats[taker]), **sent)


def _block_of(packet: Packet) -> int:
    return packet.block
