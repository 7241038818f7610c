"""What must hold of the coordinator's state after every step, whatever happened before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from coordinator.core.consumer.heartbeat import ENGINE_PREFIX
from coordinator.core.state import replay as replaying
from coordinator.core.state import state_records
from coordinator.core.state.classic_group import ClassicState
from coordinator.core.state.groups import HASH_BITS, Computation, State
from coordinator.core.state.member_rows import (
    META_FIELDS,
    STATES,
    CurrentRows,
    MemberRows,
    TargetRows,
)
from coordinator.core.state.owner_columns import FREE
from coordinator.core.state.partition_owners import claim_many, claim_runs
from coordinator.core.state.records import CurrentMember, MemberMetadata, TargetMember
from coordinator.core.state.replay import replay, replay_all
from coordinator.core.state.rows import held_rules
from coordinator.core.state.span_columns import SpanRows
from coordinator.storage import loaded_state
from tests.support.fingerprint import fingerprint


def check(state):
    """Every group: one owner a partition, epochs in order, derived values as recounted."""
    for group in state.groups.values():
        held = holders(group)
        doubles = {partition: who for partition, who in held.items() if len(who) > 1}
        assert not doubles, f"partitions with several owners: {doubles}"
        assert owners(group) == {partition: who[0] for partition, who in held.items()}
        _check_epochs(group)
        _check_targets(group)
        _check_derived(state, group)
    assert not state.groups.keys() & state.classic.keys()
    for group in state.classic.values():
        _check_classic(group)


def _check_classic(group):
    """What is counted is what is there; the leader is a member."""
    members = list(group.members.values())
    assert group.parked_joins == sum(one.parked_join is not None for one in members)
    assert group.supported == Counter(name for one in members for name, _ in one.protocols)
    assert group.preferences == Counter(tuple(n for n, _ in one.protocols) for one in members)
    assert group.rebalance_timeouts == Counter(one.rebalance_timeout_ms for one in members)
    assert (group.leader is None) == (not members) or group.state is ClassicState.EMPTY
    assert group.leader is None or group.leader in group.members
    assert not group.members.keys() & group.pending_joins.keys()
    assert group.instances == {one.instance_id: one.member_id for one in members if one.instance_id}


def holders(group):
    """{(topic, partition): members}, assigned and pending, counted partition by partition."""
    held = {}
    for member_id, member in group.members.items():
        for key, first, end, _ in (*member.current.assigned, *member.current.pending):
            for partition in range(first, end):
                held.setdefault((key, partition), []).append(member_id)
    return held


def owners(group):
    """{(topic, partition): member} as the ownership arrays say."""
    serials = {member.serial: member_id for member_id, member in group.members.items()}
    return {
        (key, int(partition)): serials[int(array[partition])]
        for key, array in group.owners.items()
        for partition in np.flatnonzero(array != FREE)
    }


def _check_epochs(group):
    assert group.assignment_epoch <= group.epoch
    for member in group.members.values():
        assert member.epoch <= group.assignment_epoch, f"{member.member_id} is ahead"
        for span in (*member.current.assigned, *member.current.pending):
            assert span[3] <= group.assignment_epoch


def _check_targets(group):
    targets = [
        (key, partition)
        for member_id in group.members
        for key, first, end in group.targets.get(member_id, ())
        for partition in range(first, end)
    ]
    assert len(targets) == len(set(targets)), "a target assignment gives a partition twice"
    ranges = group.targets.ranges()
    assert set(ranges.owners.to_pylist()) <= set(group.members)
    assert sum((ranges.end - ranges.first).tolist()) == len(targets)


def _check_derived(state, group):
    assert group.metas == {i: member.meta for i, member in group.members.items()}
    metas = [member.meta for member in group.members.values()]
    lists = Counter(meta.subscribed_topic_names for meta in metas)
    names = Counter(name for names in lists for name in names)
    names.update(name for regex in group.regexes.values() for name in regex.topics)
    assert {names: listed.members for names, listed in group.lists.items()} == lists
    assert group.names == names
    assert group.regex_members == Counter(
        m.subscribed_topic_regex for m in metas if m.subscribed_topic_regex
    )
    assert group.wishes == Counter(m.server_assignor for m in metas if m.server_assignor)
    assert group.instances == {m.instance_id: m.member_id for m in metas if m.instance_id}
    stable = Counter(m.epoch for m in group.members.values() if m.stable)
    assert group.stable_at == stable
    hashes = sum(state.topics[name].hash for name in names if name in state.topics)
    assert group.topics_hash == hashes % (1 << HASH_BITS)
    for meta in metas:
        assert meta.subscribed_topic_names is group.lists[meta.subscribed_topic_names].names


def epochs(state):
    """What may never fall: {key: epoch} of each group and each of its members."""
    found = {}
    for group_id, group in state.groups.items():
        found[group_id, "group epoch"] = group.epoch
        found[group_id, "assignment epoch"] = group.assignment_epoch
        for member_id, member in group.members.items():
            if member.epoch > 0:
                # The serial tells a member from its next incarnation under the same id.
                found[group_id, member_id, member.serial] = member.epoch
    return found


def check_rising(before, after):
    """No epoch of a group or member that is still there has fallen."""
    fallen = {
        key: (before[key], after[key])
        for key in before.keys() & after.keys()
        if after[key] < before[key]
    }
    assert not fallen, f"epochs fell: {fallen}"


def check_replays(state, records):
    """All records from zero, and a snapshot, both make the same state again."""
    assert fingerprint(replayed(records)) == fingerprint(state)
    restored = replayed(state_records.records_of(state))
    assert fingerprint(restored) == as_kept(state)


@contextmanager
def as_large_groups() -> Iterator[None]:
    """Let groups of any size be loaded as large ones of long ranges are."""
    with (
        patch.object(replaying, "claim_many", partial(claim_many, many=1, long=0)),
        patch.object(held_rules, "claim_runs", partial(claim_runs, long=0)),
        patch.object(loaded_state, "replay_all", replay_as_rows),
    ):
        yield


def replay_as_rows(state, records):
    """Replay records as if those of one kind and group, however few, were the rows of a log."""
    for (kind, group_id), some in groupby(records, lambda one: (type(one), _group_of(one))):
        replay_all(state, _ROWS.get(kind, lambda _, few: few)(group_id, list(some)))


def _group_of(record):
    return getattr(record, "group_id", None)


def _member_rows(group_id, records):
    columns = []
    for name in META_FIELDS:
        known = {}
        codes = [known.setdefault(getattr(one, name), len(known)) for one in records]
        columns.append((list(known), np.array(codes, np.int32)))
    return MemberRows(group_id, _ids(records), columns)


def _target_rows(group_id, records):
    return TargetRows(group_id, _ids(records), _span_rows([one.spans for one in records], 2))


def _current_rows(group_id, records):
    numbers = ([getattr(one, name) for one in records] for name in EPOCHS)
    states = [STATES.index(one.state) for one in records]
    held = ([getattr(one, name) for one in records] for name in ("assigned", "pending"))
    return CurrentRows(
        group_id,
        _ids(records),
        [np.array(column, np.int32) for column in (*numbers, states)],
        *(_span_rows(spans, 3) for spans in held),
    )


def _ids(records):
    return pa.array([record.member_id for record in records], pa.string())


def _span_rows(rows, width):
    spans = [span for one in rows for span in one]
    keys = {}
    topic = np.array([keys.setdefault(span[0], len(keys)) for span in spans], np.int32)
    numbers = np.array([span[1:] for span in spans], np.int32).reshape(-1, width).T
    return SpanRows(list(keys), np.array([len(one) for one in rows]), topic, list(numbers))


EPOCHS = ("member_epoch", "previous_member_epoch")
_ROWS = {
    MemberMetadata: _member_rows,
    TargetMember: _target_rows,
    CurrentMember: _current_rows,
}


def replayed(records):
    """A new state from records, one by one; in one go, as in a load, they make the same."""
    records, state, loaded, as_rows = list(records), State(), State(), State()
    for record in records:
        replay(state, record)
    with as_large_groups():
        replay_all(loaded, records)
        replay_as_rows(as_rows, records)
    for each in (state, loaded, as_rows):
        check(each)
        assert fingerprint(each) == fingerprint(state)
    return state


def as_kept(state):
    """A snapshot leaves out a computation whose input has changed."""
    kept = fingerprint(state)
    for group_id, group in state.groups.items():
        found = group.computation
        if found is not None and found != Computation.of(found.record, group, state.topics):
            kept["groups"][group_id]["computation"] = None
    return kept


def as_loaded(found):
    """A fingerprint without what a coordinator's own engine was computing: that ends with it."""
    for group in found["groups"].values():
        record = group["computation"]
        if record is not None and record.computation_id.startswith(ENGINE_PREFIX):
            group["computation"] = None
    return found
