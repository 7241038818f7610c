"""Decide JoinGroup of a classic group: who may join, who leads, whether a rebalance begins."""

from __future__ import annotations

from coordinator.config import Config
from coordinator.core.classic.protocol_vote import choose_protocol
from coordinator.core.classic.rebalance import (
    ClassicUpdate,
    changed,
    current_generation,
    rebalance_or_complete,
)
from coordinator.core.classic_events import (
    CONSUMER,
    JoinGroup,
    JoinGroupResponse,
    Protocol,
)
from coordinator.core.consumer.member_update import refuse_new_group
from coordinator.core.events import HEARTBEAT, Result
from coordinator.core.offsets import end_of_group
from coordinator.core.reasons import Reason
from coordinator.core.state.classic_group import ClassicGroup, ClassicMember, ClassicState, size_of
from coordinator.core.state.classic_written import record_of
from coordinator.core.state.embedded import topics_of
from coordinator.core.state.groups import State
from coordinator.errors import ErrorCode, GroupError


def join_group(state: State, config: Config, event: JoinGroup, now_ms: int) -> Result:
    """Answer a JoinGroup, or let it wait.

    A consumer group without members becomes a classic group under every policy (M2-1).

    Raises
    ------
    GroupError
        POLICY_VIOLATION: so many groups are there already (quotas.groups_max).
        COORDINATOR_LOAD_IN_PROGRESS: members take up so much already (quotas.classic_bytes_max).
    """
    found = state.classic.get(event.group_id)
    consumer = state.groups.get(event.group_id)
    assert consumer is None or not consumer.members, f"{event.group_id} is not a classic group"
    is_new = found is None and (consumer is not None or event.group_id not in state.offsets)
    if is_new and event.member_id:
        return _refuse(event, ErrorCode.UNKNOWN_MEMBER_ID)
    refuse_new_group(config, state.classic, event.group_id)
    _refuse_growth(state, config, event, found)
    group = found.draft() if found else ClassicGroup(event.group_id, state_since_ms=now_ms)
    update = ClassicUpdate(group, config, now_ms)
    if consumer is not None:
        update.records += end_of_group(event.group_id, consumer)
    ended = len(update.records)
    response = _decide(update, event)
    if is_new and len(update.records) == ended:
        # A group that issued an id must exist, so that it still does after a fail-over.
        update.records.append(record_of(ClassicGroup(event.group_id, state_since_ms=now_ms)))
    return update.result(response)


def _refuse_growth(
    state: State, config: Config, event: JoinGroup, group: ClassicGroup | None
) -> None:
    """Refuse a member that needs more memory than allowed; one that grows no further may stay."""
    most = config.quotas.classic_bytes_max
    before = None if group is None else group.members.get(event.member_id)
    needed = size_of(event.member_id or event.drawn_id, event.client_id, event.protocols)
    if before is not None:
        needed -= size_of(before.member_id, before.client_id, before.protocols)
    if 0 < most < state.classic_bytes + needed and needed > 0:
        raise GroupError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Members of classic groups take up {state.classic_bytes} bytes, and this join needs "
            f"{needed} more: at most {most} are allowed (quotas.classic_bytes_max). Try again.",
        )


def _decide(update: ClassicUpdate, event: JoinGroup) -> object:
    group, member_id = update.group, event.member_id
    if not _has_room(update, member_id):
        update.drop_member(member_id)
        return _answer("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    protocols = event.distinct_protocols()
    if not group.supports(event.protocol_type, protocols):
        return _answer(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not member_id:
        return _join_new(update, event, protocols)
    if member_id in group.pending_joins:
        return _add(update, event, protocols, member_id)
    return _join_known(update, event, protocols)


def _has_room(update: ClassicUpdate, member_id: str) -> bool:
    """Whether the group has room for this member (H-8).

    During a join phase, only the members that have joined count. So if the limit was lowered, the
    last members to join are refused.
    """
    group, most = update.group, update.config.kafka.classic_max_size
    member = group.members.get(member_id)
    match group.state:
        case ClassicState.PREPARING:
            waits = member is not None and member.parked_join is not None
            return waits or group.parked_joins < most
        case ClassicState.COMPLETING | ClassicState.STABLE:
            return member is not None or len(group.members) < most
    return True


def _join_new(update: ClassicUpdate, event: JoinGroup, protocols: tuple[Protocol, ...]) -> object:
    group, member_id = update.group, event.drawn_id
    if event.instance_id is not None:
        old_id = group.instances.get(event.instance_id)
        if old_id is None:
            return _add(update, event, protocols, member_id)
        return _replace_static(update, event, protocols, old_id)
    if not event.knows_member_id:
        return _add(update, event, protocols, member_id)
    group.expect(member_id)
    update.set_timer(HEARTBEAT, member_id, event.session_timeout_ms)
    return _answer(member_id, ErrorCode.MEMBER_ID_REQUIRED)


def _add(
    update: ClassicUpdate, event: JoinGroup, protocols: tuple[Protocol, ...], member_id: str
) -> object:
    if event.instance_id is not None and event.member_id:
        # The id was issued to a dynamic member; static members never get such an id.
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Member {member_id} was asked to return with its id, and now also has instance id "
            f"{event.instance_id}: join without a member id.",
        )
    member = ClassicMember(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        protocols=protocols,
        is_new=True,
        parked_join=event.request_id,
    )
    update.add_member(member, event.protocol_type)
    rebalance_or_complete(update, Reason.MEMBER_JOINED, member_id)
    return update.take_answer(event.request_id)


def _join_known(update: ClassicUpdate, event: JoinGroup, protocols: tuple[Protocol, ...]) -> object:
    group, member_id = update.group, event.member_id
    try:
        member = group.find_member(member_id, event.instance_id)
    except GroupError as error:
        return _answer(member_id, error.code)
    unchanged = member.protocols == protocols
    match group.state:
        case ClassicState.EMPTY | ClassicState.DEAD:
            return _answer(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        case ClassicState.COMPLETING if unchanged:
            return current_generation(group, member_id)
        case ClassicState.STABLE if unchanged and group.leader != member_id:
            return current_generation(group, member_id)
    _take_over(update, event, protocols, member)
    news = not unchanged and _topics(group, protocols) != _topics(group, member.protocols)
    reason = Reason.SUBSCRIPTION_CHANGED if news else None
    rebalance_or_complete(update, reason, member_id)
    return update.take_answer(event.request_id)


def _topics(group: ClassicGroup, protocols: tuple[Protocol, ...]) -> object:
    """Return the topics in members' protocols, or their bytes if they do not parse.

    A consumer's bytes differ at each join, because they also have its owned partitions.
    """
    subscriptions = [metadata for _, metadata in protocols]
    topics = topics_of(subscriptions) if group.protocol_type == CONSUMER else None
    return protocols if topics is None else topics


def _take_over(
    update: ClassicUpdate,
    event: JoinGroup,
    protocols: tuple[Protocol, ...],
    member: ClassicMember,
) -> None:
    """Update a member by its join, and let the join wait."""
    parked = update.park_join(member, event.request_id)
    update.group.put(
        changed(
            parked,
            # Keep the same object for equal protocols: they are counted already.
            protocols=member.protocols if member.protocols == protocols else protocols,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            session_timeout_ms=event.session_timeout_ms,
        )
    )


def _replace_static(
    update: ClassicUpdate, event: JoinGroup, protocols: tuple[Protocol, ...], old_id: str
) -> object:
    """Replace a static member by its next incarnation (H-32)."""
    group, member_id = update.group, event.drawn_id
    led = group.leader
    member = update.rename_member(old_id, member_id)
    update.start_session(member)
    _take_over(update, event, protocols, member)
    if group.state is ClassicState.STABLE and choose_protocol(group) == group.protocol:
        return _hand_over(update, event, led)
    rebalance_or_complete(update, Reason.STATIC_MEMBER_RETURNED, member_id)
    return update.take_answer(event.request_id)


def _hand_over(update: ClassicUpdate, event: JoinGroup, led: str | None) -> object:
    """Let the next incarnation continue in the running generation, without a rebalance."""
    group, member_id = update.group, event.drawn_id
    group.reason, group.cause, group.moved = Reason.STATIC_MEMBER_RETURNED, member_id, 0
    update.group.put(changed(group.members[member_id], parked_join=None))
    update.records.append(record_of(group))
    response = current_generation(group, member_id, with_members=event.knows_skipping)
    if event.knows_skipping:
        return changed(response, skip_assignment=group.leader == member_id)
    # If it knew that it is the leader, it would assign.
    return changed(response, leader=led or "")


def _refuse(event: JoinGroup, code: ErrorCode) -> Result:
    return Result(response=_answer(event.member_id, code))


def _answer(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id, code)
