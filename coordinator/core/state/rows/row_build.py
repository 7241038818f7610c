"""New rows for all members of a group that grew while it was served, or has changed much since.

The columns are made beside the group, some members at a time, and become the group's at once. What
changed meanwhile is listed by the group; the rows of those members do not count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator.core.state.groups import Group, Member, NameList
from coordinator.core.state.member_rows import META_FIELDS, HeldRows
from coordinator.core.state.records import MemberMetadata
from coordinator.core.state.row_dict import NO_ROW, MemberIndex, RowDict
from coordinator.core.state.rows.member_table import NAMES, MemberDict, MemberValues, MetaValues
from coordinator.core.state.shared_dict import Shareable

LEAST, SHARE = 4_096, 32
"""More changes than this, and this part of the members, while rows are made are too many."""


class RowBuild:
    """The rows of the members that a group has when it begins; finished, or dropped, as it is."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._members = group.members
        self._mark = group.list_changes()
        self._last = group.serials
        self._ids = _list_ids(group.members)
        self._index = MemberIndex()
        self._serials = array("i")
        self._rows = array("q")
        """The rows that members have until now; NO_ROW: an object alone."""
        self._values: list[dict[Any, int]] = [{} for _ in META_FIELDS]
        self._codes = [array("i") for _ in META_FIELDS]

    def add(self, most: int) -> bool:
        """Give rows to so many members; False where none was left."""
        some = list(islice(self._ids, most))
        # Who came since is behind all others, also under an id that was there before.
        found = [
            (member, row)
            for who, row in some
            if (member := self._members.get(who)) is not None and member.serial <= self._last
        ]
        members = [member for member, _ in found]
        # The index makes texts of its own, so that the memory of the objects, theirs too, is freed.
        self._index.add(pa.array([member.member_id for member in members], pa.string()))
        self._serials.extend([member.serial for member in members])
        self._rows.extend([row for _, row in found])
        for at, name in enumerate(META_FIELDS):
            known = self._values[at]
            if at == NAMES:  # by their shared list: one of many topics takes long to hash
                values: list[Any] = [member.listed for member in members]
            else:
                values = [getattr(member.meta, name) for member in members]
            self._codes[at].extend([known.setdefault(value, len(known)) for value in values])
        return bool(some)

    def finish(self) -> bool:
        """Let the group have the rows; False, and it stays as it is, where that cannot be."""
        group, members, metas = self._group, self._members, self._group.metas
        changed = self._mark.until(group.mark())
        most = max(LEAST, len(members) // SHARE)
        if group.members is not members or changed is None or len(changed) > most:
            return False
        if not len(self._index):
            return False
        rows = np.asarray(self._rows)
        values = self._list_values()
        gone = {who for who in changed if self._is_gone(who)}
        own: Any = members.own if isinstance(members, MemberDict) else members
        own_metas: Any = metas.own if isinstance(metas, RowDict) else metas
        new = MemberDict.beside(values, own, gone.copy(), len(members))
        new_metas: RowDict[MemberMetadata] = RowDict.beside(
            values.metas, own_metas, gone, len(metas)
        )
        for who in changed:  # its row may say what it was for a while
            member = None if who in own and who in own_metas else members.get(who)
            if member is not None:
                new[who], new_metas[who] = member, member.meta
        group.targets.base_on(self._index, rows)
        group.members, group.metas = new, new_metas
        return True

    def _is_gone(self, who: str) -> bool:
        """Whether the member that has a row is none any longer, or another one."""
        row = self._index.places.get(who)
        if row is None:
            return False
        member = self._members.get(who)
        return member is None or member.serial != self._serials[row]

    def _list_values(self) -> MemberValues:
        """Return the members in columns, with what those have who had rows."""
        metas = MetaValues(self._group.group_id, self._index)
        for column, known, codes in zip(metas.columns, self._values, self._codes, strict=True):
            column.values, column.size = list(known), len(codes)
            column.codes = codes if len(known) > 1 else None
        held, members = HeldRows(self._index), self._members
        if isinstance(members, MemberDict):
            held = members.rows.held.on(self._index, np.asarray(self._rows))
        else:
            held.grow(len(self._index))
        listed: list[NameList] = list(self._values[NAMES])
        values = MemberValues(metas, held, listed)
        values.serials = self._serials
        values.share_lists(listed)
        return values


def _list_ids(members: Shareable[str, Member]) -> Iterator[tuple[str, int]]:
    """Yield the members, in order, and the row that each has; some may have left since."""
    if not isinstance(members, MemberDict):
        yield from zip(list(members), repeat(NO_ROW))  # a list of a million takes a few ms
        return
    places, gone = members.rows.index.places, members.gone
    yield from ((who, row) for who, row in places.items() if who not in gone)
    yield from ((who, NO_ROW) for who in list(members.own) if who not in places or who in gone)
