"""Decide requests of classic members of a consumer group: join, sync, heartbeat (M2-6…M2-16).

The coordinator assigns. Such a member gets its assignment by SyncGroup, and revokes partitions by
joining again. Its generation is its member epoch.
"""

from __future__ import annotations

from coordinator.config import Config
from coordinator.core.classic.rebalance import ClassicUpdate, prepare_rebalance
from coordinator.core.classic_events import (
    CONSUMER,
    ClassicHeartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Leaver,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.consumer.heartbeat import (
    ReachedTarget,
    has_moves_left,
    is_target_due,
    raise_epoch,
    reach_target,
)
from coordinator.core.consumer.member_removal import (
    Removal,
    end_timers,
    static_member,
    unknown_member,
)
from coordinator.core.consumer.member_update import MemberUpdate, refuse_full_group, start_update
from coordinator.core.events import (
    JOIN,
    JOIN_PHASE,
    SESSION,
    SYNC_PHASE,
    Heartbeat,
    Result,
    SetTimer,
)
from coordinator.core.migration.downgrade import (
    assignment_of,
    convert_to_classic,
    may_downgrade,
    subscription_version,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.embedded import MalformedError, Subscription, read_subscription
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.partition_owners import free_of
from coordinator.core.state.partition_spans import drop_epochs, subtract_spans
from coordinator.core.state.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    MembersAdvanced,
    MemberState,
    Record,
)
from coordinator.core.state.state_records import records_of_group, replay_alone
from coordinator.core.state.subscriptions import is_to_notice
from coordinator.errors import ErrorCode, GroupError

FORGOTTEN_MS = 60_000
"""How long a group of classic members only keeps a target that is due, as in Kafka."""


def join_group(state: State, config: Config, group: Group, event: JoinGroup, now_ms: int) -> Result:
    """Decide a classic member's join to a consumer group with members. It never waits."""
    try:
        return _join(state, config, group, event, now_ms)
    except GroupError as error:
        return Result(response=JoinGroupResponse("", error.code))


def _join(state: State, config: Config, group: Group, event: JoinGroup, now_ms: int) -> Result:
    member_id = event.member_id or event.drawn_consumer_id
    if config.kafka.migration_policy == "disabled":
        raise _inconsistent("group.consumer.migration.policy is disabled")
    protocols = tuple(ClassicProtocol(*one) for one in event.distinct_protocols())
    joins = Heartbeat(event.group_id, member_id, JOIN, event.instance_id)
    refuse_full_group(config, group, joins)
    known = group.classic_protocols
    common = any(known[one.name] == group.classic_members for one in protocols)
    if event.protocol_type != CONSUMER or not common:
        raise _inconsistent("no protocol is known to all classic members")
    if not event.member_id and event.instance_id is None and event.knows_member_id:
        return Result(response=JoinGroupResponse(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    try:
        subscription = read_subscription(protocols[0].metadata)
    except MalformedError as error:
        raise _inconsistent(f"the subscription does not parse: {error}") from None
    if event.member_id and event.instance_id is not None:
        static_member(group, event.instance_id, event.member_id)
    heartbeat = _as_heartbeat(event, member_id, subscription)
    classic = ClassicMemberMetadata(event.session_timeout_ms, protocols)
    update = start_update(state, group, heartbeat, classic)
    epoch = raise_epoch(state, config, update, heartbeat, now_ms)
    last = _is_last_replaced(config, group, update)
    # If it must rebalance at once, no new target is needed, and the member joins again.
    stale = last and (epoch.number > group.assignment_epoch or not _has_settled(group, update))
    reached = ReachedTarget(update.current, [], [])
    if not stale:
        reached = reach_target(state, config, update, epoch, heartbeat, now_ms)
    after = reached.after
    records = [*update.records, *epoch.records, *reached.records]
    response = JoinGroupResponse(
        member_id,
        generation=after.member_epoch,
        protocol_type=CONSUMER,
        protocol_name=protocols[0].name,
    )
    if not last:
        tasks = [*epoch.tasks, *reached.tasks]
        return Result(records, response, _join_timers(update, event), tasks)
    records = [after if isinstance(one, MembersAdvanced) else one for one in records]
    converted = _downgrade(state, config, update, records, now_ms)
    if stale:
        prepare_rebalance(converted, Reason.STATIC_MEMBER_RETURNED, member_id)
    return converted.result(response)


def _as_heartbeat(event: JoinGroup, member_id: str, subscription: Subscription) -> Heartbeat:
    """Return the equivalent heartbeat."""
    return Heartbeat(
        group_id=event.group_id,
        member_id=member_id,
        member_epoch=JOIN,
        instance_id=event.instance_id,
        rack_id=subscription.rack,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex="",
        topic_partitions=subscription.owned,
        client_id=event.client_id,
        client_host=event.client_host,
        client_software=event.client_software,
        find_visible=event.find_visible,
    )


def _join_timers(update: MemberUpdate, event: JoinGroup) -> list[SetTimer]:
    """Return the timers of its session and of its SyncGroup."""
    group_id, member_id = event.group_id, update.meta.member_id
    timers = [] if update.replaces is None else end_timers(group_id, update.replaces)
    return [
        *timers,
        SetTimer(JOIN_PHASE, group_id, member_id, None),
        SetTimer(SESSION, group_id, member_id, event.session_timeout_ms),
        SetTimer(SYNC_PHASE, group_id, member_id, event.rebalance_timeout_ms),
    ]


def _is_last_replaced(config: Config, group: Group, update: MemberUpdate) -> bool:
    """Whether a classic member replaced the last member of the consumer protocol."""
    if update.replaces is None or group.members[update.replaces].is_classic:
        return False
    last = group.classic_members == len(group.members) - 1
    return last and may_downgrade(config, len(group.members))


def _has_settled(group: Group, update: MemberUpdate) -> bool:
    """Whether all others have their targets: they learn of a new one only when they join again.

    Kafka does not check: there a member may keep partitions that another one was assigned.
    """
    others = (one for one in group.members.values() if one.member_id != update.replaces)
    return all(one.stable and one.epoch == group.assignment_epoch for one in others)


def _downgrade(
    state: State, config: Config, update: MemberUpdate, records: list[Record], now_ms: int
) -> ClassicUpdate:
    """Convert the group to a Stable classic group (M2-18).

    Parameters
    ----------
    records
        The records of the join, which come first.
    """
    group_id, member_id = update.group.group_id, update.meta.member_id
    scratch = replay_alone(state, [*records_of_group(state, update.group), *records])
    group = scratch.groups[group_id]
    others = [one.meta for one in group.members.values() if one.member_id != member_id]
    metas = [group.members[member_id].meta, *others]  # in the classic group it is the last to come
    # As in Kafka: changes by this join apply to the next generation.
    generation = update.group.epoch
    converted = convert_to_classic(scratch, config, group, metas, generation, now_ms)
    converted.records[:0] = records
    converted.timers[:0] = end_timers(group_id, update.replaces or "")
    return converted


def sync_group(state: State, group: Group, event: SyncGroup) -> Result:
    """Return a classic member's assignment. Assignments in the request are ignored."""
    try:
        member = _find_classic(group, event.member_id, event.instance_id)
        _check_generation(member, event.generation)
        classic = member.meta.classic_member_metadata
        assert classic is not None
        protocol = classic.supported_protocols[0]
        event.check_protocol(CONSUMER, protocol.name)
    except GroupError as error:
        return Result(response=SyncGroupResponse(error.code))
    unrevoked = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if group.assignment_epoch > member.epoch and not unrevoked:
        again = SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)
        return Result(response=again, timers=[_join_timer(member)])
    version = subscription_version(protocol.metadata)
    raw = assignment_of(state, drop_epochs(member.current.assigned), version)
    group_id = group.group_id
    return Result(
        response=SyncGroupResponse(ErrorCode.NONE, CONSUMER, protocol.name, raw),
        timers=[
            SetTimer(SYNC_PHASE, group_id, member.member_id, None),
            SetTimer(SESSION, group_id, member.member_id, classic.session_timeout_ms),
        ],
    )


def heartbeat(
    state: State, config: Config, group: Group, event: ClassicHeartbeat, now_ms: int
) -> Result:
    """Answer a heartbeat with NONE, or with an error if the member must join again (M2-13).

    Raises
    ------
    GroupError
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member = _find_classic(group, event.member_id, event.instance_id)
    _check_generation(member, event.generation)
    classic = member.meta.classic_member_metadata
    assert classic is not None
    session = SetTimer(SESSION, group.group_id, member.member_id, classic.session_timeout_ms)
    at = member.current.state
    again = (
        member.epoch < group.assignment_epoch
        or at is MemberState.UNREVOKED_PARTITIONS
        or (at is MemberState.UNRELEASED_PARTITIONS and _is_released(group, member))
        or _needs_join(state, config, group, now_ms)
    )
    if not again:
        return Result(response=ErrorCode.NONE, timers=[session])
    return Result(response=ErrorCode.REBALANCE_IN_PROGRESS, timers=[session, _join_timer(member)])


def _needs_join(state: State, config: Config, group: Group, now_ms: int) -> bool:
    """Whether the next target is due, and no heartbeat of the consumer protocol will compute it.

    If only classic members are left in a consumer group, a target is computed when one joins. In
    Kafka such a group leaves partitions without an owner until a member happens to join; here
    an answer makes a member join, once the present target is `FORGOTTEN_MS` old.
    """
    old = now_ms >= group.assignment_timestamp + FORGOTTEN_MS
    if group.classic_members < len(group.members) or not old:
        return False
    if is_to_notice(state, group):
        return True
    settings = state.settings.get(group.group_id, {})
    behind = group.epoch > group.assignment_epoch
    return (behind and is_target_due(config, settings, group, now_ms)) or has_moves_left(
        config, settings, group, now_ms
    )


def leave_group(group: Group, event: LeaveGroup, remove: Removal) -> Result:
    """Remove the members that exist, in one step."""
    left: list[tuple[Leaver, ErrorCode]] = []
    gone: dict[str, None] = {}
    for leaver in event.members:
        try:
            gone[_find_leaver(group, leaver)] = None
        except GroupError as error:
            left.append((leaver, error.code))
        else:
            left.append((leaver, ErrorCode.NONE))
    response = LeaveGroupResponse(left)
    if not gone:
        return Result(response=response)
    return remove(group, list(gone), Reason.MEMBER_LEFT, response)


def _find_leaver(group: Group, leaver: Leaver) -> str:
    """Return the id of a member that leaves; an administrator only gives its instance id."""
    if leaver.instance_id is None:
        if leaver.member_id not in group.members:
            raise unknown_member(group.group_id, leaver.member_id)
        return leaver.member_id
    if not leaver.member_id:
        member = group.static_member(leaver.instance_id)
        if member is None:
            raise unknown_member(group.group_id, leaver.instance_id)
        return member.member_id
    return static_member(group, leaver.instance_id, leaver.member_id).member_id


def _find_classic(group: Group, member_id: str, instance_id: str | None) -> Member:
    """Return the classic member that a request speaks for."""
    if instance_id is not None:
        member: Member | None = static_member(group, instance_id, member_id)
    else:
        member = group.members.get(member_id)
    if member is None or not member.is_classic:
        raise unknown_member(group.group_id, member_id)
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise GroupError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request says generation {generation}, member {member.member_id} is at epoch "
            f"{member.epoch}: rejoin.",
        )


def _is_released(group: Group, member: Member) -> bool:
    """Whether all partitions that a member waits for are free."""
    missing = subtract_spans(group.targets.get(member.member_id, ()), member.current.assigned)
    return free_of(group, missing, member.serial) == missing


def _join_timer(member: Member) -> SetTimer:
    """Return the timer for a member to join again; it runs from when it was first asked to."""
    meta = member.meta
    return SetTimer(
        JOIN_PHASE, meta.group_id, meta.member_id, meta.rebalance_timeout_ms, unless_set=True
    )


def _inconsistent(why: str) -> GroupError:
    return GroupError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The join is refused: {why}.")
