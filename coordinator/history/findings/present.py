"""Findings about groups as they are: who owns nothing or too much, what is about to expire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.groups import GroupState
from coordinator.core.state.records import GroupUnread
from coordinator.history.current_views import read_offsets, take_last
from coordinator.history.findings.facts import WANTS, Facts, name_first
from coordinator.history.findings.loads import Loads
from coordinator.history.findings.times import to_ms, to_times
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_changes,
    pick,
    to_mask,
    to_numbers,
)

LEAST_DIFFERENCE = 2
"""Partitions: no assignment is closer than by one."""
PARTITIONS, WEIGHT = "partitions", "weight"


def find_unreadable_groups(facts: Facts) -> pa.Table:
    """Return the groups of a Kafka cluster whose records cannot be decoded."""
    names = ["group_id", "partition", "offset", "reason"]
    rows = facts.log.present([GroupUnread.kind], ["tombstone", *names])
    return take_last(rows, encode_keys(combine_chunks(rows["group_id"]))).select(names)


def find_classic_groups(facts: Facts) -> pa.Table:
    """Return the groups of consumers that have members, all on the classic protocol."""
    groups = facts.groups
    classic = to_mask(pc.equal(groups["group_type"], "classic")) & facts.of_consumers
    live = to_numbers(groups["members"]) > 0
    found = groups.filter(pa.array(classic & live))
    return found.append_column("generation", found["group_epoch"])


def find_idle_members(facts: Facts) -> pa.Table:
    """Return the Stable groups in which members own nothing."""
    groups, place, size = facts.groups, facts.place, len(facts.groups)
    judged = facts.stable & facts.of_consumers
    wants = to_mask(pc.not_equal(facts.members[WANTS], ""))  # else its bytes were not understood
    idle = (facts.owned == 0) & judged[place] & wants
    names = combine_chunks(facts.members["member_id"]).filter(pa.array(idle))
    count = np.bincount(place[idle], minlength=size)
    found = groups.select(["group_id", "members"])
    for name, column in {
        "idle": count,
        "partitions": np.bincount(place, facts.owned, size).astype(np.int64),
        "member_ids": name_first(place[idle], names, size),
    }.items():
        found = found.append_column(name, pa.array(column))
    return found.filter(pa.array(count > 0))


def find_skew(facts: Facts) -> pa.Table:
    """Return where one member has much more than its share, of those that subscribe alike.

    Loads are weights where the log has them. No member's share is less than the heaviest partition.
    Groups with capacities, constraints or drained members are left to `muster plan`.
    """
    loads = Loads.read(facts)
    members, place = facts.members, facts.place
    of_plain = facts.stable & facts.of_consumers & ~loads.ruled
    some = np.flatnonzero(of_plain[place] & to_mask(pc.not_equal(members[WANTS], "")))
    peers = encode_keys(*(combine_chunks(members[name]) for name in ("group_id", WANTS)))[some]
    order = np.lexsort((peers, place[some]))
    some, peers = some[order], peers[order]
    first = np.flatnonzero(find_changes(peers))
    load = loads.of_members[some]
    line = np.cumsum(find_changes(peers)) - 1
    count = np.bincount(line, minlength=len(first))
    mean = np.bincount(line, load, len(first)) / np.maximum(count, 1)
    most, least = (
        op.reduceat(load, first) if len(first) else load for op in (np.maximum, np.minimum)
    )
    weighed = loads.weighed[place[some[first]]]
    share = np.maximum(mean, np.where(weighed, loads.heaviest[place[some[first]]], 0))
    apart = weighed | (most - least >= LEAST_DIFFERENCE)
    skewed = np.flatnonzero(apart & (share > 0) & (most > facts.limits.skew * share))
    top = np.flatnonzero(load == most[line])[::-1]
    who = np.full(len(first), -1)
    who[line[top]] = some[top]  # the first by id
    measure = pa.array([PARTITIONS, WEIGHT]).take(pa.array(weighed[skewed].astype(np.int64)))
    columns = {name: pick(members[name], who[skewed]) for name in ("group_id", "member_id")}
    columns |= {"measure": measure, "members": pa.array(count[skewed])}
    numbers = {"most": most, "least": least, "share": share}
    return pa.table(columns | {name: pa.array(one[skewed]) for name, one in numbers.items()})


def find_expiring_offsets(facts: Facts) -> pa.Table:
    """Return the groups without members of which offsets expire soon, or should have.

    As the coordinator expires them: since an offset was committed, or since a classic group is
    Empty.
    """
    groups = facts.groups
    offsets = read_offsets(facts.log)
    place = facts.place_of(offsets["group_id"])
    empty = to_mask(pc.equal(groups["state"], GroupState.EMPTY.value))
    ours = np.flatnonzero((place >= 0) & np.append(empty, False)[place])
    used_ms = to_ms(offsets["committed_at"])[ours]
    classic = to_numbers(
        pc.index_in(groups["group_id"], value_set=combine_chunks(facts.classic["group_id"]))
    )
    typed = to_mask(pc.not_equal(facts.classic["protocol_type"], ""))
    emptied = to_numbers(facts.classic["state_timestamp"])
    since = np.where(np.append(typed, False)[classic], np.append(emptied, -1)[classic], -1)
    place = place[ours]
    used_ms = np.where(since[place] >= 0, since[place], used_ms)
    ends_ms = used_ms + facts.limits.retention_ms
    soon = ends_ms <= facts.now_ms + facts.limits.expires_ms
    first = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(first, place[soon], ends_ms[soon])
    count = np.bincount(place[soon], minlength=len(groups))
    there = count > 0
    columns = {
        "group_id": groups["group_id"].filter(pa.array(there)),
        "offsets": pa.array(count[there]),
        "all_offsets": pa.array(np.bincount(place, minlength=len(groups))[there]),
        "expires_at": to_times(first[there]),
    }
    return pa.table(columns)
