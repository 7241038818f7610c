"""The assignor range in blocks: every member finds its ranges by its place among subscribers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints, Longs, count_by, expand_runs, offsets_of, rank_in_runs, sum_by
from assignors.blocks.member_blocks import KnownGroup, MemberBlock
from assignors.blocks.packets import DIVIDED, MEMBERS, Batches, make_packet, read_packets
from assignors.compressed_problem import CompressedProblem
from assignors.partition_ranges import ARROW_SCHEMA
from assignors.water_level import Histogram


@dataclass(frozen=True, slots=True)
class TopicShares:
    """How topics are divided.

    Attributes
    ----------
    before
        (B, I) how many subscribers of a topic class are in the blocks before.
    class_pairs, pair_topic
        Class c subscribes to the topic classes pair_topic[class_pairs[c]:class_pairs[c + 1]].
    topic_starts, topic, takers
        Of topic class i, the topics and how many subscribers get some of each, the most first:
        [topic_starts[i]:topic_starts[i + 1]].
    quota, rest
        Per topic, in that order: what each subscriber gets, and how many get one more.
    """

    before: Longs
    class_pairs: Longs
    pair_topic: Longs
    topic_starts: Longs
    topic: Longs
    takers: Longs
    quota: Longs
    rest: Longs

    @classmethod
    def of(cls, problem: CompressedProblem, partitions: Longs, members: Longs) -> Self:
        """Divide all topics among their subscribers; `members` are by block and class."""
        classes = len(problem.size)
        order = np.argsort(problem.pair_class, kind="stable")
        class_pairs = offsets_of(count_by(problem.pair_class, classes))
        there = np.zeros((len(members), len(problem.partitions)), dtype=np.int64)
        np.add.at(there.T, problem.pair_topic, members.T[problem.pair_class])
        subscribers = there.sum(axis=0)
        topic = np.flatnonzero(problem.topic_class >= 0)
        of_topic = problem.topic_class[topic]
        takers = np.minimum(partitions[topic], subscribers[of_topic])
        by_takers = np.lexsort((topic, -takers, of_topic))
        topic, of_topic, takers = topic[by_takers], of_topic[by_takers], takers[by_takers]
        return cls(
            np.cumsum(there, axis=0) - there, class_pairs, problem.pair_topic[order],
            offsets_of(count_by(of_topic, len(problem.partitions))), topic, takers,
            partitions[topic] // subscribers[of_topic], partitions[topic] % subscribers[of_topic],
        )  # fmt: skip

    def divide(self, at: int, class_: Longs) -> tuple[Longs, Longs, Longs, Longs]:
        """Return the ranges of a block's members: member, topic, first, count, in that order."""
        lengths = np.diff(self.class_pairs)[class_]
        member = np.repeat(np.arange(len(class_)), lengths)
        of_topic = self.pair_topic[expand_runs(self.class_pairs[:-1][class_], lengths)]
        order = np.argsort(of_topic, kind="stable")
        place = np.empty(len(member), dtype=np.int64)
        place[order] = rank_in_runs(of_topic[order])
        place += self.before[at][of_topic]
        topics = self._count_topics(of_topic, place)
        row = np.repeat(np.arange(len(member)), topics)
        rank = expand_runs(self.topic_starts[of_topic], topics)
        member, place = member[row], place[row]
        quota, rest = self.quota[rank], self.rest[rank]
        first, count = quota * place + np.minimum(place, rest), quota + (place < rest)
        topic = self.topic[rank]
        order = np.lexsort((topic, member))
        return member[order], topic[order], first[order], count[order]

    def _count_topics(self, of_topic: Longs, place: Longs) -> Longs:
        """Return how many topics of a class give something to the subscriber at a place."""
        most = int(self.takers.max(initial=0)) + 1
        key = np.repeat(np.arange(len(self.topic_starts) - 1), np.diff(self.topic_starts))
        keys = key * (most + 1) + (most - self.takers)  # ascending: the most takers first
        end = np.searchsorted(keys, of_topic * (most + 1) + most - np.minimum(place, most), "left")
        return np.asarray(end - self.topic_starts[of_topic])


@dataclass(frozen=True, slots=True)
class DivideTopics:
    """Divide topics among the members of blocks.

    Attributes
    ----------
    known
        The group.
    sum_up
        Whether to yield totals in place of rows.
    """

    known: KnownGroup
    shares: TopicShares
    sum_up: bool

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the assignment, in canonical order within each block; or `DIVIDED`."""
        for packet in read_packets(batches):
            if packet.kind != MEMBERS:
                continue
            block = MemberBlock.unpack(packet, self.known.rank)
            class_ = block.class_.astype(np.int64)
            member, topic, first, count = self.shares.divide(packet.block, class_)
            if self.sum_up:
                load = sum_by(member, count, len(class_))
                loads = Histogram.of(len(self.shares.class_pairs) - 1, class_, load)
                stayed = _count_stayed(block, len(self.known.topics), member, topic, first, count)
                yield make_packet(
                    packet.block, DIVIDED, stayed=[stayed],
                    **{"class": loads.class_}, load=loads.load, members=loads.members,
                )  # fmt: skip
                continue
            yield pa.RecordBatch.from_arrays(
                [
                    block.ids.take(pa.array(member)),
                    self.known.topics.take(pa.array(topic)),
                    pa.array(first.astype(np.int32)),
                    pa.array(count.astype(np.int32)),
                ],
                schema=ARROW_SCHEMA,
            )


def _count_stayed(
    block: MemberBlock, topics: int, member: Ints, topic: Ints, first: Ints, count: Ints
) -> int:
    """Count what members keep of what they owned; each has at most one range of a topic."""
    if not len(member):
        return 0
    key = member.astype(np.int64) * topics + topic
    owned = block.member.astype(np.int64) * topics + block.topic
    at = np.minimum(np.searchsorted(key, owned), len(key) - 1)
    low = np.maximum(first[at], block.first)
    high = np.minimum((first + count)[at], block.first.astype(np.int64) + block.count)
    return int(np.maximum(high - low, 0)[key[at] == owned].sum())
