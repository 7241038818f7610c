"""Groups to measure, built by columns: no Python object a member, so that a million cost a second.

A member is a number, its name follows from it and sorts like it. That makes joining, leaving and
carrying an assignment over to the next group epoch a matter of integer arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec, PartitionRanges
from assignors.arrays import LINE_BITS, Ints, Longs, offsets_of, rank_in_runs
from assignors.loads.load_spec import Floats
from assignors.loads.parse_loads import RawLoads
from assignors.partition_ranges import order_canonically, overlay


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics with their partitions, and the subscriptions that members have."""

    partitions: Longs
    subscriptions: Sequence[Ints]


@dataclass(frozen=True, slots=True)
class Members:
    """Members by rising number, and the subscription of each."""

    number: Longs
    subscription: Longs

    def __len__(self) -> int:
        return len(self.number)

    def without(self, places: Longs) -> Members:
        """Return who is left when the members at these places leave."""
        return Members(np.delete(self.number, places), np.delete(self.subscription, places))

    def churned(self, leave: int, join: int, rng: np.random.Generator) -> Members:
        """Let random members leave, and new ones with subscriptions of members there are join."""
        left = self.without(rng.choice(len(self), leave, replace=False))
        joined = self.number[-1] + 1 + np.arange(join)
        like = rng.choice(self.subscription, join)
        return Members(
            np.concatenate([left.number, joined]), np.concatenate([left.subscription, like])
        )


@dataclass(frozen=True, slots=True)
class Past:
    """A target assignment, and the members it was made for."""

    members: Members
    target: PartitionRanges


def spread_over(members: int, subscriptions: int) -> Members:
    """Return members in equal blocks, one a subscription."""
    number = np.arange(members, dtype=np.int64)
    return Members(number, number * subscriptions // max(members, 1))


def equal(partitions: int, topics: int) -> Topics:
    """Every member subscribes to everything."""
    return Topics(_sizes(partitions, topics), [np.arange(topics)])


def fifths(partitions: int, topics: int) -> Topics:
    """Five disjoint fifths of the topics, each with a fifth of the members."""
    return apart(partitions, topics, 5)


def apart(partitions: int, topics: int, subscriptions: int) -> Topics:
    """Subscriptions to as many disjoint parts of the topics."""
    return Topics(_sizes(partitions, topics), np.array_split(np.arange(topics), subscriptions))


def halves(partitions: int, topics: int) -> Topics:
    """One half of the members subscribes to all topics, the other to the first half of them."""
    every = np.arange(topics)
    return Topics(_sizes(partitions, topics), [every, every[: topics // 2]])


def classes(partitions: int, topics: int, subscriptions: int, more: int) -> Topics:
    """Subscriptions that overlap at random: every topic has one, each has `more` beside its own."""
    rng = np.random.default_rng(subscriptions)
    lists = [
        np.union1d(np.arange(at, topics, subscriptions), rng.integers(0, topics, more))
        for at in range(subscriptions)
    ]
    return Topics(_sizes(partitions, topics), lists)


def group_of(
    topics: Topics, members: Members, past: Past | None = None, weights: Floats | None = None
) -> GroupSpec:
    """Build the group; with a past, live members still own what it gave them.

    Parameters
    ----------
    weights
        Of partitions, topic by topic; None: without any.
    """
    lengths = np.array([len(item) for item in topics.subscriptions])
    none, names = np.zeros(0, dtype=np.int64), pa.nulls(len(members), pa.string())
    group = GroupSpec.from_columns(
        member_id=_names("m", members.number),
        instance_id=names,
        rack=names,
        subscription=members.subscription,
        list_offsets=offsets_of(lengths),
        list_topics=np.concatenate(topics.subscriptions).astype(np.int64),
        topics=_names("t", np.arange(len(topics.partitions))),
        partitions=topics.partitions,
        owner=pa.array([], pa.string()),
        owned_topic=none,
        owned_first=none,
        owned_count=none,
        loads=None if weights is None else RawLoads(weight=weights),
    )
    return group if past is None else _owned(group, members, past)


def scattered(group: GroupSpec, target: PartitionRanges, pieces: int) -> PartitionRanges:
    """Cut what each member owns into pieces, and redistribute them among members that are alike.

    Loads and subscriptions stay as they are; members end up with about `pieces` ranges each from
    all over the topics, as after a long life.
    """
    load = target.loads()
    ends = (np.arange(pieces) + 1) * load[:, None] // pieces
    lengths = np.diff(ends, axis=1, prepend=0).ravel()
    row, piece, start, count = overlay(target.count.astype(np.int64), lengths, int(load.sum()))
    first = target.first[row] + start - offsets_of(target.count)[:-1][row]
    taker = _dealt(group.member_class, load, pieces)[piece]
    some = count > 0  # a member with less than `pieces` partitions has empty pieces
    columns = (column[some] for column in (taker, target.topic[row], first, count))
    return PartitionRanges(target.member_ids, target.topics, *order_canonically(*columns))


def _dealt(class_: Ints, load: Longs, pieces: int) -> Longs:
    """Return who gets each piece: a member of the same class with the same load."""
    rng = np.random.default_rng(pieces)
    order = np.lexsort((rng.random(len(load)), load, class_))  # alike members, shuffled
    alike = class_[order] * (int(load.max(initial=0)) + 1) + load[order]
    place = rank_in_runs(alike)
    size = np.bincount(np.cumsum(place == 0) - 1)
    start, size = np.arange(len(order)) - place, np.repeat(size, size)
    out = np.empty((len(load), pieces), dtype=np.int64)
    for piece in range(pieces):
        turned = (place + int(rng.integers(len(load)))) % size
        out[order, piece] = order[start + turned]
    return out.ravel()


def _owned(group: GroupSpec, members: Members, past: Past) -> GroupSpec:
    """Fill in the owned ranges; rows of a target stay in order when members leave and join."""
    target = past.target
    place = np.searchsorted(members.number, past.members.number)
    lives = np.append(members.number, -1)[place] == past.members.number
    rows = lives[target.member]
    member = place[target.member[rows]].astype(np.int32)
    topic, first, count = target.topic[rows], target.first[rows], target.count[rows]
    line = (topic.astype(np.int64) << LINE_BITS) + first
    return replace(
        group,
        member=member,
        topic=topic,
        first=first,
        count=count,
        member_ranges=np.searchsorted(member, np.arange(len(members) + 1)),
        line_order=np.argsort(line, kind="stable"),
    )


def _sizes(partitions: int, topics: int) -> Longs:
    """Cut partitions evenly, at least one a topic."""
    return np.full(topics, max(partitions // topics, 1), dtype=np.int64)


def _names(letter: str, number: Longs) -> pa.StringArray:
    """Return names that sort as their numbers do."""
    digits = pc.utf8_lpad(pa.array(number).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise(letter, digits, "")
