"""A member's next step towards its target (docs/design/behaviours.md#reconciliation, G-50…G-66).

Revocation comes before assignment: what a member must give up is taken out of its assignment and
stays pending until the member no longer reports it; only then is it free for others. Per topic,
with the target T (empty when the member is not subscribed), assigned A and pending revocation R:

    keep   = A ∩ T        stays
    revoke = A − T        must go: UNREVOKED_PARTITIONS, the member epoch stays
    want   = T − A        given as far as free: UNRELEASED_PARTITIONS while some are not
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq
from typing import TypeVar

import msgspec
import numpy as np

from coordinator.core.state.groups import Group, State
from coordinator.core.state.partition_owners import free_of
from coordinator.core.state.partition_spans import (
    HeldSpan,
    Holding,
    Span,
    Spans,
    add_epoch,
    do_overlap,
    drop_epochs,
    shrink,
    split,
    subtract_spans,
    union,
)
from coordinator.core.state.records import CurrentMember, MemberMetadata, MemberState
from coordinator.core.state.span_columns import SpanColumns
from coordinator.errors import ErrorCode, GroupError

AnySpan = TypeVar("AnySpan", Span, HeldSpan)
ALLOWED_MOVES: dict[MemberState, frozenset[MemberState]] = {
    MemberState.STABLE: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNREVOKED_PARTITIONS: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNRELEASED_PARTITIONS: frozenset(MemberState) - {MemberState.UNKNOWN},
    MemberState.UNKNOWN: frozenset({MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS}),
}
"""From which state a member may come to which (G-67, G-68); docs/design/coordinator.md draws it."""


@dataclass(frozen=True, slots=True)
class ReconcileGoal:
    """Where a member must go.

    Attributes
    ----------
    epoch, target
        The assignment epoch and the member's part of the target assignment.
    owned
        Returns what the heartbeat reports, which may be very many partitions and is mostly not
        asked; None is unchanged, not nothing. Of those given only the topics, where any are.
    resubscribed
        Whether this heartbeat changed the member's subscription.
    """

    epoch: int
    target: Spans
    owned: Callable[[Holding], Spans | None]
    resubscribed: bool


def reconcile(
    state: State,
    group: Group,
    meta: MemberMetadata,
    current: CurrentMember,
    serial: int,
    goal: ReconcileGoal,
) -> CurrentMember | None:
    """Return the member's next current assignment, None if nothing has to be written.

    Raises
    ------
    GroupError
        FENCED_MEMBER_EPOCH: the stored state is unknown to this version and the member still owns
        something (G-55).
    """
    new = current
    if current.state is MemberState.STABLE:
        if current.member_epoch != goal.epoch:
            new = _next_assignment(state, group, meta, current, serial, goal)
        elif goal.resubscribed:
            new = _drop_unsubscribed(state, group, meta, current, goal)
    elif current.state is MemberState.UNREVOKED_PARTITIONS:
        if not _owns(goal, current.pending):
            new = _next_assignment(state, group, meta, current, serial, goal)
        elif goal.resubscribed:
            new = _drop_unsubscribed(state, group, meta, current, goal)
    elif current.state is MemberState.UNRELEASED_PARTITIONS:
        new = _next_assignment(state, group, meta, current, serial, goal)
    else:
        owned = goal.owned(())
        if owned is None or owned:
            raise GroupError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in an unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        new = _next_assignment(state, group, meta, current, serial, goal)
    if new == current:
        return None
    assert new.state in ALLOWED_MOVES[current.state], f"{current} may not become {new}"
    return new


def _next_assignment(
    state: State,
    group: Group,
    meta: MemberMetadata,
    current: CurrentMember,
    serial: int,
    goal: ReconcileGoal,
) -> CurrentMember:
    """Compute next: G-56…G-62."""
    target = _keep_subscribed(state, group, meta, goal.target)
    keep: Holding = current.assigned
    revoke: Holding = ()
    want: Spans = ()
    if len(current.assigned) != len(target) or drop_epochs(current.assigned) != target:
        keep, revoke = split(current.assigned, target)
        want = subtract_spans(target, keep)
    if revoke and _owns(goal, revoke):
        return msgspec.structs.replace(
            current,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=keep,
            pending=revoke,
        )
    given = free_of(group, want, serial)
    unreleased = given != want
    return CurrentMember(
        group_id=current.group_id,
        member_id=current.member_id,
        member_epoch=goal.epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=union(keep, add_epoch(given, goal.epoch)) if given else keep,
    )


def _drop_unsubscribed(
    state: State, group: Group, meta: MemberMetadata, current: CurrentMember, goal: ReconcileGoal
) -> CurrentMember:
    """Give up what the member no longer subscribes to, before a new target is reached: G-63."""
    keep = _keep_subscribed(state, group, meta, current.assigned)
    if keep == current.assigned:
        return current
    _, dropped = split(current.assigned, keep)
    pending = union(current.pending, dropped)
    fewer = msgspec.structs.replace(
        current, previous_member_epoch=current.member_epoch, assigned=keep
    )
    if not _owns(goal, pending):
        return fewer
    return msgspec.structs.replace(fewer, state=MemberState.UNREVOKED_PARTITIONS, pending=pending)


def _keep_subscribed(
    state: State, group: Group, meta: MemberMetadata, spans: Sequence[AnySpan]
) -> Sequence[AnySpan]:
    """Return those of topics that the member subscribes to and that still have their id (G-56)."""
    topics = state.topics
    subscribes = group.subscriptions(meta)
    if isinstance(spans, SpanColumns):
        return shrink(_keep_columns(state, group, meta, spans))
    return tuple(
        [
            span
            for span in spans
            if (topic := topics.get(span[0].name)) is not None
            and topic.key == span[0]
            and subscribes(span[0].name)
        ]
    )


def _keep_columns(
    state: State, group: Group, meta: MemberMetadata, spans: SpanColumns
) -> SpanColumns:
    """Return the same of columns, mostly all of them, without a line of Python for each topic."""
    topics, count = spans.topics, len(spans.topics)
    known = topics is group.list_topics(state.topics).keys
    if known and group.subscribes_to_all(meta, topics.names):
        return spans
    kept = np.fromiter(map(group.subscriptions(meta), topics.names), np.bool_, count)
    if not known:
        there = (
            None if topic is None else topic.key for topic in map(state.topics.get, topics.names)
        )
        kept &= np.fromiter(map(eq, there, topics.keys), np.bool_, count)
    return spans.where(kept[spans.topic])


def _owns(goal: ReconcileGoal, revoked: Holding) -> bool:
    """Whether the member may still use some of these: it says so, or does not say (G-53)."""
    owned = goal.owned(revoked)
    return owned is None or do_overlap(owned, revoked)
