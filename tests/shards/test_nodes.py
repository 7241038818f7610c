"""Nodes that share a store: shards are divided, move without loss, and go on when a node is gone."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coordinator.config import Config, ConfigError, LeaseConfig, ServerConfig
from coordinator.history import frame
from coordinator.member.member import Member
from coordinator.shards.node import NODES, Node
from coordinator.shards.root import config_of_nodes
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import FILE, make_shards, read_shards, root_at
from tests.conftest import ROOT
from tests.shards.conftest import SHARDS
from tests.support import processes
from tests.support.longer import longer
from tests.support.members import wait_for

LEASE = LeaseConfig(ttl_ms=2_000, renew_ms=300, check_ms=100)
GROUPS = [f"g{n}" for n in range(6)]
WORDS = """
[lease]
ttl_ms = 2000
renew_ms = 300
check_ms = 100
"""


@contextmanager
def node(store, node_id, make=Node, lease=LEASE, **more):
    """A node of this process."""
    server = ServerConfig(listen="127.0.0.1:0", node_id=node_id)
    config = Config(lease=lease, server=server, **more)
    opened = make(store, make_shards(store, SHARDS, config), config, {"t": 4})
    opened.serve()
    try:
        yield opened
    finally:
        opened.close()


def has(*counts):
    """Whether the nodes have so many shards, each one once."""

    def found(*nodes):
        owned = [set(one.owned) for one in nodes]
        once = sum(map(len, owned)) == len(set().union(*owned)) == SHARDS
        return once and sorted(map(len, owned)) == sorted(counts)

    return found


class Work:
    """A member in each group that commits what it counts, and notes what went wrong."""

    def __init__(self, addresses):
        self.members = [
            Member(addresses, group_id=group_id, topics=["t"]).open() for group_id in GROUPS
        ]
        self.counts = dict.fromkeys(GROUPS, 0)
        self.lost: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._count, args=(m,)) for m in self.members]

    def __enter__(self):
        for member in self.members:
            assert member.wait_for_change(timeout=60)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for member in self.members:
            member.leave()

    def _count(self, member):
        count = 0
        while not self._stop.wait(0.1):  # oftener it proves no more, and takes a core
            count += 1
            try:
                member.commit({("t", 0): count}, timeout=60)
            except Exception as error:  # noqa: BLE001 - whatever it is, a client would meet it
                self.lost.append(f"{member.group_id}: {error}")
                return
            self.counts[member.group_id] = count

    def go_on(self):
        """Wait until each group has committed three times from now."""
        before = dict(self.counts)
        wait_for(lambda: self.lost or all(self.counts[g] >= before[g] + 3 for g in GROUPS))
        assert not self.lost


@pytest.mark.parametrize("ttl_ms", [1_000, 10_000, 60_000])
def test_nodes_learn_of_a_dead_one_before_its_lease_ends(ttl_ms):
    config = Config(lease=LeaseConfig(ttl_ms=ttl_ms))
    root = config_of_nodes(config)
    beat_ms, session_ms = root.kafka.heartbeat_interval_ms, root.kafka.session_timeout_ms
    assert session_ms + beat_ms <= 0.7 * ttl_ms
    assert session_ms >= 3 * beat_ms, "two beats may be lost"
    assert root.lease.ttl_ms == session_ms, "the root's holder is waited for as any node is"
    assert root.lease.ttl_ms >= 3 * root.lease.renew_ms


def test_who_cannot_reach_the_store_lets_others_have_its_shards_until_it_can(store, monkeypatch):
    """Its heartbeats go to the root, which needs no store of its own to be asked."""

    def fail():
        raise OSError("the network is down")

    with node(store, 1) as one, node(store, 2) as two:
        wait_for(lambda: has(2, 2)(one, two))
        with monkeypatch.context() as cut:
            cut.setattr(two.nodes, "renew", fail)
            wait_for(lambda: len(one.owned) == SHARDS)
        wait_for(lambda: has(2, 2)(one, two))


def counted(a_node):
    """Return how many shards a node serves and loads, and 1 if it coordinates the nodes."""
    found = a_node.metrics.registry.get_sample_value
    states = (found("shards", {"state": state}) for state in ("served", "loading"))
    return (*states, found("coordinates_nodes"))


def test_shards_are_divided_and_a_node_that_leaves_hands_its_own_over(store):
    with ExitStack() as left, node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        two = left.enter_context(node(store, 2))
        wait_for(lambda: has(2, 2)(one, two))
        with Work([one.address, two.address]) as work:
            work.go_on()
            owned = {m: m.owned for m in work.members}
            left.close()  # node two leaves while members are at work
            wait_for(lambda: has(SHARDS)(one))
            work.go_on()
            assert {m: m.owned for m in work.members} == owned, "no member had to join again"
            assert counted(one) == (SHARDS, 0, 1)
            assert one.metrics.registry.get_sample_value("shard_claims_total") == 4
            assert two.metrics.registry.get_sample_value("shard_losses_total") == 2
        assert committed(store) == work.counts, "what was acknowledged is in the log of its shard"
    epochs = frame(store, "epochs")
    assert set(epochs["reason"].to_pylist()) <= {"member joined", "member left"}
    history = frame(root_at(store), "assignment_history", group_id=NODES)
    assert history.num_rows >= 3, "who had which shard, and when, is asked as of any group"


def test_a_node_that_leaves_does_not_join_again_while_others_load(store):
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        with ExitStack() as left:
            two = left.enter_context(node(store, 2))
            wait_for(lambda: has(2, 2)(one, two))
            for group_id in GROUPS:  # so that each shard has a log
                with Member(one.address, group_id=group_id, topics=["t"]) as member:
                    assert member.wait_for_change(timeout=60)
            loads, claim = threading.Event(), one.here.claim
            one.here.claim = lambda shard: loads.wait(60) and claim(shard)
            threading.Timer(3, loads.set).start()
            left.close()
        wait_for(lambda: has(SHARDS)(one))
    rows = frame(root_at(store), "epochs", group_id=NODES)
    assert rows["reason"].to_pylist().count("member joined") == 2


def test_a_request_at_the_wrong_node_is_sent_to_the_right_one(store):
    with node(store, 1) as one, node(store, 2) as two:
        wait_for(lambda: has(2, 2)(one, two))
        for address in (one.address, two.address):  # whichever is asked names the same one
            for group_id in GROUPS:
                with Member(address, group_id=group_id, topics=["t"]) as member:
                    assert member.wait_for_change(timeout=60)
                    member.commit({("t", 0): 7})
                    assert member.committed(("t", 0)) == 7


def test_a_node_of_another_number_of_shards_is_refused(store):
    """Its file was changed: a group would be in one shard here, and in another one there."""
    StoreNodes(store, LeaseConfig(), of=SHARDS).register(1, "a:1")
    Path(store, FILE).write_text('{"count": 12}')
    shutil.rmtree(Path(store, "log"))  # it has the number as well, where 0.3 made the store
    with pytest.raises(ConfigError, match="says 12 shards, and a:1 serves the store with 4"):
        Node(store, read_shards(store), Config())


def test_drained_nodes_have_shards_where_no_other_is_left(store):
    """Two were drained when the third ended: no one had its shards, though two were alive."""
    with node(store, 1) as one, ExitStack() as left:
        wait_for(lambda: has(SHARDS)(one))
        two = left.enter_context(node(store, 2))
        wait_for(lambda: has(2, 2)(one, two))
        root = one._holds.coordinator
        root.apply_plan(root.plan(NODES, drain=[one.here.owner]))
        wait_for(lambda: has(SHARDS)(two))
        left.close()
        wait_for(lambda: has(SHARDS)(one))


def test_a_client_that_is_no_node_is_given_no_shards(store):
    with node(store, 1) as one:
        wait_for(lambda: has(SHARDS)(one))
        with Member(one.address, group_id=NODES, topics=["muster.shards"]) as stranger:
            assert stranger.wait_for_change(timeout=1) is None
        with Member(one.address, group_id="g0", topics=["t"]) as member:
            assert member.wait_for_change(timeout=60)
        assert has(SHARDS)(one)


def committed(store):
    """Return what the logs of all shards say that the groups committed last."""
    rows = frame(store, "offsets").to_pylist()
    return {row["group_id"]: row["offset"] for row in rows}


class Process:
    """`muster serve` of a node in a process of its own."""

    def __init__(self, folder, store, node_id):
        config = folder / "muster.toml"
        config.write_text(WORDS)
        words = ["serve", "--store", store, "--node", node_id, "--listen", "127.0.0.1:0",
                 "--topic", "t=4", "--config", config]  # fmt: skip
        self.said = (folder / f"node-{node_id}").open("w+")
        command = [sys.executable, "-m", "coordinator", *map(str, words)]
        self.process = processes.start(command, cwd=ROOT, stdout=self.said, stderr=self.said)
        wait_for(lambda: "serves groups at " in self.text())
        self.address = self.text().partition("serves groups at ")[2].split()[0]

    def text(self):
        with open(self.said.name) as said:
            return said.read()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.said.close()


@longer("MUSTER_LONG=1: processes, half a minute each")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("where", ["disk", "S3"])
def test_the_groups_of_a_node_that_is_gone_go_on(request, tmp_path, store, where, how):
    if where == "S3":
        store = request.getfixturevalue("s3").new_store()
        make_shards(store, SHARDS, Config())
    nodes = []
    try:
        nodes = [Process(tmp_path, store, node_id) for node_id in (1, 2, 3)]
        with Work([one.address for one in nodes]) as work:
            work.go_on()
            nodes[0].process.send_signal(how)
            work.go_on()
            if how == signal.SIGSTOP:
                nodes[0].process.send_signal(signal.SIGCONT)
                work.go_on()
        for member in work.members:
            assert work.counts[member.group_id] >= 6
        assert committed(store) == work.counts, "what was acknowledged is in the log of its shard"
    finally:
        for one in nodes:
            one.end()
