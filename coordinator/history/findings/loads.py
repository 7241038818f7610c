"""How much each member has to do: the weights that the log has for what it owns, or partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs, offsets_of
from coordinator.core.state.records import LoadsNoted
from coordinator.history.current_views import take_last
from coordinator.history.findings.facts import Facts
from coordinator.history.keyed_rows import combine_chunks, encode_keys, flatten, to_numbers

Reals: TypeAlias = npt.NDArray[np.float64]
RULES = ("capacities", "constraints", "drained")


@dataclass(frozen=True, slots=True)
class Loads:
    """The loads of all members.

    Attributes
    ----------
    of_members
        The weight of what each member owns; how many partitions, where no weights are known.
    weighed, ruled, heaviest
        Of each group: whether weights are known; whether capacities, constraints or drained
        members say that loads are to differ; the weight of its heaviest partition.
    """

    of_members: Reals
    weighed: Bools
    ruled: Bools
    heaviest: Reals

    @classmethod
    def read(cls, facts: Facts) -> Loads:
        """Read the loads noted last."""
        names = ["tombstone", "group_id", "weights", *RULES]
        rows = facts.log.present([LoadsNoted.kind], names)
        rows = take_last(rows, encode_keys(combine_chunks(rows["group_id"])))
        size = len(facts.groups)
        at = facts.place_of(rows["group_id"])
        ruled = np.zeros(size + 1, np.bool_)  # the last one is of groups that are gone
        for name in RULES:
            ruled[at[to_numbers(pc.list_value_length(rows[name]), 0) > 0]] = True
        weights = _Weights.of(rows)
        weighed = np.zeros(size + 1, np.bool_)
        weighed[at[weights.group]] = True
        heaviest = np.zeros(size + 1)
        np.maximum.at(heaviest, at[weights.group], weights.heaviest)
        weighed, ruled, heaviest = weighed[:-1], ruled[:-1], heaviest[:-1]
        load = weights.sum_of(facts)
        load = np.where(weighed[facts.place], load, facts.owned.astype(np.float64))
        return cls(load, weighed, ruled, heaviest)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Weights by group and topic.

    Attributes
    ----------
    group_ids, group, topic
        The groups' ids; of each list of weights its group, by number, and topic.
    first, sums
        Where the weights of each list begin, and end, and the sum of all before each.
    heaviest
        The greatest of each list.
    """

    group_ids: pa.Array
    group: Longs
    topic: pa.Array
    first: Longs
    sums: Reals
    heaviest: Reals

    @classmethod
    def of(cls, rows: pa.Table) -> _Weights:
        group, by_topic = flatten(combine_chunks(rows["weights"]))
        lists = by_topic.field("weights")
        topic, values = flatten(lists)
        each: Reals = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        each = np.maximum(each, 0.0)  # -1 is not known
        heaviest = np.zeros(len(group))
        np.maximum.at(heaviest, topic, each)
        first = offsets_of(to_numbers(pc.list_value_length(lists), 0))
        sums = np.append(0.0, np.cumsum(each))
        ids = combine_chunks(rows["group_id"]).cast(pa.string())
        return cls(ids, group, by_topic.field("topic"), first, sums, heaviest)

    def sum_of(self, facts: Facts) -> Reals:
        """Return the weight of what each member owns."""
        members = facts.members
        total = np.zeros(len(members))
        for name in ("assigned", "pending"):
            row, ranges = flatten(combine_chunks(members[name]))
            ids = combine_chunks(members["group_id"]).take(pa.array(row))
            theirs = self.group_ids.take(pa.array(self.group))
            keys = encode_keys(
                pa.concat_arrays([theirs, ids]),
                pa.concat_arrays([self.topic.cast(pa.string()), ranges.field("topic")]),
            )
            size = int(keys.max(initial=-1)) + 1
            place = np.full(size, -1)
            place[keys[: len(theirs)]] = np.arange(len(theirs))
            at = place[keys[len(theirs) :]]
            begin, end = self.first[at], np.append(self.first[1:], 0)[at]
            low = np.minimum(begin + to_numbers(ranges.field("first_partition")), end)
            high = np.minimum(low + to_numbers(ranges.field("partition_count")), end)
            weight = np.where(at < 0, 0.0, self.sums[high] - self.sums[low])
            total += np.bincount(row, weight, len(members))
        return total
