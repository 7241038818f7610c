"""The views of what groups went through: as a fold of the log, and on odd stores."""

from __future__ import annotations

import pytest

from coordinator.history import frame
from tests.history.test_findings_by_fold import fold_rebalances, ms, store
from tests.support.stories import Story, stored

__all__ = ["store"]

VIEWS = ["rebalances"]


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
    told = [(*settled(row, "position"), row["member_id"])
            for row in events if row["event"] == "settled"]  # fmt: skip
    known = [(*settled(row, "settled_position"), row["waited_for"])
             for row in rebalances if row["seconds"] is not None]  # fmt: skip
    assert sorted(told, key=str) == sorted(known, key=str)


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
