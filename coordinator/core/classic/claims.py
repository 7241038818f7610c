"""What the members of a classic group report to own, in columns.

Clients list single partitions. Here they are positions on one line, on which the topics of a group
lie end to end: who owns what is then two arrays, for any number of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from assignors.arrays import Bools, Ints, Longs, offsets_of
from coordinator.core.state.groups import State, Topic
from coordinator.core.state.target_assignment import WholeTarget

NO_MEMBER = -1
"""The owner of a partition that two members own with equal right."""
Numbers: TypeAlias = Sequence[int] | Ints
"""Partitions of one topic, as a client lists them: in any order, perhaps twice."""


class TopicLine:
    """The partitions of several topics as positions on one line.

    Attributes
    ----------
    topics
        Those that exist, by name.
    starts
        The position of each topic's first partition, and the end: (topics + 1,).
    """

    def __init__(self, state: State, names: Iterable[str]) -> None:
        self.topics: list[Topic] = [
            state.topics[name] for name in sorted(set(names)) if name in state.topics
        ]
        self.starts = offsets_of(np.array([one.partitions for one in self.topics], dtype=np.int64))
        self._place = {topic.key.name: at for at, topic in enumerate(self.topics)}

    def claims(self, listed: Sequence[Mapping[str, Numbers]]) -> Claims:
        """Return what each member lists, in order and each once; without what is not there."""
        lists = [
            (member, self._place[name], np.array(numbers, dtype=np.int64))
            for member, partitions in enumerate(listed)
            for name, numbers in partitions.items()
            if name in self._place
        ]
        if not lists:
            return Claims(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        sizes = [len(numbers) for _, _, numbers in lists]
        member = np.repeat([member for member, _, _ in lists], sizes)
        topic = np.repeat([place for _, place, _ in lists], sizes)
        number = np.concatenate([numbers for _, _, numbers in lists])
        exists = (number >= 0) & (number < np.diff(self.starts)[topic])
        end = self.starts[-1]
        keys = np.sort((member * end + self.starts[topic] + number)[exists])
        # Not np.unique: its hash table is ten times slower than the sort.
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        return Claims(*np.divmod(keys, max(end, 1)))

    def topic_of(self, positions: Longs) -> Longs:
        """Return the place of each position's topic in `topics`."""
        return np.searchsorted(self.starts, positions, side="right") - 1


class Claims(NamedTuple):
    """Which member lists which partitions: one entry each, by member and position."""

    member: Longs
    position: Longs


class Owners(NamedTuple):
    """Who owns what: one entry per partition, by position; each position once.

    Attributes
    ----------
    position
        On a `TopicLine`.
    owner
        The place of the member that owns it, or NO_MEMBER.
    """

    position: Longs
    owner: Longs

    def find(self, positions: Longs, default: Longs | int) -> Longs:
        """Return the owner at each position; the default without one."""
        if not len(self.position):
            return np.broadcast_to(np.asarray(default, dtype=np.int64), positions.shape)
        at = np.minimum(np.searchsorted(self.position, positions), len(self.position) - 1)
        return np.where(self.position[at] == positions, self.owner[at], default)

    def rows(self, mask: Bools) -> Owners:
        """Take some of the entries."""
        return Owners(self.position[mask], self.owner[mask])


def resolve_owners(reported: Claims, generations: Sequence[int]) -> Owners:
    """Return the owner of each partition that members report.

    If several members report a partition, the one with the latest generation owns it (KIP-792). If
    they have the same generation, none of them does, and all must revoke it.

    Parameters
    ----------
    reported
        What each member reports.
    generations
        The generation in which each member owned them.
    """
    member, position = reported
    since = np.array(generations, dtype=np.int64)[member]
    order = np.lexsort((member, -since, position))
    position, member, since = position[order], member[order], since[order]
    heads = np.flatnonzero(np.append(True, position[1:] != position[:-1])[: len(position)])
    run = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(position))))
    rivals = np.bincount(run[since == since[heads][run]], minlength=len(heads))
    return Owners(position[heads], np.where(rivals > 1, NO_MEMBER, member[heads]))


def add_previous(owners: Owners, assigned: Claims) -> Owners:
    """Return what members own, and of the rest what the last generation assigned to them.

    Parameters
    ----------
    owners
        As members report it.
    assigned
        What each member was assigned; of two the first has a partition.
    """
    position, rows = np.unique(assigned.position, return_index=True)  # the first of each
    unclaimed = ~np.isin(position, owners.position)
    held = owners.rows(owners.owner != NO_MEMBER)
    position = np.concatenate([held.position, position[unclaimed]])
    owner = np.concatenate([held.owner, assigned.member[rows][unclaimed]])
    order = np.argsort(position)
    return Owners(position[order], owner[order])


def as_target(line: TopicLine, owners: Owners, member_ids: Sequence[str]) -> WholeTarget:
    """Return what sorted members own as ranges."""
    order = np.lexsort((owners.position, owners.owner))
    position, owner = owners.position[order], owners.owner[order]
    topic = line.topic_of(position)
    first, end = find_runs(position, topic, owner)
    begin = position[first] - line.starts[topic[first]]
    who, bounds = np.unique(owner[first], return_index=True)
    return WholeTarget(
        pa.array(member_ids, pa.string()).take(pa.array(who)),
        np.append(bounds, len(first)),
        [topic.key for topic in line.topics],
        topic[first],
        begin,
        begin + (end - first),
    )


def find_runs(positions: Longs, *kinds: Longs) -> tuple[Longs, Longs]:
    """Return where runs of adjacent positions of the same kinds begin and end."""
    breaks = positions[1:] != positions[:-1] + 1
    for kind in kinds:
        breaks = breaks | (kind[1:] != kind[:-1])
    first = np.flatnonzero(np.append(True, breaks)[: len(positions)])
    return first, np.append(first[1:], len(positions)).astype(np.int64)[: len(first)]
