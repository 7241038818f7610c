"""What a group counts of its members, so that a heartbeat looks at one and not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.core.state.groups import Group, Member, NameList, State, count_down
from coordinator.core.state.records import (
    ClassicMemberMetadata,
    CurrentMember,
    MemberMetadata,
    MemberState,
)
from coordinator.core.state.subscriptions import count_names

STABLE = MemberState.STABLE
"""To find it in its class takes ten times as long, twice for each of a million members."""


def share_names(state: State, group: Group, meta: MemberMetadata) -> NameList:
    """Return the shared list of a member's names, with the member counted."""
    return list_names(state, group, meta.subscribed_topic_names, 1)


def list_names(state: State, group: Group, names: tuple[str, ...], members: int) -> NameList:
    """Return the shared list of names, with so many more members counted."""
    listed = group.lists_by_id.get(id(names)) or group.lists.get(names)
    if listed is None:
        listed = group.lists[names] = group.lists_by_id[id(names)] = NameList(names)
        count_names(state, group, (), names)
    listed.members += members
    return listed


def add_members(
    state: State, group: Group, metas: Iterable[MemberMetadata]
) -> Iterator[MemberMetadata]:
    """Let members come, and count them once the last has; yield the records of who is there."""
    members, all_metas = group.members, group.metas
    begin, listed = group.serials, None
    for meta in metas:
        if meta.member_id in members:
            listed = None
            yield meta
            continue
        if listed is not None and meta.subscribed_topic_names is listed.names:
            listed.members += 1
        else:
            listed = share_names(state, group, meta)
        group.serials += 1
        shared = listed.share_with(meta)
        members[meta.member_id] = Member(shared, listed, group.serials)
        all_metas[meta.member_id] = shared
        if group.changes is not None:
            group.note_change(meta.member_id)
        count_member(group, meta)
    came = group.serials - begin
    count_stable(group, 0, came)
    if group.changes is None:
        group.revision += came


def count_stable(group: Group, epoch: int, more: int) -> None:
    """Count so many more STABLE members at an epoch."""
    group.stable_at[epoch] += more
    if group.stable_at[epoch] <= 0:
        del group.stable_at[epoch]


def set_current(group: Group, member: Member, record: CurrentMember) -> None:
    """Let a member have what a record says."""
    if member.stable:
        count_stable(group, member.epoch, -1)
    if record.state is STABLE:
        count_stable(group, record.member_epoch, 1)
    member.held = record
    group.members[member.member_id] = member  # its rows no longer count


def count_member(group: Group, meta: MemberMetadata) -> None:
    """Count a member that is there now, but for its names."""
    if meta.subscribed_topic_regex:
        group.regex_members[meta.subscribed_topic_regex] += 1
    if meta.server_assignor is not None:
        group.wishes[meta.server_assignor] += 1
    if meta.classic_member_metadata is not None:
        count_classic(group, meta.classic_member_metadata, 1)
    if meta.instance_id is not None:
        group.instances[meta.instance_id] = meta.member_id


def count_classic(group: Group, classic: ClassicMemberMetadata, members: int) -> None:
    """Count members that speak the classic protocol, all alike."""
    group.classic_members += members
    for protocol in classic.supported_protocols:
        group.classic_protocols[protocol.name] += members


def uncount_member(state: State, group: Group, member: Member) -> None:
    """Stop counting a member and its names."""
    meta = member.meta
    member.listed.members -= 1
    if member.listed.members == 0:
        del group.lists[member.listed.names], group.lists_by_id[id(member.listed.names)]
        count_names(state, group, member.listed.names, ())
    if meta.subscribed_topic_regex:
        count_down(group.regex_members, meta.subscribed_topic_regex)
    if meta.server_assignor is not None:
        count_down(group.wishes, meta.server_assignor)
    if meta.classic_member_metadata is not None:
        group.classic_members -= 1
        for protocol in meta.classic_member_metadata.supported_protocols:
            count_down(group.classic_protocols, protocol.name)
    # A replaced static member goes while its successor already has the instance id (G-49d).
    if meta.instance_id is not None and group.instances.get(meta.instance_id) == meta.member_id:
        del group.instances[meta.instance_id]
