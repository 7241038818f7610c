"""A group whose classes share topics, after changes and before its next plan.

See docs/design/algorithm.md#classes-that-share-topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, offsets_of
from assignors.compressed_problem import CompressedProblem
from assignors.incremental.class_changes import change_members, start_class
from assignors.incremental.equal_members import EqualMembers, Owned, join_owned, order_keys
from assignors.incremental.known_topics import KnownTopics
from assignors.incremental.next_plan import clip_ranges, join_places
from assignors.incremental.owned_kinds import OwnedKinds
from assignors.incremental.resolve_changes import ResolvedChanges
from assignors.plan import ABOVE_ALL

_NONE = np.zeros(0, dtype=np.int64)


def list_problem(
    classes: list[EqualMembers], topics: KnownTopics
) -> tuple[CompressedProblem, Longs]:
    """Return the compressed problem of classes in their order, and partitions by name."""
    lists = [topics.places[one.topics.numbers].astype(np.int64) for one in classes]
    partitions = topics.partitions[topics.numbers]
    problem = CompressedProblem.of_classes(
        np.array([len(one.order) for one in classes], dtype=np.int64),
        offsets_of(np.array([len(one) for one in lists], dtype=np.int64)),
        np.concatenate(lists),
        partitions,
    )
    return problem, partitions


def count_kinds(
    held: Mapping[int, EqualMembers], topics: KnownTopics
) -> tuple[dict[int, EqualMembers], OwnedKinds]:
    """Return classes with kinds of what members own instead of loads: all members are looked at."""
    kinds = OwnedKinds.of(_classify(held, topics))
    places, versions = zip(*(one.order.all_places() for one in held.values()), strict=True)
    owned = [one.ranges_of(some) for one, some in zip(held.values(), versions, strict=True)]
    lengths = np.concatenate([some for some, _ in owned])
    topic, _, count = map(np.concatenate, zip(*(ranges for _, ranges in owned), strict=True))
    who = np.repeat(np.arange(len(lengths)), lengths)
    kinds, numbers = kinds.find(kinds.sum_ranges(len(lengths), who, topic, count))
    found, start = {}, 0
    for (at, one), some in zip(held.items(), places, strict=True):
        kind = numbers[start : start + len(some)]
        found[at], start = replace(one, order=one.order.put(some, kind)), start + len(some)
    return found, kinds


class SharedChanges:
    """Carries out changes, step by step, before the next plan.

    Attributes
    ----------
    classes
        The members of each class, and what they still own.
    kinds
        Of what they own.
    pool
        Topic, first and count of what no one owns.
    touched
        By class: places, ascending, of members that came from another, or own less than before.
    """

    def __init__(
        self, held: Mapping[int, EqualMembers], kinds: OwnedKinds, found: ResolvedChanges
    ) -> None:
        self.classes, self.kinds = {**held}, kinds
        self.pool: list[list[Ints]] = [[_NONE, _NONE, _NONE]]
        self.touched: dict[int, Longs] = {}
        self._held, self._found = held, found
        self._moving: dict[int, list[Owned]] = {}

    def run(self, before: KnownTopics, block: int) -> bool:
        """Carry out all; False if they name members that are not as they say.

        Parameters
        ----------
        before
            The topics before the changes.
        """
        if not self._change_members(block):
            return False
        for at, parts in self._moving.items():
            self._move_members(at, join_owned(parts))
        relisted = {at for at, some in self._found.each.items() if some.topics is not None}
        for at in sorted(relisted & self._held.keys() & self.classes.keys()):
            self._clip_members(at, self._held[at])
        had = before.partitions * (self.kinds.covers(len(before.partitions)))
        cut = None
        if relisted or self._found.ended:
            self.kinds, cut = self.kinds.recut(_classify(self.classes, self._found.topics))
            self._change_pool(had)
        self._count_again(cut)
        return True

    def _change_members(self, block: int) -> bool:
        """Let members leave and join; who comes from another class owns nothing yet."""
        for at, some in self._found.each.items():
            if at in self._found.ended:
                self._part(self.classes.pop(at).all_owned(), at)
            elif at in self.classes:
                done = change_members(self.classes[at], some)
                if done is None:
                    return False
                self.classes[at] = done[0]
                self._part(done[1], at)
            else:
                new = start_class(some, block)
                if new is None:
                    return False
                assert some.topics is not None, "what they subscribe to"
                self.classes[at] = replace(new, topics=some.topics)
        return True

    def _part(self, gone: Owned, from_: int) -> None:
        """Put what those who left owned into the pool; who goes to another class takes it along."""
        to = np.full(len(gone.lengths), -1, dtype=np.int64)
        moved = self._found.moved.get(from_, {})
        for number, members in moved.items():
            keys = order_keys(members.member_ids, members.names("instance_ids"))
            to[np.asarray(pc.index_in(keys, value_set=gone.keys))] = number
        of_ranges = np.repeat(to, gone.lengths)
        self.pool.append([column[of_ranges < 0] for column in gone.ranges])
        for number in moved:
            mine, rows = to == number, of_ranges == number
            ranges = [column[rows] for column in gone.ranges]
            part = Owned(gone.keys.filter(pa.array(mine)), gone.lengths[mine], ranges)
            self._moving.setdefault(number, []).append(part)

    def _move_members(self, at: int, owned: Owned) -> None:
        """Let members own in their new class what they still subscribe to."""
        held = self.classes[at]
        sizes = held.topics.sizes(len(self._found.topics.partitions))
        self._clip(at, held.order.find(owned.keys)[0], owned.lengths, owned.ranges, sizes)

    def _clip_members(self, at: int, had: EqualMembers) -> None:
        """Take from members of a class what its topics no longer have."""
        held, size = self.classes[at], len(self._found.topics.partitions)
        before, after = had.topics.sizes(size), held.topics.sizes(size)
        if not (after < before).any():
            return
        ends = np.where(after < before, after, ABOVE_ALL)
        places = held.holders_beyond(held.order, ends)
        if len(places):
            lengths, ranges = held.ranges_of(held.order.numbers_at(places))
            self._clip(at, places, lengths, ranges, ends)

    def _clip(
        self, at: int, places: Longs, lengths: Longs, ranges: list[Ints], ends: Longs
    ) -> None:
        """Write what members own up to the ends of topics; the rest goes to the pool."""
        held = self.classes[at]
        topic, first, count = clip_ranges(ranges, ends)
        rest = ranges[2] - count
        self.pool.append([topic, first + count, rest])
        some = np.flatnonzero(count)
        lengths = np.bincount(
            np.repeat(np.arange(len(places)), lengths)[some], minlength=len(places)
        )
        order = held.order.put(places, held.order.loads_at(places), held.next_versions(lengths))
        columns = [column[some].astype(np.int32) for column in (topic, first, count)]
        self.classes[at] = held.with_ranges(order, lengths, columns)
        self.touched[at] = join_places(self.touched.get(at, _NONE), places)

    def _change_pool(self, had: Longs) -> None:
        """Take out of the pool what topics no longer have; put into it what they have more."""
        now = self._found.topics.partitions
        now = now * self.kinds.covers(len(now))
        had = np.append(had, np.zeros(len(now) - len(had), dtype=np.int64))
        self.pool = [clip_ranges(part, now) for part in self.pool]
        grown = np.flatnonzero(now > had)
        self.pool.append([grown, had[grown], (now - had)[grown]])

    def _count_again(self, cut: Bools | None) -> None:
        """Find the kinds of members that own otherwise, or of topics that are cut off others."""
        ends = None if cut is None or not cut.any() else np.where(cut, 0, ABOVE_ALL)
        for at, held in self.classes.items():
            places = self.touched.get(at, _NONE)
            if ends is not None and cut is not None and cut[held.topics.numbers].any():
                places = join_places(places, held.holders_beyond(held.order, ends))
            if not len(places):
                continue
            lengths, (topic, _, count) = held.ranges_of(held.order.numbers_at(places))
            who = np.repeat(np.arange(len(places)), lengths)
            owned = self.kinds.sum_ranges(len(places), who, topic, count)
            self.kinds, kind = self.kinds.find(owned)
            self.classes[at] = replace(held, order=held.order.put(places, kind))


def _classify(held: Mapping[int, EqualMembers], topics: KnownTopics) -> Longs:
    """Return the topic class of each topic, by its number."""
    topic_class = np.full(len(topics.partitions), -1, dtype=np.int64)
    topic_class[topics.numbers] = list_problem([*held.values()], topics)[0].topic_class
    return topic_class
