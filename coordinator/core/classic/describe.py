"""Decide DescribeGroups of a classic group."""

from __future__ import annotations

from coordinator.core.classic_events import DescribeClassicGroup, DescribedGroup, DescribedMember
from coordinator.core.events import Result
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from coordinator.core.state.groups import State
from coordinator.errors import ErrorCode, GroupError


def describe_group(state: State, event: DescribeClassicGroup) -> Result:
    """Describe one group. It has a protocol and its members' metadata only if Stable (H-36).

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND: the group does not exist, or is a consumer group.
    """
    group = state.classic.get(event.group_id)
    if event.group_id in state.groups:
        message = f"Group {event.group_id} is not a classic group."
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if group is None:
        if event.group_id not in state.offsets:
            message = f"Group {event.group_id} not found."
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        group = ClassicGroup(event.group_id)
    stable = group.state is ClassicState.STABLE
    protocol = group.protocol if stable else None
    members = [
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if stable else b"",
            member.assignment,
        )
        for _, member in sorted(group.members.items())
    ]
    return Result(
        response=DescribedGroup(
            group.group_id, group.state.value, group.protocol_type or "", protocol or "", members
        )
    )
