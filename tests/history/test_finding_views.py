"""The views of what groups went through: as a fold of the log, and on odd stores."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    MembersAdvanced,
    TargetMetadata,
)
from coordinator.history import frame
from tests.history.test_findings_by_fold import (
    OWN_CHANGE,
    find_occupied,
    fold_rebalances,
    ms,
    store,
)
from tests.support.stories import Story, stored

__all__ = ["store"]

VIEWS = ["memberships", "rebalances", "unowned", "waits"]


@pytest.fixture(scope="module")
def epochs(store):
    return frame(store, "epochs").to_pylist()


def is_classic(epoch):
    return epoch["target_position"] == epoch["position"]


def test_rebalances_equal_a_fold(store, epochs):
    wanted = {
        (group_id, first, began): (last, ended, None if ended is None else (ended - began) / 1000)
        for (group_id, first, began), (last, ended) in fold_rebalances(store).items()
    }
    for row in epochs:
        if is_classic(row):
            epoch, at_ms = row["group_epoch"], ms(row["recorded_at"])
            wanted[row["group_id"], epoch, at_ms] = (epoch, at_ms, None)
    rows = frame(store, "rebalances").to_pylist()
    found = {
        (row["group_id"], row["group_epoch"], ms(row["recorded_at"])): (
            row["last_epoch"], ms(row["settled_at"]), row["seconds"],
        )
        for row in rows
    }  # fmt: skip
    assert found == wanted
    assert len(found) == len(rows) > 20


def test_rebalances_say_what_they_moved_and_of_how_many(store, epochs):
    history = frame(store, "assignment_history").to_pylist()
    shares = 0
    for row in frame(store, "rebalances").to_pylist():
        began = ms(row["recorded_at"])
        theirs = [
            one for one in epochs
            if one["group_id"] == row["group_id"] and one["incarnation"] == row["incarnation"]
            and row["group_epoch"] <= one["group_epoch"] <= row["last_epoch"]
        ]  # fmt: skip
        first = next(one for one in theirs if one["group_epoch"] == row["group_epoch"])
        names = ("position", "reason", "reason_codes", "member_id", "client_id", "client_host")
        assert [row[name] for name in names] == [first[name] for name in names]
        moved = [one["moved"] for one in theirs if one["moved"] is not None]
        assert row["moved"] == (sum(moved) if moved else None)
        assert row["epochs"] == len(theirs)
        assert row["partitions"] == sum(
            one["partition_count"] for one in history
            if one["group_id"] == row["group_id"] and ms(one["since"]) < began
            and (one["until"] is None or ms(one["until"]) >= began)
        )  # fmt: skip
        shares += bool(row["moved"] and row["partitions"])
    assert shares > 0


def test_a_rebalance_ends_where_its_event_says(store):
    def settled(row, position):
        return row[position], row["group_id"], row["incarnation"], row["seconds"]

    rebalances = frame(store, "rebalances").to_pylist()
    events = frame(store, "events").to_pylist()
    found_rows = [(*settled(row, "position"), row["member_id"])
            for row in events if row["event"] == "settled"]  # fmt: skip
    known = [(*settled(row, "settled_position"), row["waited_for"])
             for row in rebalances if row["seconds"] is not None]  # fmt: skip
    assert sorted(found_rows, key=str) == sorted(known, key=str)


@pytest.mark.parametrize("view", VIEWS)
def test_a_group_alone_has_its_rows_of_the_whole(store, view):
    whole = frame(store, view).to_pylist()
    for group_id in {row["group_id"] for row in whole}:
        alone = frame(store, view, group_id=group_id).to_pylist()
        assert alone == [row for row in whole if row["group_id"] == group_id]


@pytest.mark.parametrize("view", VIEWS)
def test_a_store_without_groups_has_no_rows(tmp_path, view):
    store = stored(Story("none").topics(orders=4).batches, tmp_path / "store")
    assert frame(store, view).num_rows == 0
    assert frame(store, view, group_id="unknown").num_rows == 0


def read_steps(store):
    """What the log says of each member, step by step, and the target of its group then."""
    steps, targets, known = defaultdict(list), defaultdict(list), {}
    for row in frame(store, "log").to_pylist():
        group_id, at = row["group_id"], (row["position"], ms(row["recorded_at"]))
        if row["kind"] == TargetMetadata.kind:
            targets[group_id].append((at, -1 if row["tombstone"] else row["assignment_epoch"]))
        if row["kind"] not in {
            one.kind for one in (MemberMetadata, CurrentMember, MembersAdvanced)
        }:
            continue
        for member_id in row["member_ids"] or [row["member_id"]]:
            key = group_id, member_id
            one = known.get(key, {"there": False, "gone": False, "epoch": -1, "pending": False})
            if row["kind"] == MemberMetadata.kind:
                one = one | {"there": not row["tombstone"]}
            else:
                one = one | {"gone": row["tombstone"], "epoch": row["member_epoch"]}
                one["pending"] = bool(row["pending"])
            known[key] = one
            target = targets[group_id][-1][1] if targets[group_id] else -1
            steps[key].append(one | {"at": at, "target": target})
    return steps, targets


def is_waited_for(step, target):
    here = step["there"] and not step["gone"]
    return here and ((step["epoch"] or -1) < target or step["pending"])


def begins(steps, targets):
    """When others began to wait for a member, after the last of these steps."""
    last = steps[-1]
    if last["pending"]:
        while len(steps) > 1 and steps[-2]["pending"]:
            steps = steps[:-1]
        return steps[-1]["at"]
    if (last["epoch"] or -1) < last["target"]:
        return last["at"]
    return next(at for at, epoch in targets if at > last["at"] and epoch >= 0)


def test_waits_equal_a_fold(store):
    steps, targets = read_steps(store)
    wanted = {}
    for (group_id, member_id), many in steps.items():
        theirs = targets[group_id]
        for at in range(1, len(many)):
            was, now = many[at - 1], many[at]
            if is_waited_for(was, now["target"]) and not is_waited_for(now, now["target"]):
                since, until = begins(many[:at], theirs), now["at"]
                if since[1] < until[1]:
                    wanted[group_id, member_id, since, until] = (
                        (until[1] - since[1]) / 1000, was["pending"], now["target"],
                        now["there"] and not now["gone"],
                    )  # fmt: skip
        target = theirs[-1][1] if theirs else -1
        if is_waited_for(many[-1], target):
            since = begins(many, theirs)
            wanted[group_id, member_id, since, (None, None)] = (
                None, many[-1]["pending"], target, None,
            )  # fmt: skip
    names = ("seconds", "pending_revocation", "assignment_epoch", "reached")
    rows = frame(store, "waits").to_pylist()
    found = {
        (row["group_id"], row["member_id"], (row["since_position"], ms(row["since"])),
         (row["until_position"], ms(row["until"]))): tuple(row[name] for name in names)
        for row in rows
    }  # fmt: skip
    assert found == wanted
    assert len(found) == len(rows) > 10


def test_a_rebalance_waits_for_the_longest_wait_in_it(store):
    waits, named = frame(store, "waits").to_pylist(), 0
    for row in frame(store, "rebalances").to_pylist():
        theirs = [
            (one["seconds"], one["member_id"]) for one in waits
            if one["group_id"] == row["group_id"] and one["until"] is not None
            and one["incarnation"] == row["incarnation"]
            and row["group_epoch"] <= one["assignment_epoch"] <= row["last_epoch"]
        ]  # fmt: skip
        longest = {name for seconds, name in theirs if seconds == max(theirs)[0]}
        longest = longest if row["settled_at"] else set()
        assert not longest or row["waited_for"] in longest
        named += bool(longest)
    assert named > 0


def test_who_is_waited_for_now_is_who_the_group_waits_for(store):
    epochs = {row["group_id"]: row["assignment_epoch"]
              for row in frame(store, "groups").to_pylist()}  # fmt: skip
    waited = {
        (row["group_id"], row["member_id"]) for row in frame(store, "members").to_pylist()
        if row["member_epoch"] < epochs[row["group_id"]] or row["pending"]
    }  # fmt: skip
    found = [(row["group_id"], row["member_id"]) for row in frame(store, "waits").to_pylist()
             if row["until"] is None]  # fmt: skip
    assert sorted(found) == sorted(waited)


def by_partition(rows, *names):
    return Counter(
        (row["group_id"], row["incarnation"], row["topic_id"], partition,
         *(row[name] for name in names))
        for row in rows
        for partition in range(row["first_partition"], row["last_partition"] + 1)
    )  # fmt: skip


def test_time_without_an_owner_equals_a_fold(store):
    turns, occupied = defaultdict(list), find_occupied(store)
    history = frame(store, "assignment_history").to_pylist()
    for row in history:
        for partition in range(row["first_partition"], row["last_partition"] + 1):
            key = row["group_id"], row["topic"], row["topic_id"], partition
            turns[key].append(row)
    wanted = Counter()
    for (group_id, _, topic_id, partition), rows in turns.items():
        rows.sort(key=lambda row: (row["since_position"], row["member_id"]))
        for was, now in pairwise(rows):
            own = OWN_CHANGE in (was["until_reason_codes"] or ())
            if was["until"] is None or own or was["incarnation"] != now["incarnation"]:
                continue
            low, high = ms(was["until"]), ms(now["since"])
            gap = sum(max(0, min(high, b) - max(low, a)) for a, b in occupied[group_id])
            if gap:
                wanted[
                    group_id, now["incarnation"], topic_id, partition, was["member_id"],
                    was["until_position"], was["until_reason"], now["member_id"],
                    now["since_position"], gap / 1000,
                ] += 1  # fmt: skip
    rows = frame(store, "unowned").to_pylist()
    names = ("former_member_id", "since_position", "reason", "member_id", "until_position")
    closed = [row for row in rows if row["until"] is not None]
    assert by_partition(closed, *names, "seconds") == wanted
    assert wanted


def test_what_has_no_owner_now_is_what_members_lack(store):
    incarnation = {row["group_id"]: {"incarnation": row["incarnation"]}
                   for row in frame(store, "groups").to_pylist()}  # fmt: skip
    lacking = [row | incarnation[row["group_id"]]
               for row in frame(store, "partition_owners").to_pylist()
               if row["member_id"] is None]  # fmt: skip
    found = [row for row in frame(store, "unowned").to_pylist() if row["until"] is None]
    assert by_partition(found) == by_partition(lacking)
    history = frame(store, "assignment_history").to_pylist()
    for row in found:
        assert row["seconds"] is None
        ended = [
            one for one in history
            if all(one[name] == row[name] for name in ("group_id", "incarnation", "topic_id"))
            and one["first_partition"] <= row["first_partition"] <= one["last_partition"]
        ]  # fmt: skip
        last = max(ended, key=lambda one: one["until_position"], default=None)
        assert row["former_member_id"] == (last and last["member_id"])
        assert row["since_position"] == (last and last["until_position"])


def test_memberships_are_of_members_that_came_and_went(store):
    came, wanted = {}, []
    for row in frame(store, "events").to_pylist():
        key = row["group_id"], row["member_id"]
        if row["event"] == "member_joined":
            assert key not in came
            came[key] = row["position"], ms(row["recorded_at"])
        elif row["event"] in ("member_left", "fenced"):
            position, at_ms = came.pop(key)
            wanted.append((*key, position, row["position"], (ms(row["recorded_at"]) - at_ms) / 1000,
                           row["event"] == "fenced", row["reason"]))  # fmt: skip
    wanted += [(*key, position, None, None, None, None) for key, (position, _) in came.items()]
    names = ("group_id", "member_id", "since_position", "until_position", "seconds", "fenced",
             "until_reason")  # fmt: skip
    rows = frame(store, "memberships").to_pylist()
    assert sorted((tuple(row[name] for name in names) for row in rows), key=str) == sorted(
        wanted, key=str
    )
    there = {(row["group_id"], row["member_id"]) for row in frame(store, "members").to_pylist()}
    assert {(row["group_id"], row["member_id"]) for row in rows if row["until"] is None} == there
