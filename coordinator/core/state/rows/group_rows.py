"""The records of a group's members, as rows where its members are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from coordinator.core.state.groups import Group
from coordinator.core.state.member_rows import MemberRows, TargetRows
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    Record,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.row_dict import RowDict
from coordinator.core.state.rows.member_table import (
    MemberDict,
    MetaValues,
    code_fields,
    list_ids,
)


def list_metas(group: Group) -> Iterable[MemberMetadata]:
    """Return the metadata of all members, in order."""
    metas = group.metas
    if not isinstance(metas, RowDict) or not metas:
        return metas.values()
    table = metas.rows
    assert isinstance(table, MetaValues)
    columns = list(code_fields(metas, table.names))
    return MemberRows(group.group_id, list_ids(metas), columns)


def list_targets(group: Group) -> Iterator[Iterable[Record]]:
    """Return the targets that differ from the whole one, and whose it ends."""
    group_id, targets = group.group_id, group.targets
    found = targets.take_rows()
    if found is not None and len(found[0]):
        yield TargetRows(group_id, *found)
    for member_id, spans in targets.list_changed():
        if spans is None:
            yield [Tombstone(TargetMember.kind, group_id, member_id)]
        else:
            yield [TargetMember(group_id, member_id, spans)]


def list_currents(group: Group) -> Iterator[Iterable[Record]]:
    """Return what members have who have, or had, anything."""
    group_id, members = group.group_id, group.members
    others = members.items()
    if isinstance(members, MemberDict):
        rows = members.list_rows()
        ids = members.rows.index.ids.take(pa.array(rows))
        yield members.rows.held.records(group_id, ids, rows)
        others = members.own.items()
    for member_id, member in others:
        current = member.current
        if current != CurrentMember(group_id, member_id):
            yield [current]
