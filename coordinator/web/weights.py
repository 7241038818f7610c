"""What the log says of weights: of a group, and of what each member owns.

Weights are noted for groups whose assignor knows them, smoothed, once an interval at most. Where
they are a cluster's lag, this is the lag. Of groups that a Kafka cluster coordinates it always is,
and as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, offsets_of
from coordinator.config import KAFKA, WeightsConfig
from coordinator.core.state.records import LoadsNoted
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_last,
    flatten,
    to_mask,
    to_numbers,
)
from coordinator.web.store_reader import Look

Reals: TypeAlias = npt.NDArray[np.float64]
LAG = "lag"
COLUMNS = ("tombstone", "group_id", "weights", "timestamp")


def name_weights(config: WeightsConfig) -> str:
    """Return what weights are, as the settings say."""
    if config.source.startswith(KAFKA):
        return config.measure.replace("_", " ")
    return "weight"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a group's partitions, by topic.

    Attributes
    ----------
    topics
        Their names.
    first
        Where the partitions of each topic begin, and end, in `each`.
    each
        The weight of each partition; -1 if it is not known.
    sums
        The sum of all weights before each partition; those that are not known count 0.
    noted_ms
        When they were noted.
    """

    topics: pa.Array
    first: Longs
    each: Reals
    sums: Reals
    noted_ms: int

    @property
    def total(self) -> float:
        """The weight of all partitions."""
        return float(self.sums[-1])

    def of_partitions(self, topics: pa.ChunkedArray, partitions: Longs) -> pa.Array:
        """Return the weight of each partition, by topic and number; null if it is not known."""
        at = to_numbers(pc.index_in(topics, value_set=self.topics))
        place = self.first[at] + partitions
        there = (at >= 0) & (place < self.first[at + 1])  # -1: not a topic
        found = np.append(self.each, -1.0)[np.where(there, place, -1)]
        return pa.array(found, mask=found < 0)

    def of_ranges(self, ranges: pa.Table) -> Reals:
        """Return the weight of each range of partitions; what is not known weighs nothing."""
        at = to_numbers(pc.index_in(ranges["topic"], value_set=self.topics))
        begin, end = self.first[at], self.first[at + 1]  # -1: not a topic
        low = np.minimum(begin + to_numbers(ranges["first_partition"]), end)
        high = np.minimum(low + to_numbers(ranges["partition_count"]), end)
        found: Reals = np.where(at < 0, 0.0, self.sums[high] - self.sums[low])
        return found


def read_weights(look: Look, group_id: str) -> Weights | None:
    """Return the weights of a group; None if none were noted."""

    def read() -> Weights | None:
        rows = _read_last(look, group_id)
        if not len(rows):
            return None
        _, by_topic = flatten(combine_chunks(rows["weights"]))
        if not len(by_topic):
            return None
        lists = by_topic.field("weights")
        first = offsets_of(to_numbers(pc.list_value_length(lists)))
        _, values = flatten(lists)
        each: Reals = pc.fill_null(values, -1.0).to_numpy(zero_copy_only=False)
        sums = np.append(0.0, np.cumsum(np.maximum(each, 0.0)))
        noted_ms = int(rows["timestamp"][0].as_py())
        return Weights(by_topic.field("topic"), first, each, sums, noted_ms)

    return look.once(group_id, "weights", read)


def sum_weights(look: Look, group_ids: pa.Array) -> pa.Array:
    """Return the weight of each group's partitions; null where none were noted."""
    rows = _read_last(look, None)
    group, by_topic = flatten(combine_chunks(rows["weights"]))
    topic, _ = flatten(by_topic.field("weights"))
    total = np.bincount(
        group[topic], weights=_to_known(by_topic.field("weights")), minlength=len(rows)
    )
    weighed = np.bincount(group, minlength=len(rows)) > 0
    place = to_numbers(pc.index_in(group_ids, value_set=combine_chunks(rows["group_id"])))
    known = np.append(weighed, False)[place]
    return pa.array(np.append(total, 0.0)[place], mask=~known)


def _read_last(look: Look, group_id: str | None) -> pa.Table:
    """Return the last record of each group."""
    rows = look.rows(group_id).present([LoadsNoted.kind], COLUMNS)
    keys = encode_keys(combine_chunks(rows["group_id"]))
    last = find_last(keys, np.arange(len(rows)), int(keys.max(initial=-1)) + 1)
    found = rows.take(pa.array(last))
    return found.filter(pa.array(~to_mask(found["tombstone"])))


def _to_known(lists: pa.Array) -> Reals:
    """Return the weights in lists one after the other; those that are not known, -1, are 0."""
    _, values = flatten(lists)
    known: Reals = np.maximum(pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False), 0.0)
    return known
