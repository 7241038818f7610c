"""How very many members come, and come to have what rows of the log say, without an object each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints, Longs
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.member_counts import (
    count_classic,
    count_stable,
    list_names,
)
from coordinator.core.state.member_rows import (
    META_FIELDS,
    STABLE,
    CurrentRows,
    HeldRows,
    MemberRows,
    TargetRows,
)
from coordinator.core.state.owner_columns import Runs
from coordinator.core.state.partition_owners import claim_runs, part_by_topic
from coordinator.core.state.row_dict import NO_ROW, MemberIndex, RowDict
from coordinator.core.state.rows.member_table import NAMES, MemberDict, MemberValues, MetaValues
from coordinator.core.state.span_columns import to_array

FEW = 8
"""For fewer members, arrays of their own take longer to make than to look each of them up."""


def come_as_rows(rows: MemberRows, state: State) -> bool:
    """Let members come who stay in columns; False, and nothing is done, where that cannot be.

    The group has members that are none, one comes twice, or the group lists who comes.
    """
    group = state.groups.get(rows.group_id)
    if group is None:
        group = Group(rows.group_id)
    members, metas = _rows_of_group(group)
    if members is None or metas is None or group.changes is not None:
        return False
    table = members.rows
    if not table.index.add(rows.member_ids):
        return False
    state.groups[group.group_id], group.members, group.metas = group, members, metas
    count = len(rows)
    table.metas.add(rows)
    table.held.grow(count)
    serials = np.arange(group.serials + 1, group.serials + 1 + count, dtype=np.int32)
    table.serials.extend(to_array(serials))
    members.came(count)
    metas.came(count)
    group.serials += count
    _count_members(state, group, rows)
    table.share_lists([group.lists[names] for names in table.metas.columns[NAMES].values])
    count_stable(group, 0, count)
    group.revision += count
    return True


def _rows_of_group(group: Group) -> tuple[MemberDict | None, RowDict[Any] | None]:
    """Return the rows to which members of a group may come."""
    if isinstance(group.members, MemberDict) and isinstance(group.metas, RowDict):
        plain = group.members.is_plain and group.metas.is_plain
        return (group.members, group.metas) if plain else (None, None)
    if group.members:
        return None, None
    values = MetaValues(group.group_id, MemberIndex())
    members = MemberDict(MemberValues(values, HeldRows(values.index), []))
    return members, RowDict(values)


def _count_members(state: State, group: Group, rows: MemberRows) -> None:
    """Count members who came; the names of a list are of all who have it."""
    columns = dict(zip(META_FIELDS, rows.columns, strict=True))
    for names, count in _count(*columns["subscribed_topic_names"]):
        list_names(state, group, names, count)
    for regex, count in _count(*columns["subscribed_topic_regex"]):
        if regex:
            group.regex_members[regex] += count
    for assignor, count in _count(*columns["server_assignor"]):
        if assignor is not None:
            group.wishes[assignor] += count
    for classic, count in _count(*columns["classic_member_metadata"]):
        if classic is not None:
            count_classic(group, classic, count)
    instances, codes = columns["instance_id"]
    if any(one is not None for one in instances):
        for row in np.flatnonzero(np.array([one is not None for one in instances])[codes]).tolist():
            group.instances[instances[codes[row]]] = rows.member_ids[row].as_py()


def _count(values: Sequence[Any], codes: Ints) -> Iterable[tuple[Any, int]]:
    return zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True)


def give_rows(rows: TargetRows, state: State) -> bool:
    """Give members targets that stay in columns; False, and nothing is done, where that cannot be.

    One of them has no row or a target already, or the group lists whose targets change.
    """
    group = state.groups.get(rows.group_id)
    if group is None or not isinstance(group.members, MemberDict) or group.changes is not None:
        return False
    places = _find_rows(group.members, rows.member_ids)
    if places is None or not group.targets.add_rows(group.members.rows.index, places, rows.spans):
        return False
    group.revision += len(rows)
    return True


def hold_rows(rows: CurrentRows, state: State) -> bool:
    """Let members have what rows say; False, and nothing is done, where one had something."""
    group = state.groups.get(rows.group_id)
    if group is None or not isinstance(group.members, MemberDict):
        return False
    places, table = _find_rows(group.members, rows.member_ids), group.members.rows
    if places is None or not table.held.are_new(places) or not _claim(group, rows, table, places):
        return False
    table.held.add(places, rows)
    count_stable(group, 0, -len(rows))
    epoch, _, state_of = rows.numbers
    epochs, counts = np.unique(epoch[state_of == STABLE], return_counts=True)
    for stable_at, count in zip(epochs.tolist(), counts.tolist(), strict=True):
        count_stable(group, stable_at, count)
    return True


def advance_rows(
    group: Group, member_ids: Sequence[str], epoch: int, few: int = FEW
) -> Iterable[Member]:
    """Let members be STABLE at an epoch that changes nothing for them; return those of no rows.

    Parameters
    ----------
    few
        Fewer members are looked up one by one.
    """
    members, others = group.members, member_ids
    if isinstance(members, MemberDict) and len(member_ids) < few:
        others = [one for one in member_ids if not _advance_row(group, members, one, epoch)]
    elif isinstance(members, MemberDict):
        rows = members.look_up(member_ids)
        there = rows != NO_ROW
        if len(np.unique(rows[there])) == np.count_nonzero(there):
            for stable_at, more in members.rows.held.advance(rows[there], epoch).items():
                count_stable(group, stable_at, more)
            others = [member_ids[at] for at in np.flatnonzero(~there).tolist()]
    return filter(None, map(members.get, others))


def _advance_row(group: Group, members: MemberDict, member_id: str, epoch: int) -> bool:
    """Do so for one member; False, and nothing is done, where it is no row."""
    row = members.find_row(member_id)
    if row is None:
        return False
    before = members.rows.held.advance_row(row, epoch)
    count_stable(group, epoch, 1)
    if before is not None:
        count_stable(group, before, -1)
    return True


def _find_rows(members: MemberDict, ids: pa.StringArray) -> Longs | None:
    """Return the row of each member; None where one is not there, or is named twice."""
    rows = members.rows.index.find(ids)
    return None if rows is None or members.have_changed(rows).any() else rows


def _claim(group: Group, rows: CurrentRows, table: MemberValues, places: Longs) -> bool:
    spans, serials = rows.assigned, np.asarray(table.serials)[places]
    if len(rows.pending.topic):
        spans, serials = spans.copy(), np.concatenate([serials, serials])
        spans.extend(rows.pending)
    topic, first, end, _ = spans.columns()
    runs = Runs(first, end, serials.repeat(spans.counts()))
    return claim_runs(group, part_by_topic(spans.keys, topic, runs))


RULES_FOR_ROWS: Mapping[type, Callable[[Any, State], bool]] = {
    MemberRows: come_as_rows,
    CurrentRows: hold_rows,
    TargetRows: give_rows,
}
"""How the state takes rows as they are; what that cannot do, `replay_all` does record by record."""
