"""Bring a target that was computed for a group as it was to the group as it is.

Joins and leaves during a computation count as having happened after it: only members whose target
changed get a record, members gone since are dropped, members new since have an empty target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assignors import PartitionRanges
from coordinator.core.state.groups import Computation, Group
from coordinator.core.state.records import LoadsNoted, Record, TargetMember, Tombstone
from coordinator.core.state.row_dict import list_keys_of_one
from coordinator.core.state.target_assignment import WholeTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.compute_here import diff_targets


def restore_input(
    group: Group,
    computation: Computation,
    loads: LoadsNoted | None = None,
    as_of_ms: int | None = None,
) -> AssignorInput:
    """Return the group as it was when the computation was prepared.

    A target is the same since, but for that of a static member, which its successor has now.
    """
    targets = group.targets.copy()
    for member_id in _list_changed(group, computation):
        if member_id in group.members or member_id not in computation.metas:
            continue
        successor = _find_successor(group, computation, member_id)
        if successor is not None and successor in targets:
            targets[member_id] = targets[successor]
    return AssignorInput(
        computation.metas,
        targets,
        computation.topics,
        computation.regexes,
        loads,
        as_of_ms,
        computation.mark,
        group.mark(),
    )


def _list_changed(group: Group, computation: Computation) -> Iterable[str]:
    """Return those who may have come or gone since a computation was prepared, all who did."""
    changed = None if computation.mark is None else computation.mark.until(group.mark())
    if changed is None:
        return list_keys_of_one(computation.metas, group.members)
    return set(changed)


def diff_computed(
    group: Group, computation: Computation, ranges: PartitionRanges
) -> tuple[list[TargetMember], int]:
    """Return the records of an assignment made for a computation's input, and its moves."""
    return diff_targets(group.group_id, restore_input(group, computation), ranges)


def rebase(group: Group, computation: Computation, found: TargetCandidate) -> Sequence[Record]:
    """Return the changes of a candidate as they are for the group of now (K-48, K-49)."""
    if found.whole is None:
        return _rebase_changes(group, computation, found.changes)
    return _rebase_whole(group, computation, found.whole)


def _rebase_changes(
    group: Group, computation: Computation, records: Iterable[Record]
) -> list[TargetMember]:
    """Return the records that make a computed target the group's.

    Members that are gone since are left out, but a static member's successor inherits; members
    that are new since get an empty target.
    """
    found: dict[str, TargetMember] = {}
    for record in records:
        assert isinstance(record, TargetMember)
        member_id = _find_successor(group, computation, record.member_id)
        if member_id is not None:
            found[member_id] = TargetMember(group.group_id, member_id, record.spans)
    for member_id in _list_changed(group, computation):
        new = member_id in group.members and member_id not in computation.metas
        if new and member_id not in found and member_id not in group.targets:
            found[member_id] = TargetMember(group.group_id, member_id)
    return [found[member_id] for member_id in sorted(found)]


def _rebase_whole(group: Group, computation: Computation, whole: WholeTarget) -> list[Record]:
    """Return what must come after a whole target that was computed for another set of members.

    Members that are gone since have no target, but a static member's successor inherits; members
    that are new since have an empty one.
    """
    records: list[Record] = []
    heirs = set()
    others = list_keys_of_one(computation.metas, group.members)
    if not others:
        return []
    for member_id in (i for i in computation.metas if i in others):
        heir = _find_successor(group, computation, member_id)
        records.append(Tombstone(TargetMember.kind, group.group_id, member_id))
        if heir is not None:
            heirs.add(heir)
            records.append(TargetMember(group.group_id, heir, whole.spans(member_id)))
    new = (i for i in group.members if i in others and i not in heirs)
    records += (TargetMember(group.group_id, member_id) for member_id in new)
    return records


def _find_successor(group: Group, computation: Computation, member_id: str) -> str | None:
    """Return who has a member's place now: itself, its next incarnation, or None."""
    if member_id in group.members:
        return member_id
    instance_id = computation.metas[member_id].instance_id
    return None if instance_id is None else group.instances.get(instance_id)
