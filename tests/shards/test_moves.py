"""A shard that moves: who answers for its groups, and whom clients are sent to, at each moment."""

from __future__ import annotations

import threading
import time

from coordinator.clock import wall_ms
from coordinator.core.events import DescribeGroup
from coordinator.core.java_hash import place_of
from coordinator.errors import ErrorCode
from coordinator.member.member import Member
from coordinator.shards.node import Node
from coordinator.shards.shards_here import LOOK_LOST_S
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.nodes import Node as NodeFile
from coordinator.storage.shards import shard_at
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes import GROUPS, Work, committed, has, node, wait_for


class Halting(Node):
    """A node that halts before it claims a shard, and once more before it loads one."""

    def __init__(self, *words):
        super().__init__(*words)
        self.may_claim, self.may_load = threading.Event(), threading.Event()
        self.read, self.loads = threading.Event(), threading.Event()

        self._read, self.here.read = self.here.read, self._halt_to_claim
        self._load, self.here.load = self.here.load, self._halt_to_load

    def _halt_to_claim(self, log: LogAhead) -> None:
        self._read(log)
        self.read.set()
        assert self.may_claim.wait(60)

    def _halt_to_load(self, log):
        self.loads.set()
        assert self.may_load.wait(60)
        return self._load(log)


def ask(node, group_id):
    (answer,) = node.submit([DescribeGroup(group_id)]).result(30)
    return getattr(answer, "code", None)


def test_the_old_node_answers_until_the_claim_and_the_new_one_is_named_from_then_on(store):
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        with Work([one.address]) as work:
            work.go_on()
            with node(store, 2, Halting) as two:
                assert two.read.wait(60)
                work.go_on()  # the log was read, and nothing is claimed yet
                assert {ask(two, g) for g in GROUPS} == {ErrorCode.NOT_COORDINATOR}
                assert {one.coordinator_of(g).node_id for g in GROUPS} == {1}
                two.may_claim.set()
                assert two.loads.wait(60)
                wait_for(lambda: named(one, 2) == named(two, 2) != [])
                moved = named(two, 2)
                codes = {ask(two, group_id) for group_id in moved}
                assert codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
                two.may_load.set()
                wait_for(lambda: has(2, 2)(one, two))
                work.go_on()
        assert committed(store) == work.counts


def test_who_claimed_a_shard_is_asked_until_a_node_says_so(store, monkeypatch):
    with node(store, 1) as one, Member(one.address, group_id="g0", topics=["t"]) as member:
        assert member.wait_for_change(timeout=60)
        assert one._knows_who_claimed()
        shard = place_of("g0", SHARDS)
        epoch = LogAhead.open(shard_at(store, shard)).claim("another", "", wall_ms())
        wait_for(lambda: ask(one, "g0") == ErrorCode.NOT_COORDINATOR)
        looks = []
        monkeypatch.setattr(one.nodes, "look", lambda: looks.append("looked"))
        for _ in range(2):
            one._looked = time.monotonic() - 2 * LOOK_LOST_S
            one._look_at_nodes()
        assert len(looks) == 2
        one.nodes.others = (NodeFile(2, "127.0.0.1:1", 0, wall_ms(), "t", {shard: epoch}),)
        assert one._knows_who_claimed()


def test_the_state_of_a_shard_goes_once_another_node_has_claimed_it(store):
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        with Work([one.address]) as work:
            work.go_on()
            assert len(one.here.list_open()) == SHARDS
            with node(store, 2) as two:
                wait_for(lambda: has(2, 2)(one, two))
                wait_for(lambda: len(one.here.list_open()) == 2)
                assert len(one.here.list_lost()) == 2
                work.go_on()
            wait_for(lambda: has(SHARDS)(one))
            assert one.here.list_lost() == {}
            work.go_on()
        assert committed(store) == work.counts


def named(asked, node_id):
    """The groups for which a node names another, or itself."""
    asked.nodes.look()
    return [g for g in GROUPS if (at := asked.coordinator_of(g)) and at.node_id == node_id]
