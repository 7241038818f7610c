"""Members that rest become rows again, some at each look.

A member that a request touches becomes an object. Once these are many, and most members of the
group are STABLE, a pass looks at all rows, a thousand at a time, and lets those be rows again whose
member has nothing to do. Where most objects have no row, as in a group that grew while it was
served, all members get new rows first. It changes how the state is kept, never what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.core.state.groups import Group, State
from coordinator.core.state.member_rows import HeldRows
from coordinator.core.state.partition_spans import MANY
from coordinator.core.state.records import CurrentMember, MemberMetadata, MemberState
from coordinator.core.state.row_dict import RowDict, to_texts
from coordinator.core.state.rows.member_table import MemberDict
from coordinator.core.state.rows.row_build import RowBuild

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
    stable_at = group.stable_at
    resting = sum(stable_at.values()) - stable_at.get(0, 0)  # newcomers are about to get something
    return count_objects(group) - left > limit and len(group.members) - resting <= limit // 2


def count_objects(group: Group) -> int:
    """Return how many members and targets are objects that may be rows."""
    members = group.members
    apart = members.own if isinstance(members, MemberDict) else members
    return len(apart) + group.targets.apart


class Pass:
    """One pass through the members of a group.

    Attributes
    ----------
    build
        The rows that its members get, as long as they are made.
    row
        The next row to look at.
    has_built
        Whether members have got new rows in this pass.
    """

    __slots__ = ("build", "group", "has_built", "row")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.build: RowBuild | None = None
        self.row = 0
        self.has_built = False


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
        self._passes: dict[str, Pass] = {}
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
                self._passes[group_id] = Pass(group)
        self._noted.clear()
        for group_id, found in self._passes.items():
            if state.groups.get(group_id) is not found.group:
                del self._passes[group_id]
                self._left.pop(group_id, None)
            elif not self._go_on(found):
                del self._passes[group_id]
            return True
        return False

    def _go_on(self, found: Pass) -> bool:
        """Look at the next piece of a group; False where its pass ends."""
        group = found.group
        if found.build is not None:
            if found.build.add(self._at_once):
                return True
            found.has_built = found.build.finish()
            found.build = None
            return found.has_built  # else too much has changed: the next pass begins again
        end = _count_rows(group)
        if found.row < end:
            fold_piece(group, range(found.row, min(found.row + self._at_once, end)))
            found.row += self._at_once
            return True
        tidy(group)
        if group.members and not found.has_built and self._is_due(group, 0):
            found.build, found.row = RowBuild(group), 0
            return True
        self._left[group.group_id] = count_objects(group)
        return False


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
        if member.serial != table.serials[row] or member.listed is not table.list_of(row):
            continue
        held = member.held
        if isinstance(held, CurrentMember) and _rests(held):
            found.append((row, held))
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


def fold_group(group: Group, *, new_rows: bool = False) -> None:
    """Let all members of a group be rows that may, after new rows were made, if there are none."""
    if group.members and (new_rows or not isinstance(group.members, MemberDict)):
        build = RowBuild(group)
        while build.add(AT_ONCE):
            pass
        build.finish()
    fold_piece(group, range(_count_rows(group)))
    tidy(group)
