"""What is wrong with groups, and the nodes of a store of shards: as the commands print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import Config
from coordinator.history.findings import examine, to_json
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.history.nodes_view import list_nodes, list_owners
from coordinator.storage.record_log import Batch
from coordinator.storage.shards import Shards, make_shards, store_of
from tests.api.asking import address, ask, list_all, problem_of
from tests.support.stories import NOON, stored
from tests.web.browsing import FIVE, LATER, browse, five_groups
from tests.web.test_doctor_page import classic
from tests.web.test_plans import ANN, BOB, config_of

SHARDS = 16


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(five_groups(), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The same groups, each in its shard."""
    root = str(tmp_path_factory.mktemp("shards") / "store")
    make_shards(root, SHARDS, Config())
    logs: dict[str, list] = {}
    for story in (one() for one in FIVE):
        logs.setdefault(store_of(root, story.group), []).extend(story.batches)
    for one, batches in logs.items():
        stored(batches, Path(one))
    return root


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    """Two classic groups that own nothing of their topics."""
    records = classic("busy", "secret", 3) + classic("plain", "open")
    batches = [Batch(0, NOON, 1, []), Batch(0, NOON, 1, records)]
    return stored(batches, tmp_path_factory.mktemp("messy"))


def test_findings_are_those_of_the_command(messy):
    client = browse(messy)
    log = LogRows(LogReader(messy))
    rows = [row for one in examine(log, LATER) for row in to_json(one)]
    assert len({row["finding"] for row in rows}) > 1
    assert list_all(client, "listFindings") == rows
    assert list_all(client, "listFindings", limit=1) == rows
    one = rows[-1]
    only = list_all(client, "listFindings", only=one["finding"], group=one["group_id"])
    assert only == [
        row for row in rows
        if (row["finding"], row["group_id"]) == (one["finding"], one["group_id"])
    ]  # fmt: skip
    week = {row["finding"] for row in list_all(client, "listFindings", window="7d")}
    assert {row["finding"] for row in rows} <= week


def test_a_later_page_is_as_of_the_first_one(messy):
    client = browse(messy)
    first = ask(client, "listFindings", limit=1)
    assert "as_of=2026-03-01T13%3A00%3A00.000Z" in first["next"]


def test_odd_questions_about_findings_are_refused(messy, tmp_path):
    client = browse(messy)
    for given, code in (
        ({"window": "x"}, 400), ({"window": "9" * 300 + "d"}, 400), ({"only": "nothing"}, 400),
        ({"group": "nobody"}, 404), ({"group": ""}, 400), ({"as_of": "x"}, 400),
        ({"cursor": "WyJhIl0"}, 400), ({"rows": 5}, 400),
    ):  # fmt: skip
        problem_of(client.get(address("listFindings", **given)), code)
    with_logins = browse(messy, config_of(tmp_path))
    assert list_all(with_logins, "listFindings", auth=BOB) == [], "Bob sees the group g alone"
    assert list_all(with_logins, "listFindings", auth=ANN)
    problem_of(with_logins.get(address("listFindings", group="plain"), auth=BOB), 404)


def test_a_store_of_shards_has_its_groups_and_its_shards(store, shards):
    client = browse(shards)
    whole = list_all(browse(store), "listGroups")
    own = [one | {"shard": Shards(SHARDS).shard_of(one["group_id"])} for one in whole]
    assert list_all(client, "listGroups", limit=2) == own
    assert {one["shard"] for one in whole} == {None}
    assert ask(client, "listGroups")["position"] is None
    for group in (one["group_id"] for one in whole):
        there = list_all(client, "listHistory", group)
        for row in list_all(browse(store), "listHistory", group):
            assert row["member_id"] in {one["member_id"] for one in there}
    assert list_all(client, "listNodes") == list_nodes(shards, Config()) == []
    found = list_all(client, "listShards", limit=7)
    assert found == list_owners(shards, Config())
    assert [row["shard"] for row in found] == list(range(SHARDS))
    said = problem_of(client.get(address("listGroups", as_of=3)), 400)
    assert "logs: give a time" in said
    problem_of(client.get(address("listFindings", as_of=3)), 400)
    assert list_all(client, "listFindings")
    tag = client.get(address("listShards")).headers["etag"]
    again = client.get(address("listShards"), headers={"if-none-match": tag})
    assert again.status_code == 304


def test_a_store_of_one_shard_has_no_nodes(store):
    for name in ("listNodes", "listShards"):
        assert "no nodes" in problem_of(browse(store).get(address(name)), 404)
