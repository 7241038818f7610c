"""Classic groups in the views, from the records of their generations.

A generation is a group epoch, and what its record says a member has been assigned, the member owns.
Records say this in ranges for consumers; members of other protocol types own nothing that is known.
The bytes of members are not read here, so none of them can make a view fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.reasons import Reason
from coordinator.core.state.records import ClassicGroupWritten, MemberState
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    encode_keys,
    find_changes,
    find_last,
    flatten,
    join_keys,
    null_empty,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.view_schemas import GROUP_COLUMNS, OWNED, VIEW_SCHEMAS

MEMBERS = "classic_members"
CLIENT = ("instance_id", "client_id", "client_host")
RANGE = ("topic", "topic_id", "first_partition", "partition_count")
COLUMNS = (
    "tombstone",
    "group_id",
    "generation",
    "assignor",
    "moved",
    "reason",
    "member_id",
    MEMBERS,
)


@dataclass(frozen=True)
class ClassicRecords:
    """Records of classic groups in order, and the members in them.

    Attributes
    ----------
    rows
        Records; a tombstone is one without members.
    record, members
        Of each member in a record: the record's row, and the member.
    """

    rows: pa.Table
    record: Longs
    members: pa.StructArray

    @classmethod
    def of(cls, rows: pa.Table) -> ClassicRecords:
        """Take rows of the log of the kind."""
        record, members = flatten(combine_chunks(rows[MEMBERS]))
        return cls(rows, record, members)

    @cached_property
    def group(self) -> Longs:
        """A code of each record's group."""
        return encode_keys(combine_chunks(self.rows["group_id"]))

    @cached_property
    def generation(self) -> Longs:
        """Of each record; 0 of a tombstone."""
        return to_numbers(self.rows["generation"], 0)

    @cached_property
    def before(self) -> Longs:
        """The row of the record before each one of its group; -1 without one."""
        order = np.argsort(self.group, kind="stable")
        same = ~find_changes(self.group[order])
        found = np.full(len(order), -1, dtype=np.int64)
        found[order[same]] = order[np.flatnonzero(same) - 1]
        return found

    @cached_property
    def begins(self) -> Bools:
        """Which records begin a generation; others only change a member, or end the group."""
        last = np.append(self.generation, 0)[self.before]
        found: Bools = (self.generation != last) & ~to_mask(self.rows["tombstone"])
        return found

    @cached_property
    def assigned(self) -> pa.ListArray:
        """The ranges of each member, each with the generation."""
        at, ranges = flatten(self.members.field("assigned"))
        epochs = pa.array(self.generation[self.record[at]], pa.int32())
        values = [
            ranges.field(name) if name in RANGE else epochs
            for name in (field.name for field in OWNED.value_type)
        ]
        structs = pa.StructArray.from_arrays(values, fields=list(OWNED.value_type))
        lengths = to_numbers(pc.list_value_length(self.members.field("assigned")), 0)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, OWNED)

    def column(self, name: str) -> pa.Array:
        """Return a column of the record of each member."""
        return pick(self.rows[name], self.record)


def read_present(log: LogRows) -> ClassicRecords:
    """Return the last record of each existing classic group."""
    rows = log.present([ClassicGroupWritten.kind], COLUMNS)
    keys = encode_keys(combine_chunks(rows["group_id"]))
    last = find_last(keys, np.arange(len(rows)), int(keys.max(initial=-1)) + 1)
    rows = rows.take(pa.array(last))
    return ClassicRecords.of(rows.filter(pc.invert(rows["tombstone"])))


def read_classic_groups(found: ClassicRecords) -> pa.Table:
    """Return rows of `groups`, without incarnations."""
    rows = found.rows
    count = np.bincount(found.record, minlength=len(rows))
    state = np.where(count > 0, "Stable", "Empty")
    columns = {
        "group_id": rows["group_id"],
        "group_type": pa.array(np.full(len(rows), "classic"), pa.string()),
        "state": pa.array(state, pa.string()),
        "group_epoch": rows["generation"],
        "assignment_epoch": rows["generation"],
        "assignor": null_empty(rows["assignor"]),
        "partial": pa.array(np.zeros(len(rows), np.bool_)),
        "members": pa.array(count, pa.int64()),
    }
    return pa.table(columns, schema=GROUP_COLUMNS)


def read_classic_members(found: ClassicRecords) -> pa.Table:
    """Return rows of `members`."""
    size = len(found.record)
    columns = {
        "group_id": found.column("group_id"),
        "state": pa.array(np.full(size, MemberState.STABLE.name), pa.string()),
        "member_epoch": found.column("generation"),
        "assigned": found.assigned,
        "pending": pa.array([[]] * size, OWNED),
    }
    schema, own = VIEW_SCHEMAS["members"], {field.name for field in found.members.type}
    for name in schema.names:
        if name not in columns:
            there = name in own
            columns[name] = (
                found.members.field(name) if there else pa.nulls(size, schema.field(name).type)
            )
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def read_classic_targets(found: ClassicRecords) -> pa.Table:
    """Return rows of `target_assignments`: what members were assigned last."""
    at, ranges = flatten(found.assigned)
    columns = {
        "group_id": found.column("group_id").take(pa.array(at)),
        "assignment_epoch": found.column("generation").take(pa.array(at)),
        "member_id": found.members.field("member_id").take(pa.array(at)),
        **{name: ranges.field(name) for name in RANGE},
    }
    schema = VIEW_SCHEMAS["target_assignments"]
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def read_classic_epochs(log: LogRows) -> pa.Table:
    """Return rows of `epochs`: the generations that were assigned."""
    found = ClassicRecords.of(log.past([ClassicGroupWritten.kind], ["position", "at", *COLUMNS]))
    begun = np.flatnonzero(found.begins)
    columns: dict[str, pa.Array] = {
        name: pick(found.rows[name], begun)
        for name in ("group_id", "position", "reason", "member_id")
    }
    columns |= {name: pick(found.rows["generation"], begun) for name in _EPOCHS}
    columns |= {name: pick(found.rows["at"], begun) for name in ("recorded_at", "computed_at")}
    columns["target_position"] = columns["position"]
    columns["assignor"] = null_empty(pick(found.rows["assignor"], begun))
    ours = pc.is_valid(columns["assignor"])  # moves of what a leader assigns are not counted
    moved = pick(found.rows["moved"], begun)
    columns["moved"] = pc.if_else(ours, moved, pa.scalar(None, pa.int64()))
    columns["partial"] = pa.array(np.zeros(len(begun), np.bool_))
    columns["topics_changed"] = pa.nulls(len(begun), pa.list_(pa.string()))
    who = _find_causes(found, begun)
    columns |= {name: pick(found.members.field(name), who) for name in CLIENT}
    return pa.table(columns)


_EPOCHS = ("group_epoch", "assignment_epoch")


def _find_causes(found: ClassicRecords, begun: Longs) -> Longs:
    """Return the member that caused each generation: in its record, else in the one before."""
    ids = pa.concat_arrays(
        [found.members.field("member_id"), combine_chunks(found.rows["member_id"])]
    )
    codes = encode_keys(ids)
    size = int(codes.max(initial=0)) + 1
    theirs, cause = codes[: len(found.record)], codes[len(found.record) :][begun]
    line = found.record * size + theirs
    order = np.argsort(line, kind="stable")

    def find(record: Longs) -> Longs:
        wanted = np.where(record < 0, -1, record * size + cause)
        place = np.searchsorted(line[order], wanted)
        there = np.append(line[order], -2)[place] == wanted
        return np.where(there, np.append(order, -1)[place], -1)

    here, earlier = find(begun), find(found.before[begun])
    return np.where(here >= 0, here, earlier)


# What members own, for the history ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassicHoldings:
    """What members have by each record, those of one member side by side and in order.

    Attributes
    ----------
    rows
        position, at, group_id, member_id, who it is, tombstone, assigned, and why: epoch, reason,
        cause. A member that a record no longer has gets a row that is a tombstone.
    member
        A code of each row's member.
    """

    rows: pa.Table
    member: Longs


def read_classic_holdings(log: LogRows) -> ClassicHoldings:
    """Return what members of classic groups had by each record."""
    found = ClassicRecords.of(log.past([ClassicGroupWritten.kind], ["position", "at", *COLUMNS]))
    member = join_keys(
        found.group[found.record], encode_keys(combine_chunks(found.members.field("member_id")))
    )
    number = np.arange(len(found.rows))
    after = Timeline(found.group, number).next(found.group, number)
    line = found.record * (int(member.max(initial=0)) + 1) + member
    later = after[found.record]
    stays = np.isin(later * (int(member.max(initial=0)) + 1) + member, line)
    gone = np.flatnonzero((later >= 0) & ~stays)
    entry = np.concatenate([np.arange(len(member)), gone])
    record = np.concatenate([found.record, later[gone]])
    order = np.lexsort((record, member[entry]))
    entry, record = entry[order], record[order]
    tombstone = order >= len(member)
    ended = to_mask(found.rows["tombstone"])[record]
    columns = {name: pick(found.rows[name], record) for name in ("position", "at", "group_id")}
    columns |= {
        name: found.members.field(name).take(pa.array(entry)) for name in ("member_id", *CLIENT)
    }
    columns["tombstone"] = pa.array(tombstone)
    columns["assigned"] = found.assigned.take(
        pa.array(np.where(tombstone, -1, entry), mask=tombstone)
    )
    begins = found.begins[record]
    epoch, reason, cause = (
        pick(found.rows[name], np.where(ended, -1, record))
        for name in ("generation", "reason", "member_id")
    )
    # A record of the same generation is of a static member that returned, with another id.
    static = pa.array(~begins & ~ended)
    columns["epoch"] = pc.if_else(pa.array(tombstone & ~begins), pa.scalar(None, pa.int32()), epoch)
    columns["reason"] = pc.if_else(static, Reason.STATIC_MEMBER_RETURNED.value, reason)
    no_member = pa.scalar(None, pa.string())
    own = pc.if_else(pa.array(tombstone), no_member, columns["member_id"])
    columns["cause"] = pc.if_else(static, own, cause)
    return ClassicHoldings(pa.table(columns), member[entry])
