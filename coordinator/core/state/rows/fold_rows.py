"""Members that rest become rows again, some at each look.

A member that a request touches becomes an object. Once these are many, and most members of the
group are STABLE, a pass looks at all rows, a thousand at a time, and lets those be rows again whose
member has nothing to do. It changes how the state is kept, never what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.core.state.groups import Group, State
from coordinator.core.state.member_rows import HeldRows
from coordinator.core.state.partition_spans import MANY
from coordinator.core.state.records import CurrentMember, MemberMetadata, MemberState
from coordinator.core.state.row_dict import RowDict, to_texts
from coordinator.core.state.rows.member_table import MemberDict

AT_ONCE = 1_024
"""Rows that are looked at together: a few ms where all of them are objects."""
LEAST, SHARE = 4_096, 8
"""Objects that a pass is worth: so many, and such a part of the members."""


def is_worth_it(group: Group, left: int) -> bool:
    """Whether a pass would make most of many objects rows.

    Parameters
    ----------
    left
        How many the last pass left, which would leave them again.
    """
    limit = max(LEAST, len(group.members) // SHARE)
    unstable = len(group.members) - sum(group.stable_at.values())
    return count_objects(group) - left > limit and unstable <= limit // 2


def count_objects(group: Group) -> int:
    """Return how many members and targets are objects that may be rows."""
    members = group.members
    return len(members.own) + group.targets.apart if isinstance(members, MemberDict) else 0


class RowFolder:
    """Folds the groups of one state; nothing but memory depends on when.

    Parameters
    ----------
    is_due
        Whether a pass through a group begins, in which the last one left so many objects.
    at_once
        How many rows are looked at together.
    """

    def __init__(
        self, is_due: Callable[[Group, int], bool] = is_worth_it, at_once: int = AT_ONCE
    ) -> None:
        self._is_due = is_due
        self._at_once = at_once
        self._state: State | None = None
        self._noted: set[str] = set()
        self._passes: dict[str, int] = {}
        """The next row of each group through which a pass goes."""
        self._left: dict[str, int] = {}

    def note(self, group_id: str | None) -> None:
        """Note that members of a group, if it is one, may have become objects, or come to rest."""
        if group_id is not None:
            self._noted.add(group_id)

    def fold(self, state: State) -> bool:
        """Look at a piece of a group, if one is due; False where there was nothing to do."""
        if state is not self._state:
            self._state, self._passes, self._left = state, {}, {}
        for group_id in self._noted - self._passes.keys():
            group = state.groups.get(group_id)
            if group is not None and self._is_due(group, self._left.get(group_id, 0)):
                self._passes[group_id] = 0
        self._noted.clear()
        for group_id, start in self._passes.items():
            self._go_on(state.groups.get(group_id), group_id, start)
            return True
        return False

    def _go_on(self, group: Group | None, group_id: str, start: int) -> None:
        """Look at the next piece of a group, or end its pass."""
        end = 0 if group is None else _count_rows(group)
        if group is not None and start < end:
            fold_piece(group, range(start, min(start + self._at_once, end)))
            self._passes[group_id] = start + self._at_once
            return
        del self._passes[group_id]
        self._left.pop(group_id, None)
        if group is not None:
            tidy(group)
            self._left[group_id] = count_objects(group)


def _count_rows(group: Group) -> int:
    return len(group.members.rows.index) if isinstance(group.members, MemberDict) else 0


def fold_piece(group: Group, rows: range) -> None:
    """Let those be rows again, of the members of some rows, who have nothing to do."""
    members, metas = group.members, group.metas
    if not isinstance(members, MemberDict) or not isinstance(metas, RowDict):
        return
    if metas.rows.index is not members.rows.index:
        return
    index = members.rows.index
    ids = to_texts(index.ids.slice(rows.start, len(rows)))
    try:
        group.targets.fold(index, ids, rows.start)
        _fold_metas(metas, ids, rows)
        _fold_members(members, metas, ids, rows)
    except OverflowError:
        return  # they stay objects, whose numbers may be of any size


def _fold_metas(metas: RowDict[MemberMetadata], ids: Sequence[str], rows: range) -> None:
    own, gone, table = metas.own, metas.gone, metas.rows
    if own:
        metas.fold(
            [
                who
                for who, row in zip(ids, rows, strict=True)
                if who in own and who not in gone and own[who] == table.value(who, row)
            ]
        )


def _fold_members(
    members: MemberDict, metas: RowDict[MemberMetadata], ids: Sequence[str], rows: range
) -> None:
    own, table = members.own, members.rows
    if not own:
        return
    fold: list[str] = []
    found: list[tuple[int, CurrentMember]] = []
    for who, row in zip(ids, rows, strict=True):
        member = own.get(who)
        if member is None or who in members.gone or who in metas.own:
            continue
        if member.serial != table.first + row or member.listed is not table.list_of(row):
            continue
        held = member.held
        if isinstance(held, CurrentMember) and _rests(held):
            found.append((row, held))
        elif held is not table.held:
            continue
        fold.append(who)
    if found:
        table.held.have(found)
    members.fold(fold)


def _rests(held: CurrentMember) -> bool:
    """Whether a member has nothing to do, and few enough ranges that a row has them."""
    return (
        held.state is MemberState.STABLE
        and not held.pending
        and isinstance(held.assigned, tuple)
        and len(held.assigned) < MANY
    )


def tidy(group: Group) -> None:
    """Let go of what folded rows do not need."""
    members, metas = group.members, group.metas
    if isinstance(members, MemberDict) and isinstance(metas, RowDict):
        members.tidy()
        metas.tidy()
        group.targets.tidy()
        held: HeldRows = members.rows.held
        if len(held.assigned) > 2 * len(members.rows.index):
            held.compact()


def fold_group(group: Group) -> None:
    """Let all of a group's members be rows that may."""
    fold_piece(group, range(_count_rows(group)))
    tidy(group)
