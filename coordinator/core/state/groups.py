"""The coordinator's state; read by `step`, changed only by `replay`.

Everything here follows from the records alone. Group states are computed, never stored (G-2).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from assignors.arrays import Longs
from coordinator.core.short_calls import apply
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.member_rows import HeldRows
from coordinator.core.state.owner_columns import PartitionOwners
from coordinator.core.state.partition_spans import Spans, TopicKey, kafka_id
from coordinator.core.state.records import (
    ComputationPrepared,
    CurrentMember,
    GroupUnread,
    KafkaWatched,
    LoadsNoted,
    MemberMetadata,
    MemberState,
    OffsetCommitted,
    PartitionRead,
    PlanDecided,
    PlanMade,
    RegexResolved,
    TargetMetadata,
)
from coordinator.core.state.shared_dict import Shareable, share
from coordinator.core.state.span_columns import TopicKeys
from coordinator.core.state.target_assignment import Targets
from coordinator.core.state.transactions import Transactions

NOTHING: frozenset[str] = frozenset()
_NO_COUNTS = partial(Counter.__new__, Counter)  # without a call of its `__init__`
LEFT_FOR_A_WHILE = -2
HASH_BITS = 64
CHANGES_LEAST = 100
"""Changes of its members that a list of them has however small the group is."""


class GroupState(StrEnum):
    """States of a consumer group (G-1)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StateColumns(NamedTuple):
    """What the states of groups follow from: one group's numbers, or a column of many groups'."""

    members: Any
    """How many members the group has."""
    behind: Any
    """Whether the group epoch is above the assignment epoch: a new target is due."""
    arrived: Any
    """How many members are STABLE at the assignment epoch."""


GROUP_STATES: tuple[tuple[GroupState, Callable[[StateColumns], Any]], ...] = (
    (GroupState.EMPTY, lambda now: now.members == 0),
    (GroupState.ASSIGNING, lambda now: now.behind),
    (GroupState.RECONCILING, lambda now: now.arrived < now.members),
    (GroupState.STABLE, lambda now: now.arrived == now.members),
)
"""The states of a group that is there, as Kafka computes them (G-2): the first that holds."""

GROUP_MOVES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.ASSIGNING, GroupState.STABLE, GroupState.DEAD}),
    GroupState.ASSIGNING: frozenset(GroupState) - {GroupState.DEAD},
    GroupState.RECONCILING: frozenset(GroupState) - {GroupState.DEAD},
    GroupState.STABLE: frozenset(GroupState) - {GroupState.DEAD},
    GroupState.DEAD: frozenset(),
}
"""From which state a group may come to which by one event; docs/design/coordinator.md draws it.

A group is Dead once it is deleted, or expired: then it is not there.
"""


class Topic(msgspec.Struct, frozen=True, gc=False):
    """A topic that exists."""

    key: TopicKey
    partitions: int
    racks: tuple[tuple[str, ...], ...]
    hash: int
    version: int = 0
    """`State.topics_version` when it came, for regexes that were resolved before (G-83)."""

    @classmethod
    def of(
        cls,
        name: str,
        topic_id: str,
        partitions: int,
        racks: tuple[tuple[str, ...], ...],
        version: int = 0,
    ) -> Topic:
        """Return the topic with its hash over id, name, count and sorted racks (G-148)."""
        text = repr((0, topic_id, name, partitions, [sorted(r) for r in racks]))
        digest = hashlib.blake2b(text.encode(), digest_size=HASH_BITS // 8).digest()
        return cls(TopicKey(name, topic_id), partitions, racks, int.from_bytes(digest), version)


class TopicList(list[Topic]):
    """Topics by name, never changed: members of a group are assigned partitions of the same."""

    @cached_property
    def keys(self) -> TopicKeys:
        """What columns count them by."""
        return TopicKeys([topic.key for topic in self])

    @cached_property
    def counts(self) -> Longs:
        """How many partitions each has."""
        return np.fromiter((topic.partitions for topic in self), np.int64, len(self))


class NameList:
    """A list of topic names that members share: one object however many subscribe alike."""

    __slots__ = ("members", "names")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.members = 0

    def share_with(self, meta: MemberMetadata) -> MemberMetadata:
        """Return metadata with equal names as one with this very list."""
        if meta.subscribed_topic_names is self.names:
            return meta
        return msgspec.structs.replace(meta, subscribed_topic_names=self.names)


class Member:
    """One member: its last records, its list of names, its number in the ownership arrays."""

    __slots__ = ("held", "listed", "looked_at", "meta", "serial")

    def __init__(self, meta: MemberMetadata, listed: NameList, serial: int) -> None:
        self.meta = meta
        self.listed = listed
        self.held: CurrentMember | HeldRows | None = None
        """What it has: its record, or the columns that have it; None: nothing yet."""
        self.serial = serial
        self.looked_at = -1
        """The group's `revision` when the member last looked for partitions and got none."""

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.meta.member_id

    @property
    def current(self) -> CurrentMember:
        """What it has."""
        held = self.held
        if isinstance(held, HeldRows):
            return held.current(self)
        return held or CurrentMember(self.meta.group_id, self.meta.member_id)

    @property
    def epoch(self) -> int:
        """The member epoch: the target epoch it has reached; −2 while a static member is away."""
        held = self.held
        if isinstance(held, HeldRows):
            return held.place_of(self)[0]
        return 0 if held is None else held.member_epoch

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.meta.classic_member_metadata is not None

    @property
    def stable(self) -> bool:
        """Whether the member is in state STABLE."""
        held = self.held
        if isinstance(held, HeldRows):
            return held.place_of(self)[1]
        return held is None or held.state is MemberState.STABLE


class ChangeList(list[str]):
    """Members that changed, in order; once it is full, the next one goes on."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        super().__init__()
        self.next: ChangeList | None = None


class ChangePlace(NamedTuple):
    """A place in a group's lists of changes; any thread may look from it."""

    changes: ChangeList
    at: int

    def until(self, later: ChangePlace | None) -> list[str] | None:
        """Return who changed from here on, maybe repeatedly; None when that was not kept."""
        if later is None:
            return None
        found: list[str] = []
        here, at = self
        while here is not later.changes:
            found += here[at:]
            following = here.next
            if following is None:
                return None
            here, at = following, 0
        return found + here[at : later.at]


@dataclass(slots=True)
class Computation:
    """A computation outside the coordinator, with the input it was promised (K-38…K-50)."""

    record: ComputationPrepared
    metas: Mapping[str, MemberMetadata]
    """The members, when it was prepared."""
    topics: list[Topic]
    """The subscribed topics by name, when it was prepared."""
    regexes: dict[str, tuple[str, ...]]
    mark: ChangePlace | None = None
    """Where the group's changes were, when it was prepared."""

    @classmethod
    def of(cls, record: ComputationPrepared, group: Group, topics: dict[str, Topic]) -> Computation:
        """Return a computation that is prepared now."""
        return cls(
            record,
            group.copy_metas(),
            group.list_topics(topics),
            {regex: found.topics for regex, found in group.regexes.items()},
            group.list_changes(),
        )


@dataclass(slots=True, eq=False)
class Group:
    """A consumer group."""

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    assignment_epoch: int = 1
    assignment_timestamp: int = 0
    assignor: str = ""
    partial: bool = False
    members: Shareable[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    targets: Targets = field(default_factory=Targets)
    """The target assignment of each member that has one."""
    installed: TargetMetadata | None = None
    """The record of the whole target among them, if there is one."""
    regexes: dict[str, RegexResolved] = field(default_factory=dict)
    computation: Computation | None = None
    owner_left: bool = False
    """Whether a member that owned partitions is gone since the last target."""
    plans: dict[str, PlanMade] = field(default_factory=dict)
    """Plans that wait for approval, by id."""
    decided: dict[str, PlanDecided] = field(default_factory=dict)
    """What became of plans that have not expired: each is used once."""
    # Below: derived by `replay`, so that a heartbeat never looks at all members.
    metas: Shareable[str, MemberMetadata] = field(default_factory=dict)
    """The metadata of each member: a computation keeps a copy, which must take no time."""
    changes: ChangeList | None = None
    """Members whose metadata or target changed since a computation was prepared, if one was."""
    changes_before: ChangeList | None = None
    """The list before that; still earlier ones are let go."""
    owners: PartitionOwners = field(default_factory=PartitionOwners)
    """Who holds each partition, assigned or pending (G-7)."""
    serials: int = 0
    lists: dict[tuple[str, ...], NameList] = field(default_factory=dict)
    """The distinct lists of names, with the number of members that have each."""
    lists_by_id: dict[int, NameList] = field(default_factory=dict)
    """The same by the identity of their names: a list of many topics takes long to hash."""
    names: Counter[str] = field(default_factory=_NO_COUNTS)
    """In how many distinct lists and resolved regexes each topic is."""
    regex_members: Counter[str] = field(default_factory=_NO_COUNTS)
    matched: dict[str, frozenset[str]] = field(default_factory=dict)
    """The topics of each resolved regex: one may match all that there are."""
    wishes: Counter[str] = field(default_factory=_NO_COUNTS)
    """How many members ask for each assignor."""
    classic_members: int = 0
    """How many members speak the classic protocol."""
    classic_protocols: Counter[str] = field(default_factory=_NO_COUNTS)
    """How many of these know each protocol."""
    topic_list: TopicList | None = None
    """The topics that exist of those in `names`, if they were asked for since they changed."""
    topics_hash: int = 0
    """Sum of the hashes of the subscribed topics that exist now, modulo 2^64."""
    noticed_hash: int = 0
    """The same as far as it moved the group epoch, or need not: a pattern that ended does not."""
    stable_at: Counter[int] = field(default_factory=_NO_COUNTS)
    """How many STABLE members are at each member epoch."""
    revision: int = 0
    """Raised by what may give a waiting member something: free partitions, a target, metadata."""

    @property
    def state(self) -> GroupState:
        """The group's state (G-2)."""
        now = StateColumns(
            len(self.members),
            self.epoch > self.assignment_epoch,
            self.stable_at[self.assignment_epoch],
        )
        return next(state for state, holds in GROUP_STATES if holds(now))

    def copy_metas(self) -> Shareable[str, MemberMetadata]:
        """Return a copy of the members' metadata that no later change reaches."""
        self.metas = share(self.metas)
        return self.metas.copy()

    def list_topics(self, topics: Mapping[str, Topic]) -> TopicList:
        """Return those of all topics to which the group subscribes."""
        if self.topic_list is None:
            self.topic_list = TopicList(filter(None, apply(topics.get, sorted(self.names))))
        return self.topic_list

    def list_changes(self) -> ChangePlace:
        """List changes from now on at the latest, and return where they are."""
        if self.changes is None:
            self.changes = ChangeList()
        return ChangePlace(self.changes, len(self.changes))

    def mark(self) -> ChangePlace | None:
        """Return where the changes are now; None when they are not listed."""
        return None if self.changes is None else ChangePlace(self.changes, len(self.changes))

    def note_change(self, member_id: str) -> None:
        """Note that a member came, went, or has another target."""
        self.revision += 1
        if self.changes is None:
            return
        self.changes.append(member_id)
        if len(self.changes) > len(self.members) // 2 + CHANGES_LEAST:
            if self.changes_before is not None:
                self.changes_before.next = None
            self.changes.next = ChangeList()
            self.changes_before, self.changes = self.changes, self.changes.next

    def set_targets(self, targets: Sequence[tuple[str, Spans]]) -> None:
        """Give members targets, in order."""
        self.targets.update(targets)
        if self.changes is None:
            self.revision += len(targets)
        else:
            for member_id, _ in targets:
                self.note_change(member_id)

    def end_target(self, member_id: str) -> None:
        """Let a member have no target."""
        self.targets.end(member_id)
        self.note_change(member_id)

    def replace_targets(self, targets: Targets, installed: TargetMetadata | None) -> None:
        """Replace the targets of all members."""
        self.revision += 1
        self.targets, self.installed = targets, installed
        self.changes = self.changes_before = None

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member that has this instance id."""
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def subscriptions(self, meta: MemberMetadata) -> Callable[[str], bool]:
        """Return what tells whether a member is subscribed to a topic: by name or regex (G-86)."""
        names = meta.subscribed_topic_names
        matched = self.matched.get(meta.subscribed_topic_regex, NOTHING)
        if not names:
            return matched.__contains__

        def subscribes(name: str) -> bool:
            at = bisect_left(names, name)
            return (at < len(names) and names[at] == name) or name in matched

        return subscribes

    def subscribes_to_all(self, meta: MemberMetadata, names: Iterable[str]) -> bool:
        """Whether a member is subscribed to each of many topics, by name or regex."""
        matched = self.matched.get(meta.subscribed_topic_regex, NOTHING)
        listed = meta.subscribed_topic_names
        return (matched.union(listed) if listed else matched).issuperset(names)


@dataclass(frozen=True, slots=True)
class TopicView:
    """The topics of one instant, by name and by `kafka_id`, for readers in other threads."""

    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[str, Topic] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: dict[str, Topic]) -> TopicView:
        """Return a copy that no later change reaches."""
        return cls(dict(topics), {kafka_id(topic.key.topic_id): topic for topic in topics.values()})

    @classmethod
    def now(cls, state: State) -> TopicView:
        """Return a copy of all topics that are there."""
        return cls(dict(state.topics), dict(state.topics_by_id))


BY_NODE = "node"
"""How a store's groups are watched by a node of Muster's, which may lead some of them."""


@dataclass(slots=True, eq=False)
class Watched:
    """The Kafka cluster whose coordinator decides about the groups, and what was read of it."""

    cluster: KafkaWatched
    read: dict[tuple[str, int], PartitionRead] = field(default_factory=dict)
    """By topic and partition, how far."""
    unread: dict[str, GroupUnread] = field(default_factory=dict)
    """Groups that cannot be read."""


class NamesHash(NamedTuple):
    """The hash of the topics of many names, of that list itself."""

    names: Sequence[str]
    version: int
    """Of the topics then."""
    total: int


@dataclass(slots=True, eq=False)
class State:
    """All groups, settings, offsets and topics."""

    groups: dict[str, Group] = field(default_factory=dict)
    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    """Classic groups; a group id is here, among `groups`, or nowhere."""
    classic_bytes: int = 0
    """About how much memory their members take up."""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    loads: dict[str, LoadsNoted] = field(default_factory=dict)
    """Weights, capacities and constraints of groups, as noted last."""
    loads_used: dict[str, LoadsNoted] = field(default_factory=dict)
    """The same of groups that the node of the store leads, where `loads` are Kafka's lags."""
    planned: set[str] = field(default_factory=set)
    """Groups that have had plans since the log was loaded: few, and looked at again and again."""
    offsets: dict[str, dict[tuple[str, int], OffsetCommitted]] = field(default_factory=dict)
    """By group: one that has had offsets is there, with or without members, until it is deleted."""
    transactions: Transactions = field(default_factory=Transactions)
    """Offsets that wait for the end of their transactions; only of a log that Kafka reads, too."""
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[str, Topic] = field(default_factory=dict)
    """The same by `kafka_id`."""
    subscribers: dict[str, Group | set[Group]] = field(default_factory=dict)
    """By topic name, whether it exists or not: the groups in whose `names` it is.

    A group by itself where it is the only one: of very many topics the collector looks at no set.
    """
    topics_version: int = 0
    """How often topics changed; versions of regexes are of this count (G-82)."""
    topics_awaited: bool = False
    """Whether the rest of a change of topics is still to come; no record says so."""
    new_topics_version: int = 0
    """The version that last brought a topic that was not there (G-83)."""
    last_hash: NamesHash | None = None
    """What a step has just found out, and its replay asks again."""
    watched: Watched | None = None
    """Of groups that Kafka coordinates; None where this coordinator does."""

    def has_topic(self, key: TopicKey) -> bool:
        """Whether the topic with this id exists: one recreated under its name is another topic."""
        topic = self.topics.get(key.name)
        return topic is not None and topic.key == key


def exhaust(work: Iterator[object]) -> None:
    """Do what an iterator does, and keep nothing of it."""
    deque(work, maxlen=0)


def count_down(counter: Counter[Any], key: object) -> bool:
    """Count one less; True when it was the last."""
    counter[key] -= 1
    return counter[key] <= 0 and counter.pop(key) <= 0
