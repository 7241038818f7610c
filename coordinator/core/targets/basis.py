"""What a target is computed from: a group, its members, targets, topics and weights; and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.arrays import Ints, Longs
from assignors.registry import find_keeper, knows_loads
from coordinator.config import Config
from coordinator.core.state.groups import ChangePlace, Group, State, Topic, TopicList
from coordinator.core.state.partition_spans import Spans
from coordinator.core.state.records import LoadsNoted, MemberMetadata, Record
from coordinator.core.state.row_dict import RowDict
from coordinator.core.state.rows.member_table import (
    code_fields,
    list_field,
    list_ids,
    list_texts,
)
from coordinator.core.state.target_assignment import Targets
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.state.target_ranges import Ranges
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.load_columns import list_racks, load_columns


@dataclass(frozen=True, slots=True)
class MemberChange:
    """What this step is about to change: one member comes or is another; one is gone."""

    meta: MemberMetadata | None = None
    target: Spans | None = None
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """Members with their subscriptions and previous targets, and the topics they subscribe to.

    `loads` are the weights and constraints that were noted last; constraints are in force as of a
    time, in ms since 1970.
    """

    metas: Mapping[str, MemberMetadata]
    targets: Targets
    topics: list[Topic]
    regexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    loads: LoadsNoted | None = None
    as_of_ms: int | None = None
    prepared: ChangePlace | None = None
    restored: ChangePlace | None = None
    """Where the group's changes were when the input was prepared, and when it was restored."""

    @property
    def listed(self) -> TopicList:
        """The topics, with what is made of all of them."""
        return self.topics if isinstance(self.topics, TopicList) else TopicList(self.topics)

    def weighed_spec(self) -> GroupSpec:
        """Return the group with its weights, capacities and constraints, for any assignor."""
        return self.spec(find_keeper(loads=True))

    def spec(self, assignor: str | None = None) -> GroupSpec:
        """Return the group that an assignor gets; dead topics and their owners are dropped.

        Weights, capacities and constraints are in it for an assignor that knows them. To others a
        member that plans drain subscribes to nothing. Without an assignor, the group is unchanged.

        Raises
        ------
        SpecError
            All subscribers of a topic are drained.
        """
        weighed = assignor is not None and knows_loads(assignor)
        subscription = self._subscriptions()
        offsets, flat = self._lists(subscription)
        if assignor is not None and not weighed and self.loads and self.loads.drained:
            for name in sorted(self.find_drained_topics())[:1]:  # `weighted` refuses it alike
                raise SpecError(
                    f"partitions of topic {name} cannot be on any member: plans drain all its "
                    "subscribers; undrain one of them"
                )
            subscription = self._drop_drained(self.loads.drained, subscription, offsets)
            offsets = np.append(offsets, offsets[-1])
        partitions = self.listed.counts
        had, number = self.owned()
        ends = np.append(partitions, 0).astype(np.int32)
        stop = np.minimum(had.end, ends[number])
        alive = (number >= 0) & (stop > had.first)
        owner, first = had.owner, had.first
        if not alive.all():
            owner, number, first, stop = (one[alive] for one in (owner, number, first, stop))
        return GroupSpec.from_columns(
            member_id=list_ids(self.metas),
            instance_id=list_texts(self.metas, "instance_id"),
            rack=list_racks(self.loads, self.metas),
            subscription=subscription,
            list_offsets=offsets,
            list_topics=flat,
            topics=self.listed.keys.arrow[0],
            partitions=partitions,
            owner=had._replace(owner=owner).owners,
            owner_places=self._find_owners(had.ids, had.row),
            owned_topic=number,
            owned_first=first,
            owned_count=stop - first,
            loads=(
                load_columns(self.loads, self.metas, self.topics, self.as_of_ms)
                if weighed
                else None
            ),
        )

    def _find_owners(self, ids: pa.StringArray, row: Ints | None) -> Longs | None:
        """Return where among the members owners are whose rows are known; None: they are not."""
        metas = self.metas
        if row is None or not isinstance(metas, RowDict):
            return None
        return metas.find_keys(ids, row) if metas.rows.index is self.targets.index else None

    def _subscriptions(self) -> Longs:
        """Return a number for each member's subscription: equal ones share their list of names."""
        ((lists, codes),) = code_fields(self.metas, ["subscribed_topic_names"])
        _, numbers = np.unique(np.array(list(map(id, lists)), np.int64), return_inverse=True)
        found = numbers.astype(np.int64)[codes]
        if not self.regexes:
            return found
        known: dict[tuple[int, str], int] = {}
        pairs = zip(found.tolist(), list_field(self.metas, "subscribed_topic_regex"), strict=True)
        return np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)

    def find_drained_topics(self) -> frozenset[str]:
        """Return the topics of which plans drain all subscribers: no member may have them."""
        if self.loads is None or not self.loads.drained:
            return frozenset()
        subscription = self._subscriptions()
        offsets, flat = self._lists(subscription)
        left = self._drop_drained(self.loads.drained, subscription, offsets)
        kept = flat[np.isin(np.arange(len(offsets) - 1).repeat(np.diff(offsets)), left)]
        return frozenset(self.topics[at].key.name for at in np.setdiff1d(flat, kept).tolist())

    def without(self, topics: frozenset[str]) -> AssignorInput:
        """Return the group as if some topics were not there."""
        if not topics:
            return self
        left = TopicList(one for one in self.topics if one.key.name not in topics)
        return replace(self, topics=left)

    def _drop_drained(self, drained: Iterable[str], subscription: Longs, offsets: Longs) -> Longs:
        """Return subscriptions in which members that plans drain have the one after the last."""
        names = set(drained)
        both = zip(self.metas, list_field(self.metas, "instance_id"), strict=True)
        theirs = [not names.isdisjoint(pair) for pair in both]
        return np.where(theirs, len(offsets) - 1, subscription)

    def _lists(self, subscription: Longs) -> tuple[Longs, Ints]:
        """Return the distinct subscriptions as lists of topic numbers."""
        keys = self.listed.keys
        rows = np.zeros(int(subscription.max(initial=-1)) + 1, np.int64)
        rows[subscription] = np.arange(len(subscription))  # any of those who have it
        fields = ["subscribed_topic_names", "subscribed_topic_regex"]
        columns = [(values, codes[rows]) for values, codes in code_fields(self.metas, fields)]
        flat: list[Longs] = []
        for row in range(len(rows)):
            names, regex = (values[codes[row]] for values, codes in columns)
            named = keys.find_names(names)
            matched = keys.find_names(self.regexes.get(regex, ()))
            both = len(named) and len(matched)
            flat.append(np.union1d(named, matched) if both else np.append(named, matched))
        offsets = np.cumsum([0, *map(len, flat)], dtype=np.int64)
        return offsets, np.concatenate([*flat, np.zeros(0, np.int64)]).astype(np.int32)

    def owned(self) -> tuple[Ranges, Ints]:
        """Return previous targets, and the number of each one's topic; −1 is dead."""
        had = self.targets.ranges()
        numbers = self.listed.keys.find(had.keys).astype(np.int32)
        if np.array_equal(numbers, np.arange(len(numbers))):
            return had, had.topic
        return had, np.append(numbers, np.int32(-1))[had.topic]


@dataclass(frozen=True, slots=True)
class Basis:
    """What a target is computed from, by whichever engine: a group, and how to assign it.

    Attributes
    ----------
    group_epoch, assignment_epoch
        Of the group, and of the target that it has.
    assignor, settings
        The assignor that the target names, and the group's settings.
    options
        How to assign, by these settings.
    input
        Members, topics, targets, weights and constraints.
    assigned_ms
        When the target came: a group that was deleted and recreated may have an equal one.
    supposes
        What the group is not: of a group that Kafka coordinates, that Muster did.
    committed
        Its offsets by topic and partition, where they are read.
    computation_id, position
        Of the computation that the log has, and where; of none, as of a plan, "" and 0.
    store
        Root path of the tables, to which an engine may write the rows of a computation; None if
        everything is in memory.
    classes
        The approximate number of distinct subscriptions.
    """

    group_id: str
    group_epoch: int
    assignor: str
    settings: Mapping[str, str]
    options: AssignorOptions
    input: AssignorInput
    assignment_epoch: int = 0
    assigned_ms: int = 0
    supposes: str = ""
    committed: Mapping[tuple[str, int], int] = field(default_factory=dict)
    computation_id: str = ""
    position: int = 0
    store: str | None = None
    classes: int = 1

    @classmethod
    def of(
        cls,
        place: tuple[str, int],
        assignor: str,
        settings: Mapping[str, str],
        given: AssignorInput,
        config: Config,
        *,
        is_target: bool = False,
        **more: Any,  # noqa: ANN401 - the other attributes
    ) -> Self:
        """Return a basis whose options are those that the settings give.

        Parameters
        ----------
        place
            The group's id and epoch.
        is_target
            The result is installed without an approval: one that is needed keeps owners in place.
        """
        options = AssignorOptions.of_target if is_target else AssignorOptions.of_group
        own = dict(settings)
        return cls(*place, assignor, own, options(assignor, own, config), given, **more)

    def candidate(
        self,
        moved: int = 0,
        *,
        partial: bool = False,
        changes: Sequence[Record] = (),
        ranges: PartitionRanges | None = None,
    ) -> TargetCandidate:
        """Return the target that an engine computed from this."""
        return TargetCandidate(
            self.group_id,
            self.group_epoch,
            self.assignor,
            moved,
            partial,
            changes,
            ranges,
            computation_id=self.computation_id,
            position=self.position,
        )


def build_input(
    state: State, group: Group, change: MemberChange, as_of_ms: int | None = None
) -> AssignorInput:
    """Return the group as it will be after this step's change, at a time in ms since 1970."""
    metas = group.copy_metas()
    targets = group.targets.copy()
    for member_id in change.removed:
        metas.pop(member_id, None)
        targets.end(member_id)
    topics = group.list_topics(state.topics)
    if change.meta is not None:
        member_id = change.meta.member_id
        metas[member_id] = _share_names(group, change.meta)
        if change.target is not None:
            targets[member_id] = change.target
        names = change.meta.subscribed_topic_names
        if not group.names.keys() >= set(names):
            there = sorted({*group.names, *names} & state.topics.keys())
            topics = TopicList(map(state.topics.__getitem__, there))
    regexes = {regex: found.topics for regex, found in group.regexes.items()}
    loads = state.loads_used.get(group.group_id) or state.loads.get(group.group_id)
    return AssignorInput(metas, targets, topics, regexes, loads, as_of_ms)


def _share_names(group: Group, meta: MemberMetadata) -> MemberMetadata:
    """Return the metadata with the group's own list object, so that equal lists are one class."""
    listed = group.lists.get(meta.subscribed_topic_names)
    return meta if listed is None else listed.share_with(meta)
