"""Pages of a store of shards: the same as of one log, and who has which shard."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.core.state.records import Audited
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import make_shards, read_shards, store_of
from coordinator.web.group_list import no_groups
from coordinator.web.pages import Pages
from coordinator.web.shards_reader import LOOKS, open_reader, wait_for_looks
from coordinator.web.store_reader import StoreReader
from tests.support.stories import MINUTE, NOON, Story, stored
from tests.web.browsing import FIVE, browse, five_groups, rows_of

SHARDS = 64
WHERE = {"position", "at"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six groups in one log."""
    return stored([*five_groups(), *refused().batches], tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The same groups, each in a shard of its own."""
    root = str(tmp_path_factory.mktemp("shards") / "store")
    make_shards(root, SHARDS, Config())
    for story in (*(one() for one in FIVE), refused()):
        stored(story.batches, Path(store_of(root, story.group)))
    return root


def refused():
    """A group of which a client was refused something."""
    story = Story("secret").topics(orders=2).join("m1", "orders")
    audited = Audited("secret", "authorization_denied", "User:eve", settings={"count": "1"})
    story.log.append([audited], NOON + MINUTE)
    return story


def of_all(answer):
    """Return a page as JSON without where it is in a log."""
    assert answer.status_code == 200, answer.text
    return {name: value for name, value in answer.json().items() if name not in WHERE}


@pytest.mark.parametrize(
    "address",
    [
        "/groups.json?sort=group_id",
        "/groups.json?sort=-members&rows=2&page=2",
        "/doctor.json?window=7d",
        "/group.json?id=billing",
        "/plans.json?id=billing",
    ],
)
def test_a_page_says_of_shards_what_it_says_of_one_log(whole, store, address):
    assert of_all(browse(store).get(address)) == of_all(browse(whole).get(address))


def test_the_audit_of_all_shards_is_one_by_time(whole, store):
    found = of_all(browse(store).get("/audit.json"))
    assert [(row["principal"], row["action"]) for row in found["audit"]] == [
        ("User:eve", "authorization_denied")
    ]
    assert found["total"] == of_all(browse(whole).get("/audit.json"))["total"]


def test_former_times_have_an_end_in_each_shard_and_positions_in_none(store):
    client = browse(store)
    at = client.get("/doctor.json", params={"at": "2026-03-01T12:00:00Z"})
    assert at.status_code == 200
    refused = client.get("/doctor", params={"at": "7"})
    assert refused.status_code == 400
    assert "this store has 6 logs: give a time" in refused.text
    assert client.get("/group.json?id=billing&at=12").json()["position"] == 12


def test_a_group_of_a_shard_without_a_log_is_not_there(store):
    missing = browse(store).get("/group?id=absent")
    assert missing.status_code == 404
    assert "There is no group &#39;absent&#39; here" in missing.text


def test_a_store_without_groups_shows_none(tmp_path, whole):
    root = str(tmp_path / "store")
    make_shards(root, SHARDS, Config())
    client = browse(root)
    assert "There are no groups yet." in client.get("/").text
    assert of_all(client.get("/audit.json"))["audit"] == []
    assert of_all(client.get("/doctor.json"))["findings"] == []
    reader = open_reader(whole, Config())
    listed = Pages(reader, "")._groups_of(reader, reader.newest())
    assert no_groups().schema.equals(listed.schema)


def test_nodes_and_their_shards(store, whole, monkeypatch):
    lease = Config().lease
    shard = read_shards(store).shard_of("billing")
    node = StoreNodes(store, lease, shards=lambda: {shard: 3, 1: 0}, loads=lambda: {shard: 2.5})
    assert node.register(7, "10.0.0.7:9092") == 7
    try:
        client = browse(store)
        assert "1 node has 2 of 64 shards" in client.get("/").text
        rows = rows_of(client.get("/nodes"))
        assert rows[0][:5] == ["7", "10.0.0.7:9092", "2", "0", "2.5"]
        shown = rows[2 + shard]
        assert shown[:3] + shown[4:] == [str(shard), "7", "10.0.0.7:9092", "1", "2.5", "3"]
        assert client.get("/nodes.json").json()["shards"][1]["node_id"] == 7
        assert "No coordinator runs" not in client.get("/group?id=billing").text
        changes = open_reader(store, Config())
        before = changes.count_changes()
        assert changes.count_changes() == before
        read, looks = StoreNodes.look, []
        with monkeypatch.context() as patch:
            patch.setattr(StoreNodes, "look", lambda one: looks.append(one) or read(one))
            assert len(changes.list_nodes()) == 1
            assert len(changes.list_owners()) == SHARDS
        assert looks == [], "what was seen just now is not read once more"
    finally:
        node.leave()
    changes._nodes_at = float("-inf")
    assert changes.count_changes() != before
    assert "No node runs on this store" in browse(store).get("/").text
    assert "no node" in browse(store).get("/nodes").text
    assert browse(whole).get("/nodes").status_code == 400


def test_logs_in_a_bucket_are_looked_at_so_often_together_and_idle_ones_seldom():
    logs = {f"{n:04d}" for n in range(64)}
    assert set(wait_for_looks(logs, set(), 0.0, 2.0).values()) == {0.0}, "on a disk"
    assert set(wait_for_looks(logs, set(), 2.0, 10.0).values()) == {64 / LOOKS}
    waits = wait_for_looks(logs, logs - {"0003"}, 2.0, 10.0)
    assert waits.pop("0003") == 2.0
    assert set(waits.values()) == {10.0}


def test_a_look_that_was_just_now_is_not_repeated(tmp_path):
    with Coordinator.open(tmp_path, topics={"t": 2}) as coordinator:
        reader = StoreReader(tmp_path)
        reader.newest()
        before = reader.count_commits()
        coordinator.offset_commit(group_id="g", topics={"t": {0: 1}})
        assert reader.count_commits(every_s=60.0) == before
        assert reader.count_commits() != before
