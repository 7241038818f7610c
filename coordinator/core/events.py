"""Events that the coordinator handles, and the results of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from coordinator.core.bounded import INT32_MAX, FindVisible, Int32, Int64, Partition, Text
from coordinator.core.classic_events import ClassicEvent, DescribeClassicGroup, Parked
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.partition_spans import Spans
from coordinator.core.state.records import (
    Audited,
    LoadsNoted,
    PlanMade,
    Record,
)
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.state.transactions import Producer
from coordinator.core.watched_events import KafkaWrote, KeepRecords
from coordinator.errors import ErrorCode, GroupError

TimerKey: TypeAlias = tuple[str, str, str]
"""A timer: its kind, its group, and its member, "" where it is the group's."""

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, for the audit; on the wire also which client, and from where."""

    principal: Text
    client_id: Text = ""
    client_host: Text = ""


class Heartbeat(msgspec.Struct, frozen=True):
    """ConsumerGroupHeartbeat; None (−1 for the timeout) means unchanged (K-24).

    `topic_partitions` are the partitions owned now, by topic name; by `kafka_id`, as clients on the
    wire report them, where `by_topic_id` says so. `wants_assignment` has the answer bring the
    assignment even where it has not changed. `find_visible` is the shell's, where the client may
    not describe every topic: it counts if this heartbeat has regular expressions resolved (G-84).
    """

    group_id: Text
    member_id: Text
    member_epoch: Int32
    instance_id: Text | None = None
    rack_id: Text | None = None
    rebalance_timeout_ms: Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)] = -1
    subscribed_topic_names: Sequence[Text] | None = None
    subscribed_topic_regex: Text | None = None
    server_assignor: Text | None = None
    topic_partitions: Mapping[Text, Sequence[Partition]] | None = None
    client_id: Text = ""
    client_host: Text = ""
    by_topic_id: bool = False
    wants_assignment: bool = False
    client_software: Text = ""
    find_visible: FindVisible | None = None


def needs_member_id(version: int, member_epoch: int, member_id: str) -> bool:
    """Tell whether a heartbeat joins without an id, as version 0 of the API may (G-12).

    The coordinator then gives the member one, before the heartbeat becomes an event.
    """
    return version == 0 and member_epoch == JOIN and member_id == ""


class CommittedOffset(NamedTuple):
    """What is committed for a partition; the leader epoch is −1 where none is known."""

    offset: Int64
    metadata: str = ""
    leader_epoch: Int32 = -1


class OffsetCommit(msgspec.Struct, frozen=True):
    """OffsetCommit: {topic: {partition: (offset, metadata, leader epoch)}}.

    `knows_epochs`: whether the request is one that may come from a member of a consumer group.
    `as_kafka`: whether an empty group id and offsets below 0 are taken, as Kafka takes them.
    `in_transaction`: whether it is part of a `TxnOffsetCommit`, which need not name a member.
    """

    group_id: Text
    member_id: Text
    member_epoch: Int32
    offsets: Mapping[Text, Mapping[Partition, CommittedOffset]]
    instance_id: Text | None = None
    knows_epochs: bool = True
    as_kafka: bool = False
    in_transaction: bool = False


class TxnOffsetCommit(msgspec.Struct, frozen=True):
    """TxnOffsetCommit: offsets that count once the producer's transaction is committed.

    `ended`: how many transactions of the producer had ended here before the coordinator of its
    transactions confirmed that this one is open; None: that was not asked. `knows_stale`: whether
    the client knows STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND.
    """

    commit: OffsetCommit
    producer: Producer
    ended: int | None = None
    knows_stale: bool = False

    @property
    def group_id(self) -> str:
        """The group."""
        return self.commit.group_id


class EndTransaction(msgspec.Struct, frozen=True):
    """WriteTxnMarkers, one marker: a producer's transaction is committed, or aborted.

    `version`: of Kafka's feature `transaction.version`; from 2 on, each transaction has an epoch of
    its own.
    """

    producer: Producer
    coordinator_epoch: Int32
    committed: bool
    version: int = 0


class Unverified(NamedTuple):
    """The answer to a TxnOffsetCommit whose transaction may not be open: ask its coordinator.

    Then the same request is given again, with this number.
    """

    ended: int


class OffsetFetch(msgspec.Struct, frozen=True):
    """OffsetFetch of some partitions by topic, or of all (None).

    `require_stable`: whether offsets of partitions with an open transaction are refused.
    """

    group_id: Text
    topics: Mapping[Text, Sequence[Partition]] | None = None
    member_id: Text | None = None
    member_epoch: Int32 = -1
    require_stable: bool = False


class OffsetDelete(msgspec.Struct, frozen=True):
    """OffsetDelete of some partitions by topic."""

    group_id: Text
    topics: Mapping[Text, Sequence[Partition]]
    by: Caller | None = None


class DescribeGroup(msgspec.Struct, frozen=True):
    """ConsumerGroupDescribe of one group."""

    group_id: Text


class ListGroups(msgspec.Struct, frozen=True):
    """ListGroups; an empty filter takes all, names in any case (G-129).

    Attributes
    ----------
    group_ids
        Only those of these that exist, in their order; None takes all.
    """

    states: frozenset[Text] = frozenset()
    types: frozenset[Text] = frozenset()
    group_ids: Sequence[Text] | None = None


class ListGroupIds(msgspec.Struct, frozen=True):
    """The ids of all groups, in order: what ListGroups is cut into pieces by."""


class DeleteGroup(msgspec.Struct, frozen=True):
    """DeleteGroups, one group."""

    group_id: Text
    by: Caller | None = None


class ConfigureGroup(msgspec.Struct, frozen=True):
    """All settings of a group id; those left out go back to their defaults."""

    group_id: Text
    settings: Mapping[Text, Text]
    by: Caller | None = None


class AlterConfig(msgspec.Struct, frozen=True):
    """IncrementalAlterConfigs of one group: new values by name, None for the default."""

    group_id: Text
    changes: Mapping[Text, Text | None]
    validate_only: bool = False
    by: Caller | None = None


class DescribeConfig(msgspec.Struct, frozen=True):
    """DescribeConfigs of one group."""

    group_id: Text


@dataclass(frozen=True, slots=True)
class ListConfiguredGroups:
    """The ids of groups that have settings of their own, whether or not the group exists."""


class PrepareAssignment(msgspec.Struct, frozen=True):
    """ConsumerGroupPrepareAssignment by an external computer; the new computation's id is given."""

    group_id: Text
    computation_id: Text


@dataclass(frozen=True, slots=True)
class InstallAssignment:
    """ConsumerGroupInstallAssignment.

    `ranges` has the columns member_id, topic, first_partition, partition_count; the epoch is the
    group epoch that PrepareAssignment returned.
    """

    group_id: str
    computation_id: str
    group_epoch: int
    ranges: pa.Table
    assignor: str = "external"
    partial: bool = False


class CatalogTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic as a catalog reports it."""

    topic_id: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsReported:
    """All topics as the catalog reports them now; or a slice of what changed among very many.

    Attributes
    ----------
    topics
        All there are; of a slice, those that are new or have changed.
    gone
        Of a slice, those that no longer exist; None: `topics` are all.
    more
        Whether another slice of the same change follows: until the last, no group notices.
    """

    topics: Mapping[str, CatalogTopic]
    gone: Sequence[str] | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class RegexesResolved:
    """The outcome of a ResolveRegexes task; None: it failed."""

    group_id: str
    topics: Mapping[str, Sequence[str]] | None
    version: int
    started_ms: int


REQUEST = "request"
"""Names the kind of a request in a file (storage/inbox.py)."""
Action: TypeAlias = Literal["apply", "approve", "reject", "propose", "expire"]


class DecidePlan(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field=REQUEST, tag="plan"
):
    """A plan is applied, approved or rejected, or proposed: then it waits for approval.

    Or it is asked whether plans of a group have expired: which these are, the coordinator knows.

    Attributes
    ----------
    plan
        The plan itself, where the log does not have it.
    request_id
        Of a request from another process, which finds the answer in the log; "" without one.
    """

    action: Action
    group_id: str
    plan_id: str
    plan: PlanMade | None = None
    by: str = ""
    reason: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ReportLoads:
    """The weights, capacities and constraints of a group, as their source has them now.

    `pays` says whether a target of these weights would be worth its moves.
    """

    loads: LoadsNoted
    pays: bool = False


@dataclass(frozen=True, slots=True)
class TargetFailed:
    """A ComputeTarget task failed."""

    group_id: str
    computation_id: str
    message: str


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The rows of a group's whole target are gone from the table of targets."""

    group_id: str
    message: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer's deadline has passed."""

    kind: str
    group_id: str
    member_id: str
    member_epoch: int = 0

    @property
    def key(self) -> TimerKey:
        """The timer."""
        return self.kind, self.group_id, self.member_id


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The periodic look at the age of offsets (G-77)."""


@dataclass(frozen=True, slots=True)
class RecordAudit:
    """Logins that failed, and requests that were refused, counted: they never came to a step."""

    records: Sequence[Audited]


Event: TypeAlias = (
    Heartbeat
    | OffsetCommit
    | TxnOffsetCommit
    | EndTransaction
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | ListGroups
    | ListGroupIds
    | DeleteGroup
    | ConfigureGroup
    | AlterConfig
    | DescribeConfig
    | ListConfiguredGroups
    | PrepareAssignment
    | InstallAssignment
    | DecidePlan
    | ReportLoads
    | TopicsReported
    | RegexesResolved
    | TargetCandidate
    | TargetFailed
    | TargetLost
    | TimerFired
    | ExpireOffsets
    | RecordAudit
    | KafkaWrote
    | KeepRecords
    | ClassicEvent
)
READING = (
    OffsetFetch | DescribeGroup | DescribeClassicGroup | ListGroups | ListGroupIds
    | DescribeConfig | ListConfiguredGroups
)  # fmt: skip
"""What reads the state and changes nothing."""


class HeartbeatResponse(msgspec.Struct, frozen=True):
    """The answer to a member. `assignment` None is unchanged; else {topic: spans of partitions}."""

    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Spans | None = None
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


SESSION, REBALANCE = "session", "rebalance"
HEARTBEAT, JOIN_PHASE, SYNC_PHASE = "heartbeat", "join", "sync"
"""Of classic groups: a member's session, and the time that a group joins, or syncs."""


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Start a timer, or start it again; `after_ms` None cancels it."""

    kind: str
    group_id: str
    member_id: str
    after_ms: int | None
    member_epoch: int = 0
    unless_set: bool = False
    """Leave it alone where it runs already."""

    @property
    def key(self) -> TimerKey:
        """The timer."""
        return self.kind, self.group_id, self.member_id


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Find the topics of a group's regular expressions, off the heartbeat path (G-82)."""

    group_id: str
    regexes: tuple[str, ...]
    find_visible: FindVisible | None = None
    """Of the request that has them resolved; it counts for all members, as in Kafka (G-84)."""


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """Compute a target off the heartbeat path; becomes a TargetCandidate.

    Attributes
    ----------
    position
        At which the log has the computation, and up to which it has the group that the target is
        for; 0 until the step's records are durable.
    """

    group_id: str
    computation_id: str
    group_epoch: int
    assignor: str
    position: int = 0


Task: TypeAlias = ResolveRegexes | ComputeTarget


class Result(msgspec.Struct, frozen=True):
    """What a step decides.

    Attributes
    ----------
    records
        To be replayed and made durable BEFORE the response leaves the process.
    response
        The answer.
    timers, tasks
        What the runtime starts once the records are durable.
    classic
        Classic groups as this step leaves them, to be kept in memory after the records are
        replayed: the log has of them what the records say.
    completed
        Requests that waited, by number, and their answers; they leave with the response.
    superseded
        Requests that waited and get no answer: the member repeated them, or is gone.
    """

    records: list[Record] = []
    response: object = None
    timers: list[SetTimer] = []
    tasks: list[Task] = []
    classic: Sequence[ClassicGroup] = ()
    completed: Sequence[tuple[int, Parked]] = ()
    superseded: Sequence[int] = ()


Answer: TypeAlias = Result | GroupError
"""What one event comes to: a result, or why it was refused."""
