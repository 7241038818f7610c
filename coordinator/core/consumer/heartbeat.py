"""ConsumerGroupHeartbeat (docs/design/behaviours.md#heartbeat-flow), decided in three steps.

1. The member, and the group epoch: what the request changes, and whether that needs a new
   assignment.
2. The target assignment: computed when the assignment epoch is behind and the interval has passed.
3. Reconciliation: this member's own next step towards its target.

Nothing here writes: the outcome is records, which `replay` applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from coordinator.config import Config
from coordinator.config.kafka import group_value
from coordinator.core.consumer.member_removal import (
    end_timers,
    hash_after,
    not_found,
)
from coordinator.core.consumer.member_update import (
    MemberUpdate,
    check_heartbeat,
    refuse_full_group,
    refuse_new_group,
    resolve_owned,
    start_update,
)
from coordinator.core.consumer.reconcile import ReconcileGoal, reconcile
from coordinator.core.consumer.regexes import update_regexes
from coordinator.core.events import (
    JOIN,
    REBALANCE,
    SESSION,
    ComputeTarget,
    Heartbeat,
    HeartbeatResponse,
    Result,
    SetTimer,
    Task,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Group, GroupState, State
from coordinator.core.state.partition_spans import Spans, drop_epochs, has_partitions
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ComputationPrepared,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    Record,
    RegexResolved,
    Tombstone,
)
from coordinator.core.state.subscriptions import is_to_notice
from coordinator.core.state.target_candidate import TargetCandidate, list_records
from coordinator.core.targets.approval import keeps_target
from coordinator.core.targets.basis import MemberChange, build_input
from coordinator.core.targets.compute_here import assign_in_step, diff_targets

ENGINE_PREFIX = "engine-"
"""Computation ids of the coordinator's own engine; others are external computers'."""


def heartbeat(state: State, config: Config, event: Heartbeat, now_ms: int) -> Result:
    """Answer the heartbeat of a member that joins or stays.

    Raises
    ------
    GroupError
        The request is refused; nothing is written.
    """
    check_heartbeat(config, event)
    group = state.groups.get(event.group_id)
    replaced: list[Record] = []
    if group is None:
        classic = state.classic.get(event.group_id)
        if event.member_epoch != JOIN or (classic is not None and classic.is_running()):
            raise not_found(event.group_id)
        if classic is not None or event.group_id in state.offsets:
            # A classic group without members becomes a consumer group under every policy (M2-1).
            replaced = [Tombstone(ClassicGroupWritten.kind, event.group_id)]
        refuse_new_group(config, state.groups, event.group_id)
        group = Group(event.group_id)
    settings = state.settings.get(event.group_id, {})
    refuse_full_group(config, group, event)
    update = start_update(state, group, event)
    before = update.current
    epoch = raise_epoch(state, config, update, event, now_ms)
    reached = reach_target(state, config, update, epoch, event, now_ms)
    after = reached.after
    timers = [] if update.replaces is None else end_timers(event.group_id, update.replaces)
    session_ms = group_value(config.kafka, settings, "consumer.session.timeout.ms")
    timers.append(SetTimer(SESSION, event.group_id, event.member_id, session_ms))
    if after is not before:
        timers.append(_rebalance_timer(update.meta, after))
    interval = group_value(config.kafka, settings, "consumer.heartbeat.interval.ms")
    asked = event.member_epoch == JOIN or event.wants_assignment or _is_full(event)
    assigned: Spans | None = None
    if asked or before.assigned is not after.assigned:
        assigned = drop_epochs(after.assigned)
        if not asked and has_partitions(before.assigned, assigned):
            assigned = None
    response = HeartbeatResponse(event.member_id, after.member_epoch, interval, assigned)
    records = [*replaced, *update.records, *epoch.records, *reached.records]
    return Result(records, response, timers, [*epoch.tasks, *reached.tasks])


class ReachedTarget(NamedTuple):
    """Where a member is after the third step: the same object as before, or another one."""

    after: CurrentMember
    records: Sequence[Record]
    tasks: Sequence[Task]


# 1. The member and the group epoch ---------------------------------------------------------------


class GroupEpoch(NamedTuple):
    """The group epoch after a heartbeat, and what comes with it.

    `finishing` says whether it is there to finish the moves of a target that was cut short.
    """

    number: int
    finishing: bool
    records: list[Record]
    tasks: list[Task]


def raise_epoch(
    state: State, config: Config, update: MemberUpdate, event: Heartbeat, now_ms: int
) -> GroupEpoch:
    """Move the group epoch where this needs a new assignment (G-34, G-35, G-37)."""
    group = update.group
    settings = state.settings.get(group.group_id, {})
    reason, finishing = _subscription_reason(update), False
    unused, tasks = update_regexes(state, config, update, event, now_ms)
    records: list[Record] = [
        Tombstone(RegexResolved.kind, group.group_id, name=name) for name in unused
    ]
    if reason is None and _regex_reason(update):
        reason = _joined_or(Reason.SUBSCRIPTION_CHANGED, update)
    if reason is None and _is_assignor_changed(config, settings, update, now_ms):
        reason = _joined_or(Reason.ASSIGNOR_CHANGED, update)
    metadata_hash, stale = group.topics_hash, is_to_notice(state, group)
    if update.names_changed or update.regex_changed:
        gone = [update.old] if update.old else []
        metadata_hash = hash_after(state, group, gone, update.meta, unused)
    if reason is None and stale and metadata_hash != group.metadata_hash:
        reason = Reason.TOPICS_CHANGED
    if reason is None and has_moves_left(config, settings, group, now_ms):
        reason, finishing = Reason.FINISHING_MOVES, True
    if reason is None:
        return GroupEpoch(group.epoch, finishing, records, tasks)
    epoch = group.epoch + 1
    records.append(
        GroupMetadata(group.group_id, epoch, metadata_hash, reason, update.meta.member_id)
    )
    return GroupEpoch(epoch, finishing, records, tasks)


def _subscription_reason(update: MemberUpdate) -> Reason | None:
    return _joined_or(Reason.SUBSCRIPTION_CHANGED, update) if update.names_changed else None


def _joined_or(reason: Reason, update: MemberUpdate) -> Reason:
    """Return a reason; for a new member that it joined, even if it brings more."""
    return Reason.MEMBER_JOINED if update.old is None else reason


def _regex_reason(update: MemberUpdate) -> bool:
    """Whether the regex went, or another one came that is resolved already.

    One that is not needs no new assignment yet: its resolution moves the epoch.
    """
    if not update.regex_changed:
        return False
    regex = update.meta.subscribed_topic_regex
    return not regex or regex in update.group.regexes


def preferred_assignor(config: Config, wishes: Mapping[str, int]) -> str:
    """Return the assignor that most members ask for; ties and none: the first configured (G-36)."""
    return max(config.kafka.assignors, key=lambda name: wishes.get(name, 0))


def _count_wishes(update: MemberUpdate) -> Counter[str]:
    before = update.old.server_assignor if update.old else None
    after = update.meta.server_assignor
    wishes = Counter(update.group.wishes)
    if before != after:
        wishes.update([after] if after else [])
        wishes.subtract([before] if before else [])
    return wishes


def _wanted_assignor(config: Config, wishes: Mapping[str, int], own: str | None) -> str:
    """Return the group's assignor after the heartbeat of a member with a wish of its own.

    Where each assignor has one member asking for it at most, that member's own wish goes first, as
    in Kafka 4.4.0.
    """
    if own in config.kafka.assignors and max(wishes.values()) == 1:
        return str(own)
    return preferred_assignor(config, wishes)


def _choose_assignor(config: Config, update: MemberUpdate, *, finishing: bool) -> str:
    """Return the assignor of the next target: an assignor finishes what it began.

    Where wishes are even, each heartbeat would otherwise undo the last one's target, endlessly.
    """
    begun = update.group.assignor
    if finishing and begun in config.kafka.assignors:
        return begun
    return _wanted_assignor(config, _count_wishes(update), update.meta.server_assignor)


def _is_assignor_changed(
    config: Config, settings: Mapping[str, str], update: MemberUpdate, now_ms: int
) -> bool:
    """Whether the group's assignor is another one than before (G-34).

    The first line that holds decides:

    ==========================================================  =======
    an external computer makes the group's targets              no
    the member wishes what it did, and all members agree        no
    the assignor wanted now is the one preferred before         no
    it is the one preferred now: of most members                yes
    the present target's is wished for, and is not preferred    no
    a new target can be made at once                            yes
    another one can be made only later                          no
    ==========================================================  =======

    From the fifth on wishes are even, and the assignor wanted is just this member's. Members would
    take turns endlessly, a new epoch at each heartbeat: so the one that made the present target
    stays, and only the preferred one gives way, once.
    """
    group, own = update.group, update.meta.server_assignor
    if settings.get("consumer.assignor.engine") == "external":
        return False
    before = update.old.server_assignor if update.old else None
    if own == before and len(group.wishes) <= 1:
        return False
    wishes = _count_wishes(update)
    preferred, wanted = preferred_assignor(config, wishes), _wanted_assignor(config, wishes, own)
    if wanted == preferred_assignor(config, group.wishes):
        return False
    if wanted == preferred:
        return True
    if wishes[group.assignor] > 0 and group.assignor != preferred:
        return False
    reached = group.epoch == group.assignment_epoch
    return reached and is_target_due(config, settings, group, now_ms)


def has_moves_left(config: Config, settings: Mapping[str, str], group: Group, now_ms: int) -> bool:
    """Whether a target cut short by max_moves is reached and the next part may begin.

    With max_moves 0 a next part does not exist: nothing would ever move.
    """
    return (
        group.partial
        and int(settings.get("consumer.assignor.max.moves", 1)) > 0
        and group.state is GroupState.STABLE
        and _has_interval_passed(config, settings, group, now_ms)
    )


def reach_target(
    state: State,
    config: Config,
    update: MemberUpdate,
    epoch: GroupEpoch,
    event: Heartbeat,
    now_ms: int,
) -> ReachedTarget:
    """Take the second and the third step for a member."""
    settings = state.settings.get(event.group_id, {})
    before = update.current
    target = _update_target(state, config, settings, update, epoch, now_ms)
    goal = ReconcileGoal(
        target.epoch,
        target.spans,
        partial(resolve_owned, state, before, event),
        update.names_changed or update.regex_changed,
    )
    after = reconcile(state, update.group, update.meta, before, update.serial, goal)
    if after is None:
        return ReachedTarget(before, target.records, target.tasks)
    return ReachedTarget(after, [*target.records, _current_record(before, after)], target.tasks)


# 2. The target assignment ------------------------------------------------------------------------


class _MemberTarget(NamedTuple):
    """What the member is to reconcile to, and what comes with it."""

    epoch: int
    spans: Spans
    records: Sequence[Record] = ()
    tasks: Sequence[Task] = ()


def _update_target(
    state: State,
    config: Config,
    settings: Mapping[str, str],
    update: MemberUpdate,
    epoch: GroupEpoch,
    now_ms: int,
) -> _MemberTarget:
    """Return the target to reconcile to; recomputes the group's target when due (G-38)."""
    group = update.group
    target = _MemberTarget(group.assignment_epoch, update.target or ())
    if epoch.number <= group.assignment_epoch or not is_target_due(config, settings, group, now_ms):
        return target
    assignor = _choose_assignor(config, update, finishing=epoch.finishing)
    if _is_delegated(config, settings, update):
        return _delegate_target(config, group, target, epoch.number, assignor, now_ms)
    change = MemberChange(
        update.meta,
        update.target,
        frozenset({update.replaces} - {update.meta.member_id, None}),  # type: ignore[arg-type]
    )
    given = build_input(state, group, change, now_ms)
    given = given.without(given.find_drained_topics())  # others do not wait for these topics
    ranges = assign_in_step(given, (assignor, settings, config), epoch.number)
    if ranges is None:
        return target
    members, moved = diff_targets(group.group_id, given, ranges)
    spans = target.spans
    for record in members:
        if record.member_id == update.meta.member_id:
            spans = record.spans
    found = TargetCandidate(group.group_id, epoch.number, assignor, moved, ranges.partial, members)
    return _MemberTarget(epoch.number, spans, list_records(found, now_ms))


def is_target_due(config: Config, settings: Mapping[str, str], group: Group, now_ms: int) -> bool:
    """Whether a target may be computed now, by time, engine and approval."""
    external = settings.get("consumer.assignor.engine") == "external"
    if external or keeps_target(settings, group) or _is_awaited(config, group, now_ms):
        return False
    return _has_interval_passed(config, settings, group, now_ms)


def _is_awaited(config: Config, group: Group, now_ms: int) -> bool:
    """Whether a computation is under way that can still be installed.

    A deadline that is very far away was set by a coordinator before us, whose clock was ahead.
    """
    if group.computation is None:
        return False
    record = group.computation.record
    left = record.deadline_ms - now_ms
    return record.group_epoch > group.assignment_epoch and 0 < left <= 2 * config.engine.timeout_ms


def _has_interval_passed(
    config: Config, settings: Mapping[str, str], group: Group, now_ms: int
) -> bool:
    interval = group_value(config.kafka, settings, "consumer.assignment.interval.ms")
    last = group.assignment_timestamp
    ahead = last > now_ms  # by the clock of a coordinator before us: it does not hold us up
    return last == 0 or interval == 0 or ahead or now_ms >= last + interval


def _is_delegated(config: Config, settings: Mapping[str, str], update: MemberUpdate) -> bool:
    """Whether the target is computed off the heartbeat path: by the group's setting, or by size."""
    if settings.get("consumer.assignor.engine", config.engine.engine) == "spark":
        return True
    group, names = update.group, update.meta.subscribed_topic_names
    rows = len(group.members) + 1 + len(group.names)
    if names not in group.lists:
        rows += len(names)
    most = config.engine.step_rows_max
    return rows > most or rows + group.targets.rows() > most


def _delegate_target(
    config: Config, group: Group, target: _MemberTarget, epoch: int, assignor: str, now_ms: int
) -> _MemberTarget:
    """Have a target computed off the heartbeat path; until it is there the present one stays."""
    group_id = group.group_id
    computation_id = f"{ENGINE_PREFIX}{group_id}-{epoch}-{now_ms}"
    deadline = now_ms + config.engine.timeout_ms
    return target._replace(
        records=[ComputationPrepared(group_id, computation_id, epoch, deadline)],
        tasks=[ComputeTarget(group_id, computation_id, epoch, assignor)],
    )


# 3. Reconciliation -------------------------------------------------------------------------------


def _current_record(before: CurrentMember, after: CurrentMember) -> Record:
    """Return the record of a reconciled member: the small one where only its epoch moves."""
    only_epoch = (
        before.state is MemberState.STABLE
        and after.state is MemberState.STABLE
        and after.assigned == before.assigned
        and not before.pending
        and after.previous_member_epoch == before.member_epoch
    )
    if only_epoch:
        return MembersAdvanced(after.group_id, after.member_epoch, (after.member_id,))
    return after


def _rebalance_timer(meta: MemberMetadata, after: CurrentMember) -> SetTimer:
    """Return the rebalance timer: it runs only while the member is to revoke something (G-71)."""
    unrevoked = after.state is MemberState.UNREVOKED_PARTITIONS
    return SetTimer(
        REBALANCE,
        meta.group_id,
        meta.member_id,
        meta.rebalance_timeout_ms if unrevoked else None,
        after.member_epoch,
    )


def _is_full(event: Heartbeat) -> bool:
    """Whether the request gives everything, so that everything is answered (G-42)."""
    return (
        event.rebalance_timeout_ms != -1
        and (event.subscribed_topic_names is not None or event.subscribed_topic_regex is not None)
        and event.topic_partitions is not None
    )
