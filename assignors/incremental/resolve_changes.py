"""What changes mean for each class of a planned group: who leaves, who joins, which topics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from assignors.arrays import PARTITIONS_MAX
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.class_changes import ClassChanges
from assignors.incremental.full_plan import FullPlan
from assignors.incremental.known_topics import KnownTopics

if TYPE_CHECKING:
    from assignors.incremental.separate_classes import SeparateClasses

PAIRS_MAX = 1 << 21
"""Subscriptions by topics: each has columns of all topics, a few dozen bytes each."""
Names = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedChanges:
    """Changes by class, and what is subscribed to after them.

    Attributes
    ----------
    changes
        The same changes, in which who changes to another class leaves the one and joins the other.
    topics
        All topics after the changes.
    each
        What changes in each class that does. New classes have numbers that no class had.
    ended
        Classes that have no members any longer.
    lists
        What the members of each class subscribe to after the changes.
    number_of_list
        The class of each of these lists.
    class_of_topic
        By the name of each topic that a class subscribes to.
    members, partitions
        How many there are in all.
    shared
        Whether classes share a topic, before or after them.
    moved
        By class, and by the class to which they change: members that keep what both have, if they
        are `shared`. They are among those who leave the one, and join the other.
    """

    changes: GroupChanges
    topics: KnownTopics
    each: dict[int, ClassChanges]
    ended: set[int]
    lists: dict[int, Names]
    number_of_list: dict[Names, int]
    class_of_topic: dict[str, int]
    members: int
    partitions: int
    shared: bool
    moved: dict[int, dict[int, SubscribedMembers]]


def resolve_changes(held: SeparateClasses, changes: GroupChanges) -> ResolvedChanges | FullPlan:
    """Return what changes mean for each class, or why the plan after them is made from nothing."""
    topics = held.topics
    if changes.topics or changes.removed_topics:
        known = topics.changed(changes.topics, changes.removed_topics)
        if known is None:
            return FullPlan.TOPICS
        topics = known
    if changes.renamed and _may_clash(held, changes):
        return FullPlan.NAMES
    found = _Resolution(held, changes.shortened(), topics)
    for step in (found.find_lists, found.move_members, found.split, found.find_topics):
        why = step()
        if why is not None:
            return why
    return found.finish()


def _may_clash(held: SeparateClasses, changes: GroupChanges) -> bool:
    """Tell whether a new id is there already or given twice, or something else names an old one."""
    there = held.classes_of([*changes.renamed.values()]) >= 0
    named = {*changes.left, *changes.renamed.values()}
    for members in changes.resubscribed:
        named.update(members.member_ids.to_pylist())
    twice = len(set(changes.renamed.values())) < len(changes.renamed)
    return twice or bool(there.any()) or not changes.renamed.keys().isdisjoint(named)


class _Resolution:
    """What is known so far; each step returns why the plan is made from nothing, or None."""

    def __init__(self, held: SeparateClasses, changes: GroupChanges, topics: KnownTopics) -> None:
        self.held, self.changes, self.topics = held, changes, topics
        self.each: defaultdict[int, ClassChanges] = defaultdict(ClassChanges)
        self.ended: set[int] = set()
        self.lists, self.numbers = held.lists, held.number_of_list
        self.class_of_topic = held.class_of_topic
        self.partitions = held.partitions
        self.shared = held.kinds is not None
        self.moved: list[tuple[int, Names, SubscribedMembers]] = []

    def find_lists(self) -> FullPlan | None:
        """Find what classes subscribe to after topics went and lists changed."""
        gone: AbstractSet[str] = frozenset()
        if self.topics is not self.held.topics:
            gone = self.held.topics.number_of.keys() - self.topics.number_of.keys()
        if not gone and not self.changes.lists:
            return None
        to = {frozenset(before): frozenset(after) for before, after in self.changes.lists}
        self._relist({at: to.get(names, names - gone) for at, names in self.lists.items()})
        if len(to) < len(self.changes.lists) or not self._know(*self.lists.values()):
            return FullPlan.NAMES
        return None if len(self.numbers) == len(self.lists) else FullPlan.SUBSCRIPTIONS

    def _know(self, *lists: Names) -> bool:
        return all(names <= self.topics.number_of.keys() for names in lists)

    def _relist(self, lists: dict[int, Names]) -> None:
        self.lists, self.numbers = lists, {names: at for at, names in lists.items()}

    def move_members(self) -> FullPlan | None:
        """Let those who subscribe to other topics leave one class, and join another.

        If all of a class do, the class subscribes to other topics.
        """
        if not self.changes.resubscribed:
            return None
        going = self._find_going()
        if going is None:
            return FullPlan.NAMES
        self._relist_whole(going)
        had = self.held.lists
        self.shared |= any(not had[number].isdisjoint(to) for number, to in going)
        left, joined = [*self.changes.left], [*self.changes.joined]
        for (number, to), names in going.items():
            left += names
            columns = (self.held.instances_of(names), self.held.racks_of(names))
            members = SubscribedMembers(pa.array(names, pa.string()), tuple(to), *columns)
            joined.append(members)
            self.moved.append((number, to, members))
        self.changes = replace(self.changes, left=left, joined=joined, resubscribed=())
        return None

    def _find_going(self) -> dict[tuple[int, Names], list[str]] | None:
        """Return who goes from a class to what subscription; None if one cannot, or leaves."""
        going: dict[tuple[int, Names], list[str]] = {}
        seen = set(self.changes.left)
        for members in self.changes.resubscribed:
            ids = members.member_ids.to_pylist()
            if not ids:
                continue
            to, classes = frozenset(members.subscribed), self.held.classes_of(ids).tolist()
            size = len(seen)
            seen.update(ids)
            if -1 in classes or not self._know(to) or len(seen) < size + len(ids):
                return None
            for name, number in zip(ids, classes, strict=True):
                if self.lists[number] != to:
                    going.setdefault((number, to), []).append(name)
        return going

    def _relist_whole(self, going: dict[tuple[int, Names], list[str]]) -> None:
        """Take out those who are all of a class: it subscribes to other topics."""
        left: Counter[int] | None = None
        for (number, to), names in [*going.items()]:
            size = len(self.held.classes[number].order)
            if to in self.numbers or len(names) + len(self.changes.left) < size:
                continue
            if left is None:
                left = Counter(self.held.classes_of([*set(self.changes.left)]).tolist())
            if len(names) + left[number] == size:
                del going[number, to]
                self._relist(self.lists | {number: to})

    def split(self) -> FullPlan | None:
        """Find the class of each change; those whose subscription no class has get a new one."""
        held, changes, each = self.held, self.changes, self.each
        sole = held.sole
        if sole is not None and len(changes.left) < held.members:
            each[sole].left, each[sole].renamed = list(changes.left), dict(changes.renamed)
        else:
            for name, at in zip(changes.renamed, held.classes_of([*changes.renamed]), strict=True):
                each[int(at)].renamed[name] = changes.renamed[name]
            for name, at in zip(changes.left, held.classes_of(changes.left), strict=True):
                each[int(at)].left.append(name)
        if -1 in each:
            return FullPlan.NAMES
        for at, some in each.items():
            if len(some.left) >= len(held.classes[at].order) <= len(set(some.left)):
                self.ended.add(at)
        if self.ended:
            self._relist({at: one for at, one in self.lists.items() if at not in self.ended})
        return self._join()

    def _join(self) -> FullPlan | None:
        new = max(self.held.classes) + 1
        for members in self.changes.joined:
            if not len(members.member_ids):
                continue
            names = self._names_of(members.subscribed)
            if names not in self.numbers:
                if not self._know(names):
                    return FullPlan.NAMES
                self._relist(self.lists | {new: names})
                new += 1
            self.each[self.numbers[names]].joined.append(members)
        one = len(self.held.classes) == 1 and self.lists.keys() <= self.held.classes.keys()
        return None if one or self._are_new() else FullPlan.NAMES  # one class looks itself

    def _names_of(self, subscribed: Sequence[str]) -> Names:
        """Return topics as a set: the only class's, whose hash is known, if it has all in order."""
        sole, known = self.held.sole, self.held.topics.number_of
        if sole is None or not len(subscribed) == len(self.held.lists[sole]) == len(known):
            return frozenset(subscribed)
        return self.held.lists[sole] if [*subscribed] == [*known] else frozenset(subscribed)

    def _are_new(self) -> bool:
        """Tell whether who comes is not there yet, in any class, or leaves."""
        joined = [one for some in self.changes.joined for one in some.member_ids.to_pylist()]
        coming = [*joined, *self.changes.renamed.values()]
        if len(set(coming)) < len(coming):
            return False
        there = self.held.classes_of(coming) >= 0
        left = set(self.changes.left)
        return all(one in left for one, is_there in zip(coming, there, strict=True) if is_there)

    def find_topics(self) -> FullPlan | None:
        """Find the topics of classes for which they changed, and whether two have one in common."""
        if self.shared:
            return self._find_shared_topics()
        had, changed = self.held.lists, set()
        if self.lists is not had:
            changed = {at for at, names in self.lists.items() if had.get(at) != names}
        if changed or self.ended:
            by_name = {name: at for at, names in self.lists.items() for name in names}
            if len(by_name) < sum(map(len, self.lists.values())):
                return self._find_shared_topics()
            if len(self.lists) * len(self.topics.partitions) > PAIRS_MAX:
                return FullPlan.CLASSES
            self.class_of_topic = by_name
        changed.update(
            self.class_of_topic[name] for name in self.changes.topics if name in self.class_of_topic
        )
        for at in changed:
            self.each[at].topics = topics = self.topics.subscribe(self.lists[at])
            self.partitions += topics.line.length
        for at in {*changed, *self.ended} & self.held.classes.keys():
            self.partitions -= self.held.classes[at].topics.line.length
        if not self.lists:
            return FullPlan.NOTHING
        return FullPlan.TOPICS if self.partitions > PARTITIONS_MAX else None

    def _find_shared_topics(self) -> FullPlan | None:
        """Find the topics of classes for which they changed, where classes share them."""
        self.shared = True
        had, sizes = self.held.lists, self.changes.topics
        changed = [
            at
            for at, names in self.lists.items()
            if had.get(at) != names or not names.isdisjoint(sizes)
        ]
        if not changed and not self.ended:
            return None
        if not self.lists:
            return FullPlan.NOTHING
        if len(self.lists) * len(self.topics.partitions) > PAIRS_MAX:
            return FullPlan.CLASSES
        for at in changed:
            self.each[at].topics = self.topics.subscribe(self.lists[at])
        subscribed = frozenset[str]().union(*self.lists.values())
        numbers = np.fromiter(map(self.topics.number_of.__getitem__, subscribed), np.int64)
        self.partitions = int(self.topics.partitions[numbers].sum())
        return FullPlan.TOPICS if self.partitions > PARTITIONS_MAX else None

    def finish(self) -> ResolvedChanges:
        """Return what was found."""
        joined = sum(len(some.member_ids) for some in self.changes.joined)
        moved: dict[int, dict[int, SubscribedMembers]] = {}
        for number, to, members in self.moved:
            moved.setdefault(number, {})[self.numbers[to]] = members
        return ResolvedChanges(
            self.changes,
            self.topics,
            dict(self.each),
            self.ended,
            self.lists,
            self.numbers,
            self.class_of_topic,
            self.held.members - len(self.changes.left) + joined,
            self.partitions,
            self.shared,
            moved,
        )
