"""Views of the state at a position: topics, members, ranges, targets, offsets, groups.

Each public function computes one view of docs/guide/sql.md with column operations. Its twin in SQL
is in spark_jobs/sql.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.state.groups import GROUP_STATES, GroupState, StateColumns
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    KafkaWatched,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    OffsetCommitted,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    TopicChanged,
)
from coordinator.core.state.target_assignment import StoredTarget
from coordinator.history import classic_views
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_last,
    flatten,
    is_kind,
    join_keys,
    null_empty,
    pick,
    pick_lists,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows, repeat_shard
from coordinator.history.view_schemas import GROUP_COLUMNS, VIEW_SCHEMAS
from coordinator.history.watched import COLUMNS, find_watched
from coordinator.storage.target_table import RANGE_SCHEMA, read_checked_rows

MS = 1000
"""Microseconds."""
KEY = ("kind", "tombstone", "group_id", "member_id")
NAMES = "subscribed_topic_names"
WHO = ("instance_id", "rack_id", "client_id", "client_host", "client_software")
WANTED = ("subscribed_topic_regex", "rebalance_timeout_ms", "server_assignor")
RANGE = ("topic_id", "topic", "first_partition", "partition_count")


def read_topics(log: LogRows) -> pa.Table:
    """Return the topics that exist: one row per topic."""
    columns = ["tombstone", "topic", "topic_id", "partitions"]
    rows = log.present([TopicChanged.kind], columns)
    return take_last(rows, encode_keys(combine_chunks(rows["topic"]))).select(
        ["topic", "topic_id", "partitions"]
    )


def read_offsets(log: LogRows) -> pa.Table:
    """Return the committed offsets: one row per partition."""
    key = ["group_id", "topic", "partition"]
    columns = ["tombstone", *key, "topic_id", "offset", "leader_epoch", "metadata"]
    rows = log.present([OffsetCommitted.kind], [*columns, "commit_timestamp"])
    kept = take_last(rows, encode_keys(*(combine_chunks(rows[name]) for name in key)))
    at = kept["commit_timestamp"].cast(pa.timestamp("ms", tz="UTC"))
    kept = kept.append_column("committed_at", at.cast(pa.timestamp("us", tz="UTC")))
    own = ["offset", "leader_epoch", "metadata", "committed_at"]
    return kept.select(["group_id", "topic", "topic_id", "partition", *own])


def read_offset_commits(log: LogRows) -> pa.Table:
    """Return the offsets that were ever committed, or deleted: one row per record."""
    names = ["position", "at", "tombstone", "group_id", "topic", "topic_id", "partition"]
    names += ["offset", "leader_epoch", "metadata", "commit_timestamp"]
    rows = log.past([OffsetCommitted.kind], names)
    at = rows["commit_timestamp"].cast(pa.timestamp("ms", tz="UTC"))
    renamed = {"at": "recorded_at", "tombstone": "deleted", "commit_timestamp": "committed_at"}
    columns = {renamed.get(name, name): rows[name] for name in names} | {"committed_at": at}
    schema = VIEW_SCHEMAS["offset_commits"]
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def take_last(rows: pa.Table, keys: Longs) -> pa.Table:
    """Return the last row of each key, unless it is a tombstone."""
    last = find_last(keys, np.arange(len(rows)), int(keys.max(initial=-1)) + 1)
    kept = rows.take(pa.array(last))
    return kept.filter(pc.invert(kept["tombstone"]))


# Members -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberRows:
    """The current members of all groups, each by the indices of its rows in a table.

    Attributes
    ----------
    metadata, current, step
        int64 arrays, one element per member: the last row with its subscription, the last with what
        it owns, and the last with an epoch that it reached afterwards; -1 without one.
    """

    rows: pa.Table
    metadata: Longs
    current: Longs
    step: Longs

    @property
    def ids(self) -> pa.Table:
        """group_id and member_id of each member."""
        names = ["group_id", "member_id"]
        return pa.table({name: pick(self.rows[name], self.metadata) for name in names})

    @property
    def state(self) -> pa.Array:
        """The state of each member, by name."""
        here = np.where(self.step < 0, self.current, -1)
        return pc.fill_null(pick(self.rows["state"], here), MemberState.STABLE.name)

    @property
    def member_epoch(self) -> pa.Array:
        """The member epoch of each member: the assignment epoch that it has reached."""
        reached = np.where(self.step < 0, self.current, self.step)
        return pc.fill_null(pick(self.rows["member_epoch"], reached), 0)

    @property
    def assigned(self) -> pa.Array:
        """The ranges that each member may use."""
        return pick_lists(self.rows["assigned"], self.current)

    @property
    def pending(self) -> pa.Array:
        """The ranges that each member still has to give up."""
        return pick_lists(self.rows["pending"], np.where(self.step < 0, self.current, -1))


def read_member_rows(log: LogRows, *more: str) -> MemberRows:
    """Read the members, and more columns of their metadata."""
    kinds = [MemberMetadata.kind, CurrentMember.kind, MembersAdvanced.kind]
    owned = ["state", "member_epoch", "assigned", "pending", "member_ids"]
    rows = log.present(kinds, [*KEY, *owned, *more])
    who, advanced = is_kind(rows, MemberMetadata.kind), is_kind(rows, MembersAdvanced.kind)
    row, member_ids = flatten(combine_chunks(rows["member_ids"]))
    # Members that reach an epoch without a change of their assignment share one row of the log.
    ids = pa.concat_arrays([combine_chunks(rows["member_id"]), member_ids.cast(pa.string())])
    groups = encode_keys(combine_chunks(rows["group_id"]))
    keys = join_keys(np.concatenate([groups, groups[row]]), encode_keys(ids))
    size = int(keys.max(initial=-1)) + 1
    metadata = find_last(keys, np.flatnonzero(who), size)
    current = find_last(keys, np.flatnonzero(~who & ~advanced), size)
    step = find_last(keys, np.arange(len(rows), len(keys)), size)
    step = np.append(row, -1)[np.where(step < 0, -1, step - len(rows))]
    alive = metadata >= 0
    alive[alive] = ~to_mask(rows["tombstone"])[metadata[alive]]
    found = [one[alive] for one in (metadata, current, np.where(step > current, step, -1))]
    return MemberRows(rows, *found)


def read_members(log: LogRows) -> pa.Table:
    """Return the members of all groups: one row per member."""
    found = read_member_rows(log, *WHO, NAMES, *WANTED)
    columns = _tell_members(found)
    columns[NAMES] = parse_name_lists(pick(found.rows[NAMES], found.metadata))
    columns |= {name: pick(found.rows[name], found.metadata) for name in WANTED}
    classic = classic_views.read_classic_members(classic_views.read_present(log))
    return _join_rows(VIEW_SCHEMAS["members"], pa.table(columns), classic)


def read_member_states(log: LogRows) -> pa.Table:
    """Return the same without what members subscribe to, which is long where topics are many."""
    columns = _tell_members(read_member_rows(log, *WHO))
    classic = classic_views.read_classic_members(classic_views.read_present(log))
    schema = pa.schema([field for field in VIEW_SCHEMAS["members"] if field.name in columns])
    return _join_rows(schema, pa.table(columns), classic)


def _tell_members(found: MemberRows) -> dict[str, pa.Array]:
    columns = {name: found.ids[name] for name in found.ids.column_names}
    columns |= {name: pick(found.rows[name], found.metadata) for name in WHO}
    columns["client_software"] = null_empty(columns["client_software"])
    columns |= {"state": found.state, "member_epoch": found.member_epoch}
    return columns | {"assigned": found.assigned, "pending": found.pending}


def _join_rows(schema: pa.Schema, *tables: pa.Table) -> pa.Table:
    """Return rows of a view that are found apart."""
    return pa.concat_tables([table.select(schema.names).cast(schema) for table in tables])


def parse_name_lists(texts: pa.Array) -> pa.Array:
    """Parse JSON lists of names; each distinct text is parsed once."""
    coded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    lists = [msgspec.json.decode(text, type=list[str]) for text in coded.dictionary.to_pylist()]
    return pa.array(lists, pa.list_(pa.string())).take(coded.indices)


def read_current_assignments(log: LogRows) -> pa.Table:
    """Return what each member may own now, and what it must give up: one row per range."""
    found = read_members(log)
    who = ("group_id", "member_id", "instance_id", "client_id", "client_host")
    about = found.select([*who, "member_epoch", "state"])
    pieces = []
    for column, pending in (("assigned", False), ("pending", True)):
        member, ranges = flatten(combine_chunks(found[column]))
        piece = about.take(pa.array(member))
        for name in (*RANGE, "assignment_epoch"):
            piece = piece.append_column(name, ranges.field(name))
        pieces.append(
            piece.append_column("pending_revocation", pa.array(np.full(len(piece), pending)))
        )
    return pa.concat_tables(pieces)


def find_waited(members: pa.Table, assignment_epoch: Longs) -> Bools:
    """Return a mask of members whose next heartbeat others wait for.

    These must still give up partitions, or have not yet received the target.
    """
    gives_up = to_numbers(pc.list_value_length(members["pending"]), 0) > 0
    behind = to_numbers(members["member_epoch"]) < assignment_epoch
    found: Bools = gives_up | behind
    return found


def count_ranges(lists: pa.Array | pa.ChunkedArray) -> Longs:
    """Return the number of partitions in each list of ranges."""
    row, ranges = flatten(combine_chunks(lists))
    count = to_numbers(ranges.field("partition_count"))
    total = np.bincount(row, weights=count, minlength=len(lists))
    return total.astype(np.int64)


# Targets -----------------------------------------------------------------------------------------


def read_target_assignments(log: LogRows) -> pa.Table:
    """Return the target assignment of each member: one row per range.

    Raises
    ------
    LostTarget
        The rows of a target are no longer in the table `targets`.
    """
    alone, gone, whole_targets = _read_small_targets(log)
    pieces = [alone]
    if whole_targets:
        there = read_member_rows(log).ids
        pieces += [_read_whole_target(log, stored, there, gone) for stored in whole_targets]
    found = pa.concat_tables(pieces)
    classic = classic_views.read_present(log)
    known = _find_groups(log)
    place = pc.index_in(found["group_id"], value_set=known.ids)
    found = found.append_column(
        "assignment_epoch", _null_unknown(known.assignment_epoch).take(combine_chunks(place))
    )
    found = found.filter(pc.is_valid(place))
    targets = classic_views.read_classic_targets(classic)
    return _join_rows(VIEW_SCHEMAS["target_assignments"], found, targets)


def _read_small_targets(log: LogRows) -> tuple[pa.Table, pa.Table, list[StoredTarget]]:
    """Return the targets in the log, their members, and the targets in the table `targets`.

    A target in the table replaces all earlier records of members; later records override it.
    """
    named = ["assignment_epoch", "computation_id", "targets_version", "digest", "members", "ranges"]
    kinds = [TargetMember.kind, TargetMetadata.kind]
    rows = log.present(kinds, [*KEY, "target", *named])
    keys, number = encode_keys(combine_chunks(rows["group_id"])), np.arange(len(rows))
    size = int(keys.max(initial=-1)) + 1
    marks, ended = is_kind(rows, TargetMetadata.kind), to_mask(rows["tombstone"])
    installs = marks & to_mask(pc.is_valid(rows["targets_version"]))
    install = find_last(keys, number[installs], size)
    install = np.where(install > find_last(keys, number[marks & ended], size), install, -1)
    own = join_keys(keys, encode_keys(combine_chunks(rows["member_id"])))
    last = find_last(own, number[~marks], int(own.max(initial=-1)) + 1)
    last = last[last >= 0]
    last = last[last > install[keys[last]]]
    ids = rows.select(["group_id", "member_id"]).take(pa.array(last))
    at, ranges = flatten(pick_lists(rows["target"], last))
    small = ids.take(pa.array(at))
    for name in RANGE:
        small = small.append_column(name, ranges.field(name))
    stored = rows.take(pa.array(install[install >= 0])).select(["group_id", *named]).to_pylist()
    return small, ids, [StoredTarget(*row.values()) for row in stored]


def _read_whole_target(
    log: LogRows, stored: StoredTarget, there: pa.Table, gone: pa.Table
) -> pa.Table:
    """Return a target of the table, without members that left or got a later target in the log."""
    rows = read_checked_rows(log.store, stored).cast(RANGE_SCHEMA)
    ours, others = (
        combine_chunks(table.filter(pc.equal(table["group_id"], stored.group_id))["member_id"])
        for table in (there, gone)
    )
    stays = pc.is_in(rows["member_id"], value_set=ours)
    alone = pc.is_in(rows["member_id"], value_set=others)
    rows = rows.filter(pc.and_(stays, pc.invert(alone)))
    group = pa.array([stored.group_id], pa.string()).take(pa.array(np.zeros(len(rows), np.int64)))
    return rows.append_column("group_id", group).select(["group_id", "member_id", *RANGE])


# Groups ------------------------------------------------------------------------------------------

GROUP_KINDS = (GroupMetadata, TargetMetadata, MemberMetadata, RegexResolved)


@dataclass(frozen=True, slots=True)
class _GroupRows:
    """The consumer groups that there are: their ids, and the rows of their epoch and target."""

    rows: pa.Table
    ids: pa.Array
    newest: Longs
    target: Longs

    @property
    def assignment_epoch(self) -> Longs:
        """The epoch of each group's target; -1 before the first one."""
        return to_numbers(pick(self.rows["assignment_epoch"], self.target))


def _find_groups(log: LogRows) -> _GroupRows:
    names = ["epoch", "assignment_epoch", "assignor", "partial"]
    rows = log.present([one.kind for one in GROUP_KINDS], [*KEY, *names])
    keys, number = encode_keys(combine_chunks(rows["group_id"])), np.arange(len(rows))
    size = int(keys.max(initial=-1)) + 1
    ended = to_mask(rows["tombstone"])
    marks, targets = is_kind(rows, GroupMetadata.kind), is_kind(rows, TargetMetadata.kind)
    any_row, newest = find_last(keys, number[~ended], size), find_last(keys, number[marks], size)
    target = find_last(keys, number[targets], size)
    alive = (newest < 0) | ~np.append(ended, False)[newest] | (any_row > newest)
    named = pick(rows["group_id"], find_last(keys, number, size)[alive])
    return _GroupRows(rows, named, newest[alive], target[alive])


def read_groups(log: LogRows) -> pa.Table:
    """Return all groups, including ids that only have offsets: one row per group."""
    found = read_group_states(log)
    incarnation = Incarnations(log).latest(found["group_id"])
    nothing = pa.scalar(None, incarnation.type)  # of an id that no group has
    known = pc.if_else(pc.is_valid(found["group_epoch"]), incarnation, nothing)
    found = found.append_column("incarnation", known)
    watched = find_watched(log.present([KafkaWatched.kind], COLUMNS))
    schema = VIEW_SCHEMAS["groups"]
    values = (None, None) if watched is None else (watched.observed, watched.timestamp * MS)
    for name, value in zip(("observed", "observed_since"), values, strict=True):
        one = pa.scalar(value, pa.int64() if name == "observed_since" else pa.string())
        found = found.append_column(name, pa.repeat(one, len(found)).cast(schema.field(name).type))
    found = found.append_column("shard", repeat_shard(log, len(found)))
    return found.select(schema.names)


def read_group_states(log: LogRows) -> pa.Table:
    """Return the rows of `read_groups` without incarnations: for these, all of the log is read."""
    known = _find_groups(log)
    rows, named, target = known.rows, known.ids, known.target
    group_epoch = to_numbers(pick(rows["epoch"], known.newest), 1)
    assignment_epoch = known.assignment_epoch
    assignor = pick(rows["assignor"], target)
    count, arrived = _count_members(log, named, assignment_epoch)
    found = pa.table(
        {
            "group_id": named,
            "group_type": _repeat("consumer", len(named)),
            "state": _compute_states(count, arrived, group_epoch > assignment_epoch),
            "group_epoch": pa.array(group_epoch, pa.int32()),
            "assignment_epoch": _null_unknown(assignment_epoch),
            "assignor": null_empty(assignor),
            "partial": pc.fill_null(pick(rows["partial"], target), fill_value=False),
            "members": pa.array(count, pa.int64()),
        }
    )
    classic = classic_views.read_classic_groups(classic_views.read_present(log))
    found = _join_rows(GROUP_COLUMNS, found, classic)
    return pa.concat_tables([found, _find_offsets_only(log, found)])


def _null_unknown(epochs: Longs) -> pa.Array:
    return pa.array(epochs, pa.int32(), mask=epochs < 0)


def _count_members(log: LogRows, named: pa.Array, assignment_epoch: Longs) -> tuple[Longs, Longs]:
    """Return how many members each group has, and how many of them have reached the target."""
    found = read_member_rows(log)
    place = to_numbers(pc.index_in(found.ids["group_id"], value_set=named))
    stable = to_mask(pc.equal(found.state, MemberState.STABLE.name))
    reached = stable & (to_numbers(found.member_epoch) == np.append(assignment_epoch, -1)[place])
    here = place >= 0
    count = np.bincount(place[here], minlength=len(named))
    return count, np.bincount(place[here & reached], minlength=len(named))


def _compute_states(members: Longs, arrived: Longs, waiting: Bools) -> pa.Array:
    """Return the state of each group as Kafka computes it (G-2)."""
    now = StateColumns(members, waiting, arrived)
    cases = [holds(now) for _, holds in GROUP_STATES]
    states = np.select(cases, [state.value for state, _ in GROUP_STATES], "")
    return pa.array(states, pa.string())


def _find_offsets_only(log: LogRows, found: pa.Table) -> pa.Table:
    """Return the ids that have only offsets, which Kafka calls simple groups."""
    ids = pc.unique(read_offsets(log)["group_id"])
    ids = ids.filter(pc.invert(pc.is_in(ids, value_set=combine_chunks(found["group_id"]))))
    columns = {
        name: pa.nulls(len(ids), found.schema.field(name).type) for name in found.schema.names
    }
    columns |= {
        "group_id": ids,
        "group_type": _repeat("classic", len(ids)),
        "state": _repeat(GroupState.EMPTY.value, len(ids)),
        "members": pa.array(np.zeros(len(ids), np.int64)),
    }
    return pa.table(columns, schema=found.schema)


def _repeat(text: str, rows: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(rows, np.int64)))
