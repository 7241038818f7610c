"""All records of the log; nothing else changes the state.

Kafka's records (G-147) under its field names, and a few of ours: settings of groups, topics, the
epoch-only advance, computations outside the coordinator; docs/design/log_format.md#kinds lists
them. G-… and K-… are statements of docs/design/behaviours.md. A record is a frozen struct;
`kind` is its name in the log. A deleted key is a `Tombstone`. Records hold no cycles: the garbage
collector, which would look at a million of them again and again, is told so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

import msgspec

from coordinator.core.partition_spans import Holding, Spans
from coordinator.core.target_assignment import WholeTarget


class MemberState(IntEnum):
    """States of a member as Kafka stores them (G-3)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Record(msgspec.Struct, frozen=True, gc=False):
    """One change of the state."""

    kind: ClassVar[str] = ""


class GroupMetadata(Record, frozen=True, gc=False):
    """The group epoch, and what moved it: the reason and the member behind it, if any."""

    kind: ClassVar[str] = "group_metadata"
    group_id: str
    epoch: int
    metadata_hash: int
    reason: str = ""
    member_id: str | None = None


class MemberMetadata(Record, frozen=True, gc=False):
    """Who a member is and what it subscribes to. Names are sorted; regex "" is none."""

    kind: ClassVar[str] = "member_metadata"
    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


class TargetMetadata(Record, frozen=True, gc=False):
    """The assignment epoch. Timestamp 0: the next target is computed at once (G-44).

    `assignor`, `moved` and `partial` are ours: which assignor made it, how many owned partitions
    change hands, whether `max_moves` cut it short.

    A target that a job computed is a whole one, in the table `targets`: this record is all that the
    log has of it, and the moment at which it exists. TargetMember records before it mean nothing
    any more; those after it win over it.
    """

    kind: ClassVar[str] = "target_assignment_metadata"
    group_id: str
    assignment_epoch: int
    assignment_timestamp: int = 0
    assignor: str = ""
    moved: int = 0
    partial: bool = False
    computation_id: str | None = None
    """Of the computation whose rows of the table are the target; None is no whole one."""
    targets_version: int | None = None
    """A version of the table that has these rows."""
    digest: int | None = None
    """Of these rows (storage/target_digest.py)."""
    members: int | None = None
    ranges: int | None = None
    """How many members it was computed for, and how many rows it has."""
    whole: WholeTarget | None = None
    """The rows themselves, in memory only; None as the record comes from the log."""


class TargetMember(Record, frozen=True, gc=False):
    """The target assignment of one member."""

    kind: ClassVar[str] = "target_assignment_member"
    group_id: str
    member_id: str
    spans: Spans = ()


class CurrentMember(Record, frozen=True, gc=False):
    """Where one member is on its way to the target."""

    kind: ClassVar[str] = "current_member_assignment"
    group_id: str
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Holding = ()
    pending: Holding = ()


class MembersAdvanced(Record, frozen=True, gc=False):
    """Members that reached an epoch which changes nothing for them.

    See docs/design/coordinator.md#the-fast-path.
    """

    kind: ClassVar[str] = "members_advanced"
    group_id: str
    member_epoch: int
    member_ids: tuple[str, ...]


class RegexResolved(Record, frozen=True, gc=False):
    """The topics that a regular expression of the group stands for (G-82)."""

    kind: ClassVar[str] = "regular_expression"
    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    timestamp: int


class OffsetCommitted(Record, frozen=True, gc=False):
    """A committed offset."""

    kind: ClassVar[str] = "offset_commit"
    group_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0


class GroupConfigured(Record, frozen=True, gc=False):
    """All settings of a group id; kept apart from the group (K-9…K-12)."""

    kind: ClassVar[str] = "group_config"
    group_id: str
    settings: dict[str, str]


class TopicChanged(Record, frozen=True, gc=False):
    """A topic as the coordinator last saw it; racks[p] are those of partition p, () is unknown.

    `version` is of the change that brought the topic.
    """

    kind: ClassVar[str] = "topic"
    topic: str
    topic_id: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    version: int = 0


class ComputationPrepared(Record, frozen=True, gc=False):
    """A computation outside the coordinator began for this group epoch (K-38…K-42).

    Its deadline, like the times of targets and regexes, is the writer's steady clock's.
    """

    kind: ClassVar[str] = "computation"
    group_id: str
    computation_id: str
    group_epoch: int
    deadline_ms: int


class ProposalJudged(Record, frozen=True, gc=False):
    """What became of a target that an external job proposed; the job waits for this. No state.

    `reason` is ACCEPTED, or the name of the error and what is wrong.
    """

    kind: ClassVar[str] = "proposal"
    group_id: str
    computation_id: str
    """The run's."""
    group_epoch: int
    reason: str


class Audited(Record, frozen=True, gc=False):
    """Who deleted or altered something, or was refused (audit.py). No state.

    `reason` is what was done, `owner` the principal who did it; `settings` are the details.
    """

    kind: ClassVar[str] = "audit"
    group_id: str
    reason: str
    owner: str
    client_id: str = ""
    client_host: str = ""
    settings: dict[str, str] = {}


class Tombstone(Record, frozen=True, gc=False):
    """The end of a key: `of` is the kind of the records that it ends."""

    kind: ClassVar[str] = "tombstone"
    of: str
    group_id: str = ""
    member_id: str | None = None
    name: str | None = None
    """The regex, the topic, or the computation."""
    partition: int | None = None


ACCEPTED = "accepted"
IN_MEMORY = "whole"
"""The field that is not written to the log."""

PARTITION_METADATA = "partition_metadata"
"""Kafka before 4.1 kept partition counts under this kind; their tombstone is still written."""

KINDS: dict[str, type[Record]] = {
    record.kind: record
    for record in (
        GroupMetadata,
        MemberMetadata,
        TargetMetadata,
        TargetMember,
        CurrentMember,
        MembersAdvanced,
        RegexResolved,
        OffsetCommitted,
        GroupConfigured,
        TopicChanged,
        ComputationPrepared,
        ProposalJudged,
        Audited,
        Tombstone,
    )
}
"""Every kind of record that this version knows."""
