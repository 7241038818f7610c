"""The only writer of the state, live and in recovery.

A record for something that is gone is ignored where compaction may have dropped the rest (G-149);
a record that contradicts what is there is our own bug: IllegalStateError, memory is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any

from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.classic_written import group_of
from coordinator.core.state.groups import (
    HASH_BITS,
    NOTHING,
    Computation,
    Group,
    Member,
    State,
    Topic,
    Watched,
    exhaust,
)
from coordinator.core.state.member_counts import (
    add_members,
    count_member,
    count_stable,
    set_current,
    share_names,
    uncount_member,
)
from coordinator.core.state.offset_rules import OFFSET_RULES, end_offset
from coordinator.core.state.partition_owners import change_holding, claim_many
from coordinator.core.state.partition_spans import Holding, put_together
from coordinator.core.state.records import (
    KINDS,
    Audited,
    ClassicGroupWritten,
    ComputationPrepared,
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    GroupUnread,
    KafkaWatched,
    LoadsNoted,
    LoadsUsed,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    OffsetCommitted,
    PartitionRead,
    PlanDecided,
    PlanMade,
    Record,
    RegexResolved,
    RequestAnswered,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.rows.held_rules import RULES_FOR_ROWS, advance_rows
from coordinator.core.state.subscriptions import (
    count_names,
    end_subscriptions,
    matched_now,
    set_topic,
)
from coordinator.core.state.target_assignment import NOT_READ, Targets, WholeTarget
from coordinator.errors import IllegalStateError

STABLE, UNRELEASED = MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS
"""To find one in its class takes ten times as long, twice for each of a million members."""


def replay(state: State, record: Record) -> None:
    """Change the state by one record.

    Raises
    ------
    IllegalStateError
        The record contradicts the state: two owners of a partition (G-66), an epoch that falls.
    """
    _RULES.get(type(record), _apply)(record, state)


def replay_all(state: State, records: Iterable[Record]) -> None:
    """Change the state by many records, in order: `replay` for each, millions of them in a load."""
    rule = RULES_FOR_ROWS.get(type(records))
    if rule is not None and rule(records, state):
        return
    for kind, some in groupby(records, type):
        if kind in _RULES_FOR_MANY:
            _RULES_FOR_MANY[kind](some, state)
        else:
            exhaust(map(_RULES.get(kind, _apply), some, repeat(state)))


def set_whole_target(group: Group, whole: WholeTarget) -> None:
    """Give a group the whole target that its last record names, read from the table of targets.

    No news: a log has the names of such targets only, and all but the last of them are history.
    """
    assert group.targets.whole is NOT_READ, "a whole target is installed by its record"
    group.targets.whole = whole


def keep_classic(state: State, groups: Iterable[ClassicGroup]) -> None:
    """Keep classic groups as a step leaves them, with what the log does not have of them.

    To be done after the step's records are replayed: their rules know only what they say.
    """
    for group in groups:
        group.apply_draft()
        _put_classic(state, group)


def note_waiting(state: State, group_id: str, member_id: str) -> None:
    """Note that a heartbeat changed nothing: if its member waits, nothing is free for it.

    No news either: until its group's `revision` is another one, it would find the same again.
    """
    group, member = state.groups.get(group_id), _find(state, group_id, member_id)
    if group is not None and member is not None and member.current.state is UNRELEASED:
        member.looked_at = group.revision
        group.members[member_id] = member


def note_topics(state: State, *, more: bool) -> None:
    """Note whether the rest of a change of topics is still to come.

    This is not recorded: a replayed log has all of it, or the catalog is read before any answer.
    """
    state.topics_awaited = more


def _put_classic(state: State, group: ClassicGroup) -> None:
    before = state.classic.get(group.group_id)
    state.classic_bytes += group.size_bytes - (0 if before is None else before.size_bytes)
    state.classic[group.group_id] = group


@singledispatch
def _apply(record: Record, state: State) -> None:
    raise IllegalStateError(f"no rule to replay a record of kind {record.kind!r} in {state!r}")


@_apply.register
def _apply_group(record: GroupMetadata, state: State) -> None:
    group = _ensure(state, record.group_id)
    if record.epoch < group.epoch:
        raise IllegalStateError(f"the epoch of group {record.group_id} falls: {record}")
    group.epoch = record.epoch
    group.metadata_hash = group.noticed_hash = record.metadata_hash
    group.owner_left = group.owner_left or record.owner_left


@_apply.register
def _apply_member(record: MemberMetadata, state: State) -> None:
    group = _ensure(state, record.group_id)
    member = group.members.get(record.member_id)
    if member is None:
        exhaust(add_members(state, group, [record]))
        return
    listed = share_names(state, group, record)
    uncount_member(state, group, member)
    member.meta, member.listed = listed.share_with(record), listed
    group.members[record.member_id], group.metas[record.member_id] = member, member.meta
    group.note_change(record.member_id)
    count_member(group, record)


def _apply_members_all(records: Iterable[MemberMetadata], state: State) -> None:
    """Do `_apply_member` for each record; those who come are counted together."""
    for group_id, some in groupby(records, attrgetter("group_id")):
        group = _ensure(state, group_id)
        exhaust(map(_apply_member, add_members(state, group, some), repeat(state)))


@_apply.register
def _apply_target_metadata(record: TargetMetadata, state: State) -> None:
    group = _ensure(state, record.group_id)
    if record.assignment_epoch < group.assignment_epoch:
        raise IllegalStateError(f"the assignment epoch of {record.group_id} falls: {record}")
    group.assignment_epoch = record.assignment_epoch
    group.revision += 1
    group.assignment_timestamp = record.assignment_timestamp
    group.assignor = record.assignor
    group.partial = record.partial
    group.computation = None
    group.owner_left = group.owner_left and record.assignment_epoch < group.epoch
    if record.targets_version is not None:
        group.replace_targets(Targets(record.whole or NOT_READ), record)


@_apply.register
def _apply_target_member(record: TargetMember, state: State) -> None:
    _apply_targets_all([record], state)


def _apply_targets_all(records: Iterable[TargetMember], state: State) -> None:
    """Do `_apply_target_member` for each record."""
    for group_id, some in groupby(records, attrgetter("group_id")):
        group = state.groups.get(group_id)
        if group is not None:
            has = group.members
            group.set_targets([(r.member_id, r.spans) for r in some if r.member_id in has])


@_apply.register
def _apply_current(record: CurrentMember, state: State) -> None:
    group = state.groups.get(record.group_id)
    member = None if group is None else group.members.get(record.member_id)
    if group is None or member is None:
        return
    old = member.current
    if old.assigned is not record.assigned or old.pending is not record.pending:
        held = put_together(old.assigned, old.pending)
        holds = put_together(record.assigned, record.pending)
        change_holding(group, member, held, holds)
    set_current(group, member, record)


def _apply_current_all(records: Iterable[CurrentMember], state: State) -> None:
    """Do `_apply_current` for each record; batch the claims of members that held nothing."""
    for group_id, some in groupby(records, attrgetter("group_id")):
        group = state.groups.get(group_id)
        if group is None:
            continue
        claims: list[tuple[Member, Holding]] = []
        for record in some:
            member = group.members.get(record.member_id)
            if member is None:
                continue
            had = None if member.held is None else member.current
            if had is not None and (had.assigned or had.pending):
                claim_many(group, claims)
                claims.clear()
                _apply_current(record, state)
                continue
            if record.assigned:
                claims.append((member, record.assigned))
            if record.pending:
                claims.append((member, record.pending))
            set_current(group, member, record)
        claim_many(group, claims)


@_apply.register
def _apply_advanced(record: MembersAdvanced, state: State) -> None:
    group = state.groups.get(record.group_id)
    if group is None:
        return
    group_id, epoch, stable = record.group_id, record.member_epoch, STABLE
    for member in advance_rows(group, record.member_ids, epoch):
        old = member.current
        new = CurrentMember(
            group_id, member.member_id, epoch, old.member_epoch, stable, old.assigned
        )
        set_current(group, member, new)


@_apply.register
def _apply_regex(record: RegexResolved, state: State) -> None:
    group = _ensure(state, record.group_id)
    come, gone = matched_now(group, record)
    count_names(state, group, gone, come)
    group.regexes[record.regex] = record
    if come or gone:
        group.matched[record.regex] = frozenset(record.topics)
    else:
        group.matched.setdefault(record.regex, NOTHING)
    # A snapshot does not tell every change of topics, but no count may be given twice.
    state.topics_version = max(state.topics_version, record.version)


@_apply.register
def _apply_classic(record: ClassicGroupWritten, state: State) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        raise IllegalStateError(f"{record.group_id} is a consumer group: {record}")
    _put_classic(state, group_of(record))


@_apply.register
def _apply_settings(record: GroupConfigured, state: State) -> None:
    state.settings[record.group_id] = record.settings


@_apply.register
def _apply_topic(record: TopicChanged, state: State) -> None:
    old = state.topics.get(record.topic)
    version = record.version or (old.version if old else state.topics_version + 1)
    topic = Topic.of(record.topic, record.topic_id, record.partitions, record.racks, version)
    set_topic(state, record.topic, topic)
    state.topics_version = max(state.topics_version, version)
    state.new_topics_version = max(state.new_topics_version, version)


@_apply.register
def _apply_computation(record: ComputationPrepared, state: State) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.computation = Computation.of(record, group, state.topics)


@_apply.register
def _apply_loads(record: LoadsNoted, state: State) -> None:
    (state.loads_used if record.kind == LoadsUsed.kind else state.loads)[record.group_id] = record


@_apply.register
def _apply_plan(record: PlanMade, state: State) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.plans[record.plan_id] = record
        state.planned.add(record.group_id)


@_apply.register
def _apply_decision(record: PlanDecided, state: State) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.plans.pop(record.plan_id, None)
        group.decided[record.plan_id] = record
        state.planned.add(record.group_id)


@_apply.register
def _ignore(record: RequestAnswered | Audited, state: State) -> None:
    """Change nothing: it is for the job that waits, or for those who ask later."""


@_apply.register
def _apply_watched(record: KafkaWatched, state: State) -> None:
    if state.watched is None:
        state.watched = Watched(record)
    else:
        state.watched.cluster = record


@_apply.register
def _apply_read(record: PartitionRead, state: State) -> None:
    if state.watched is not None:
        state.watched.read[record.topic, record.partition] = record


@_apply.register
def _apply_unread(record: GroupUnread, state: State) -> None:
    """Forget what is there of the group: the rest of a change may have been refused."""
    if state.watched is None:
        return
    group_id = record.group_id
    state.watched.unread[group_id] = record
    group = state.groups.pop(group_id, None)
    if group is not None:
        end_subscriptions(state, group, group.names)
    state.offsets.pop(group_id, None)
    _end_classic(state, Tombstone(ClassicGroupWritten.kind, group_id))


@_apply.register
def _apply_tombstone(record: Tombstone, state: State) -> None:
    end = _ENDS.get(record.of)
    if end is not None:
        end(state, record)


def _end_classic(state: State, record: Tombstone) -> None:
    ended = state.classic.pop(record.group_id, None)
    state.classic_bytes -= 0 if ended is None else ended.size_bytes
    if not state.offsets.get(record.group_id):
        state.offsets.pop(record.group_id, None)


def _end_group(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    if group is not None and group.members:
        raise IllegalStateError(f"group {record.group_id} ends with members in it")
    if group is not None:
        del state.groups[record.group_id]
        end_subscriptions(state, group, group.names)
    if not state.offsets.get(record.group_id):
        state.offsets.pop(record.group_id, None)


def _end_member(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    member = _find(state, record.group_id, record.member_id or "")
    if group is None or member is None:
        return
    if member.current.assigned or member.current.pending:
        raise IllegalStateError(f"member {record.member_id} goes and still holds partitions")
    uncount_member(state, group, member)
    if member.stable:
        count_stable(group, member.epoch, -1)
    del group.members[member.member_id], group.metas[member.member_id]
    group.note_change(member.member_id)


def _end_target(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.end_target(record.member_id or "")


def _end_current(state: State, record: Tombstone) -> None:
    if _find(state, record.group_id, record.member_id or "") is not None:
        _apply_current(CurrentMember(record.group_id, record.member_id or ""), state)


def _end_target_metadata(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.assignment_epoch, group.assignment_timestamp = 1, 0
        group.replace_targets(Targets(), None)


def _end_regex(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    found = group.regexes.pop(record.name or "", None) if group else None
    if group is not None and found is not None:
        del group.matched[found.regex]
        before = group.topics_hash
        count_names(state, group, found.topics, ())
        change = group.topics_hash - before
        group.noticed_hash = (group.noticed_hash + change) % (1 << HASH_BITS)


def _end_settings(state: State, record: Tombstone) -> None:
    state.settings.pop(record.group_id, None)


def _end_topic(state: State, record: Tombstone) -> None:
    set_topic(state, record.name or "", None)


def _end_computation(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        group.computation = None


def _end_loads(state: State, record: Tombstone) -> None:
    (state.loads_used if record.of == LoadsUsed.kind else state.loads).pop(record.group_id, None)


def _end_plan(state: State, record: Tombstone) -> None:
    group = state.groups.get(record.group_id)
    if group is not None:
        (group.plans if record.of == PlanMade.kind else group.decided).pop(record.name or "", None)


def _end_unread(state: State, record: Tombstone) -> None:
    if state.watched is not None:
        state.watched.unread.pop(record.group_id, None)


for _kind, _rule in OFFSET_RULES.items():
    _apply.register(_kind, _rule)
_RULES = {kind: _apply.dispatch(kind) for kind in KINDS.values()}
"""What singledispatch would find: a million members are millions of records to load."""
_RULES_FOR_MANY: dict[type, Callable[[Iterable[Any], State], None]] = {
    CurrentMember: _apply_current_all,
    MemberMetadata: _apply_members_all,
    TargetMember: _apply_targets_all,
}
_ENDS: dict[str, Callable[[State, Tombstone], None]] = {
    GroupMetadata.kind: _end_group,
    ClassicGroupWritten.kind: _end_classic,
    MemberMetadata.kind: _end_member,
    TargetMember.kind: _end_target,
    TargetMetadata.kind: _end_target_metadata,
    CurrentMember.kind: _end_current,
    RegexResolved.kind: _end_regex,
    OffsetCommitted.kind: end_offset,
    GroupConfigured.kind: _end_settings,
    TopicChanged.kind: _end_topic,
    ComputationPrepared.kind: _end_computation,
    **dict.fromkeys((LoadsNoted.kind, LoadsUsed.kind), _end_loads),
    PlanMade.kind: _end_plan,
    PlanDecided.kind: _end_plan,
    GroupUnread.kind: _end_unread,
}


def _ensure(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        group = state.groups[group_id] = Group(group_id)
    return group


def _find(state: State, group_id: str, member_id: str) -> Member | None:
    group = state.groups.get(group_id)
    return None if group is None else group.members.get(member_id)
