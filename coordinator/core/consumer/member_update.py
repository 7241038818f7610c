"""Validate a heartbeat and find its member (docs/design/behaviours.md#heartbeat-validation).

Ends in a `MemberUpdate`: the member as this heartbeat makes it, with the records for that. What it
means for the group, heartbeat.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from coordinator.config import Config
from coordinator.core.consumer.member_removal import end_of_member, static_member, unknown_member
from coordinator.core.events import JOIN, LEAVE_FOR_A_WHILE, Heartbeat
from coordinator.core.state.groups import LEFT_FOR_A_WHILE, Group, Member, State
from coordinator.core.state.partition_spans import (
    Holding,
    Spans,
    TopicKey,
    is_within,
    kafka_id,
    put_together,
    spans_of_topics,
    topic_of,
)
from coordinator.core.state.records import (
    ClassicMemberMetadata,
    CurrentMember,
    MemberMetadata,
    Record,
    TargetMember,
)
from coordinator.errors import ErrorCode, GroupError

_NAME = attrgetter("name")


class MemberUpdate(msgspec.Struct, frozen=True):
    """The member as this heartbeat makes it, before its group epoch and target are looked at.

    A struct, as records are: each heartbeat makes one, and a frozen dataclass takes longer.

    Attributes
    ----------
    group
        As it is before the heartbeat; a new one has no members.
    old
        The member's metadata before; of the member it replaces, for a returning static member.
    meta, current, serial
        The member now.
    target
        Its target as it is now; None: it has none yet.
    replaces
        The member id whose place it takes, for a returning static member.
    records
        Of the member's metadata, and of its taking another one's place.
    """

    group: Group
    old: MemberMetadata | None
    meta: MemberMetadata
    current: CurrentMember
    serial: int
    target: Spans | None
    replaces: str | None = None
    records: Sequence[Record] = ()

    @property
    def names_changed(self) -> bool:
        """Whether the set of subscribed names is another one."""
        before = self.old.subscribed_topic_names if self.old else ()
        return before != self.meta.subscribed_topic_names

    @property
    def regex_changed(self) -> bool:
        """Whether the regex is another one."""
        before = self.old.subscribed_topic_regex if self.old else ""
        return before != self.meta.subscribed_topic_regex


def check_heartbeat(config: Config, event: Heartbeat) -> None:
    """Validate a request by itself, in Kafka's order (G-12…G-18).

    Raises
    ------
    GroupError
        INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    if not event.member_id:
        raise _invalid("MemberId can't be empty.")
    if not event.group_id:
        raise _invalid("GroupId can't be empty.")
    if event.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if event.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if event.member_epoch == JOIN:
        if event.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if event.topic_partitions is None or event.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if event.subscribed_topic_names is None and event.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif event.member_epoch == LEAVE_FOR_A_WHILE:
        if event.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif event.member_epoch < LEAVE_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    known = config.kafka.assignors
    if event.server_assignor is not None and event.server_assignor not in known:
        raise GroupError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(known)}.",
        )


def _invalid(message: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_REQUEST, message)


def refuse_new_group(config: Config, known: Mapping[str, object], group_id: str) -> None:
    """Refuse a group that would be one more than there may be.

    Parameters
    ----------
    known
        What there is by group: groups, their offsets, or their settings.
    """
    most = config.quotas.groups_max
    if 0 < most <= len(known) and group_id not in known:
        raise GroupError(
            ErrorCode.POLICY_VIOLATION,
            f"Group {group_id} would be one more than the {most} that there may be "
            "(quotas.groups_max): delete one.",
        )


def refuse_full_group(config: Config, group: Group, event: Heartbeat) -> None:
    """Refuse newcomers to a full group; a known instance id is not a newcomer (G-23)."""
    if len(group.members) < config.kafka.max_size or event.member_id in group.members:
        return
    if event.instance_id is not None and event.instance_id in group.instances:
        return
    raise GroupError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {config.kafka.max_size} members.",
    )


def start_update(
    state: State, group: Group, event: Heartbeat, classic: ClassicMemberMetadata | None = None
) -> MemberUpdate:
    """Find, create or replace the member (G-24…G-31, G-46…G-49).

    Parameters
    ----------
    classic
        Of a member that speaks the classic protocol; None: it does not, or no longer does.
    """
    existing = _find_member(state, group, event, classic)
    if existing is None:
        meta = _update_metadata(MemberMetadata(group.group_id, event.member_id), event, classic)
        current = CurrentMember(group.group_id, event.member_id)
        return MemberUpdate(
            group, None, meta, current, group.serials + 1, target=None, records=(meta,)
        )
    if event.member_epoch == JOIN and event.instance_id is not None:
        away = existing.epoch == LEFT_FOR_A_WHILE
        changes = existing.is_classic and classic is None  # even where its id stays, as in Kafka
        if away or changes or existing.member_id != event.member_id:
            return _replace_static(group, existing, event, classic)
    meta = _update_metadata(existing.meta, event, classic)
    return MemberUpdate(
        group,
        existing.meta,
        meta,
        existing.current,
        existing.serial,
        group.targets.get(existing.member_id),
        records=() if meta == existing.meta else (meta,),
    )


def _find_member(
    state: State, group: Group, event: Heartbeat, classic: ClassicMemberMetadata | None
) -> Member | None:
    """Return the member that the request speaks for; None for a newcomer.

    A static member that is there gives its place only where one of the two speaks the classic
    protocol (M2-8).
    """
    joins = event.member_epoch == JOIN
    if event.instance_id is None:
        member = group.members.get(event.member_id)
        if member is None:
            if not joins:
                raise unknown_member(group.group_id, event.member_id)
            return None
        if not joins:
            _check_epoch(state, member, event)
        return member
    if not joins:
        member = static_member(group, event.instance_id, event.member_id)
        _check_epoch(state, member, event)
        return member
    member = group.static_member(event.instance_id)
    if member is None:
        return group.members.get(event.member_id)
    if member.epoch != LEFT_FOR_A_WHILE and classic is None and not member.is_classic:
        raise GroupError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} cannot join "
            f"the group because the instance id is owned by {member.member_id} member.",
        )
    if event.member_id in group.members and event.member_id != member.member_id:
        # Its own partitions would be lost without anyone noticing.
        raise _invalid(
            f"Member {event.member_id} cannot take over instance id {event.instance_id} while it "
            "is in the group itself: leave first, or join under another member id."
        )
    return member


def _check_epoch(state: State, member: Member, event: Heartbeat) -> None:
    """Fence another epoch than the member's (G-30, G-31).

    The previous epoch is taken when the member owns nothing but what it is assigned: the answer
    with the new epoch may have been lost.
    """
    known, received = member.epoch, event.member_epoch
    if received == known:
        return
    owned = resolve_owned(state, member.current, event)
    lost_answer = (
        received < known
        and received == member.current.previous_member_epoch
        and owned is not None
        and is_within(owned, member.current.assigned)
    )
    if not lost_answer:
        than = "greater" if received > known else "smaller"
        raise GroupError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {than} member epoch ({received}) than the one known "
            f"by the group coordinator ({known}). The member must abandon all its partitions and "
            "rejoin.",
        )


def _replace_static(
    group: Group, gone: Member, event: Heartbeat, classic: ClassicMemberMetadata | None
) -> MemberUpdate:
    """Give a static member's place to its next incarnation (G-48)."""
    member_id = event.member_id
    copied = msgspec.structs.replace(gone.meta, member_id=member_id)
    meta = _update_metadata(copied, event, classic)
    current = msgspec.structs.replace(
        gone.current, member_id=member_id, member_epoch=JOIN, previous_member_epoch=JOIN
    )
    spans = group.targets.get(gone.member_id, ())
    records = [
        *end_of_member(group.group_id, gone.member_id),
        copied,
        TargetMember(group.group_id, member_id, spans),
        current,
    ]
    if meta != copied:
        records.append(meta)
    return MemberUpdate(
        group,
        gone.meta,
        meta,
        current,
        gone.serial,
        spans,
        replaces=gone.member_id,
        records=records,
    )


def _update_metadata(
    meta: MemberMetadata, event: Heartbeat, classic: ClassicMemberMetadata | None
) -> MemberMetadata:
    """Return the metadata with what the request gives; null keeps the old value (G-32)."""
    names, regex = event.subscribed_topic_names, event.subscribed_topic_regex
    timeout = event.rebalance_timeout_ms
    return MemberMetadata(
        group_id=meta.group_id,
        member_id=meta.member_id,
        instance_id=meta.instance_id if event.instance_id is None else event.instance_id,
        rack_id=meta.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topic_names=meta.subscribed_topic_names if names is None else _sort_names(names),
        subscribed_topic_regex=meta.subscribed_topic_regex if regex is None else regex,
        rebalance_timeout_ms=meta.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=(
            meta.server_assignor if event.server_assignor is None else event.server_assignor
        ),
        classic_member_metadata=classic,
        client_software=event.client_software or meta.client_software,
    )


def _sort_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def resolve_owned(
    state: State, current: CurrentMember, event: Heartbeat, near: Holding = ()
) -> Spans | None:
    """Return the partitions that the member reports, by topic id; None when it reports none.

    A name means the topic that has it now; a name without a topic, the one the member holds. An id
    says which topic it is; what the member holds nothing of needs no name.

    Parameters
    ----------
    near
        Where it is given, others than its topics may be left out: it may be few of very many.
    """
    reported = event.topic_partitions
    if reported is None:
        return None
    if near:
        asked = map(topic_of, near)
        called = (kafka_id(k.topic_id) for k in asked) if event.by_topic_id else map(_NAME, asked)
        reported = {name: reported[name] for name in called if name in reported}
        if not reported:
            return ()
    names = reported.keys()
    mine = map(topic_of, put_together(current.assigned, current.pending))
    if event.by_topic_id:
        named = {kafka_id(key.topic_id): key for key in mine}
        keys = [named.get(topic_id) or TopicKey("", topic_id) for topic_id in names]
    else:
        there = list(map(state.topics.get, names))
        held = {key.name: key for key in mine} if None in there else {}
        keys = [
            topic.key if topic else held.get(name) or TopicKey(name, "")
            for name, topic in zip(names, there, strict=True)
        ]
    return spans_of_topics(zip(keys, reported.values(), strict=True))
