"""The topics of a planned group: each has a number that stays as others come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assignors.arrays import PARTITIONS_MAX, Ints, Longs
from assignors.incremental.subscribed_topics import SubscribedTopics

_GONE_MAX = 2
"""Numbers of topics that are gone, by topics, before all are numbered again."""
_GONE_MIN = 512


@dataclass(frozen=True, slots=True, eq=False)
class KnownTopics:
    """Topics, numbered as they came; ranges name them by these numbers.

    Attributes
    ----------
    names
        In order.
    numbers
        The number of each, in the order of names.
    partitions
        By number.
    number_of
        By name.
    places
        By number: where the topic is among the names; −1, it is gone.
    """

    names: pa.StringArray
    numbers: Longs
    partitions: Longs
    number_of: dict[str, int]
    places: Ints

    @classmethod
    def of(cls, names: pa.StringArray, partitions: Longs) -> KnownTopics:
        """Number topics, given in order."""
        numbers = np.arange(len(names), dtype=np.int64)
        known = dict(zip(names.to_pylist(), numbers.tolist(), strict=True))
        return cls(names, numbers, partitions, known, numbers.astype(np.int32))

    def changed(self, topics: Mapping[str, int], removed: Iterable[str]) -> KnownTopics | None:
        """Return the topics after some came, went, or have another number of partitions.

        None if all are to be numbered again, as so many have gone, or if a change cannot be:
        `change_group` says which.
        """
        removed = set(removed)
        gone = removed.difference(topics)
        if not removed <= self.number_of.keys():
            return None
        if not all(0 <= count <= PARTITIONS_MAX for count in topics.values()):
            return None
        new = {name: at for name, at in topics.items() if name not in self.number_of}
        partitions = np.append(self.partitions, np.array([*new.values()], dtype=np.int64))
        number_of = self.number_of
        if new or gone:
            known = {name: at for name, at in number_of.items() if name not in gone}
            coming = zip(new, range(len(self.partitions), len(partitions)), strict=True)
            number_of = known | dict(coming)
        for name, count in topics.items():
            partitions[number_of[name]] = count
        if number_of is self.number_of:
            return KnownTopics(self.names, self.numbers, partitions, number_of, self.places)
        if len(partitions) > (1 + _GONE_MAX) * len(number_of) + _GONE_MIN:
            return None
        names = sorted(number_of)
        numbers = np.fromiter(map(number_of.__getitem__, names), np.int64, len(names))
        places = np.full(len(partitions), -1, dtype=np.int32)
        places[numbers] = np.arange(len(names))
        return KnownTopics(pa.array(names, pa.string()), numbers, partitions, number_of, places)

    def subscribe(self, names: frozenset[str]) -> SubscribedTopics:
        """Return the topics of a subscription, all of which are known."""
        numbers = np.fromiter(map(self.number_of.__getitem__, names), np.int64, len(names))
        by_name = np.argsort(self.places[numbers])
        return SubscribedTopics.of(names, numbers[by_name], self.partitions)
