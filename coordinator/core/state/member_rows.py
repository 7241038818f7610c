"""Records of very many members of one group as rows: what a load has of a group that is at rest.

To a reader each is a sequence of records, made as they are asked for; `replay_all` takes them as
they are, so that a member whose record does not change again never has it as an object.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa

from assignors.arrays import Bools, Ints, Longs
from coordinator.core.state.partition_spans import count_partitions
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    MemberState,
    TargetMember,
)
from coordinator.core.state.span_columns import SpanRows, to_array

if TYPE_CHECKING:
    from coordinator.core.state.groups import Member
    from coordinator.core.state.row_dict import MemberIndex

META_FIELDS = MemberMetadata.__struct_fields__[2:]
"""What columns have of a member besides its group and its id."""
NOTHING = -1
STATES = tuple(MemberState)
STABLE = STATES.index(MemberState.STABLE)
"""What stands for a state in columns."""


class MemberRows(Sequence[MemberMetadata]):
    """Members of one group.

    Parameters
    ----------
    columns
        For each of `META_FIELDS` its distinct values, and the number of each row's.
    """

    def __init__(
        self,
        group_id: str,
        member_ids: pa.StringArray,
        columns: Sequence[tuple[Sequence[Any], Ints]],
    ) -> None:
        self.group_id = group_id
        self.member_ids = member_ids
        self.columns = columns

    def __len__(self) -> int:
        return len(self.member_ids)

    @overload
    def __getitem__(self, at: int) -> MemberMetadata: ...

    @overload
    def __getitem__(self, at: slice) -> list[MemberMetadata]: ...

    def __getitem__(self, at: int | slice) -> MemberMetadata | list[MemberMetadata]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        values = (values[codes[at]] for values, codes in self.columns)
        return MemberMetadata(self.group_id, self.member_ids[at].as_py(), *values)

    def part(self, some: slice) -> MemberRows:
        """Return some of them."""
        columns = [(values, codes[some]) for values, codes in self.columns]
        return MemberRows(self.group_id, self.member_ids[some], columns)


class TargetRows(Sequence[TargetMember]):
    """The targets of members of one group."""

    def __init__(self, group_id: str, member_ids: pa.StringArray, spans: SpanRows) -> None:
        self.group_id = group_id
        self.member_ids = member_ids
        self.spans = spans

    def __len__(self) -> int:
        return len(self.member_ids)

    @overload
    def __getitem__(self, at: int) -> TargetMember: ...

    @overload
    def __getitem__(self, at: slice) -> list[TargetMember]: ...

    def __getitem__(self, at: int | slice) -> TargetMember | list[TargetMember]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        return TargetMember(self.group_id, self.member_ids[at].as_py(), self.spans.spans(at))

    def part(self, some: slice) -> TargetRows:
        """Return some of them."""
        spans = self.spans.take(np.arange(len(self))[some])
        return TargetRows(self.group_id, self.member_ids[some], spans)


class CurrentRows(Sequence[CurrentMember]):
    """What members of one group have.

    Parameters
    ----------
    numbers
        A row's member epoch, the one before, and the place of its state in `STATES`.
    """

    def __init__(
        self,
        group_id: str,
        member_ids: pa.StringArray,
        numbers: Sequence[Ints],
        assigned: SpanRows,
        pending: SpanRows,
    ) -> None:
        self.group_id = group_id
        self.member_ids = member_ids
        self.numbers = numbers
        self.assigned = assigned
        self.pending = pending

    def __len__(self) -> int:
        return len(self.member_ids)

    @overload
    def __getitem__(self, at: int) -> CurrentMember: ...

    @overload
    def __getitem__(self, at: slice) -> list[CurrentMember]: ...

    def __getitem__(self, at: int | slice) -> CurrentMember | list[CurrentMember]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        member_id = self.member_ids[at].as_py()
        epoch, previous, state = (column[at] for column in self.numbers)
        held = self.assigned.spans(at), self.pending.spans(at)
        numbers = int(epoch), int(previous), STATES[state]
        return CurrentMember(self.group_id, member_id, *numbers, *held)

    def part(self, some: slice) -> CurrentRows:
        """Return some of them."""
        rows = np.arange(len(self))[some]
        numbers = [column[some] for column in self.numbers]
        held = (spans.take(rows) for spans in (self.assigned, self.pending))
        return CurrentRows(self.group_id, self.member_ids[some], numbers, *held)


RecordRows: TypeAlias = MemberRows | TargetRows | CurrentRows


class HeldRows:
    """What members of a table have: as they were loaded, or another epoch since.

    Attributes
    ----------
    index
        Which row each member has.
    place
        Where each row's partitions are; NOTHING where it has none.
    numbers
        Each row's member epoch, the one before, and its state.
    """

    __slots__ = ("_shared", "assigned", "index", "numbers", "pending", "place")

    def __init__(self, index: MemberIndex) -> None:
        self.index = index
        self.place = array("i")
        self.numbers = [array("i"), array("i"), array("i")]
        none = np.zeros(0, np.int32)
        self.assigned, self.pending = (SpanRows([], none, none, (none,) * 3) for _ in range(2))
        self._shared = False
        """Whether a copy has the same partitions: they are added to no more."""

    def grow(self, count: int) -> None:
        """Add so many rows of members that have nothing yet."""
        self.place.extend(to_array(np.full(count, NOTHING, np.int32)))
        for column, start in zip(self.numbers, (0, 0, STABLE), strict=True):
            column.extend(to_array(np.full(count, start, np.int32)))

    def on(self, index: MemberIndex, rows: Longs) -> HeldRows:
        """Return the same for another index: of each row there, the one here; below 0 is new."""
        other = HeldRows(index)

        def move(column: array[int], start: int) -> array[int]:
            return to_array(np.append(np.asarray(column), np.int32(start))[rows])

        rows = np.where(rows < 0, len(self.place), rows)
        other.place = move(self.place, NOTHING)
        other.numbers = list(map(move, self.numbers, (0, 0, STABLE)))
        other.assigned, other.pending = self.assigned, self.pending
        other._shared = self._shared
        return other

    def are_new(self, rows: Longs) -> bool:
        """Whether none of some members has had anything."""
        columns = zip((self.place, *self.numbers), (NOTHING, 0, 0, STABLE), strict=True)
        return all((np.asarray(column)[rows] == start).all() for column, start in columns)

    def add(self, rows: Longs, found: CurrentRows) -> None:
        """Let members that are new have what is in rows."""
        for column, values in zip(self.numbers, found.numbers, strict=True):
            np.asarray(column)[rows] = values
        np.asarray(self.place)[rows] = len(self.assigned) + np.arange(len(rows))
        self.assigned.extend(found.assigned)
        self.pending.extend(found.pending)

    def copy(self) -> HeldRows:
        """Return the same, to be read while members advance."""
        self._shared = True
        other = copy(self)
        other.numbers = [column[:] for column in self.numbers]
        other.place = self.place[:]
        return other

    def row(self, member: Member) -> int:
        """Return where a member is."""
        return self.index.places[member.meta.member_id]

    def current(self, member: Member) -> CurrentMember:
        """Return the record of a member."""
        row = self.row(member)
        epoch, previous, state = (column[row] for column in self.numbers)
        at, who = self.place[row], (member.meta.group_id, member.member_id)
        if at == NOTHING:
            return CurrentMember(*who, epoch, previous, STATES[state])
        held = self.assigned.spans(at), self.pending.spans(at)
        return CurrentMember(*who, epoch, previous, STATES[state], *held)

    def place_of(self, member: Member) -> tuple[int, bool]:
        """Return a member's epoch, and whether it is STABLE there."""
        row, (epoch, _, state) = self.row(member), self.numbers
        return epoch[row], state[row] == STABLE

    def is_stable(self, member: Member, epoch: int) -> bool:
        """Whether a member is STABLE at an epoch."""
        row, (now, _, state) = self.row(member), self.numbers
        return now[row] == epoch and state[row] == STABLE

    def are_stable(self, rows: Longs, epochs: Longs) -> Bools:
        """Return which members are STABLE at the epoch that is theirs."""
        now, _, state = map(np.asarray, self.numbers)
        stable: Bools = (now[rows] == epochs) & (state[rows] == STABLE)
        return stable

    def have_just(self, rows: Longs, targets: SpanRows, at: Longs) -> Bools:
        """Return which members are assigned their target, span by span; NOTHING is no span."""
        return self.assigned.are_alike(np.asarray(self.place)[rows], targets, at)

    def advance(self, rows: Longs, epoch: int) -> Counter[int]:
        """Let members, each once, be STABLE at an epoch which changes nothing for them.

        Returns
        -------
        Counter
            How many more STABLE members there are now at each epoch.
        """
        now, previous, state = map(np.asarray, self.numbers)
        before, was_stable = now[rows], state[rows] == STABLE
        previous[rows], now[rows], state[rows] = before, epoch, STABLE
        epochs, counts = np.unique(before[was_stable], return_counts=True)
        more = Counter({epoch: len(rows)})
        more.subtract(dict(zip(epochs.tolist(), counts.tolist(), strict=True)))
        return more

    def advance_row(self, row: int, epoch: int) -> int | None:
        """Let one member be STABLE at such an epoch; return where it was STABLE before."""
        now, previous, state = self.numbers
        before, was_stable = now[row], state[row] == STABLE
        previous[row], now[row], state[row] = before, epoch, STABLE
        return before if was_stable else None

    def have(self, found: Sequence[tuple[int, CurrentMember]]) -> None:
        """Let members, each by its row, have what records say: STABLE, and with nothing pending.

        Raises
        ------
        OverflowError
            A number has more than 32 bits: nothing is done.
        """
        if self._shared:
            self.assigned, self.pending = self.assigned.copy(), self.pending.copy()
            self._shared = False
        epochs = array("i", [record.member_epoch for _, record in found])
        before = array("i", [record.previous_member_epoch for _, record in found])
        start = len(self.assigned)
        self.assigned.append([record.assigned for _, record in found])
        self.pending.append([()] * len(found))
        rows, place = [row for row, _ in found], np.arange(start, start + len(found))
        values = zip((self.place, *self.numbers), (place, epochs, before, STABLE), strict=True)
        for column, value in values:
            np.asarray(column)[rows] = value

    def compact(self) -> None:
        """Let go of what no member has now."""
        place = np.asarray(self.place)
        there = place != NOTHING
        held = [
            spans.take(place[there].astype(np.int64)) for spans in (self.assigned, self.pending)
        ]
        moved = place.copy()
        moved[there] = np.arange(np.count_nonzero(there))
        self.place = to_array(moved)  # first: `partitions` looks at it last
        self.assigned, self.pending = held
        self._shared = False

    def records(self, group_id: str, ids: pa.StringArray, rows: Longs) -> CurrentRows:
        """Return what members have of whom there is a record, of some whose ids are these."""
        numbers = [np.asarray(column)[rows] for column in self.numbers]
        place = np.asarray(self.place)[rows].astype(np.int64)
        held = self.assigned, self.pending
        has = np.logical_or.reduce(
            [
                *(column != start for column, start in zip(numbers, (0, 0, STABLE), strict=True)),
                *(spans.counts_of(place) > 0 for spans in held),
            ]
        )
        some = [column[has] for column in numbers]
        spans = (one.take(place[has]) for one in held)
        return CurrentRows(group_id, ids.filter(pa.array(has)), some, *spans)

    def partitions(self, rows: Longs) -> Longs:
        """Return how many partitions some members are assigned; any thread may ask."""
        while True:
            assigned = self.assigned
            place = np.asarray(self.place)[rows]
            if assigned is self.assigned:  # else its rows have just been compacted
                break
        found: Longs = np.append(assigned.partitions(), 0)[place]  # of NOTHING, it is the last
        return found


def count_owned(member: Member) -> int:
    """Return how many partitions a member is assigned."""
    return count_partitions(member.current.assigned)
