"""Table functions of a store: questions about one group that need more than its name.

`FUNCTIONS` lists them all; docs/guide/sql.md describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import SpecError
from assignors.arrays import Longs
from coordinator.core.state.records import LoadsNoted
from coordinator.history.current_views import read_members
from coordinator.history.epoch_views import read_begun_epochs
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_changes,
    number_runs,
    pick,
    to_numbers,
)
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.history.owners_view import read_partition_owners
from coordinator.history.view_schemas import FUNCTION_ARGUMENTS, FUNCTION_SCHEMAS, VIEW_SCHEMAS

TOPIC = ("topic", "topic_id")
RANGE = ("first_partition", "last_partition", "partition_count")


def end_of_epoch(reading: LogReader, group_id: str, epoch: int) -> LogReader:
    """Return the log as of the end of a group's epoch: right before the next one began.

    Of several incarnations of the group, the newest that had the epoch counts.

    Raises
    ------
    SpecError
        The group had no such epoch.
    """
    log = LogRows(reading, group_id)
    epochs = read_begun_epochs(log)
    numbers, positions = to_numbers(epochs["group_epoch"]), to_numbers(epochs["position"])
    there = np.flatnonzero(numbers == epoch)
    if not len(there):
        if not len(epochs):
            raise reading.unknown(group_id)
        raise SpecError(
            f"group {group_id!r} had no epoch {epoch} up to position {reading.position}: it had "
            f"epochs {numbers.min()} to {numbers.max()}"
        )
    position = int(positions[there].max())
    ends = np.concatenate([positions, Incarnations(log).positions])
    later = ends[ends > position]
    if not len(later):
        return reading
    first, _ = reading.moment_of(int(later.min()))
    return LogReader(reading.store, max(first - 1, position))


# Functions ---------------------------------------------------------------------------------------


def read_assignment_at(reading: LogReader, group_id: str, epoch: int) -> pa.Table:
    """Return who owned what at the end of an epoch."""
    then = end_of_epoch(reading, group_id, epoch)
    owners = read_partition_owners(LogRows(then, group_id))
    return owners.select(FUNCTION_SCHEMAS["assignment_at"].names)


def read_comparison(reading: LogReader, group_id: str, epoch: int, other_epoch: int) -> pa.Table:
    """Return the ranges whose owner was another one at the end of another epoch."""
    former, later = (
        _Exploded.of(read_assignment_at(reading, group_id, one)) for one in (epoch, other_epoch)
    )
    return _compare(former, later, "compare_epochs")


def read_loads_at(reading: LogReader, group_id: str, epoch: int) -> pa.Table:
    """Return how many partitions members owned at the end of an epoch, and their weight."""
    then = end_of_epoch(reading, group_id, epoch)
    log = LogRows(then, group_id)
    members, owners = read_members(log), read_partition_owners(log)
    ours = pc.index_in(owners["member_id"], value_set=combine_chunks(members["member_id"]))
    owners, place = owners.filter(pc.is_valid(ours)), to_numbers(ours.drop_null())
    count = np.bincount(place, to_numbers(owners["partition_count"]), len(members))
    columns = {name: members[name] for name in ("member_id", "instance_id", "client_id")}
    columns["client_host"] = members["client_host"]
    columns["partitions"] = pa.array(count.astype(np.int64))
    weight = _weigh(log, owners, place, len(members))
    columns["weight"] = pa.nulls(len(members), pa.float64()) if weight is None else weight
    return pa.table(columns)


def read_owners_if(reading: LogReader, group_id: str, without: str) -> pa.Table:
    """Return who would own what if members were gone, and who owns it now.

    `without` names them by member or instance ids, with commas between.
    """
    from coordinator.config import Config  # noqa: PLC0415 - planning takes its time to import
    from coordinator.core.plans.planner import PlanOptions, make_plan  # noqa: PLC0415
    from coordinator.history.former_targets import read_basis  # noqa: PLC0415

    names = list(dict.fromkeys(name.strip() for name in without.split(",")))
    if "" in names:
        raise SpecError(f"without {without!r} names no member: give ids with commas between")
    plan = make_plan(
        read_basis(reading, Config(), group_id), PlanOptions(without=names), Config(), reading.at_ms
    ).plan
    now = _Exploded.of(read_partition_owners(LogRows(reading, group_id)))
    moves = pa.Table.from_pylist(
        [
            {
                "topic": move.topic,
                "topic_id": move.topic_id,
                "first_partition": move.first_partition,
                "partition_count": move.partition_count,
                "member_id": move.to_member_id,
            }
            for move in plan.moves
        ],
        schema=pa.schema([VIEW_SCHEMAS["partition_owners"].field(name) for name in _MOVED]),
    )
    return _compare(now, now.changed(_Exploded.of(moves)), "owners_if", only_changes=False)


_MOVED = (*TOPIC, "first_partition", "partition_count", "member_id")


def _weigh(log: LogRows, owners: pa.Table, place: Longs, members: int) -> pa.Array | None:
    """Return the weight of what each member owns, by the weights noted last; None without any."""
    noted = log.present([LoadsNoted.kind], ["tombstone", "weights"])
    if not len(noted) or noted["tombstone"][-1].as_py():
        return None
    lists = noted["weights"][-1].as_py() or []
    if not lists:
        return None
    sums = {one["topic"]: np.append(0.0, np.cumsum(np.maximum(one["weights"], 0))) for one in lists}
    total = np.zeros(members)
    first, count = (to_numbers(owners[name]) for name in ("first_partition", "partition_count"))
    for topic in owners["topic"].unique().to_pylist():
        known = sums.get(topic, np.zeros(1))
        ours = pc.equal(owners["topic"], topic).to_numpy(zero_copy_only=False)
        low = np.minimum(first[ours], len(known) - 1)
        high = np.minimum(first[ours] + count[ours], len(known) - 1)
        np.add.at(total, place[ours], known[high] - known[low])
    return pa.array(total)


class _Exploded(NamedTuple):
    """Ranges with their owners, one row per partition."""

    topics: pa.Table
    partition: Longs
    owner: pa.Array

    @classmethod
    def of(cls, ranges: pa.Table) -> _Exploded:
        row, partition = number_runs(
            to_numbers(ranges["first_partition"]), to_numbers(ranges["partition_count"])
        )
        at = pa.array(row)
        return cls(ranges.select(TOPIC).take(at), partition, pick(ranges["member_id"], row))

    def changed(self, other: _Exploded) -> _Exploded:
        """Return the same with the owners of another one, where it has a row."""
        first, second = _join(self, other)
        moved = np.full(len(self.partition), -1)
        both = (first >= 0) & (second >= 0)
        moved[first[both]] = second[both]
        owner = pa.concat_arrays([self.owner, other.owner])
        place = np.where(moved >= 0, moved + len(self.owner), np.arange(len(self.owner)))
        new = second[first < 0]
        topics = pa.concat_tables([self.topics, other.topics.take(pa.array(new))])
        place = np.concatenate([place, new + len(self.owner)])
        return _Exploded(
            topics, np.concatenate([self.partition, other.partition[new]]), pick(owner, place)
        )


def _join(one: _Exploded, other: _Exploded) -> tuple[Longs, Longs]:
    """Return the rows of both for each partition of either, in order; -1 where it has none."""
    topics = pa.concat_tables([one.topics, other.topics])
    code = encode_keys(*(combine_chunks(topics[name]) for name in TOPIC))
    partition = np.concatenate([one.partition, other.partition])
    line = code * (int(partition.max(initial=0)) + 1) + partition
    keys, place = np.unique(line, return_inverse=True)
    size = len(one.partition)
    found = np.full((2, len(keys)), -1)
    found[0, place[:size]] = np.arange(size)
    found[1, place[size:]] = np.arange(len(line) - size)
    return found[0], found[1]


def _compare(
    former: _Exploded, later: _Exploded, function: str, *, only_changes: bool = True
) -> pa.Table:
    """Return the ranges with both owners."""
    first, second = _join(former, later)
    columns = {
        "former_member_id": pick(former.owner, first),
        "member_id": pick(later.owner, second),
    }
    owners = encode_keys(pa.concat_arrays(list(columns.values())))
    before, after = owners[: len(first)], owners[len(first) :]
    topics = pa.concat_tables([former.topics, later.topics])
    row = np.where(first >= 0, first, second + len(former.partition))
    partition = np.concatenate([former.partition, later.partition])[row]
    topic = encode_keys(*(combine_chunks(topics[name]) for name in TOPIC))[row]
    kept = np.flatnonzero(before != after) if only_changes else np.arange(len(first))
    touches = np.append(-2, partition[kept][:-1])[: len(kept)] == partition[kept] - 1
    begins = find_changes(topic[kept], before[kept], after[kept]) | ~touches
    start = np.flatnonzero(begins)
    end = np.append(start[1:], len(kept))[: len(start)] - 1
    low, high = partition[kept[start]], partition[kept[end]]
    found = {name: pick(topics[name], row[kept[start]]) for name in TOPIC}
    numbers = (low, high, high - low + 1)
    found |= {name: pa.array(one, pa.int32()) for name, one in zip(RANGE, numbers, strict=True)}
    found |= {name: column.take(pa.array(kept[start])) for name, column in columns.items()}
    return pa.table({name: found[name] for name in FUNCTION_SCHEMAS[function].names})


class FunctionDefinition(NamedTuple):
    """A function of a log, a group and its arguments, and the order of its rows."""

    rows: Callable[..., pa.Table]
    order: tuple[str, ...]


_SPAN = (*TOPIC, "first_partition")
FUNCTIONS = {
    "assignment_at": FunctionDefinition(read_assignment_at, _SPAN),
    "compare_epochs": FunctionDefinition(read_comparison, _SPAN),
    "loads_at": FunctionDefinition(read_loads_at, ("member_id",)),
    "owners_if": FunctionDefinition(read_owners_if, _SPAN),
}
"""The functions by name; `FUNCTION_ARGUMENTS` has what they take after the group's id."""


def call_function(
    reading: LogReader, name: str, group_id: str | None, arguments: dict[str, Any]
) -> pa.Table:
    """Return the rows of a function.

    Raises
    ------
    SpecError
        An argument is missing, unknown or of another type, or the group lacks what it names.
    """
    function, taken = FUNCTIONS[name], FUNCTION_ARGUMENTS[name]
    needs = ", ".join(("group_id", *taken))
    if not isinstance(group_id, str) or arguments.keys() != taken.keys():
        given = ", ".join((*(["group_id"] if group_id is not None else []), *arguments))
        raise SpecError(f"{name} needs {needs}, and was given {given or 'nothing'}")
    for argument, kind in taken.items():
        value = arguments[argument]
        if not isinstance(value, kind) or isinstance(value, bool):
            word = "whole number" if kind is int else "text"
            raise SpecError(f"{argument} of {name} is {value!r}: give a {word}")
    rows = function.rows(reading, group_id, **arguments)
    rows = rows.sort_by([(column, "ascending") for column in function.order])
    return rows.cast(FUNCTION_SCHEMAS[name]).combine_chunks()
