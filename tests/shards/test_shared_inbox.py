"""One inbox for all shards of a store: a node looks once, and commands ask the node, not its log."""

from __future__ import annotations

import json
import time
from pathlib import Path

from coordinator.config import Config, LeaseConfig
from coordinator.storage.holders import watch_holder
from coordinator.storage.inbox import Compact, Inbox
from coordinator.storage.shards import make_shards, root_at, shard_at, store_of
from coordinator.wire.codec import Api
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes import GROUPS, LEASE, Work, has, node
from tests.support.members import wait_for


def test_a_shard_is_asked_for_by_its_node(store, muster_here, tmp_path):
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        with Work([one.address]) as work:
            work.go_on()
            claims = one.here.claims()
            group_id = GROUPS[0]
            holder = watch_holder(store_of(store, group_id), LEASE)()
            assert (holder.owner, holder.address) == ("node 1", one.address)

            plan = tmp_path / "plan.json"
            done = muster_here("plan", group_id, "--store", store, "-o", plan)
            assert done.returncode == 0, done.stderr
            done = muster_here("apply", plan, "--store", store)
            assert done.returncode == 0, done.stderr
            done = muster_here("compact", "--store", store)
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            assert {row["by"] for row in rows} == {"coordinator"}, "no other process claims it"
            assert one.here.claims() == claims
            work.go_on()
    assert watch_holder(store_of(store, group_id), LEASE)() is None


def test_what_names_no_shard_is_set_aside(store):
    Inbox(shard_at(store, 1)).put(Compact("compact-1"))
    folder = Path(store) / "inbox"
    assert [one.name for one in folder.iterdir()] == ["0001-compact-1.json"]
    strays = ("stray", "0001", "0004-compact-2", "root-compact-3")
    for stray in strays:
        (folder / f"{stray}.json").write_text("{}")
    assert Inbox(root_at(store)).waiting() == ["compact-3"]
    with node(store, 1):
        aside = Path(store) / "_set_aside"
        wait_for(lambda: len(list(aside.glob("*.reason"))) == 4)
        named = {one.name.split("-", 2)[2]: one.read_text() for one in aside.glob("*.reason")}
    assert set(named) == {f"{name}.json.reason" for name in strays}
    assert named["stray.json.reason"].startswith("it names no shard of the store")
    assert Inbox(shard_at(store, 1)).waiting() == ["compact-1"], "the shard has no log"


def test_an_idle_node_asks_an_object_store_little_whatever_its_shards(s3):
    store = s3.new_store()
    make_shards(store, SHARDS, Config())
    with node(store, 1, lease=LeaseConfig()) as one:
        wait_for(lambda: has(SHARDS)(one))
        for shard in one.owned:
            one.here.claim(shard)
        time.sleep(1.0)
        s3.requests()
        began = time.monotonic()
        time.sleep(6.0)
        asked, took_s = s3.requests(), time.monotonic() - began
        for _ in range(200):  # clients ask who coordinates, which only the nodes' files say
            one._looked = 0.0
            one.looks[Api.FIND_COORDINATOR]()
        looked = [request for request in s3.requests() if "_nodes" in request]
    assert any("inbox" in request for request in asked)
    assert len(asked) <= 2.5 * took_s + 3, "and once in ten seconds, the nodes' files"
    assert [request for request in asked if "shards" in request] == []
    assert 1 <= len(looked) <= 15
