"""Describe, list, delete and configure groups (K-9…K-12, K-51, K-52).

See docs/design/behaviours.md#offsets-list-describe-delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from coordinator.config import Config, ConfigError
from coordinator.config.kafka import group_defaults, group_settings
from coordinator.core.consumer.heartbeat import preferred_assignor
from coordinator.core.consumer.member_update import refuse_new_group
from coordinator.core.events import (
    AlterConfig,
    ConfigureGroup,
    DeleteGroup,
    DescribeConfig,
    DescribeGroup,
    ListGroups,
    Result,
)
from coordinator.core.offsets import end_of_group, end_of_offset, places_of
from coordinator.core.state.groups import GroupState, Member, State, Topic
from coordinator.core.state.partition_spans import Spans, drop_epochs, partitions_by, union
from coordinator.core.state.records import (
    GroupConfigured,
    LoadsNoted,
    Record,
    Tombstone,
)
from coordinator.core.state.rows.member_table import copy_members
from coordinator.errors import ErrorCode, GroupError

OPERATIONS_UNKNOWN = -(2**31)
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


MUCH = 1_000
"""Members, and topics, of a group that are described in about a millisecond."""


class GroupDescription(NamedTuple):
    """A group as it is at one moment; nothing in here changes.

    Looking at all its members and topics may take long: the caller does it, not the core.
    """

    head: dict[str, object]
    members: Mapping[str, Member] | None = None
    """None: they are in `head` already."""
    targets: Mapping[str, Spans] = MappingProxyType({})
    topics: Mapping[str, Topic] = MappingProxyType({})

    def fields(self) -> dict[str, object]:
        """Return the group under Kafka's field names in snake case."""
        if self.members is None:
            return self.head
        return self.head | {
            "members": [
                self._member(self.members[member_id]) for member_id in sorted(self.members)
            ],
            "authorized_operations": OPERATIONS_UNKNOWN,
        }

    def _member(self, member: Member) -> dict[str, object]:
        meta, current = member.meta, member.current
        held = drop_epochs(union(current.assigned, current.pending))
        target = self.targets.get(meta.member_id, ())
        is_classic = meta.classic_member_metadata is not None
        return {
            "member_id": meta.member_id,
            "instance_id": meta.instance_id,
            "rack_id": meta.rack_id,
            "member_epoch": current.member_epoch,
            "client_id": meta.client_id,
            "client_host": meta.client_host,
            "subscribed_topic_names": list(meta.subscribed_topic_names),
            "subscribed_topic_regex": meta.subscribed_topic_regex,
            "assignment": {"topic_partitions": self._partitions(held)},
            "target_assignment": {"topic_partitions": self._partitions(target)},
            "member_type": CLASSIC_MEMBER if is_classic else CONSUMER_MEMBER,
        }

    def _partitions(self, spans: Spans) -> list[dict[str, object]]:
        """Return the partitions of topics that still exist."""
        topics = self.topics
        there = (
            span
            for span in spans
            if (topic := topics.get(span[0].name)) is not None and topic.key == span[0]
        )
        return [
            {"topic_id": key.topic_id, "topic_name": key.name, "partitions": partitions}
            for key, partitions in partitions_by(lambda key: key, there).items()
        ]


def describe_group(state: State, config: Config, event: DescribeGroup) -> Result:
    """Return one group, as a `GroupDescription` (G-130, K-51).

    Raises
    ------
    GroupError
        INVALID_GROUP_ID: it is empty.
    """
    if not event.group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID, "The group id is empty: give one.")
    group = state.groups.get(event.group_id)
    if group is None:
        return Result(response=GroupDescription(_dead_group(event.group_id)))
    head: dict[str, object] = {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": preferred_assignor(config, group.wishes),
    }
    members = copy_members(group.members)
    if len(group.members) + len(group.names) <= MUCH:  # copies of all topics would take longer
        now = GroupDescription(head, members, group.targets, state.topics)
        return Result(response=GroupDescription(now.fields()))
    described = GroupDescription(head, members, group.targets.copy(), dict(state.topics))
    return Result(response=described)


def _dead_group(group_id: str) -> dict[str, object]:
    return {
        "error_code": int(ErrorCode.GROUP_ID_NOT_FOUND),
        "error_message": f"Group {group_id} not found.",
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
        "authorized_operations": OPERATIONS_UNKNOWN,
    }


def list_groups(state: State, event: ListGroups) -> Result:
    """Return all groups, filtered by state and type in any case (G-129)."""
    states = {name.lower() for name in event.states}
    types = {name.lower() for name in event.types}
    ids = (
        list_group_ids(state)
        if event.group_ids is None
        else _select_existing(state, event.group_ids)
    )
    rows = [_row(state, group_id) for group_id in ids]
    return Result(
        response=[
            row
            for row in rows
            if (not states or row["group_state"].lower() in states)
            and (not types or row["group_type"].lower() in types)
        ]
    )


def _select_existing(state: State, group_ids: Sequence[str]) -> list[str]:
    return [
        one
        for one in group_ids
        if any(one in known for known in (state.groups, state.classic, state.offsets))
    ]


def list_group_ids(state: State) -> list[str]:
    """Return the ids of all groups, those of nothing but offsets, too, in order."""
    return sorted(state.groups.keys() | state.classic.keys() | state.offsets.keys())


def _row(state: State, group_id: str) -> dict[str, str]:
    """Offsets without a group make what Kafka calls a simple classic group (G-123)."""
    group, classic = state.groups.get(group_id), state.classic.get(group_id)
    if group is not None:
        kind, shown, protocol = "consumer", group.state.value, "consumer"
    elif classic is not None:
        kind, shown, protocol = "classic", classic.state.value, classic.protocol_type or ""
    else:
        kind, shown, protocol = "classic", GroupState.EMPTY.value, ""
    return {
        "group_id": group_id,
        "protocol_type": protocol,
        "group_state": shown,
        "group_type": kind,
    }


def delete_group(state: State, event: DeleteGroup) -> Result:
    """Delete an empty group with its offsets; its settings stay (G-131, K-11).

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = state.groups.get(event.group_id)
    places = places_of(state, event.group_id)
    classic = state.classic.get(event.group_id)
    if group is None and classic is None and event.group_id not in state.offsets:
        raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
    if (group is not None and group.members) or (classic is not None and classic.is_running()):
        raise GroupError(ErrorCode.NON_EMPTY_GROUP, f"Group {event.group_id} is not empty.")
    records: list[Record] = [end_of_offset(event.group_id, *key) for key in sorted(places)]
    if event.group_id in state.loads:
        records.append(Tombstone(LoadsNoted.kind, event.group_id))
    return Result([*records, *end_of_group(event.group_id, group)])


def configure_group(state: State, config: Config, event: ConfigureGroup) -> Result:
    """Store a group's settings, before it exists or after (K-10, K-11).

    Raises
    ------
    GroupError
        INVALID_CONFIG: an unknown name or a value outside its bounds (G-143, G-144).
        POLICY_VIOLATION: so many groups have settings already (quotas.groups_max).
    """
    if not event.group_id:
        raise GroupError(ErrorCode.INVALID_GROUP_ID, "The group id is empty: give one.")
    try:
        settings = group_settings(config.kafka, event.settings)
    except ConfigError as error:
        raise GroupError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if settings:
        refuse_new_group(config, state.settings, event.group_id)
    if settings == state.settings.get(event.group_id, {}):
        return Result()
    if not settings:
        return Result([Tombstone(GroupConfigured.kind, event.group_id)])
    return Result([GroupConfigured(event.group_id, settings)])


def alter_config(state: State, config: Config, event: AlterConfig) -> Result:
    """Change some settings of a group and leave the others (IncrementalAlterConfigs).

    Raises
    ------
    GroupError
        As `configure_group`.
    """
    settings: dict[str, str] = dict(state.settings.get(event.group_id, {}))
    for name, value in event.changes.items():
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
    decided = configure_group(state, config, ConfigureGroup(event.group_id, settings))
    return Result() if event.validate_only else decided


def describe_config(state: State, config: Config, event: DescribeConfig) -> Result:
    """Return {name: (value, whether it is the group's own)} (DescribeConfigs)."""
    own = state.settings.get(event.group_id, {})
    values = group_defaults(config.kafka) | own
    return Result(response={name: (value, name in own) for name, value in values.items()})
