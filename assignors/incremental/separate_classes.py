"""A planned group whose classes of subscription share no topic: each is planned by itself.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs, expand_runs, offsets_of
from assignors.group_spec import GroupSpec
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.class_changes import ClassChanges, plan_class
from assignors.incremental.equal_members import EqualMembers, Owned, order_keys, read_keys
from assignors.incremental.member_order import MemberOrder, Texts
from assignors.incremental.next_plan import Bounds
from assignors.partition_ranges import PartitionRanges, Verdict

_BLOCKS_MAX = 3
"""Blocks of the directory by those needed, before it is written again."""
_NO_NUMBERS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SeparateClasses:
    """The members of each class, and who is in which.

    Attributes
    ----------
    topics, partitions
        Names in order, and the number of partitions of each.
    classes
        The members of each class.
    class_of_topic
        By the name of each topic that a class subscribes to.
    statics
        Instance ids of static members, by member id.
    directory
        All members in order, with the number of their class; None where there is one class.
    """

    topics: pa.StringArray
    partitions: Longs
    classes: tuple[EqualMembers, ...]
    class_of_topic: dict[str, int]
    statics: dict[str, str]
    directory: MemberOrder | None

    @classmethod
    def of(cls, group: GroupSpec, owned: PartitionRanges, block: int) -> SeparateClasses:
        """Take a group, and what its members own."""
        classes = EqualMembers.of_classes(group, owned, block)
        directory, statics = None, classes[0].statics
        if len(classes) > 1:
            keys = np.empty(group.member_count, dtype=np.object_)
            keys[group.class_order] = np.concatenate([one.order.all()[0] for one in classes])
            number, none = group.member_class.astype(np.int64), np.zeros(len(keys), dtype=np.int64)
            directory = MemberOrder.of(keys, number, none, block)
            statics = dict(chain.from_iterable(one.statics.items() for one in classes))
        return cls(
            group.topics,
            group.partitions,
            classes,
            {name: at for at, one in enumerate(classes) for name in one.subscribed_names},
            statics,
            directory,
        )

    def class_of(self, subscribed: Iterable[str]) -> int | None:
        """Return the class with a subscription; None if none has it."""
        at = self.class_of_topic.get(next(iter(subscribed), ""))
        return None if at is None or self.classes[at].subscribed_names != set(subscribed) else at

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
        order = np.argsort(keys)
        where = self.classes[0].order if self.directory is None else self.directory
        places, there = where.find(keys[order])
        found = np.full(len(keys), -1, dtype=np.int64)
        at = order[there]
        found[at] = 0 if self.directory is None else where.read(places[there])[0]
        return found

    def as_moves(self, changes: GroupChanges) -> GroupChanges:
        """Return changes in which who changes to another class leaves the one and joins the other.

        They stay as they are where none has the subscription, or a member leaves as well.
        """
        left, joined, gone = [*changes.left], [*changes.joined], set(changes.left)
        for members in changes.resubscribed:
            number = self.class_of(members.subscribed)
            ids = members.member_ids.to_pylist()
            if number is None or not gone.isdisjoint(ids):
                return changes
            at = self.classes_of(ids).tolist()
            going = [one for one, had in zip(ids, at, strict=True) if had != number]
            if going:
                columns = (self.instances_of(going), self._racks_of(going))
                ids = pa.array(going, pa.string())
                joined.append(SubscribedMembers(ids, members.subscribed, *columns))
            left += going
        return replace(changes, left=left, joined=joined, resubscribed=())

    def _racks_of(self, member_ids: Sequence[str]) -> pa.StringArray:
        owned = self.owned_by(member_ids)
        ids = read_keys(owned.keys, static=bool(self.statics))[0].to_pylist()
        racks = dict(zip(ids, owned.racks.tolist(), strict=True))
        return pa.array([racks.get(name) for name in member_ids], pa.string())

    def subscriptions_of(self, member_ids: Sequence[str]) -> list[frozenset[str] | None]:
        """Return the names of topics that members subscribe to; None: a member is not there."""
        names = [*(one.subscribed_names for one in self.classes), None]
        return [names[at] for at in self.classes_of(member_ids).tolist()]

    def find_unsubscribed(self, ranges: PartitionRanges) -> str | None:
        """Return a member that has a topic of another class; None if there is none."""
        if self.directory is None:
            return None
        ids = ranges.member_ids.to_pylist()
        by_topic = [self.class_of_topic.get(name, -1) for name in ranges.topics.to_pylist()]
        wrong = self.classes_of(ids)[ranges.member] != np.array(by_topic, np.int64)[ranges.topic]
        return ids[int(ranges.member[wrong][0])] if wrong.any() else None

    def is_emptied(self, left: Sequence[str]) -> bool:
        """Tell whether a class has no members that stay."""
        if self.directory is None:
            return len(left) >= len(self.classes[0].order)
        at, gone = np.unique(self.classes_of(left), return_counts=True)
        pairs = zip(at.tolist(), gone.tolist(), strict=True)
        return any(
            number >= 0 and len(self.classes[number].order) <= some for number, some in pairs
        )

    def plan(self, changes: GroupChanges, bounds: Bounds) -> ClassPlans | None:
        """Plan the classes that changes touch; None if a change names a member that is not so."""
        each = self._split(changes)
        if each is None:
            return None
        classes, statics = list(self.classes), self.statics
        touched: list[Owned] = []
        moved = 0
        for at, of_class in each.items():
            plan = plan_class(classes[at], of_class, bounds)
            if plan is None:
                return None
            touched.append(plan.held.owned_at(plan.touched))
            moved += plan.moved
            classes[at] = plan.held.swept()
        directory = self.directory
        if directory is None:
            statics = classes[0].statics
        else:
            directory = self._redirect(directory, each)
            gone = {*changes.left, *changes.renamed}
            if not gone.isdisjoint(statics):
                statics = {one: at for one, at in statics.items() if one not in gone}
            for at in each:
                new = classes[at].statics
                if new is not self.classes[at].statics and not new.keys() <= statics.keys():
                    statics = statics | new
        partitions = self.partitions
        if changes.topics:
            partitions = partitions.copy()
            partitions[self._find_topics(changes.topics)] = list(changes.topics.values())
        held = replace(
            self, partitions=partitions, classes=tuple(classes), statics=statics,
            directory=directory,
        )  # fmt: skip
        touched += held.with_nothing(changes)
        return ClassPlans(held, touched, moved)

    def with_nothing(self, changes: GroupChanges) -> list[Owned]:
        """Return members that left and joined again, and got nothing: plans do not touch them."""
        joined = (members.member_ids.to_pylist() for members in changes.joined)
        back = set(changes.left).intersection(chain.from_iterable(joined)) if changes.left else ()
        if not back:
            return []
        owned = self.owned_by(sorted(back))
        some = owned.lengths == 0
        none = join_owned([]).ranges
        return [Owned(owned.keys[some], owned.lengths[some], none, owned.racks[some])]

    def _find_topics(self, names: Iterable[str]) -> list[int]:
        """Return the numbers of topics that are there."""
        return [self.topics.index(name).as_py() for name in names]

    def _split(self, changes: GroupChanges) -> dict[int, ClassChanges] | None:
        """Return what changed in each class that changes; None where members are not as named.

        Who subscribes to another class leaves the one and joins the other, with nothing.
        """
        each: defaultdict[int, ClassChanges] = defaultdict(ClassChanges)
        if self.directory is None:
            each[0].left, each[0].renamed = list(changes.left), dict(changes.renamed)
        else:
            for name, at in zip(changes.renamed, self.classes_of([*changes.renamed]), strict=True):
                each[int(at)].renamed[name] = changes.renamed[name]
            for name, at in zip(changes.left, self.classes_of(changes.left), strict=True):
                each[int(at)].left.append(name)
        for members in changes.joined:
            number = self.class_of(members.subscribed)
            assert number is not None, "an obstacle"
            each[number].joined.append(members)
        for name, count in changes.topics.items():
            number = self.class_of_topic.get(name)
            if number is not None:
                each[number].partitions[self._find_topics([name])[0]] = count
        if -1 in each or not self._are_new(changes):
            return None
        return each

    def _are_new(self, changes: GroupChanges) -> bool:
        """Tell whether who comes is not there yet, in any class, or leaves."""
        if self.directory is None:
            return True  # its class looks
        joined = [one for some in changes.joined for one in some.member_ids.to_pylist()]
        coming = [*joined, *changes.renamed.values()]
        if len(set(coming)) < len(coming):
            return False
        at = self.classes_of(coming)
        left = set(changes.left)
        return all(one in left for one, there in zip(coming, at >= 0, strict=True) if there)

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
        leaving = np.sort(order_keys(pa.array(gone, pa.string()), self.instances_of(gone)))
        keys = np.concatenate(
            [order_keys(one.member_ids, one.names("instance_ids")) for one in came]
            or [np.zeros(0, dtype=np.object_)]
        )
        order = np.argsort(keys)
        before = directory.find(keys[order])[0] if len(keys) else _NO_NUMBERS
        out = directory.find(leaving)[0] if len(leaving) else _NO_NUMBERS
        number = np.array(numbers, dtype=np.int64)[order]
        found = directory.changed(out, before, keys[order], number)
        needed = len(found) // found.block + 1
        if len(found.keys) <= _BLOCKS_MAX * needed:
            return found
        all_keys, all_numbers = found.all()
        return MemberOrder.of(all_keys, all_numbers, np.zeros_like(all_numbers), found.block)

    def all_owned(self) -> Owned:
        """Return all members, in order, and what they own."""
        if self.directory is None:
            return self.classes[0].all_owned()
        number = self.directory.all()[1]
        return _put_in_order(
            [one.all_owned() for one in self.classes], np.argsort(number, kind="stable")
        )

    def owned_by(self, member_ids: Sequence[str]) -> Owned:
        """Return those of some members that are there, and what they own."""
        ids = np.array(sorted(set(member_ids)), dtype=np.object_)
        at = self.classes_of(ids.tolist())
        found = []
        for number in np.unique(at[at >= 0]).tolist():
            some = ids[at == number].tolist()
            held = self.classes[number]
            keys = order_keys(pa.array(some, pa.string()), self.instances_of(some))
            found.append(held.owned_at(held.order.find(np.sort(keys))[0]))
        return join_owned(found)

    def ranges_of(self, owned: Owned, verdict: Verdict) -> PartitionRanges:
        """Return members with what they own as an assignment."""
        member = np.repeat(np.arange(len(owned.lengths), dtype=np.int32), owned.lengths)
        ids = read_keys(owned.keys, static=bool(self.statics))[0]
        topic, first, count = owned.ranges
        return PartitionRanges(ids, self.topics, member, topic, first, count, verdict)

    def group(self) -> GroupSpec:
        """Return the group, with what its members own."""
        owned = self.all_owned()
        ids, instances = read_keys(owned.keys, static=bool(self.statics))
        ranges = self.ranges_of(owned, Verdict())
        number = np.zeros(len(ids), dtype=np.int64)
        if self.directory is not None:
            number = self.directory.all()[1]
        lists = [one.subscribed for one in self.classes]
        return GroupSpec.from_columns(
            member_id=ids,
            instance_id=instances,
            rack=pa.array(owned.racks, pa.string()),
            subscription=number,
            list_offsets=offsets_of(np.array([len(one) for one in lists], dtype=np.int64)),
            list_topics=np.concatenate(lists),
            topics=self.topics,
            partitions=self.partitions,
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


def join_owned(parts: list[Owned]) -> Owned:
    """Return the members of all parts in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0, dtype=np.object_)
        return Owned(none, _NO_NUMBERS, [np.zeros(0, dtype=np.int32)] * 3, none)
    order = np.argsort(np.concatenate([part.keys for part in parts]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return _put_in_order(parts, place)


def _put_in_order(parts: list[Owned], place: Longs) -> Owned:
    """Return the members of all parts, each at its place."""
    order = np.empty(len(place), dtype=np.int64)
    order[place] = np.arange(len(place))
    lengths = np.concatenate([part.lengths for part in parts])
    rows = expand_runs(offsets_of(lengths)[:-1][order], lengths[order])
    ranges = [
        np.concatenate(column)[rows]
        for column in zip(*(part.ranges for part in parts), strict=True)
    ]
    keys = np.concatenate([part.keys for part in parts])[order]
    racks: Texts = np.concatenate([part.racks for part in parts])[order]
    return Owned(keys, lengths[order], ranges, racks)
