"""Who owned what, as of any time, and what happened: the rows of the views over HTTP."""

from __future__ import annotations

import pytest

from coordinator.history import frame
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import list_rows
from tests.api.asking import address, ask, list_all, problem_of
from tests.support.longer import EVERY
from tests.support.stories import Story, billing, stored
from tests.web.browsing import FIVE, browse, five_groups
from tests.web.test_plans import ANN, BOB, config_of

GROUPS = [story().group for story in FIVE]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def client(store):
    return browse(store)


def owners_in(rows):
    """Return the members that own each partition."""
    return {
        (row["topic"], row["topic_id"], number, row["member_id"])
        for row in rows
        for number in range(row["first_partition"], row["last_partition"] + 1)
        if row["member_id"] is not None
    }


def test_ownership_as_of_a_position_is_what_the_log_said_then(client, store):
    """It is read from the newest history, and `partition_owners` from the state as of then."""
    last = LogReader(store).position
    seen = 0
    for position in range(1, last + 1, 1 if EVERY else 11):
        then = to_json_rows(frame(store, "current_assignments", as_of=position))
        for row in then:
            row["last_partition"] = row["first_partition"] + row["partition_count"] - 1
        for group in GROUPS:
            found = list_all(client, "listOwnership", group, as_of=position)
            ours = [row for row in then if row["group_id"] == group]
            assert owners_in(found) == owners_in(ours), (group, position)
            seen += bool(ours)
    assert seen > 10


def test_a_partition_has_its_owner_of_a_time_and_why(tmp_path):
    store = stored(billing().batches, tmp_path)
    client = browse(store)
    history = list_rows(LogReader(store), "assignment_history", "billing")
    row = next(one for one in history if one["until"] is not None and one["since"] < one["until"])
    place = {"topic": row["topic"], "partition": row["first_partition"]}
    found = ask(client, "listOwnership", "billing", as_of=row["since"], **place)
    assert row in found["items"]
    assert found["at"] <= row["since"]
    later = ask(client, "listOwnership", "billing", as_of=row["until"], **place)
    assert row not in later["items"]
    assert later["position"] > found["position"]
    now = ask(client, "listOwnership", "billing", **place)
    assert all(one["until"] is None for one in now["items"])
    assert [r for r in history if r["until"] is None] == list_all(
        client, "listOwnership", "billing"
    )


def test_history_epochs_events_and_offsets_are_the_rows_of_the_views(tmp_path):
    story = Story().topics(orders=4).join("m1", "orders").join("m2", "orders")
    story.at(1).commit("m1", {"orders": {0: 7}}).leave("m2")
    store = stored(story.batches, tmp_path)
    client = browse(store)
    for name, view in (
        ("listHistory", "assignment_history"), ("listEpochs", "epochs"), ("listEvents", "events"),
        ("listOffsets", "offsets"),
    ):  # fmt: skip
        rows = list_rows(LogReader(store), view, "billing")
        assert rows, view
        assert list_all(client, name, "billing") == rows
        assert list_all(client, name, "billing", limit=1) == rows, "no two rows have one key"
        then = LogReader(store, 12)
        assert list_all(client, name, "billing", as_of=12) == to_json_rows(
            frame(store, view, group_id="billing", as_of=then.position)
        )
    events = list_all(client, "listEvents", "billing")
    after = events[len(events) // 2]["position"]
    newer = list_all(client, "listEvents", "billing", after=after)
    assert newer == [one for one in events if one["position"] > after]
    assert ask(client, "listEpochs", "billing", after=2**63 - 1)["items"] == []
    mine = list_all(client, "listHistory", "billing", member="m2", topic="orders")
    assert {one["member_id"] for one in mine} == {"m2"}
    assert list_all(client, "listOffsets", "billing", topic="none") == []


def test_what_no_one_owned_is_a_problem_that_says_what_was(client):
    for name in ("listOwnership", "listHistory"):
        said = problem_of(client.get(address(name, "billing", topic="nowhere")), 404)
        assert "its members owned " in said
        said = problem_of(client.get(address(name, "billing", topic="payments", partition=99)), 404)
        assert "give one up to" in said
        problem_of(client.get(address(name, "billing", partition=0)), 400)
        for odd in (-1, 2**31, "x", "1.0", "\uff11"):
            problem_of(client.get(address(name, "billing", topic="payments", partition=odd)), 400)
        problem_of(client.get(address(name, "nobody")), 404)
    for name in ("listEpochs", "listEvents", "listOffsets"):
        problem_of(client.get(address(name, "nobody")), 404)
        problem_of(client.get(address(name, "billing", cursor="WzFd", as_of=0)), 400)
    problem_of(client.get(address("listEvents", "billing", after=2**63)), 400)


def test_what_names_topics_needs_describe_on_each(tmp_path):
    config = config_of(tmp_path)
    acls = (tmp_path / "acls.toml").read_text()
    (tmp_path / "acls.toml").write_text(acls.replace('"*"', '"clicks"'))
    story = Story("g").topics(clicks=2, secret=1).join("m", "clicks", "secret")
    story.commit("m", {"secret": {0: 1}}).topics(secret=2).settle()
    client = browse(stored(story.batches, tmp_path / "store"), config)
    for name in ("listOwnership", "listHistory", "listEpochs", "listEvents", "listOffsets"):
        assert "DESCRIBE" in problem_of(client.get(address(name, "g"), auth=BOB), 403)
        assert list_all(client, name, "g", auth=ANN)
    answer = client.get(address("listHistory", "g", topic="clicks"), auth=BOB)
    assert "secret" not in answer.text
    problem_of(answer, 403)
