"""The view `events`: what other views say, and the same however long the log has become."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.history import frame
from tests.support.stories import Story, all_stories, many_groups, stored

TRACES = ["batching", "commits", "configs-racks", "coordinator", "timers-regex-topics"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(all_stories(), tmp_path_factory.mktemp("stories") / "store")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """One log of many groups, classic ones too."""
    return many_groups(range(1, 31, 3), TRACES, tmp_path_factory.mktemp("store"))


def events(store, *kinds, **more):
    return [row for row in frame(store, "events", **more).to_pylist() if row["event"] in kinds]


def moments(store):
    """Return the last position of each time of the log."""
    rows = frame(store, "log").select(["position", "recorded_at"]).to_pylist()
    later = [row["recorded_at"] for row in rows[1:]]
    return [row["position"] for row, at in zip(rows, [*later, None], strict=True)
            if row["recorded_at"] != at]  # fmt: skip


@pytest.mark.parametrize("which", ["store", "many"])
def test_what_happened_between_two_moments_does_not_change_later(which, request):
    """The events up to a moment, and those after it, are all events: a stream misses none."""
    store = request.getfixturevalue(which)
    whole = frame(store, "events").to_pylist()
    ends = moments(store)
    step = max(1, len(ends) // 12)
    for end in ends[::step]:
        then = frame(store, "events", as_of=end).to_pylist()
        assert then == [row for row in whole if row["position"] <= end], end
    assert len(whole) > 140


def test_members_come_and_go_for_the_reasons_of_their_epochs(store):
    found = events(store, "member_joined", "member_left", "fenced", group_id="billing")
    assert [(row["event"], row["member_id"], row["reason"]) for row in found] == [
        ("member_joined", "m1", "member joined"),
        ("member_joined", "m2", "member joined"),
        ("member_joined", "m3", "member joined"),
        ("member_left", "m1", "member left"),
        ("fenced", "m3", "session timeout"),
    ]
    here = Counter()
    for row in events(store, "member_joined", "member_left", "fenced"):
        here[row["group_id"]] += 1 if row["event"] == "member_joined" else -1
    now = Counter(row["group_id"] for row in frame(store, "members").to_pylist())
    assert +here == now


@pytest.mark.parametrize("which", ["store", "many"])
def test_ranges_are_those_of_the_history(which, request):
    store = request.getfixturevalue(which)
    gained, lost, wanted, ended = Counter(), Counter(), Counter(), Counter()
    for row in frame(store, "assignment_history").to_pylist():
        for partition in range(row["first_partition"], row["last_partition"] + 1):
            key = row["group_id"], row["member_id"], row["topic_id"], partition
            wanted[*key, row["since_position"], row["reason"]] += 1
            if row["until"] is not None:
                how = "revoked" if row["revoked"] else "lost"
                ended[*key, row["until_position"], row["until_reason"], how] += 1
    for row in events(store, "assigned", "moved", "revoked", "lost"):
        for partition in range(row["first_partition"], row["last_partition"] + 1):
            key = row["group_id"], row["member_id"], row["topic_id"], partition
            if row["event"] in ("assigned", "moved"):
                gained[*key, row["position"], row["reason"]] += 1
                assert (row["event"] == "moved") <= (row["former_member_id"] is not None)
            else:
                lost[*key, row["position"], row["reason"], row["event"]] += 1
    assert gained == wanted
    assert lost == ended


@pytest.mark.parametrize("which", ["store", "many"])
def test_epochs_targets_and_plans_are_those_of_their_views(which, request):
    store = request.getfixturevalue(which)
    epochs = frame(store, "epochs").to_pylist()
    found = events(store, "epoch")
    names = ("position", "group_id", "incarnation", "group_epoch", "reason", "member_id")
    assert [[row[n] for n in names] for row in found] == [[row[n] for n in names] for row in epochs]
    moved = [(row["target_position"], row["moved"]) for row in epochs if row["computed_at"]]
    assert sorted(moved, key=str) == sorted(
        ((row["position"], row["moved"]) for row in events(store, "target")), key=str
    )
    plans = frame(store, "plans").to_pylist()
    statuses = Counter(row["status"] for row in plans)
    decided = Counter(row["event"] for row in frame(store, "events").to_pylist())
    assert decided["plan_made"] == len(plans)
    for status in ("applied", "rejected", "superseded", "expired"):
        assert decided[f"plan_{status}"] == statuses[status]


def test_a_rebalance_that_takes_long_is_shown_before_it_ends(tmp_path):
    story = Story("slow").topics(orders=4).at(-5).join("m1", "orders", rebalance_timeout_ms=150_000)
    story.hold_on("m1")
    story.at(-4).join("m2", "orders", rebalance_timeout_ms=600_000)
    story.at(-2).join("m3", "orders").at(3)
    store = stored(story.batches, tmp_path / "store")
    (stalled,) = events(store, "stalled")
    epoch = next(row for row in events(store, "epoch") if row["group_epoch"] == 3)
    assert stalled["group_epoch"] == 3
    assert stalled["seconds"] >= 60
    assert stalled["recorded_at"] > epoch["recorded_at"]
    settled = [row for row in events(store, "settled") if row["position"] > stalled["position"]]
    assert settled
    assert settled[0]["seconds"] > stalled["seconds"]


def test_a_group_that_is_deleted_ends(many):
    known = {row["group_id"] for row in frame(many, "groups").to_pylist() if row["group_epoch"]}
    ended = events(many, "group_ended")
    assert ended
    for row in ended:
        later = [one for one in events(many, "epoch") if one["group_id"] == row["group_id"]
                 and one["position"] > row["position"]]  # fmt: skip
        assert all(one["incarnation"] > row["incarnation"] for one in later)
        assert bool(later) >= (row["group_id"] in known)
