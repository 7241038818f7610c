"""All records of the log; nothing else changes the state.

Kafka's records (G-147) under its field names, and a few of ours: settings of groups, topics, the
epoch-only advance, computations outside the coordinator; docs/design/log_format.md#kinds lists
them. G-… and K-… are statements of docs/design/behaviours.md. A record is a frozen struct;
`kind` is its name in the log, `kafka` in Kafka's. A deleted key is a `Tombstone`. Records hold no
cycles, and are declared so: else the garbage collector would scan a million of them repeatedly.

This is also the schema of the log: columns, their order and documentation, the encoder, the decoder
and Kafka's JSON follow from the annotations (record_fields.py). A new field is a line here, with a
default, so that rows without it are read, and with words on its column where it has a new one. A
record may have lists of structs; their fields are named and typed in the same way.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec

from assignors.loads.constraints import ConstraintRow
from coordinator.core.state.partition_spans import Holding, Spans
from coordinator.core.state.plan_values import MemberLoad, PlannedMove, PlanSummary, TopicWeights
from coordinator.core.state.record_fields import (
    Column,
    Hash,
    InMemory,
    Int,
    Kafka,
    Key,
    Long,
    MemberId,
    Names,
    Own,
    Tagged,
)
from coordinator.core.state.target_assignment import StoredTarget, WholeTarget


class MemberState(IntEnum):
    """States of a member as Kafka stores them (G-3)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Record(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One change of the state."""

    kind: ClassVar[str] = ""
    kafka: ClassVar[str] = ""


class GroupMetadata(Record, frozen=True, gc=False):
    """The group epoch, why it was raised, and the member that caused it."""

    kind: ClassVar[str] = "group_metadata"
    kafka: ClassVar[str] = "CONSUMER_GROUP_METADATA"
    group_id: Key[str]
    epoch: Annotated[Int, "group epoch"]
    metadata_hash: Annotated[
        Tagged[Hash], "hash of the subscribed topics; Kafka's unsigned 64 bits, read as signed"
    ]
    reason: Annotated[Own[str], "why an epoch was raised, what was decided, what was done"] = ""
    member_id: Own[MemberId] | None = None
    owner_left: Annotated[
        Own[bool], Column("bereft"), "whether a member with partitions left since the last target"
    ] = False


class ClassicProtocol(msgspec.Struct, frozen=True, gc=False):
    """A protocol that a classic member knows, and what it tells a leader for it."""

    name: str
    metadata: bytes = b""


class ClassicMemberMetadata(msgspec.Struct, frozen=True, gc=False):
    """What makes a member of a consumer group one that speaks the classic protocol."""

    session_timeout_ms: Long = -1
    supported_protocols: tuple[ClassicProtocol, ...] = ()


class MemberMetadata(Record, frozen=True, gc=False):
    """Who a member is and what it subscribes to. Names are sorted; "" means no regex."""

    kind: ClassVar[str] = "member_metadata"
    kafka: ClassVar[str] = "CONSUMER_GROUP_MEMBER_METADATA"
    group_id: Key[str]
    member_id: Key[MemberId]
    instance_id: Annotated[str | None, "of a static member"] = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Annotated[
        Names, "JSON list, sorted; SQL: `from_json(subscribed_topic_names, 'array<string>')`"
    ] = ()
    subscribed_topic_regex: Annotated[str, "empty for none"] = ""
    rebalance_timeout_ms: Long = -1
    server_assignor: Annotated[str | None, "that the member asks for"] = None
    classic_member_metadata: Annotated[
        ClassicMemberMetadata | None, "of a member that speaks the classic protocol"
    ] = None
    client_software: Annotated[
        Own[str], "name and version of the client's software, as it says (KIP-511)"
    ] = ""


class TargetMetadata(Record, frozen=True, gc=False):
    """The assignment epoch; with `computation_id`, it installs a target of the table `targets`.

    Timestamp 0: the next target is computed at once (G-44). Which assignor made it, how many owned
    partitions change hands and whether `max_moves` cut it short are ours.

    A target that a job computed is a whole one, in the table `targets`: this record is all that the
    log has of it, and the moment at which it exists. TargetMember records before it no
    longer count; those after it override it.
    """

    kind: ClassVar[str] = "target_assignment_metadata"
    kafka: ClassVar[str] = "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA"
    group_id: Key[str]
    assignment_epoch: Annotated[Int, "group epoch that the target was computed for"]
    assignment_timestamp: Annotated[
        Tagged[Long], "when it was computed, milliseconds; 0: compute the next one at once"
    ] = 0
    assignor: Annotated[Own[str], "name of the assignor"] = ""
    moved: Annotated[Own[Long] | None, "owned partitions that change hands; null if unknown"] = 0
    partial: Annotated[Own[bool], "whether `max_moves` cut the target short"] = False
    computation_id: Own[str] | None = None
    """Of the computation whose rows of the table are the target; None: not a whole target."""
    targets_version: Annotated[
        Own[Long] | None, "a version of the table `targets` that has the rows"
    ] = None
    digest: Annotated[Own[Long] | None, "of these rows, see [Targets](#targets)"] = None
    members: Annotated[Own[Long] | None, "members that the target was computed for"] = None
    ranges: Annotated[Own[Long] | None, "rows of the target"] = None
    plan_id: Own[str] | None = None
    """Of the plan that was applied."""
    whole: InMemory[WholeTarget | None] = None
    """The rows themselves; None as the record comes from the log."""

    @property
    def stored(self) -> StoredTarget | None:
        """Which rows of the table are the target; None where the log has it."""
        if self.computation_id is None or self.targets_version is None:
            return None
        return StoredTarget(
            self.group_id,
            self.assignment_epoch,
            self.computation_id,
            self.targets_version,
            self.digest or 0,
            self.members or 0,
            self.ranges or 0,
        )


class TargetMember(Record, frozen=True, gc=False):
    """The target of one member."""

    kind: ClassVar[str] = "target_assignment_member"
    kafka: ClassVar[str] = "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER"
    group_id: Key[str]
    member_id: Key[MemberId]
    spans: Annotated[Spans, Column("target"), Kafka("topicPartitions"), "ranges of the target"] = ()


class CurrentMember(Record, frozen=True, gc=False):
    """What a member has, and what it must still revoke, on its way to the target."""

    kind: ClassVar[str] = "current_member_assignment"
    kafka: ClassVar[str] = "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT"
    group_id: Key[str]
    member_id: Key[MemberId]
    member_epoch: Int = 0
    previous_member_epoch: Annotated[
        Int, "accepted once more, when the answer with the new one may be lost"
    ] = 0
    state: Annotated[MemberState, "name of the member's state"] = MemberState.STABLE
    assigned: Annotated[Holding, Kafka("assignedPartitions"), "ranges that the member may use"] = ()
    pending: Annotated[
        Holding, Kafka("partitionsPendingRevocation"), "ranges that it must revoke"
    ] = ()


class MembersAdvanced(Record, frozen=True, gc=False):
    """Members that reached an epoch which changes nothing for them.

    See docs/design/coordinator.md#the-fast-path.
    """

    kind: ClassVar[str] = "members_advanced"
    group_id: str
    member_epoch: Int
    member_ids: tuple[MemberId, ...]


class RegexResolved(Record, frozen=True, gc=False):
    """The topics that a regular expression matches (G-82)."""

    kind: ClassVar[str] = "regular_expression"
    kafka: ClassVar[str] = "CONSUMER_GROUP_REGULAR_EXPRESSION"
    group_id: Key[str]
    regex: Annotated[Key[str], Kafka("regularExpression")]
    topics: tuple[str, ...]
    version: Annotated[Long, "of the topic metadata"]
    timestamp: Annotated[Long, "when the expression was resolved, milliseconds"]


class ClassicRange(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring partitions that a classic member was assigned."""

    topic: str
    topic_id: str
    first_partition: Int
    partition_count: Int


class ClassicMemberWritten(msgspec.Struct, frozen=True, gc=False):
    """A member in the record of its classic group: what it sent, and what it was assigned."""

    member_id: str
    instance_id: Annotated[str | None, Kafka("groupInstanceId")] = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: Annotated[Long, Kafka("rebalanceTimeout")] = -1
    session_timeout_ms: Annotated[Long, Kafka("sessionTimeout")] = -1
    subscription: bytes = b""
    """Under the group's protocol; the others that a member knows are not kept."""
    assignment: bytes = b""
    subscribed_topic_names: Own[tuple[str, ...]] = ()
    assigned: Own[tuple[ClassicRange, ...]] = ()
    """What the bytes say, of a consumer: for history and SQL; the bytes are what counts."""


class ClassicGroupWritten(Record, frozen=True, gc=False):
    """A classic group as of its last generation that was assigned, or Empty (H-40, H-41)."""

    kind: ClassVar[str] = "classic_group"
    kafka: ClassVar[str] = "GROUP_METADATA"
    group_id: Annotated[Key[str], Kafka("group")]
    generation: Annotated[Int, "of a classic group"] = 0
    protocol_type: Annotated[str, "of a classic group: `consumer`, `connect`, …"] = ""
    protocol: Annotated[str | None, "that a classic group has chosen"] = None
    leader: Annotated[str | None, "member id of who assigns"] = None
    state_timestamp: Annotated[
        Long, Kafka("currentStateTimestamp"), "when a classic group came to its state, milliseconds"
    ] = 0
    members: Annotated[
        tuple[ClassicMemberWritten, ...],
        Column("classic_members"),
        "in the order in which they came, with the bytes of subscription and assignment",
    ] = ()
    assignor: Own[str] = ""
    """Of Muster; empty: the leader assigned."""
    moved: Own[Long] = 0
    reason: Own[str] = ""
    member_id: Own[MemberId] | None = None
    """Why the generation began, and the member that caused it, if it was but one."""


class OffsetCommitted(Record, frozen=True, gc=False):
    """A committed offset."""

    kind: ClassVar[str] = "offset_commit"
    kafka: ClassVar[str] = "OFFSET_COMMIT"
    group_id: Annotated[Key[str], Kafka("group")]
    topic: Key[str]
    topic_id: Tagged[str]
    partition: Key[Int]
    offset: Long
    leader_epoch: Annotated[Int, "-1 for none"] = -1
    metadata: Annotated[str, "of the commit, opaque"] = ""
    commit_timestamp: Annotated[Long, "milliseconds"] = 0


class GroupConfigured(Record, frozen=True, gc=False):
    """All settings of a group id; they outlive the group (K-9…K-12)."""

    kind: ClassVar[str] = "group_config"
    group_id: Key[str]
    settings: Annotated[dict[str, str], "settings of the group; details of an audit"]


class TopicChanged(Record, frozen=True, gc=False):
    """A topic as the catalog reported it.

    `version` is of the change that brought the topic.
    """

    kind: ClassVar[str] = "topic"
    topic: Key[str]
    topic_id: str
    partitions: Int
    racks: Annotated[
        tuple[tuple[str, ...], ...], "racks of each partition; empty when unknown"
    ] = ()
    version: Long = 0


class ComputationPrepared(Record, frozen=True, gc=False):
    """A target is being computed outside the coordinator (K-38…K-42).

    Its deadline, like the times of targets and regexes, is the writer's steady clock's.
    """

    kind: ClassVar[str] = "computation"
    group_id: Key[str]
    computation_id: Annotated[Key[str], "of a computation, or the run id of a job"]
    group_epoch: Annotated[Int, "that the target is computed for"]
    deadline_ms: Annotated[Long, "when the coordinator stops waiting, by its own clock"]


class LoadsNoted(Record, frozen=True, gc=False):
    """All weights, capacities and constraints of a group, as they are used from here on."""

    kind: ClassVar[str] = "loads"
    group_id: Key[str]
    weights: Annotated[tuple[TopicWeights, ...], "of partitions, smoothed; -1 is unknown"] = ()
    capacities: Annotated[
        tuple[MemberLoad, ...], "of members, by instance id, client id, or member id"
    ] = ()
    constraints: Annotated[tuple[ConstraintRow, ...], "on where partitions may be"] = ()
    drained: Annotated[
        tuple[str, ...], "members that plans drain: instance ids, or else member ids"
    ] = ()
    timestamp: Long = 0
    """When the weights were noted, milliseconds."""


class LoadsUsed(LoadsNoted, frozen=True, gc=False):
    """What a node uses of a group that it leads; `loads` of its store are Kafka's lags."""

    kind: ClassVar[str] = "loads_used"


class PlanMade(Record, frozen=True, gc=False, forbid_unknown_fields=False):
    """A plan: a target that is shown before it is applied.

    `inputs` names everything that it was computed from, each with a digest; it is applied only
    while all of them are as they were. Code that reads one from a file names what it does not know.
    """

    kind: ClassVar[str] = "plan"
    group_id: Key[str]
    plan_id: Annotated[Key[str], "of a plan"]
    group_epoch: Int
    assignment_epoch: Int
    assignor: str
    settings: dict[str, str]
    inputs: Annotated[dict[str, str], "of a plan, by name: a digest and a description"]
    moves: Annotated[tuple[PlannedMove, ...], Column("planned_moves"), "that a plan makes"]
    summary: Annotated[PlanSummary, "of a plan"]
    plan_digest: Annotated[str, "of a plan: of its inputs, options and moves"]
    drains: Annotated[tuple[str, ...], "members that a plan drains"] = ()
    undrains: Annotated[tuple[str, ...], "members that a plan no longer drains"] = ()
    supposes: Annotated[str, "members that a plan adds or leaves out: it cannot be applied"] = ""
    owner: str = ""
    """Who asked for it."""
    reason: str = ""
    timestamp: Long = 0
    expires_ms: Annotated[Long, "until when a plan may be applied, milliseconds"] = 0


class PlanDecided(Record, frozen=True, gc=False):
    """What became of a plan: `applied`, `rejected`, `expired` or `superseded`.

    The group epoch is the one that it began, 0 where it began none.
    """

    kind: ClassVar[str] = "plan_decision"
    group_id: Key[str]
    plan_id: Key[str]
    decision: Annotated[str, "what became of a plan"]
    group_epoch: Int = 0
    owner: str = ""
    """Who decided."""
    reason: str = ""
    timestamp: Long = 0
    expires_ms: Long = 0


class RequestAnswered(Record, frozen=True, gc=False):
    """The answer to a request of another process: `accepted`, or the error; no state.

    `computation_id` is the request's id; the process that asked waits for it.
    """

    kind: ClassVar[str] = "proposal"
    group_id: str
    computation_id: str
    """The request's."""
    group_epoch: Int
    reason: str


class Audited(Record, frozen=True, gc=False):
    """Who deleted or altered something, or was refused (audit.py); no state.

    `reason` is what was done, `owner` the principal who did it; `settings` are the details.
    """

    kind: ClassVar[str] = "audit"
    group_id: str
    reason: str
    owner: str
    client_id: str = ""
    client_host: str = ""
    settings: dict[str, str] = {}


class KafkaWatched(Record, frozen=True, gc=False):
    """The groups of this store are those of a Kafka cluster, whose coordinator decides about them.

    The store's history begins at `timestamp`, when watching began.
    """

    kind: ClassVar[str] = "kafka_watched"
    cluster_id: Annotated[str, "of the Kafka cluster whose groups these are"]
    observed: Annotated[
        str, "how they are read: from Kafka's `topic` or by a `node`, from `records`, by `describe`"
    ]
    timestamp: Long = 0
    """Since when they are watched, milliseconds."""


class PartitionRead(Record, frozen=True, gc=False):
    """How far a partition of Kafka's topic of groups is read; committed with what was read."""

    kind: ClassVar[str] = "partition_read"
    topic: Key[str]
    partition: Key[Int]
    offset: Long
    """The next one to read."""
    open_offset: Annotated[
        Long, "from which on transactions are open; -1 for none: a reading begins there again"
    ] = -1
    timestamp: Long = 0
    """Up to when all that Kafka wrote there is read, milliseconds; 0 if unknown."""


class GroupUnread(Record, frozen=True, gc=False):
    """A group of a Kafka cluster that cannot be read, and why: until it can, it is not here."""

    kind: ClassVar[str] = "group_unread"
    group_id: Key[str]
    partition: Int
    offset: Long
    reason: Own[str]


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
        ClassicGroupWritten,
        OffsetCommitted,
        GroupConfigured,
        TopicChanged,
        ComputationPrepared,
        LoadsNoted,
        LoadsUsed,
        PlanMade,
        PlanDecided,
        RequestAnswered,
        Audited,
        KafkaWatched,
        PartitionRead,
        GroupUnread,
        Tombstone,
    )
}
"""Every kind of record that this version knows."""
