"""Records of very many members of one group as rows: what a load has of a group that is at rest.

To a reader each is a sequence of records, made as they are asked for; `replay_all` takes them as
they are, so that a member whose record does not change again never has it as an object.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, overload

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints
from coordinator.core.state.owner_columns import Serials
from coordinator.core.state.partition_spans import count_partitions
from coordinator.core.state.records import CurrentMember, MemberState, TargetMember
from coordinator.core.state.span_columns import SpanRows, to_array

if TYPE_CHECKING:
    from coordinator.core.state.groups import Member
    from coordinator.core.state.target_assignment import Targets

STATES = tuple(MemberState)
STABLE = STATES.index(MemberState.STABLE)
"""What stands for a state in columns."""


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
        return _current_at(self, self.group_id, self.member_ids[at].as_py(), at)


def _current_at(
    rows: CurrentRows | HeldRows, group_id: str, member_id: str, row: int
) -> CurrentMember:
    epoch, previous, state = rows.numbers
    held = rows.assigned.spans(row), rows.pending.spans(row)
    at = int(epoch[row]), int(previous[row]), STATES[state[row]]
    return CurrentMember(group_id, member_id, *at, *held)


class HeldRows:
    """What members have that were loaded, and have since changed nothing but their epoch.

    Parameters
    ----------
    rows
        What they had then.
    serials
        Of the members, no two alike.
    """

    __slots__ = ("_first", "_rows", "assigned", "numbers", "pending")

    def __init__(self, rows: CurrentRows, serials: Serials) -> None:
        self.assigned = rows.assigned
        self.pending = rows.pending
        self.numbers = [to_array(column) for column in rows.numbers]
        self._first = int(serials.min())
        self._rows: array[int] | None = None
        """The row of each serial; None where they are in order."""
        if (np.diff(serials) != 1).any():
            places = np.zeros(int(serials.max()) - self._first + 1, np.int32)
            places[serials - self._first] = np.arange(len(serials))
            self._rows = to_array(places)

    def copy(self) -> HeldRows:
        """Return the same, to be read while members advance."""
        other = copy(self)
        other.numbers = [column[:] for column in self.numbers]
        return other

    def row(self, member: Member) -> int:
        """Return where a member is."""
        at = member.serial - self._first
        return at if self._rows is None else self._rows[at]

    def current(self, member: Member) -> CurrentMember:
        """Return the record of a member."""
        return _current_at(self, member.meta.group_id, member.member_id, self.row(member))

    def place(self, member: Member) -> tuple[int, bool]:
        """Return a member's epoch, and whether it is STABLE there."""
        row, (epoch, _, state) = self.row(member), self.numbers
        return epoch[row], state[row] == STABLE

    def is_stable(self, member: Member, epoch: int) -> bool:
        """Whether a member is STABLE at an epoch; every heartbeat asks: it calls nothing."""
        row = member.serial - self._first
        if self._rows is not None:
            row = self._rows[row]
        now, _, state = self.numbers
        return now[row] == epoch and state[row] == STABLE

    def has_just(self, member: Member, targets: Targets) -> bool:
        """Whether a member is assigned its target, span by span, which may be one of rows too."""
        row = targets.row(member.member_id)
        return row is not None and self.assigned.has(self.row(member), *row)

    def advance(self, member: Member, epoch: int) -> tuple[int, bool]:
        """Let a member be STABLE at an epoch which changes nothing for it; return its old place."""
        row, (now, previous, state) = self.row(member), self.numbers
        old = now[row], state[row] == STABLE
        previous[row], now[row], state[row] = now[row], epoch, STABLE
        return old


def count_owned(member: Member) -> int:
    """Return how many partitions a member is assigned."""
    held = member.held
    if isinstance(held, HeldRows):
        return held.assigned.partitions(held.row(member))
    return count_partitions(member.current.assigned)
