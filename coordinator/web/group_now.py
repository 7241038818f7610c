"""One group at one position: its members, current assignment against target, who is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.state.records import (
    CurrentMember,
    MembersAdvanced,
    MemberState,
)
from coordinator.history.current_views import count_ranges, find_waited
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    flatten,
    join_keys,
    to_mask,
    to_numbers,
)
from coordinator.storage.record_log import LostTarget
from coordinator.web.errors import NoGroupError
from coordinator.web.store_reader import Look
from coordinator.web.weights import Weights, read_weights

COLUMNS = (
    "member_id", "instance_id", "client_id", "client_software", "client_host", "rack_id", "state",
    "member_epoch", "owned", "pending", "target", "gets", "gives", "since", "waited", "weight",
)  # fmt: skip
WAITED_SHOWN = 5
SEARCHED = ("member_id", "instance_id", "client_id", "client_software", "client_host")
RANGE = ("topic", "topic_id", "first_partition", "partition_count")


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group as of a position.

    Attributes
    ----------
    row
        Its row of the view `groups`.
    members
        One row per member: who it is; its state and epoch; `owned`, `pending` and `target`
        partitions; how many it `gets` and `gives` until it has its target; the `weight` of what it
        owns; `since` when it is in its state, ms; whether it is `waited` for.
    epochs
        The view `epochs`.
    lost_target
        Why targets are not known; "" if they are.
    weights
        Of its partitions; None if none were noted.
    """

    row: dict[str, Any]
    members: pa.Table
    epochs: pa.Table
    lost_target: str
    weights: Weights | None

    @property
    def partitions(self) -> int:
        """How many partitions members own, or must still give up."""
        return _total(self.members["owned"])

    @property
    def moving(self) -> int:
        """How many partitions are not yet where the target wants them."""
        return _total(self.members["gets"])

    @property
    def waits_for(self) -> list[dict[str, Any]]:
        """Some of the members that are waited for, the longest first, and all they must give up."""
        waited = self.members.filter(self.members["waited"])
        longest = waited.sort_by([("since", "ascending"), ("member_id", "ascending")])
        found: list[dict[str, Any]] = longest.slice(0, WAITED_SHOWN).to_pylist()
        return found

    @property
    def waited(self) -> int:
        """How many members are waited for."""
        return int(pc.sum(self.members["waited"]).as_py() or 0)


def read_group(look: Look, group_id: str) -> GroupNow:
    """Return a group.

    Raises
    ------
    NoGroupError
        The group does not exist.
    LogError
        The log cannot be read.
    """
    return look.once(group_id, "now", lambda: _read_group(look, group_id))


def _read_group(look: Look, group_id: str) -> GroupNow:
    members = look.members(group_id)  # first: what the next view reads is a part of it
    rows = look.view("groups", group_id).to_pylist()
    if not rows:
        raise NoGroupError(group_id)
    epochs = look.view("epochs", group_id)
    try:
        target, lost = look.view("target_assignments", group_id), ""
    except LostTarget as error:  # members keep what they own, so show that
        target, lost = None, str(error)
    known = _compare(members, target)
    epoch = rows[0]["assignment_epoch"]
    waited = find_waited(members, np.full(len(members), -1 if epoch is None else epoch))
    table = members.select([*SEARCHED, "rack_id"])
    table = table.append_column("state", _name_states(members))
    table = table.append_column("member_epoch", members["member_epoch"])
    for name, column in known.items():
        table = table.append_column(name, column)
    table = table.append_column("since", _find_since(look, group_id, members, waited, epochs))
    table = table.append_column("waited", pa.array(waited))
    weights = read_weights(look, group_id)
    table = table.append_column("weight", _weigh(members, weights))
    return GroupNow(rows[0], table, epochs, lost, weights)


def _weigh(members: pa.Table, weights: Weights | None) -> pa.Array:
    """Return the weight of what each member owns, or must still give up."""
    if weights is None:
        return pa.nulls(len(members), pa.float64())
    member, ranges = _flatten_owned(members)
    return pa.array(np.bincount(member, weights.of_ranges(ranges), minlength=len(members)))


def _name_states(members: pa.Table) -> pa.Array:
    """Return the states as members show them: in small letters, spaces for underscores."""
    names = [state.name for state in MemberState]
    texts = pa.array([name.lower().replace("_", " ") for name in names])
    return texts.take(pc.index_in(combine_chunks(members["state"]), value_set=pa.array(names)))


def _compare(members: pa.Table, target: pa.Table | None) -> dict[str, pa.Array]:
    """Return how many partitions each member owns, must give up, and will have."""
    ids = combine_chunks(members["member_id"])
    assigned, pending = (count_ranges(members[name]) for name in ("assigned", "pending"))
    counts = {"owned": pa.array(assigned + pending), "pending": pa.array(pending)}
    if target is None:
        nothing = pa.nulls(len(ids), pa.int64())
        return counts | dict.fromkeys(("target", "gets", "gives"), nothing)
    held_by, held = _flatten_owned(members)
    wanted_by = to_numbers(pc.index_in(target["member_id"], value_set=ids))
    there = wanted_by >= 0
    wanted = target.select(list(RANGE)).filter(pa.array(there))
    wanted_by = wanted_by[there]
    count = to_numbers(wanted["partition_count"])
    total = np.bincount(wanted_by, weights=count, minlength=len(ids)).astype(np.int64)
    either = _count_union(
        np.concatenate([held_by, wanted_by]), pa.concat_tables([held, wanted]), len(ids)
    )
    owned = assigned + pending
    return counts | {
        "target": pa.array(total),
        "gets": pa.array(either - owned),
        "gives": pa.array(either - total),
    }


def _flatten_owned(members: pa.Table) -> tuple[Longs, pa.Table]:
    """Return the ranges that members own or must give up, and the row of each one's member."""
    rows, tables = [], []
    for name in ("assigned", "pending"):
        row, ranges = flatten(combine_chunks(members[name]))
        rows.append(row)
        tables.append(pa.table({column: ranges.field(column) for column in RANGE}))
    return np.concatenate(rows), pa.concat_tables(tables)


def _count_union(member: Longs, ranges: pa.Table, members: int) -> Longs:
    """Return how many partitions the ranges of each member cover; ranges may overlap."""
    if not len(ranges):
        return np.zeros(members, np.int64)
    topic = encode_keys(*(combine_chunks(ranges[name]) for name in ("topic", "topic_id")))
    key = join_keys(member, topic)
    low = to_numbers(ranges["first_partition"])
    high = low + to_numbers(ranges["partition_count"])
    span = int(high.max()) + 1
    order = np.lexsort((low, key))
    begin, end = (key * span + low)[order], (key * span + high)[order]
    covered = np.append(-1, np.maximum.accumulate(end)[:-1])
    new = np.maximum(0, end - np.maximum(begin, covered))
    return np.bincount(member[order], weights=new, minlength=members).astype(np.int64)


def _find_since(
    look: Look, group_id: str, members: pa.Table, waited: Bools, epochs: pa.Table
) -> pa.Array:
    """Return since when each member is in its state, ms; or since when it lacks its target."""
    columns = ["position", "at", "kind", "member_id", "member_ids"]
    rows = look.rows(group_id).past([CurrentMember.kind, MembersAdvanced.kind], columns)
    row, many = flatten(combine_chunks(rows["member_ids"]))
    ids = pa.concat_arrays([combine_chunks(rows["member_id"]), many.cast(pa.string())])
    at = to_numbers(combine_chunks(rows["at"]).cast(pa.timestamp("ms", tz="UTC")))
    place = to_numbers(pc.index_in(ids, value_set=combine_chunks(members["member_id"])))
    when = np.concatenate([at, at[row]])
    since = np.full(len(members), -1, np.int64)
    np.maximum.at(since, place[place >= 0], when[place >= 0])
    computed_at = epochs["computed_at"].drop_null()
    if len(computed_at):
        computed = combine_chunks(computed_at)[-1].cast(pa.timestamp("ms", tz="UTC")).value
        uninformed = waited & ~to_mask(pc.greater(pc.list_value_length(members["pending"]), 0))
        since = np.where(uninformed, np.maximum(since, computed), since)
    return pa.array(since, mask=since < 0)


def newest_epoch(epochs: pa.Table) -> dict[str, Any] | None:
    """Return the last row of the view `epochs`."""
    return epochs.slice(len(epochs) - 1).to_pylist()[0] if len(epochs) else None


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)
