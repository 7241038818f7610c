"""Findings about what happened equal a fold of the log, partition by partition, epoch by epoch."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from coordinator.core.reasons import Reason
from coordinator.core.state.groups import State
from coordinator.core.state.records import GroupMetadata, TargetMetadata, Tombstone
from coordinator.core.state.replay import replay
from coordinator.history import frame
from coordinator.history.findings import Limits, examine
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.delta_log import read_log
from coordinator.watcher.watch import watch
from tests.support.stories import many_groups
from tests.watcher.recorded import FOLDER

OWN_CHANGE = Reason.SUBSCRIPTION_CHANGED.code
LIMITS = Limits(window_ms=300_000, patience_ms=4_000, flaps=2)


@pytest.fixture(scope="module", params=["muster's own", "wide-00.jsonl"])
def store(request, tmp_path_factory):
    """A log of Muster's, or of Kafka's groups."""
    path = tmp_path_factory.mktemp("fold") / "store"
    if request.param == "muster's own":
        return many_groups(range(3, 31, 18), ["coordinator"], path)
    with watch(FOLDER / request.param, path) as watched:
        watched.wait(60)
    return path


def look(store, name, end_ms):
    found = examine(LogRows(LogReader(store)), end_ms, LIMITS, [name])
    return [row for one in found for row in one.rows.to_pylist()]


def ms(time):
    return None if time is None else round(time.timestamp() * 1000)


def moments(store):
    """Yield the state after each time, and the time; and who had members before."""
    state, last, batches = State(), None, read_log(store)
    for batch in batches:
        if last is not None and batch.at_ms != last:
            yield state, last
        for record in batch.records:
            replay(state, record)
        last = batch.at_ms
    yield state, last


def count_members(state):
    found = {group_id: len(group.members) for group_id, group in state.groups.items()}
    return found | {group_id: len(group.members) for group_id, group in state.classic.items()}


def find_occupied(store):
    """When groups had members: pairs of times."""
    spans, since = defaultdict(list), {}
    for state, at_ms in moments(store):
        now = count_members(state)
        for group_id in [one for one in since if not now.get(one)]:
            spans[group_id].append((since.pop(group_id), at_ms))
        for group_id, members in now.items():
            if members:
                since.setdefault(group_id, at_ms)
    for group_id, at_ms in since.items():
        spans[group_id].append((at_ms, float("inf")))
    return spans


def owned_in_turn(store):
    """The rows of the history of each partition of groups that there are, in turn."""
    alive = set(frame(store, "groups")["group_id"].to_pylist())
    turns = defaultdict(list)
    for row in frame(store, "assignment_history").to_pylist():
        for partition in range(row["first_partition"], row["last_partition"] + 1):
            if row["group_id"] in alive:
                turns[row["group_id"], row["topic"], row["topic_id"], partition].append(row)
    return {
        key: sorted(rows, key=lambda row: (row["since_position"], row["member_id"]))
        for key, rows in turns.items()
    }


def by_partition(rows, *names):
    return {
        (row["group_id"], row["topic"], row["topic_id"], partition): tuple(row[n] for n in names)
        for row in rows
        for partition in range(row["first_partition"], row["last_partition"] + 1)
    }


def ends(store):
    """Times as of which to look: the last, and one in the middle of the last window."""
    last = LogReader(store).at_ms
    return last, last + 200_000


def test_gaps_equal_a_fold(store):
    occupied, turns, many = find_occupied(store), owned_in_turn(store), 0
    for end_ms in ends(store):
        begin_ms, wanted = end_ms - LIMITS.window_ms, {}
        for key, rows in turns.items():
            gaps = []
            for before, after in pairwise(rows):
                own = OWN_CHANGE in (before["until_reason_codes"] or ())
                if before["until"] is None or own:
                    continue
                low, high = max(ms(before["until"]), begin_ms), ms(after["since"])
                gap = sum(max(0, min(high, b) - max(low, a)) for a, b in occupied[key[0]])
                gaps += [gap] if gap > 0 else []
            if sum(gaps) > LIMITS.patience_ms:
                wanted[key] = (sum(gaps) / 1000, len(gaps))
        assert by_partition(look(store, "ownership_gaps", end_ms), "seconds", "gaps") == wanted
        many += len(wanted)
    assert many > 0


def test_partitions_flap_as_a_fold_says(store):
    turns, many = owned_in_turn(store), 0
    for end_ms in ends(store):
        begin_ms, wanted = end_ms - LIMITS.window_ms, {}
        for key, rows in turns.items():
            owners = [row["instance_id"] or ("", row["member_id"]) for row in rows]
            moves = sum(
                owners[n] != owners[n - 1] and ms(rows[n]["since"]) >= begin_ms
                for n in range(1, len(rows))
            )
            if moves >= LIMITS.flaps:
                wanted[key] = (moves,)
        assert by_partition(look(store, "flapping_partitions", end_ms), "moves") == wanted
        many += len(wanted)
    assert many > 0


def is_at_rest(group):
    epochs = {(member.epoch, member.current.state.name) for member in group.members.values()}
    return epochs <= {(group.assignment_epoch, "STABLE")}


def fold_rebalances(store):
    """Every rebalance: (group, first epoch): (last epoch, began, ended or None if it goes on)."""
    waiting, found, state = defaultdict(list), {}, State()
    batches = [batch for batch in read_log(store) if batch.records]
    for number, batch in enumerate(batches):
        for record in batch.records:
            replay(state, record)
            group_id = getattr(record, "group_id", None)
            if isinstance(record, Tombstone) and record.of == TargetMetadata.kind:
                waiting.pop(group_id, None)
            elif isinstance(record, GroupMetadata):
                waiting[group_id].append((record.epoch, batch.at_ms))
        if number + 1 < len(batches) and batches[number + 1].at_ms == batch.at_ms:
            continue
        for group_id, epochs in list(waiting.items()):
            group = state.groups.get(group_id)
            if group is None or not is_at_rest(group):
                continue
            done = [one for one in epochs if one[0] <= group.assignment_epoch]
            waiting[group_id] = [one for one in epochs if one[0] > group.assignment_epoch]
            if done:
                key = group_id, done[0][0], done[0][1]
                found[key] = (done[-1][0], batch.at_ms)
    for group_id, epochs in waiting.items():
        if epochs and group_id in state.groups and state.groups[group_id].members:
            found[group_id, *epochs[0]] = (epochs[-1][0], None)
    return found


def test_rebalances_equal_a_fold(store):
    every, many = fold_rebalances(store), 0
    for end_ms in ends(store):
        wanted = {}
        for (group_id, first, began), (last, ended) in every.items():
            until = end_ms if ended is None else ended
            if until - began > LIMITS.patience_ms and until >= end_ms - LIMITS.window_ms:
                wanted[group_id, first, began] = (last, ended)
        found = {
            (row["group_id"], row["group_epoch"], ms(row["began_at"])): (
                row["last_epoch"], ms(row["settled_at"]),
            )
            for row in look(store, "slow_rebalances", end_ms)
        }  # fmt: skip
        assert found == wanted
        many += len(wanted)
    assert many > 0
