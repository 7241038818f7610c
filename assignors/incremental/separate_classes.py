"""A planned group by classes of subscription: those that share no topic are planned by themselves.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs, offsets_of
from assignors.compressed_problem import CompressedProblem
from assignors.group_spec import GroupSpec
from assignors.incremental.changes import SubscribedMembers
from assignors.incremental.class_changes import (
    ClassChanges,
    plan_class,
    plan_new_class,
)
from assignors.incremental.equal_members import (
    EqualMembers,
    Owned,
    distinct_keys,
    join_owned,
    order_keys,
    put_in_order,
    read_keys,
    sort_keys,
)
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.known_topics import KnownTopics
from assignors.incremental.member_order import MemberOrder, Texts
from assignors.incremental.next_plan import Bounds, join_places
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.incremental.resolve_changes import ResolvedChanges
from assignors.incremental.shared_changes import SharedChanges, count_kinds
from assignors.incremental.shared_plan import plan_shared
from assignors.partition_ranges import PartitionRanges, Verdict
from assignors.sticky import StickyAssignor
from assignors.uniform import UniformAssignor

_BLOCKS_MAX = 3
"""Blocks of the directory by those needed, before it is written again."""
_KINDS_MAX = 1 << 20
"""Kinds by blocks, and by topic classes: 8 bytes each, which a plan copies."""
_UNUSED_MAX, _UNUSED_MIN = 4, 4096
"""Kinds that no member is of any longer, by those in use, before members are counted again."""
_NAMES_MIN = 4096
"""Names of the directory that are no longer used are left, up to so many."""
_NO_KEYS = pa.array([], pa.large_string())
_NO_NUMBERS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SeparateClasses:
    """The members of each class, and who is in which.

    Attributes
    ----------
    topics
        All topics.
    classes
        The members of each class, by its number.
    lists, number_of_list
        What the members of each class subscribe to, and the other way round.
    class_of_topic
        By the name of each topic that a class subscribes to.
    members, partitions
        How many there are in all.
    statics
        Instance ids of static members, by member id.
    directory
        All members in order, with the number of their class; None where there is one class.
    kinds
        Of what members own, where classes share a topic; None where no two do.
    """

    topics: KnownTopics
    classes: dict[int, EqualMembers]
    lists: dict[int, frozenset[str]]
    number_of_list: dict[frozenset[str], int]
    class_of_topic: dict[str, int]
    members: int
    partitions: int
    statics: dict[str, str]
    directory: MemberOrder | None
    kinds: OwnedKinds | None

    @classmethod
    def of(cls, group: GroupSpec, owned: PartitionRanges, block: int) -> SeparateClasses | None:
        """Take a group, and what its members own; None if they own in very many ways."""
        topics = KnownTopics.of(group.topics, group.partitions)
        loads, kinds = owned.loads(), None
        if len(np.unique(group.class_topics)) < len(group.class_topics):
            kinds = OwnedKinds.of(CompressedProblem.of(group).topic_class)
            amounts = kinds.sum_ranges(len(loads), owned.member, owned.topic, owned.count)
            kinds, loads = kinds.find(amounts)
        classes = dict(enumerate(EqualMembers.of_classes(group, topics, owned, loads, block)))
        if kinds is not None and _are_many(classes, kinds):
            return None
        lists = {at: one.topics.names for at, one in classes.items()}
        directory, statics = None, classes[0].statics
        if len(classes) > 1:
            keys = order_keys(group.member_ids, group.instance_ids)
            number, none = group.member_class.astype(np.int64), np.zeros(len(keys), dtype=np.int64)
            directory = MemberOrder.of(keys, number, none, block)
            statics = dict(chain.from_iterable(one.statics.items() for one in classes.values()))
        return cls(
            topics,
            classes,
            lists,
            {names: at for at, names in lists.items()},
            {name: at for at, names in lists.items() for name in names},
            group.member_count,
            int(group.partitions[group.subscribed_topics()].sum()),
            statics,
            directory,
            kinds,
        )

    @property
    def sole(self) -> int | None:
        """The number of the only class that there ever was; None: a directory knows classes."""
        return next(iter(self.classes)) if self.directory is None else None

    def instances_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the instance id of each of some members; null: it has none, or is not there."""
        if self.statics.keys().isdisjoint(member_ids):
            return pa.nulls(len(member_ids), pa.string())
        return pa.array([self.statics.get(name) for name in member_ids], pa.string())

    def classes_of(self, member_ids: Sequence[str]) -> Longs:
        """Return the number of each member's class; −1: it is not there."""
        if not len(member_ids):
            return _NO_NUMBERS
        keys = order_keys(pa.array(member_ids, pa.string()), self.instances_of(member_ids))
        order = sort_keys(keys)
        sole = self.sole
        where = self.directory if sole is None else self.classes[sole].order
        assert where is not None, "more than one class"
        places, there = where.find(keys.take(pa.array(order)))
        found = np.full(len(keys), -1, dtype=np.int64)
        at = order[there]
        found[at] = where.read(places[there])[0] if sole is None else sole
        return found

    def racks_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        """Return the rack of each of some members; null: it has none, or is not there."""
        racks: dict[str, str | None] = {}
        for held, places in self._find(member_ids):
            ids = read_keys(held.order.read_members(places)[0])[0].to_pylist()
            racks |= zip(ids, held.order.racks_at(places).tolist(), strict=True)
        return pa.array([racks.get(name) for name in member_ids], pa.string())

    def subscriptions_of(self, member_ids: Sequence[str]) -> list[frozenset[str] | None]:
        """Return the names of topics that members subscribe to; None: a member is not there."""
        return [self.lists.get(at) for at in self.classes_of(member_ids).tolist()]

    def find_unsubscribed(self, ranges: PartitionRanges) -> str | None:
        """Return a member that has a topic to which it does not subscribe; None: none has."""
        if self.directory is None:
            return None
        ids: list[str] = ranges.member_ids.to_pylist()
        names = ranges.topics.to_pylist()
        pairs = self.classes_of(ids)[ranges.member] * len(names) + ranges.topic
        distinct, first = np.unique(pairs, return_index=True)
        for pair, row in zip(distinct.tolist(), first.tolist(), strict=True):
            if names[pair % len(names)] not in self.lists.get(pair // len(names), ()):
                return ids[int(ranges.member[row])]
        return None

    def plan(
        self, found: ResolvedChanges, bounds: Bounds, assignor: UniformAssignor | StickyAssignor
    ) -> ClassPlans | FullPlan:
        """Plan the classes that changes touch; or say why it cannot be done."""
        if found.shared:
            return self._plan_shared(found, assignor)
        return self._plan_separate(found, bounds)

    def _plan_shared(
        self, found: ResolvedChanges, assignor: UniformAssignor | StickyAssignor
    ) -> ClassPlans | FullPlan:
        classes, kinds = self.classes, self.kinds
        if kinds is None:
            classes, kinds = count_kinds(classes, self.topics)
        done = SharedChanges(classes, kinds, found)
        if not done.run(self.topics, self._block):
            return FullPlan.NAMES
        plan = plan_shared(done.classes, done.kinds, found.topics, done.pool, assignor)
        if plan is None:
            return FullPlan.INEXACT
        classes, touched = plan.classes, []
        for at, of_plan in plan.touched.items():
            places = join_places(of_plan, done.touched.get(at, _NO_NUMBERS))
            if len(places):
                touched.append(classes[at].owned_at(places))
            if len(places) or at in found.each:
                classes[at] = classes[at].swept()
        if _are_many(classes, plan.kinds):
            return FullPlan.KINDS
        return self._after(found, classes, touched, plan.moved, plan.kinds)

    def _plan_separate(self, found: ResolvedChanges, bounds: Bounds) -> ClassPlans | FullPlan:
        classes, touched, moved = self.classes.copy(), [], 0
        for at, of_class in found.each.items():
            if at in found.ended:
                del classes[at]
                continue
            if at in classes:
                plan = plan_class(classes[at], of_class, bounds)
            else:
                plan = plan_new_class(of_class, bounds, self._block)
            if plan is None:
                return FullPlan.NAMES
            touched.append(plan.touched)
            moved += plan.moved
            classes[at] = plan.held.swept()
        return self._after(found, classes, touched, moved, None)

    def _after(
        self,
        found: ResolvedChanges,
        classes: dict[int, EqualMembers],
        touched: list[Owned],
        moved: int,
        kinds: OwnedKinds | None,
    ) -> ClassPlans:
        held = SeparateClasses(
            found.topics,
            classes,
            found.lists,
            found.number_of_list,
            found.class_of_topic,
            found.members,
            found.partitions,
            self._find_statics(found, classes),
            self._direct(found),
            kinds,
        )
        return ClassPlans(held, [*touched, *held.with_nothing(found)], moved)

    @property
    def _block(self) -> int:
        return next(iter(self.classes.values())).order.block

    def _find_statics(
        self, found: ResolvedChanges, classes: dict[int, EqualMembers]
    ) -> dict[str, str]:
        """Return the instance ids of static members after changes."""
        if self.directory is None and classes.keys() == self.classes.keys():
            return next(iter(classes.values())).statics
        statics, gone = self.statics, {*found.changes.left, *found.changes.renamed}
        if not gone.isdisjoint(statics):
            statics = {one: at for one, at in statics.items() if one not in gone}
        for at in found.each.keys() - found.ended:
            new = classes[at].statics
            if new and not new.keys() <= statics.keys():
                statics = statics | new
        return statics

    def with_nothing(self, found: ResolvedChanges) -> list[Owned]:
        """Return members that left and joined again, and got nothing: plans do not touch them."""
        left = found.changes.left
        joined = (members.member_ids.to_pylist() for members in found.changes.joined)
        back = set(left).intersection(chain.from_iterable(joined)) if left else set()
        if found.shared:  # who goes to another class is touched
            moved = chain.from_iterable(some.values() for some in found.moved.values())
            back.difference_update(*(members.member_ids.to_pylist() for members in moved))
        if not back:
            return []
        owned = self.owned_by(sorted(back))
        some = owned.lengths == 0
        none = join_owned([]).ranges
        return [Owned(owned.keys.filter(pa.array(some)), owned.lengths[some], none)]

    def _direct(self, found: ResolvedChanges) -> MemberOrder | None:
        """Return the directory after changes, if there is or was more than one class."""
        directory = self.directory
        if directory is None:
            if found.lists.keys() <= self.classes.keys():
                return None
            ((number, only),) = self.classes.items()
            keys = only.order.all()[0]
            none = np.zeros(len(keys), dtype=np.int64)
            directory = MemberOrder.of(keys, none + number, none, self._block)
        return self._redirect(directory, found.each)

    def _redirect(self, directory: MemberOrder, each: dict[int, ClassChanges]) -> MemberOrder:
        """Return the directory after changes."""
        gone = [one for some in each.values() for one in (*some.left, *some.renamed)]
        came: list[SubscribedMembers] = []
        numbers: list[int] = []
        for at, some in each.items():
            members = list(some.joined)
            if some.renamed:
                instances = self.instances_of([*some.renamed])
                ids = pa.array(some.renamed.values(), pa.string())
                members.append(SubscribedMembers(ids, (), instances))
            came += members
            numbers += [at] * sum(len(one.member_ids) for one in members)
        leaving = distinct_keys(order_keys(pa.array(gone, pa.string()), self.instances_of(gone)))
        keys = pa.concat_arrays(
            [_NO_KEYS, *(order_keys(one.member_ids, one.names("instance_ids")) for one in came)]
        )
        order = sort_keys(keys)
        keys = keys.take(pa.array(order))
        before = directory.find(keys)[0] if len(keys) else _NO_NUMBERS
        out = directory.find(leaving)[0] if len(leaving) else _NO_NUMBERS
        number = np.array(numbers, dtype=np.int64)[order]
        found = directory.changed(out, before, keys, number)
        needed = len(found) // found.block + 1
        few_names = len(found.names) <= _BLOCKS_MAX * len(found) + _NAMES_MIN
        if len(found.keys.blocks) <= _BLOCKS_MAX * needed and few_names:
            return found
        all_keys, all_numbers = found.all()
        return MemberOrder.of(all_keys, all_numbers, np.zeros_like(all_numbers), found.block)

    def all_owned(self) -> Owned:
        """Return all members, in order, and what they own."""
        parts = [self.classes[at].all_owned() for at in sorted(self.classes)]
        if self.directory is None:
            return parts[0]
        return put_in_order(parts, np.argsort(self.directory.all()[1], kind="stable"))

    def owned_by(self, member_ids: Sequence[str]) -> Owned:
        """Return those of some members that are there, and what they own."""
        return join_owned([held.owned_at(places) for held, places in self._find(member_ids)])

    def _find(self, member_ids: Sequence[str]) -> Iterator[tuple[EqualMembers, Longs]]:
        """Yield each class of some members that are there, and their places, ascending."""
        ids = np.array(sorted(set(member_ids)), dtype=np.object_)
        at = self.classes_of(ids.tolist())
        for number in np.unique(at[at >= 0]).tolist():
            some = ids[at == number].tolist()
            held = self.classes[number]
            keys = order_keys(pa.array(some, pa.string()), self.instances_of(some))
            yield held, held.order.find(distinct_keys(keys))[0]

    def ranges_of(self, owned: Owned, verdict: Verdict) -> PartitionRanges:
        """Return members with what they own as an assignment."""
        member = np.repeat(np.arange(len(owned.lengths), dtype=np.int32), owned.lengths)
        ids = read_keys(owned.keys)[0]
        topic, first, count = owned.ranges
        place = self.topics.places[topic]
        return PartitionRanges(ids, self.topics.names, member, place, first, count, verdict)

    def group(self) -> GroupSpec:
        """Return the group, with what its members own."""
        owned = self.all_owned()
        return self._group_of(owned, self.ranges_of(owned, Verdict()))

    def group_and_owned(self) -> tuple[GroupSpec, PartitionRanges]:
        """Return the group as if its members owned nothing, and what they own."""
        owned = self.all_owned()
        ranges = self.ranges_of(owned, Verdict())
        none = ranges.member[:0]
        nothing = replace(ranges, member=none, topic=none, first=none, count=none)
        return self._group_of(owned, nothing), ranges

    def _all_racks(self) -> Texts:
        racks: Texts = np.concatenate(
            [self.classes[at].order.all_racks() for at in sorted(self.classes)]
        )
        if self.directory is not None:
            unordered, racks = racks, np.empty_like(racks)
            racks[np.argsort(self.directory.all()[1], kind="stable")] = unordered
        return racks

    def _group_of(self, owned: Owned, ranges: PartitionRanges) -> GroupSpec:
        ids, instances = read_keys(owned.keys)
        number, numbers = np.zeros(len(ids), dtype=np.int64), sorted(self.classes)
        if self.directory is not None:
            number = np.searchsorted(numbers, self.directory.all()[1])
        lists = [self.topics.places[self.classes[at].topics.numbers] for at in numbers]
        return GroupSpec.from_columns(
            member_id=ids,
            instance_id=instances,
            rack=pa.array(self._all_racks(), pa.string()),
            subscription=number,
            list_offsets=offsets_of(np.array([len(one) for one in lists], dtype=np.int64)),
            list_topics=np.concatenate(lists),
            topics=self.topics.names,
            partitions=self.topics.partitions[self.topics.numbers],
            owner=ids.take(pa.array(ranges.member)),
            owned_topic=ranges.topic,
            owned_first=ranges.first.astype(np.int64),
            owned_count=ranges.count.astype(np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClassPlans:
    """The next plans of the classes that changed.

    Attributes
    ----------
    held
        The group after them.
    touched
        Members whose ranges they changed, by class.
    moved
        Partitions taken from members that stay.
    """

    held: SeparateClasses
    touched: list[Owned]
    moved: int


def _are_many(classes: dict[int, EqualMembers], kinds: OwnedKinds) -> bool:
    """Tell whether to count members by kind is too much, or most kinds are no longer there."""
    orders = [one.order for one in classes.values()]
    used = sum(len(order.counts.loads) for order in orders)
    cells = sum(order.counts.size for order in orders) + len(kinds.amounts.topic)
    return cells > _KINDS_MAX or len(kinds) > _UNUSED_MAX * used + _UNUSED_MIN
