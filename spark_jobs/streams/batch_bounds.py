"""How much of each partition a batch reads: a pure function of what there is."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from coordinator.member.transport import TopicPartition

Weights = Mapping[str | tuple[str, int], float]
"""What a record counts for, by topic or partition; 1 by default."""


def weight_of(place: TopicPartition, weights: Weights) -> float:
    """Return what a record of a partition counts for."""
    return weights.get(place, weights.get(place.topic, 1.0))


def bound_batch(
    lags: Mapping[TopicPartition, int], limit: float | None, weights: Weights
) -> dict[TopicPartition, int]:
    """Return how many records of each partition a batch reads, of those that have some.

    Each partition gets the share of the limit that its lag has of all lags, by weight, and at least
    one record, so that none starves. A batch exceeds the limit by those single records at most.

    Parameters
    ----------
    lags
        How many records there are.
    limit
        Of the weights of all records; None: no limit.
    """
    there = {place: lag for place, lag in lags.items() if lag > 0}
    total = sum(lag * weight_of(place, weights) for place, lag in there.items())
    if limit is None or total <= limit:
        return there
    return {place: max(1, floor(lag * limit / total)) for place, lag in there.items()}


class Pace:
    """How many records, by weight, a batch may have to take about so many seconds.

    Parameters
    ----------
    batch_s
        The seconds; None: as long as it takes.
    first
        The limit of the first batch, of which nothing is known.
    """

    def __init__(self, batch_s: float | None, first: float = 10_000) -> None:
        self._batch_s, self._limit = batch_s, first

    def limit(self) -> float | None:
        """Return the limit of the next batch; None for none."""
        return None if self._batch_s is None else self._limit

    def note(self, weight: float, took_s: float) -> None:
        """Take in how long a batch took: the next one at most doubles, and at most halves."""
        if self._batch_s is not None:
            wanted = weight * self._batch_s / max(took_s, 1e-3)
            self._limit = max(1.0, min(max(wanted, self._limit / 2), self._limit * 2))
