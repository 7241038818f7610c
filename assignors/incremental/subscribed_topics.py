"""What the members of a class subscribe to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Longs
from assignors.materialize import PartitionLine


@dataclass(frozen=True, slots=True, eq=False)
class SubscribedTopics:
    """The topics of one subscription, and their partitions in one row.

    Attributes
    ----------
    names
        Of the topics.
    numbers
        Of the topics, in the order of their names.
    partitions
        By the number of any topic.
    line
        The partitions of these topics.
    """

    names: frozenset[str]
    numbers: Longs
    partitions: Longs
    line: PartitionLine

    @classmethod
    def of(cls, names: frozenset[str], numbers: Longs, partitions: Longs) -> SubscribedTopics:
        """Put all partitions of topics, given by name, in one row: they are one topic class."""
        real = numbers[partitions[numbers] > 0]
        ends = np.cumsum(partitions[real])
        start = np.zeros(len(partitions), dtype=np.int64)
        start[real] = ends - partitions[real]
        return cls(names, numbers, partitions, PartitionLine(start, real, ends, start))

    def sizes(self, count: int) -> Longs:
        """Return by number, of so many, how many partitions members may have."""
        found = np.zeros(count, dtype=np.int64)
        found[self.numbers] = self.partitions[self.numbers]
        return found
