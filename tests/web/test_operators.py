"""What operators see first: who coordinates, who stands by, who was refused what."""

from __future__ import annotations

import time
from dataclasses import replace

import msgspec
import pytest

from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config, LeaseConfig, ServerConfig
from coordinator.core.audit import (
    CONFIG_ALTERED,
    DENIED,
    LOGIN_FAILED,
    THROTTLED,
    audit_record,
)
from coordinator.core.events import Caller
from coordinator.storage.lease import Holder
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.web.activity import Activity
from coordinator.web.store_reader import ServersReader, StoreReader
from tests.support.stories import MINUTE, NOON, Story, stored
from tests.web.browsing import browse, rows_of
from tests.web.test_access import HOSTILE, refuse_inline, secured, store

__all__ = ["secured", "store"]


def audited(batch, minutes, action, count=None, group="", **by):
    """Return a batch with an audit record."""
    details = by.pop("details", {}) | ({} if count is None else {"count": str(count)})
    record = audit_record(action, group, Caller(**by), details)
    return replace(batch, records=[record], at_ms=NOON + minutes * MINUTE)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """A store whose log says who was refused what."""
    batches = Story("billing").topics(orders=2).at(-90).join("m1", "orders").batches
    last = batches[-1]
    bob = {"principal": "User:bob", "client_id": "http", "client_host": "10.0.0.7"}
    return stored(
        [
            *batches,
            audited(last, -80, LOGIN_FAILED, 1_000, **bob),
            audited(last, -5, LOGIN_FAILED, 80, **bob),
            audited(last, -4, LOGIN_FAILED, None, principal="", client_id="", client_host=""),
            audited(last, -3, THROTTLED, 5, principal="User:ann", client_id="a", client_host="h"),
            audited(last, -2, DENIED, 2, "billing", **bob),
            audited(last, -1, CONFIG_ALTERED, None, "ledger", **bob),
        ],
        tmp_path_factory.mktemp("refused"),
    )


def test_refusals_of_the_last_hour_are_on_the_first_page(refused):
    page = browse(refused, now_ms=NOON).get("/").text
    assert "81 wrong logins" in page
    assert "2 requests denied" in page
    assert "5 requests throttled" in page
    assert "In the last hour" not in browse(refused, now_ms=NOON + 60 * MINUTE).get("/").text


def test_refusals_are_followed(refused):
    reader = StoreReader(refused)
    assert reader.activity.refusals(0) == {LOGIN_FAILED: 1_081, DENIED: 2, THROTTLED: 5}
    activity = Activity()
    look = reader.newest()
    for position in range(1, look.reading.position + 1, 3):
        past = reader.past(position)
        activity.advance(past.rows(), position)
    activity.advance(look.rows(), look.reading.position)
    assert activity.refusals(0) == reader.activity.refusals(0)


def test_the_audit_is_read_newest_first_and_filtered(refused):
    client = browse(refused, now_ms=NOON)
    rows = rows_of(client.get("/audit"))
    assert [row[1] for row in rows] == [
        "group config altered", "authorization denied", "client throttled", "login failed",
        "login failed", "login failed",
    ]  # fmt: skip
    assert rows[-1][2:6] == ["1,000", "User:bob", "10.0.0.7http", ""]
    found = client.get("/audit.json?action=login_failed&q=BOB&rows=1").json()
    assert (found["total"], found["audit"][0]["count"]) == (2, 80)
    assert client.get("/audit?action=x").status_code == 400
    assert client.get("/audit?sort=x").status_code == 400
    before = client.get(f"/audit?at_ms={NOON - 10 * MINUTE}")
    assert len(rows_of(before)) == 1


def test_the_audit_shows_those_groups_that_one_may_see(refused, secured):
    client, ann = browse(refused, Config(server=secured), now_ms=NOON), ("ann", "secret")
    assert client.get("/audit").status_code == 401
    found = client.get("/audit.json", auth=ann).json()
    assert {row["group_id"] for row in found["audit"]} == {"billing"}
    assert "In the last hour" not in client.get("/", auth=ann).text
    root = client.get("/", auth=("root", "wood")).text
    assert "81 wrong logins" in root


@pytest.mark.parametrize("name", HOSTILE)
def test_what_strangers_call_themselves_is_text(tmp_path, name):
    batches = Story("billing").topics(orders=2).join("m1", "orders").batches
    by = {"principal": f"User:{name}", "client_id": name, "client_host": name}
    more = audited(batches[-1], 0, LOGIN_FAILED, 3, name, details={name: name}, **by)
    client = browse(stored([*batches, more], tmp_path), now_ms=NOON + MINUTE)
    for path in ("/audit", "/"):
        answer = client.get(path)
        assert answer.status_code == 200
        refuse_inline(answer.text)
        assert not [one for one in answer.text.replace("\n", "") if not one.isprintable()]


# Who coordinates ---------------------------------------------------------------------------------


def test_who_coordinates_since_when_and_who_stands_by(tmp_path):
    store = tmp_path / "store"
    config = Config(server=ServerConfig(listen="127.0.0.1:0"))
    with Coordinator.open(store, config=config, topics={"a": 1}, address="here:9092") as c:
        page = " ".join(browse(store, now_ms=wall_ms()).get("/").text.split())
        assert "here:9092" in page
        assert "coordinates since <time" in page
        assert "(coordinator epoch 1)" in page
        assert "No server is seen to stand by" in page
        node = StoreNodes(str(store), LeaseConfig())
        node.register(7, "there:9092")
        page = browse(store, now_ms=wall_ms()).get("/").text
        assert 'Stands by: <bdi class="id">there:9092</bdi>.' in page
        node.leave()
        c.consumer_group_heartbeat(
            group_id="g", member_id="m1", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["a"], topic_partitions={},
        )  # fmt: skip
        assert "No coordinator runs" not in browse(store, now_ms=wall_ms()).get("/group?id=g").text
    assert "No coordinator runs" in browse(store, now_ms=wall_ms()).get("/group?id=g").text
    page = " ".join(browse(store, now_ms=wall_ms()).get("/").text.split())
    assert "No coordinator runs on this store." in page
    assert "claimed it last, <time" in page


class Disk(Filesystem):
    """Counts what is read."""

    reads = 0

    def read(self, path):
        self.reads += 1
        return super().read(path)


def write_lease(folder, **changes):
    held = Holder("host-1", 3, "here:9092", 10_000, "token")
    held = msgspec.structs.replace(held, **changes)
    (folder / "_lease.json").write_bytes(msgspec.json.encode(held))


def test_a_lease_that_ends_is_a_change_and_a_renewal_is_none(tmp_path):
    now, disk = [1000.0], Disk()
    reader = ServersReader(str(tmp_path), disk, LeaseConfig(), lambda: now[0])

    def read(wall):
        now[0] += 3
        seen = reader.read(wall)
        return seen.is_live, reader.changes

    assert read(0) == (False, 0)
    write_lease(tmp_path)
    assert read(1_000) == (True, 1)
    write_lease(tmp_path, expires_ms=13_000)
    assert read(4_000) == (True, 1)
    reads = disk.reads
    now[0] -= 3
    assert read(4_000) == (True, 1)
    assert disk.reads == reads, "it is kept for two seconds"
    now[0] += 10
    assert read(17_000) == (False, 2)
    write_lease(tmp_path, expires_ms=15_000)
    assert read(20_000) == (True, 3), "its clock is behind ours, but it is renewed"
    write_lease(tmp_path, token="another", owner="host-2", expires_ms=40_000)
    assert read(22_000) == (True, 4)
    (tmp_path / "_lease.json").write_bytes(b"\xff{")
    now[0] += 20
    assert read(24_000) == (False, 5)


def test_open_pages_show_that_the_lease_ended(tmp_path):
    """The log says nothing of it."""
    coordinator = Coordinator.open(tmp_path / "store", topics={"a": 1})
    reader = StoreReader(tmp_path / "store")
    reader.newest()
    before = reader.count_changes()
    coordinator.close()
    end = time.monotonic() + 60
    while reader.count_changes() == before:
        assert time.monotonic() < end
        time.sleep(0.2)
    assert reader.newest().reading.position == reader.position
