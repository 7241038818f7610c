"""The shards of a node that may have ended: looked at before they come, and claimed as ever."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from coordinator import Coordinator
from coordinator.clock import wall_ms
from coordinator.config import Config, LeaseConfig
from coordinator.core.state.records import GroupMetadata
from coordinator.shards.looks_ahead import REST_LEASES, LooksAhead
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.lease import Holder, Lease
from coordinator.storage.shards import shard_at
from coordinator.storage.state_loader import load_state
from tests.support.members import wait_for

TTL_S = 10.0
CONFIG = Config(lease=LeaseConfig(ttl_ms=10_000))
FIRST, RENEWED = (Holder("o", 3, "a:1", expires_ms, "token") for expires_ms in (1, 2))
NEXT = Holder("p", 4, "b:1", 3, "another")


class Stood:
    """A node that stands by, at a time that tests set."""

    def __init__(self, root, shards, others=1):
        self.now, self.looked = 0.0, []
        names = ["a:1", *(f"c{at}:1" for at in range(1, others))]
        said = tuple(
            SimpleNamespace(node_id=at, address=name, shards=shards if name == "a:1" else {})
            for at, name in enumerate(names)
        )
        own = SimpleNamespace(node_id=99, address="d:1", shards={})
        nodes = SimpleNamespace(others=said, every=lambda: (own, *said))
        self.ahead = LooksAhead(root, CONFIG, lambda: nodes, self._start, lambda: self.now)

    def _start(self, run, _name):
        self.looked.append(self.now)
        run()

    def see(self, holder, *times):
        for self.now in times:
            self.ahead.see(holder)


def written(s3, *shards):
    store = s3.new_store()
    for shard in shards:
        log = DeltaLog.open(shard_at(store, shard))
        log.claim("old", "a:1", 1)
        log.append([GroupMetadata(f"g{shard}", 1, 0)], 2)
    return store


def test_who_claims_a_shard_that_was_looked_at_asks_the_store_for_the_rest_only(s3):
    store = written(s3, 0)
    one = Stood(store, {0: 1, 1: 0})
    one.see(FIRST, 0.0, 1.0, 2.0)
    assert one.looked == []
    one.see(FIRST, 4.5, 5.0)
    assert one.looked == [4.5], "once"
    late = DeltaLog.open(shard_at(store, 0))
    late.claim("alive", "a:1", 3)
    late.append([GroupMetadata("late", 1, 0)], 3)
    s3.requests()
    log = one.ahead.take(0)
    log.read_ahead()
    read = s3.requests()
    assert [what for what in read if "list-type" in what] == []
    assert log.claim("new", "b:1", 4) == 3
    assert list(load_state(log)[0].groups) == ["g0", "late"]
    assert one.ahead.take(0) is None, "once"
    assert one.ahead.take(1) is None, "it has no log"


@pytest.mark.parametrize(
    ("holders", "kept"),
    [([RENEWED], False), ([NEXT], True), ([None, FIRST], True)],
    ids=["it was alive", "another has the root", "the store does not answer"],
)
def test_what_was_looked_at_is_kept_unless_its_node_is_alive(s3, holders, kept):
    one = Stood(written(s3, 0), {0: 1})
    one.see(FIRST, 0.0, 5.0)
    for holder in holders:
        one.see(holder, 6.0)
    assert (one.ahead.take(0) is not None) == kept


def test_an_owner_that_answers_no_heartbeat_is_late_though_it_renews_its_lease(s3):
    one = Stood(written(s3, 0), {0: 1})
    one.see(FIRST, 0.0)
    one.ahead.see(FIRST, missed=True)
    assert one.looked == [0.0]
    one.see(RENEWED, 1.0)
    assert one.ahead.take(0) is not None


def test_the_shards_of_any_node_are_looked_at_that_the_lease_of_the_root_names(s3):
    one = Stood(written(s3, 0), {0: 1}, others=3)
    root = Holder("o", 3, "c1:1", 1, "token")
    one.see(root, 0.0)
    for at in range(1, 9):
        one.see(replace(root, expires_ms=at, late=("a:1", "d:1")), float(at))
    assert one.looked == [1.0, 1.0], "once, and its own are here"
    assert one.ahead.take(0) is not None, "that the root is alive says nothing of a:1"
    one.see(replace(root, late=("a:1",)), 10.0)
    assert len(one.looked) == 2, "its file stays for a while, and says what it had"


def test_who_stands_by_reads_at_once_which_nodes_are_late(tmp_path):
    with Coordinator.open(tmp_path / "root", config=CONFIG) as root:
        lease = Lease(str(tmp_path / "root"), "", "", CONFIG.lease, wall_ms)
        root.name_late(["a:1"])
        wait_for(lambda: lease.holder().late == ("a:1",))
        root.name_late([])
        wait_for(lambda: lease.holder().late == ())


def test_what_was_looked_at_long_ago_is_looked_at_again(s3):
    one = Stood(written(s3, 0), {0: 1})
    one.see(FIRST, 0.0, 5.0)
    one.now = 5.1 + TTL_S
    assert one.ahead.take(0) is None


def test_a_store_that_is_slow_is_not_asked_again_and_again(s3):
    """It makes every holder late, and each look would make it slower."""
    one = Stood(written(s3, 0), {0: 1})
    holders = [Holder("o", 3, "a:1", at, "token") for at in range(20)]
    for at, holder in enumerate(holders):
        one.see(holder, 10.0 * at, 10.0 * at + 5)
    assert one.looked == [5.0, 5.0 + REST_LEASES * TTL_S, 5.0 + 2 * REST_LEASES * TTL_S, 185.0]


def test_each_of_many_nodes_looks_at_few(s3):
    one = Stood(written(s3), dict.fromkeys(range(20), 1), others=10)
    one.ahead._look_at = lambda shard, _owner: one.looked.append(shard)
    one.ahead.look("a:1")
    assert len(one.looked) == 4
    one.ahead.look("unknown:1")
    assert len(one.looked) == 4


def test_a_shard_that_its_node_has_not_claimed_is_not_looked_at(s3):
    """Its epoch is 0: the store has nothing of it from that node."""
    one = Stood(written(s3), {0: 0, 1: 1, 2: 0, 3: 2}, others=2)
    one.ahead._look_at = lambda shard, _owner: one.looked.append(shard)
    one.ahead.look("a:1")
    assert sorted(one.looked) == [1, 3]


def test_on_a_disk_nothing_is_looked_at(tmp_path):
    one = Stood(str(tmp_path), {0: 1})
    one.see(FIRST, 0.0, 5.0, 9.0)
    assert one.looked == []
