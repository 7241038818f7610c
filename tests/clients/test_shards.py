"""Every client on a store of shards, while nodes join, restart, are drained and are killed.

`make test-clients` has the clients for Python, `make test-foreign` those for Go and JavaScript,
`make test-java` Java's: each lives the same life, and ends in `tests.clients.checker`.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest

from coordinator.storage.shards import Shards
from tests.clients.test_classic_clients import CLIENTS, REJOIN, SOON, clients_but, make_client
from tests.clients.world import MEMBER, Coordinators, Group, free_port, partitions, until
from tests.support import processes

SHARDS = 16
TOPICS = {"clicks": 4}
CLICKS = partitions("clicks", 4)
GROUPS = ("billing", "search", "audit", "stock")
"""Each in another shard: one node has them first, then three nodes have some."""
MEMBERS = ("m0", "m1")
CONSUMER = {
    "librdkafka-consumer": ("MUSTER_LONG", lambda _: MEMBER, {}),
    "java-consumer": ("MUSTER_JAVA", CLIENTS["java"][1], {}),
}
"""The clients that have the consumer protocol, where members of the others are classic."""
ALL = CLIENTS | CONSUMER
KNOWN_S = 2.0
KNOWS = {"metadata_max_age_ms": int(1000 * KNOWN_S)}
"""For Java's classic members: the leader of a group forgets its topics and joins again when all
nodes that it knows of have ended, and of new ones it hears every five minutes by default."""


class Nodes(Coordinators):
    """Nodes of one store, each at an address that it keeps."""

    def __init__(self, folder):
        super().__init__(folder, TOPICS, words=("--shards", str(SHARDS)))
        self.addresses = {1: self.address} | {n: f"127.0.0.1:{free_port()}" for n in (2, 3)}
        self.nodes = {}

    def __enter__(self):
        self.start(1)
        return self

    def start(self, *node_ids):
        """Start nodes, and wait until all have their share."""
        for node_id in node_ids:
            self.nodes[node_id] = self.serve(self.addresses[node_id], "--node", str(node_id))
        for node_id in node_ids:
            self.await_served(self.addresses[node_id])
        self.await_divided()

    def stop(self, node_id):
        """End a node with SIGTERM, and wait until the others have its shards."""
        self.nodes.pop(node_id).leave()
        self.await_divided()

    def kill(self, node_id):
        self.nodes.pop(node_id).kill()

    def drain(self, node_id, *words):
        self._run("drain", node_id, *words)
        self.await_divided(() if words else (node_id,))

    def owners(self):
        """Return the node of each shard."""
        return {row["shard"]: row["node_id"] for row in self._run("nodes", "--shards")}

    def busiest(self):
        """Return the node that has most of the groups."""
        owners = self.owners()
        found = [owners[Shards(SHARDS).shard_of(name)] for name in GROUPS]
        return max(found, key=found.count)

    def await_divided(self, drained=()):
        """Wait until each node has the shards that it should have, and together they have all."""

        def divided():
            rows = self._run("nodes")
            return (
                {row["node_id"] for row in rows} == self.nodes.keys()
                and sum(row["shards"] for row in rows) == SHARDS
                and all(row["shards"] == row["target"] for row in rows)
                and all(bool(row["target"]) != (row["node_id"] in drained) for row in rows)
            )

        until(divided, lambda: self._run("nodes"))

    def _run(self, command, *words):
        given = "--store", self.store, "--config", self.settings
        done = processes.run_here(command, *words, *given)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


class Lives:
    """Groups at work on the nodes, and how long each of their members went without a commit."""

    def __init__(self, nodes, folder, client):
        self.groups = [Group(folder, name, [*nodes.addresses.values()]) for name in GROUPS]
        self._client = client
        self.gaps = {}

    def join(self, *names):
        for group in self.groups:
            for name in names:
                group.join(f"{group.name}-{name}", **self._client)
        self.settled()

    def settled(self):
        for group in self.groups:
            group.settled(list(group.members), CLICKS)
        self.work()

    def work(self):
        for group in self.groups:
            group.works(list(group.members))

    def changes(self):
        return [group.changes() for group in self.groups]

    @contextmanager
    def phase(self, name):
        """Have all groups work on to the end, and note the longest wait of a member meanwhile."""
        began = time.monotonic()
        yield
        self.work()
        waits = [
            max(b - a for a, b in pairwise([began, *at]))
            for group in self.groups
            for lines in group.logs().values()
            if (at := [x["at"] for x in lines if x["what"] == "commit" and x["at"] > began])
        ]
        self.gaps[name] = round(max(waits), 2)


@pytest.fixture
def client(request, tmp_path_factory):
    """A client's name, and what its members are started with."""
    name = request.param
    made = make_client(ALL[name], tmp_path_factory.mktemp("member"))
    more = (SOON if name in CLIENTS else {}) | (KNOWS if name.startswith("java") else {})
    return name, made | more


@clients_but(among=ALL)
def test_groups_go_on_while_nodes_join_restart_are_drained_and_killed(client, tmp_path, capsys):
    """Planned moves take nothing from members, but from clients that rejoin at a new coordinator."""
    name, settings = client
    with Nodes(tmp_path) as nodes, ExitStack() as left:
        lives = Lives(nodes, tmp_path, settings)
        for group in lives.groups:
            left.enter_context(group)
        lives.join(*MEMBERS)
        changes = lives.changes()
        with lives.phase("scale out"):
            nodes.start(2, 3)
            time.sleep(2 * KNOWN_S)
        with lives.phase("restart"):
            for node_id in (1, 2, 3):
                nodes.stop(node_id)
                nodes.start(node_id)
        with lives.phase("drain"):
            emptied = nodes.busiest()
            nodes.drain(emptied)
        nodes.drain(emptied, "--undo")
        if name not in REJOIN:
            assert lives.changes() == changes
        with lives.phase("kill -9"):
            killed = nodes.busiest()
            nodes.kill(killed)
        if name not in REJOIN:
            assert lives.changes() == changes
        nodes.start(killed)
        lives.join("m2")
        with capsys.disabled():
            sys.stdout.write(f" {name}: longest waits for a commit, in s: {lives.gaps} ")
