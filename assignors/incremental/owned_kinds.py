"""Kinds of what members own, where classes share topics.

See docs/design/algorithm.md#the-next-plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Ints, Longs, sum_by

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, eq=False)
class OwnedKinds:
    """The kinds of what members own: how many partitions of each topic class; 0 is nothing.

    Attributes
    ----------
    topic_class
        By the number of each topic; −1, no one subscribes to it, or it has no partitions.
    vectors
        (kinds, topic classes)
    number_of
        By what a kind owns.
    """

    topic_class: Longs
    vectors: Longs
    number_of: dict[bytes, int]

    @classmethod
    def of(cls, topic_class: Longs) -> OwnedKinds:
        """Begin with the kind that owns nothing."""
        vectors = np.zeros((1, int(topic_class.max(initial=-1)) + 1), dtype=np.int64)
        return cls(topic_class, vectors, {vectors[0].tobytes(): 0})

    def of_ranges(self, members: int, who: Longs, topic: Ints, count: Ints) -> Longs:
        """Return what each member owns of each topic class, given its ranges."""
        width = self.vectors.shape[1]
        cell = who * width + self.topic_class[topic]
        return sum_by(cell, count, members * width).reshape(members, width)

    def find(self, vectors: Longs) -> tuple[OwnedKinds, Longs]:
        """Return the kinds with those of such members among them, and the kind of each member."""
        if not len(vectors):
            return self, np.zeros(0, dtype=np.int64)
        distinct, inverse = _find_distinct(vectors)
        keys = [row.tobytes() for row in distinct]
        new = [at for at, key in enumerate(keys) if key not in self.number_of]
        kinds = self
        if new:
            fresh = dict(zip((keys[at] for at in new), range(len(self), len(self) + len(new)),
                             strict=True))  # fmt: skip
            columns = np.concatenate([self.vectors, distinct[new]])
            kinds = OwnedKinds(self.topic_class, columns, self.number_of | fresh)
        numbers = np.array([kinds.number_of[key] for key in keys], dtype=np.int64)
        return kinds, numbers[inverse]

    def __len__(self) -> int:
        return len(self.vectors)


def _find_distinct(rows: Longs) -> tuple[Longs, Longs]:
    """Return the distinct rows, in some order, and which of them each row is."""
    if not rows.shape[1]:  # no topic has a partition
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    widths = rows.max(axis=0) + 1
    if sum(int(width).bit_length() for width in widths) < _KEY_BITS:  # one number says it all
        keys = rows @ np.append(np.cumprod(widths[::-1])[::-1][1:], 1)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return rows[first], inverse
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)
