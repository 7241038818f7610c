"""machine: `step` reads the state and decides; it never writes.

Everything the coordinator does is one event through `step`. What it returns is data: records,
which `replay` applies and the log makes durable; the response, which leaves only after that;
timers and tasks, which the runtime performs. This room and all below it know no clock, no
randomness, no disk, no thread and no Spark: time, new ids and settings are arguments.
"""

from __future__ import annotations

from coordinator import external, groups, metadata, offsets
from coordinator.config import Config
from coordinator.events import (
    ConfigureGroup,
    DeleteGroup,
    Describe,
    Event,
    ExpireOffsets,
    Heartbeat,
    HeartbeatResponse,
    Install,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Prepare,
    RegexesResolved,
    Result,
    TargetComputed,
    TargetFailed,
    TimerFired,
    TopicsSeen,
)
from coordinator.heartbeat import heartbeat
from coordinator.kafka_config import group_value
from coordinator.leaving import timer_fired
from coordinator.records import MemberState
from coordinator.state import Group, Member, State


def step(  # noqa: PLR0911, PLR0912 - one line a kind of event
    state: State, config: Config, event: Event, now_ms: int
) -> Result:
    """Decide one event.

    Parameters
    ----------
    state
        Read, never written.
    event
        What came; its fields are not trusted.
    now_ms
        The time, in ms since 1970.

    Raises
    ------
    GroupError
        The request is refused; nothing is to be written.
    """
    match event:
        case Heartbeat():
            return heartbeat(state, config, event, now_ms)
        case OffsetCommit():
            return offsets.commit(state, config, event, now_ms)
        case OffsetFetch():
            return offsets.fetch(state, event)
        case OffsetDelete():
            return offsets.delete(state, event)
        case Describe():
            return groups.describe(state, config, event)
        case ListGroups():
            return groups.listed(state, event)
        case DeleteGroup():
            return groups.delete(state, event)
        case ConfigureGroup():
            return groups.configure(state, config, event)
        case Prepare():
            return external.prepare(state, config, event, now_ms)
        case Install():
            return external.install(state, event, now_ms)
        case TargetComputed():
            return external.computed(state, event, now_ms)
        case TargetFailed():
            return external.failed(state, event)
        case TopicsSeen():
            return metadata.topics_seen(state, event)
        case RegexesResolved():
            return metadata.regexes_resolved(state, event)
        case TimerFired():
            return timer_fired(state, event)
        case ExpireOffsets():
            return offsets.expire(state, config, event, now_ms)


def steady_group(state: State, config: Config, group_id: str) -> tuple[Group, int] | None:
    """Return a group whose members' heartbeats may be steady, and its heartbeat interval.

    None when any heartbeat might change something: an assignment is due, topics changed, a target
    is unfinished, regexes may have to be resolved again, or members differ about the assignor.
    """
    group = state.groups.get(group_id)
    if (
        group is None
        or group.epoch != group.assignment_epoch
        or group.topics_hash != group.metadata_hash
        or group.partial
        or group.regex_members
        or len(group.wishes) > 1
    ):
        return None
    settings = state.settings.get(group_id, {})
    return group, group_value(config.kafka, settings, "consumer.heartbeat.interval.ms")


def steady(group: Group, member_id: str, member_epoch: int) -> Member | None:
    """Return the member if this heartbeat, with nothing but id and epoch, changes nothing.

    A steady heartbeat answers the member's epoch and no assignment, and only its session timer
    starts again: exactly what `step` decides for it.
    """
    member = group.members.get(member_id)
    if member is None or member_epoch <= 0:
        return None
    current = member.current
    if (
        current.member_epoch != member_epoch
        or current.member_epoch != group.assignment_epoch
        or current.state is not MemberState.STABLE
    ):
        return None
    return member


def steady_heartbeat(state: State, config: Config, event: Heartbeat) -> HeartbeatResponse | None:
    """Answer a heartbeat that changes nothing, without a step; None when it may change something.

    Owned partitions do not matter to a STABLE member at the assignment epoch.
    """
    if (
        event.rebalance_timeout_ms != -1
        or event.subscribed_topic_names is not None
        or event.subscribed_topic_regex is not None
        or event.server_assignor is not None
        or event.rack_id is not None
        or event.instance_id is not None
    ):
        return None
    found = steady_group(state, config, event.group_id)
    member = steady(found[0], event.member_id, event.member_epoch) if found else None
    if found is None or member is None:
        return None
    meta = member.meta
    if meta.client_id != event.client_id or meta.client_host != event.client_host:
        return None
    return HeartbeatResponse(event.member_id, event.member_epoch, found[1])
