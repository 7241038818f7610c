"""`step` reads the state and returns records; it never writes.

Everything the coordinator does is one event through `step`. What it returns is data: records,
which `replay` applies and the log makes durable; the response, which leaves only after that;
timers and tasks, which the runtime performs. This room and all below it know no clock, no
randomness, no disk, no thread and no Spark: time, new ids and settings are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coordinator.config import Config
from coordinator.core import group_admin, offsets, target_install, topic_metadata
from coordinator.core.audit import with_audit
from coordinator.core.classic_steps.steps import decide_classic, decide_heartbeat, fire_timer
from coordinator.core.events import (
    AlterConfig,
    ComputedTarget,
    ConfigureGroup,
    DecidePlan,
    DeleteGroup,
    DescribeConfig,
    DescribeGroup,
    Event,
    ExpireOffsets,
    Heartbeat,
    HeartbeatResponse,
    InstallAssignment,
    ListConfiguredGroups,
    ListGroupIds,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    ProposeTarget,
    RecordAudit,
    RegexesResolved,
    ReportLoads,
    Result,
    TargetFailed,
    TargetLost,
    TimerFired,
    TopicsReported,
)
from coordinator.core.partition_spans import Holding, Spans, drop_epochs
from coordinator.core.plan_steps import decide as plans
from coordinator.core.plan_steps import note_loads
from coordinator.core.records import MembersAdvanced, MemberState
from coordinator.core.state import Group, Member, State
from coordinator.kafka_config import group_value


def step(state: State, config: Config, event: Event, now_ms: int) -> Result:
    """Decide one event, and say in the log who deleted or altered something by it.

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
    result = _decide(state, config, event, now_ms)
    records = with_audit(event, result.records)
    return result if records is result.records else msgspec.structs.replace(result, records=records)


def _decide(  # noqa: PLR0911, PLR0912 - one line a kind of event
    state: State, config: Config, event: Event, now_ms: int
) -> Result:
    match event:
        case Heartbeat():
            return decide_heartbeat(state, config, event, now_ms)
        case OffsetCommit():
            return offsets.commit_offsets(state, config, event, now_ms)
        case OffsetFetch():
            return offsets.fetch_offsets(state, event)
        case OffsetDelete():
            return offsets.delete_offsets(state, event)
        case DescribeGroup():
            return group_admin.describe_group(state, config, event)
        case ListGroups():
            return group_admin.list_groups(state, event)
        case ListGroupIds():
            return Result(response=group_admin.list_group_ids(state))
        case DeleteGroup():
            return group_admin.delete_group(state, event)
        case ConfigureGroup():
            return group_admin.configure_group(state, config, event)
        case AlterConfig():
            return group_admin.alter_config(state, config, event)
        case DescribeConfig():
            return group_admin.describe_config(state, config, event)
        case ListConfiguredGroups():
            return Result(response=sorted(state.settings))
        case PrepareAssignment():
            return target_install.prepare_computation(state, config, event, now_ms)
        case InstallAssignment():
            return target_install.install_assignment(state, event, now_ms)
        case ProposeTarget():
            return target_install.answer_proposal(state, event, now_ms)
        case DecidePlan():
            return plans.decide_plan(state, config, event, now_ms)
        case ReportLoads():
            return note_loads.note_loads(state, config, event, now_ms)
        case ComputedTarget():
            return target_install.install_computed(state, event, now_ms)
        case TargetFailed():
            return target_install.give_up_computation(state, event)
        case TargetLost():
            return target_install.drop_lost_target(state, event)
        case TopicsReported():
            return topic_metadata.update_topics(state, event)
        case RegexesResolved():
            return topic_metadata.update_regexes(state, event)
        case TimerFired():
            return fire_timer(state, config, event, now_ms)
        case ExpireOffsets():
            return offsets.expire_offsets(state, config, event, now_ms)
        case RecordAudit():
            return Result(list(event.records))
        case _:
            return decide_classic(state, config, event, now_ms)


def find_steady_group(state: State, config: Config, group_id: str) -> tuple[Group, int] | None:
    """Return a group whose members' heartbeats may be steady, and its heartbeat interval.

    None when any heartbeat might change something: an assignment is due, topics changed, a target
    is unfinished, regexes may have to be resolved again, or members differ about the assignor.
    """
    group = state.groups.get(group_id)
    if (
        group is None
        or group.epoch != group.assignment_epoch
        or group.topics_hash != group.noticed_hash
        or group.partial
        or group.regex_members
        or len(group.wishes) > 1
    ):
        return None
    settings = state.settings.get(group_id, {})
    return group, group_value(config.kafka, settings, "consumer.heartbeat.interval.ms")


def answer_steady_heartbeat(state: State, config: Config, event: Heartbeat) -> Result | None:
    """Answer the heartbeats that a group at rest gets; None for all others.

    The fast path: exactly what `step` decides for a heartbeat with nothing but id and epoch (owned
    partitions do not matter here) of a member that rests at the assignment epoch, where nothing
    changes, or is STABLE behind an epoch that changes nothing for it, where only its epoch moves.
    """
    if (
        event.rebalance_timeout_ms != -1
        or event.subscribed_topic_names is not None
        or event.subscribed_topic_regex is not None
        or event.server_assignor is not None
        or event.rack_id is not None
        or event.wants_assignment
        or event.member_epoch <= 0
    ):
        return None
    found = find_steady_group(state, config, event.group_id)
    if found is None:
        return None
    group, interval_ms = found
    member = group.members.get(event.member_id)
    if (
        member is None
        or event.instance_id not in (None, member.meta.instance_id)
        or not _rests(group, member, event.member_epoch, event.client_id, event.client_host)
    ):
        return None
    epoch = group.assignment_epoch
    if event.member_epoch == epoch:
        return Result(response=HeartbeatResponse(event.member_id, epoch, interval_ms))
    if not _has_target(member.current.assigned, group.targets.get(event.member_id, ())):
        return None
    return Result(
        [MembersAdvanced(event.group_id, epoch, (event.member_id,))],
        HeartbeatResponse(event.member_id, epoch, interval_ms),
    )


def answer_steady_heartbeats(
    state: State,
    config: Config,
    group_id: str,
    member_ids: Sequence[str],
    member_epochs: Sequence[int],
    start: int = 0,
) -> tuple[int, int, int, tuple[str, ...]]:
    """Answer the heartbeats of many members that say nothing but who and where they are.

    As `answer_steady_heartbeat` for each from `start` on, up to the first that needs a step.

    Returns
    -------
    tuple
        Where it ended, the epoch that all of them are at then, the heartbeat interval in ms, and
        the members whose epoch moves: one record for all.
    """
    found = find_steady_group(state, config, group_id)
    if found is None:
        return start, 0, 0, ()
    group, interval_ms = found
    epoch, members, targets = group.assignment_epoch, group.members, group.targets
    advanced: dict[str, None] = {}
    at = start
    for at in range(start, len(member_ids)):
        member_id, said = member_ids[at], member_epochs[at]
        member = members.get(member_id)
        if member is None or said <= 0 or member_id in advanced or not _rests(group, member, said):
            break
        if said != epoch:
            if not _has_target(member.current.assigned, targets.get(member_id, ())):
                break
            advanced[member_id] = None
    else:
        at = len(member_ids)
    return at, epoch, interval_ms, tuple(advanced)


def _rests(
    group: Group, member: Member, epoch: int, client_id: str = "", client_host: str = ""
) -> bool:
    """Whether a member is where it was, at the epoch that it says, and has nothing to do there.

    It is STABLE; or it waits at the assignment epoch, and nothing came free since it last looked.
    """
    current, meta = member.current, member.meta
    return (
        current.member_epoch == epoch
        and (
            current.state is MemberState.STABLE
            or (
                current.state is MemberState.UNRELEASED_PARTITIONS
                and epoch == group.assignment_epoch
                and member.looked_at == group.revision
            )
        )
        and meta.client_id == client_id
        and meta.client_host == client_host
        and meta.classic_member_metadata is None
    )


def _has_target(assigned: Holding, target: Spans) -> bool:
    """Whether a member has exactly its target."""
    if len(assigned) != len(target):
        return len(assigned) > len(target) and drop_epochs(assigned) == target
    if len(assigned) == 1:  # most members of very large groups
        return assigned[0][:3] == target[0]
    return all(held[:3] == span for held, span in zip(assigned, target, strict=True))
