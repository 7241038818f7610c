"""The compressed problem: subscription classes against topic classes, and its leaves.

Members with the same subscription are one class, topics with the same subscribing classes one topic
class; nothing is lost by it. Cutting the problem at integer levels gives its *leaves*: parts whose
members all have load k or k + 1 in every fairest assignment
(docs/design/algorithm.md#levels).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assignors import solvers
from assignors.arrays import (
    Bools,
    Ints,
    Longs,
    count_by,
    floor_div,
    label_lists,
    offsets_of,
    sum_by,
    take_lists,
)
from assignors.network_flow import Network, find_maximum_flow, find_reached, find_reaching

if TYPE_CHECKING:
    from assignors.group_spec import GroupSpec


@dataclass(frozen=True, slots=True)
class CompressedProblem:
    """Who may get what, compressed.

    Attributes
    ----------
    size
        (C,) members of each class.
    topic_class
        (T,) topic class of each topic; −1 for one without partitions or subscribers. Topic classes
        are numbered by their first topic.
    partitions
        (I,) partitions of each topic class.
    pair_topic, pair_class
        Eligible (topic class, class) pairs, sorted.
    """

    size: Longs
    topic_class: Longs
    partitions: Longs
    pair_topic: Longs
    pair_class: Longs

    @classmethod
    def of(cls, group: GroupSpec) -> CompressedProblem:
        """Compress a group."""
        return cls.of_classes(
            np.diff(group.class_members), group.class_offsets, group.class_topics, group.partitions
        )

    @classmethod
    def of_classes(
        cls, size: Longs, class_offsets: Longs, class_topics: Ints, partitions: Longs
    ) -> CompressedProblem:
        """Compress classes, given as lists of topics, and topics, given as partition counts."""
        if len(size) == 1:
            return cls._of_one_class(size, class_topics, partitions)
        class_ = np.repeat(np.arange(len(size)), np.diff(class_offsets))
        real = partitions[class_topics] > 0
        class_, topic = class_[real], class_topics[real]
        order = np.argsort(topic, kind="stable")
        topic, class_ = topic[order], class_[order]
        offsets = offsets_of(count_by(topic, len(partitions)))
        used = np.flatnonzero(np.diff(offsets) > 0)
        subscribers = offsets_of(np.diff(offsets)[used])  # unused topics have no entries
        labels, heads = label_lists(subscribers, class_)
        topic_class = np.full(len(partitions), -1, dtype=np.int64)
        topic_class[used] = labels
        sizes = sum_by(labels, partitions[used], len(heads))
        return cls(size, topic_class, sizes, *_list_pairs(subscribers, class_, heads))

    @classmethod
    def _of_one_class(cls, size: Longs, class_topics: Ints, partitions: Longs) -> CompressedProblem:
        """Compress the usual group, in which all subscriptions are equal."""
        topic_class = np.full(len(partitions), -1, dtype=np.int64)
        real = class_topics[partitions[class_topics] > 0]
        topic_class[real] = 0
        none = np.zeros(min(len(real), 1), dtype=np.int64)
        return cls(size, topic_class, partitions[real].sum(keepdims=True)[: len(none)], none, none)


def _list_pairs(offsets: Longs, class_: Longs, heads: Longs) -> tuple[Longs, Longs]:
    """Return the (topic class, class) pairs, given the topic that stands for each topic class."""
    lengths, subscribers = take_lists(offsets, class_, heads)
    return np.repeat(np.arange(len(heads)), np.diff(lengths)), subscribers.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Cells:
    """A problem cut into parts that trade nothing, each class with its bounds of load.

    Attributes
    ----------
    problem
        With the arcs between cells left out, and topic classes merged that are alike within their
        cell.
    of_class, of_topics
        Cell of each class (C,) and of each topic class (I,).
    low, high
        (C,) every member of class c gets a load in [low, high].
    alone
        (cells,) whether the cell has a single class: then it needs no flow.
    """

    problem: CompressedProblem
    of_class: Longs
    of_topics: Longs
    low: Longs
    high: Longs
    alone: Bools

    @classmethod
    def of(
        cls, problem: CompressedProblem, of_class: Longs, of_topics: Longs, low: Longs, high: Longs
    ) -> Cells:
        """Leave out the arcs between cells and merge topic classes that became alike."""
        alone = count_by(of_class, 1) == 1
        inside = of_topics[problem.pair_topic] == of_class[problem.pair_class]
        if len(problem.size) == 1:
            return cls(problem, of_class, of_topics, low, high, alone)
        topic, class_ = problem.pair_topic[inside], problem.pair_class[inside]
        offsets = offsets_of(count_by(topic, len(problem.partitions)))
        labels, heads = label_lists(offsets, class_)
        merged = np.append(labels, -1)[problem.topic_class]
        sizes = sum_by(labels, problem.partitions, len(heads))
        smaller = CompressedProblem(
            problem.size, merged, sizes, *_list_pairs(offsets, class_, heads)
        )
        return cls(smaller, of_class, of_topics[heads], low, high, alone)


@dataclass(frozen=True, slots=True)
class Leaves:
    """The fairest loads: members of leaf ℓ get floor or floor + 1 partitions.

    Attributes
    ----------
    of_class, of_topics
        Leaf of each class (C,) and of each topic class (I,).
    partitions, members, classes
        What each leaf holds.
    """

    of_class: Longs
    of_topics: Longs
    partitions: Longs
    members: Longs
    classes: Longs

    @classmethod
    def connected(cls, problem: CompressedProblem, pair_topic: Longs, pair_class: Longs) -> Leaves:
        """Take the connected components of the arcs given."""
        classes, topics = len(problem.size), len(problem.partitions)
        nodes = classes + topics
        count, label = 1, np.zeros(nodes, dtype=np.int64)
        if classes != 1 or len(pair_topic) != topics:  # else equal subscriptions: all is one part
            ones = np.ones(len(pair_topic), dtype=np.int8)
            arcs = solvers.csr_array(
                (ones, (pair_topic + classes, pair_class)), shape=(nodes, nodes)
            )
            count, found = solvers.connected_components(arcs, directed=False)
            label = found.astype(np.int64)
        of_class, of_topics = np.split(label, [classes])
        return cls(
            of_class,
            of_topics,
            sum_by(of_topics, problem.partitions, count),
            sum_by(of_class, problem.size, count),
            count_by(of_class, count),
        )

    @property
    def floor(self) -> Longs:
        """The mean load of each leaf, rounded down."""
        return floor_div(self.partitions, self.members)

    @property
    def extras(self) -> Longs:
        """Members of each leaf that get one partition more than its floor."""
        return self.partitions - self.floor * self.members

    @property
    def ceiling(self) -> Longs:
        """The mean load of each leaf, rounded up."""
        return self.floor + (self.extras > 0)


def find_leaves(problem: CompressedProblem) -> Leaves:
    """Cut a problem at its integer levels (docs/design/algorithm.md#levels).

    Every round solves one flow for all open parts at once. A part is a connected component of the
    arcs that are left, so one with a single class is a leaf without more ado.
    """
    pair_topic, pair_class = problem.pair_topic, problem.pair_class
    closed = np.zeros(len(problem.size), dtype=np.bool_)
    above = np.zeros(len(problem.size), dtype=np.bool_)  # all of the part can pass its floor
    while True:
        parts = Leaves.connected(problem, pair_topic, pair_class)
        open_ = ~closed & (parts.classes[parts.of_class] > 1)
        if not open_.any():
            return parts
        floor = parts.floor[parts.of_class]
        level = floor + (above | (floor == 0))
        hot_topics, hot, carried = _find_hot(problem, parts, pair_topic, pair_class, open_, level)
        hot_classes = count_by(parts.of_class[hot], len(parts.classes))
        closed |= open_ & (carried == parts.partitions)[parts.of_class]
        above = (hot_classes == parts.classes)[parts.of_class]
        same = hot_topics[pair_topic] == hot[pair_class]
        pair_topic, pair_class = pair_topic[same], pair_class[same]


def refine_leaves(problem: CompressedProblem, found: Leaves) -> Leaves:
    """Cut off classes whose level is exactly floor + 1, so that floor and ceiling are exact.

    In a leaf whose members get k or k + 1, such classes get k + 1 in every fairest assignment: they
    cannot reach the sink of the flow at k + 1. Uniform's plan does not care; sticky's bounds do.
    """
    inside = found.of_topics[problem.pair_topic] == found.of_class[problem.pair_class]
    pair_topic, pair_class = problem.pair_topic[inside], problem.pair_class[inside]
    level = found.floor[found.of_class] + 1
    network, source, sink = _build_network(problem, pair_topic, pair_class, level)
    free = find_reaching(network, find_maximum_flow(network, source, sink), sink)
    topics = len(problem.partitions)
    same = free[1 + pair_topic] == free[1 + topics + pair_class]
    return Leaves.connected(problem, pair_topic[same], pair_class[same])


def _find_hot(
    problem: CompressedProblem,
    parts: Leaves,
    pair_topic: Longs,
    pair_class: Longs,
    open_: Bools,
    level: Longs,
) -> tuple[Bools, Bools, Longs]:
    """Fill open parts up to `level` and find the sides that have more than that.

    Returns
    -------
    hot_topics, hot_classes, carried
        What the source still reaches, and the partitions placed per part.
    """
    arcs = open_[pair_class]
    network, source, sink = _build_network(problem, pair_topic[arcs], pair_class[arcs], level)
    flow = find_maximum_flow(network, source, sink)
    hot = find_reached(network, flow, source)
    topics = len(problem.partitions)
    out = network.tail == source
    carried = sum_by(parts.of_topics[network.head[out] - 1], flow[out], len(parts.classes))
    return hot[1 : 1 + topics], hot[1 + topics : -1], carried


def _build_network(
    problem: CompressedProblem, pair_topic: Longs, pair_class: Longs, level: Longs
) -> tuple[Network, int, int]:
    """Build source → topic class → class → sink, with room for `level` a member."""
    topics, classes = len(problem.partitions), len(problem.size)
    source, sink = 0, 1 + topics + classes
    topic, class_ = np.unique(pair_topic), np.unique(pair_class)
    room = np.minimum(problem.size * level, int(problem.partitions.sum()))
    parts = [  # (tail, head, capacity); an arc from topic to class is never full
        (np.full(len(topic), source), 1 + topic, problem.partitions[topic]),
        (1 + pair_topic, 1 + topics + pair_class, problem.partitions[pair_topic] + 1),
        (1 + topics + class_, np.full(len(class_), sink), room[class_]),
    ]
    tail, head, capacity = (np.concatenate([part[k] for part in parts]) for k in range(3))
    network, _ = Network.of(sink + 1, tail, head, capacity)
    return network, source, sink
