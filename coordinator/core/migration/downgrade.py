"""Convert a consumer group to a classic one when its last consumer-protocol member leaves.

Its classic members stay: the group epoch becomes their generation, and the target assignment their
assignment. If a member left, they rebalance (M2-17…19).
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.config import Config
from coordinator.core.classic.protocol_vote import choose_protocol
from coordinator.core.classic.rebalance import ClassicUpdate, changed, prepare_rebalance
from coordinator.core.classic_events import CONSUMER, Protocol
from coordinator.core.consumer.member_removal import end_timers, remove_members
from coordinator.core.events import Result
from coordinator.core.offsets import end_of_group
from coordinator.core.reasons import Reason
from coordinator.core.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from coordinator.core.state.classic_written import find_subscribed, record_of
from coordinator.core.state.embedded import (
    HIGHEST_VERSION,
    Assignment,
    MalformedError,
    read_subscription,
    write_assignment,
)
from coordinator.core.state.groups import Group, State
from coordinator.core.state.partition_spans import Spans, partitions_by
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)

DOWNGRADES = {"bidirectional", "downgrade"}


def remove_or_downgrade(
    state: State,
    config: Config,
    now_ms: int,
    group: Group,
    member_ids: Sequence[str],
    reason: Reason,
    response: object,
) -> Result:
    """Remove members; if only classic members are left, the group becomes a classic group."""
    gone = set(member_ids)
    left = len(group.members) - len(gone)
    classic = group.classic_members - sum(group.members[one].is_classic for one in gone)
    if left == 0 or classic < left or not may_downgrade(config, left):
        return remove_members(state, group, member_ids, reason, response)
    metas = [meta for member_id, meta in group.metas.items() if member_id not in gone]
    update = convert_to_classic(state, config, group, metas, group.epoch, now_ms)
    prepare_rebalance(update, reason, member_ids[0] if len(member_ids) == 1 else None)
    return update.result(response)


def may_downgrade(config: Config, members: int) -> bool:
    """Whether a group with this number of members may become a classic group (M2-17)."""
    allowed = config.kafka.migration_policy in DOWNGRADES
    return allowed and members <= config.kafka.classic_max_size


def convert_to_classic(
    state: State,
    config: Config,
    group: Group,
    metas: Sequence[MemberMetadata],
    generation: int,
    now_ms: int,
) -> ClassicUpdate:
    """Return the group as a classic group: Stable, at a generation.

    Parameters
    ----------
    metas
        Its members, in the order in which they joined the consumer group.
    """
    classic = ClassicGroup(
        group.group_id,
        protocol_type=CONSUMER,
        generation=generation,
        state=ClassicState.STABLE,
        previous=ClassicState.PREPARING,
        state_since_ms=now_ms,
        assignor=group.assignor,
        reason=Reason.CONSUMER_GROUP_CONVERTED,
    )
    for meta in reversed(metas):
        classic.put(_convert_member(meta))
    classic.protocol = choose_protocol(classic)
    classic.subscribed = find_subscribed(classic)
    for member in list(classic.members.values()):
        spans = group.targets.get(member.member_id, ())
        version = subscription_version(member.metadata(classic.protocol))
        given = assignment_of(state, spans, version)
        assigned = tuple(span for span in spans if state.has_topic(span[0]))
        classic.put(changed(member, assignment=given, last_assignment=given, assigned=assigned))
    update = ClassicUpdate(classic, config, now_ms)
    update.records += [*end_of_consumer_group(group), record_of(classic)]
    for member_id in group.members:
        update.timers += end_timers(group.group_id, member_id)
    for member in classic.members.values():
        update.start_session(member)
    return update


def end_of_consumer_group(group: Group) -> list[Record]:
    """Return the tombstones of a group with its members, in Kafka's order."""
    group_id, ids = group.group_id, sorted(group.members)
    ended, *rest = end_of_group(group_id, group)
    assert isinstance(ended, Tombstone)
    assert ended.of == TargetMetadata.kind
    return [
        *(Tombstone(CurrentMember.kind, group_id, member_id) for member_id in ids),
        *(Tombstone(TargetMember.kind, group_id, member_id) for member_id in ids),
        ended,
        *(Tombstone(MemberMetadata.kind, group_id, member_id) for member_id in ids),
        *(Tombstone(RegexResolved.kind, group_id, name=regex) for regex in sorted(group.regexes)),
        *rest,
    ]


def assignment_of(state: State, spans: Spans, version: int) -> bytes:
    """Return the bytes of an assignment, without deleted topics."""
    existing = (span for span in spans if state.has_topic(span[0]))
    partitions = partitions_by(lambda topic: topic.name, existing)
    return write_assignment(Assignment(version, partitions))


def subscription_version(metadata: bytes) -> int:
    """Return the version of the embedded protocol that a member uses."""
    try:
        return read_subscription(metadata).version
    except MalformedError:
        return HIGHEST_VERSION


def _convert_member(meta: MemberMetadata) -> ClassicMember:
    classic = meta.classic_member_metadata
    assert classic is not None, f"{meta.member_id} does not speak the classic protocol"
    return ClassicMember(
        member_id=meta.member_id,
        instance_id=meta.instance_id,
        client_id=meta.client_id,
        client_host=meta.client_host,
        rebalance_timeout_ms=meta.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple(Protocol(one.name, one.metadata) for one in classic.supported_protocols),
    )
