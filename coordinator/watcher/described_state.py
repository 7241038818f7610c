"""What a store has of the groups of a cluster, as Kafka would describe them."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import Group, State
from coordinator.core.state.partition_spans import drop_epochs
from coordinator.core.state.records import ClassicGroupWritten
from coordinator.core.watched.lags import Place
from coordinator.watcher.described_groups import Committed, DescribedGroup, DescribedMember


@dataclass(slots=True)
class KnownGroup:
    """A group as it was answered last; of either protocol, or with offsets alone."""

    consumer: DescribedGroup | None = None
    classic: ClassicGroupWritten | None = None
    offsets: dict[Place, Committed] = field(default_factory=dict)


def unread_group(group_id: str) -> KnownGroup:
    """Return what a store knows of a group that cannot be read: that there is one."""
    return KnownGroup(DescribedGroup(group_id, 0, 0, "", {}))


def find_known(state: State) -> dict[str, KnownGroup]:
    """Return all groups of a state: what the next answers are compared with after a stop."""
    unread = state.watched.unread if state.watched else ()
    known = {group_id: unread_group(group_id) for group_id in unread}
    for group_id, group in state.groups.items():
        known.setdefault(group_id, KnownGroup()).consumer = _describe(group)
    for group_id, classic in state.classic.items():
        known.setdefault(group_id, KnownGroup()).classic = record_of(classic)
    for group_id, offsets in state.offsets.items():
        known.setdefault(group_id, KnownGroup()).offsets = {
            place: Committed(one.offset, one.leader_epoch, one.metadata)
            for place, one in offsets.items()
        }
    return known


def _describe(group: Group) -> DescribedGroup:
    members = {
        member_id: DescribedMember(
            member_id,
            member.meta.instance_id,
            member.meta.rack_id,
            member.epoch,
            member.meta.client_id,
            member.meta.client_host,
            tuple(member.meta.subscribed_topic_names),
            member.meta.subscribed_topic_regex,
            member.is_classic,
            drop_epochs(member.current.assigned),
            group.targets.get(member_id, ()),
        )
        for member_id, member in group.members.items()
    }
    return DescribedGroup(
        group.group_id, group.epoch, group.assignment_epoch, group.assignor, members
    )
