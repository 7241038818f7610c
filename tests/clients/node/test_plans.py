"""Plans of a group that a node leads: made by weight, approved, and known after the node was killed.

`make test-cluster-kafka` only.
"""

from __future__ import annotations

import itertools
import json
import os

import confluent_kafka as ck
import pytest

from tests.clients.node.led import led_cluster
from tests.clients.test_cluster_kafka import NODE, ORDERS, leaders
from tests.clients.world import Group, until
from tests.support.processes import end, run_as_text

pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_KAFKA"), reason="make test-cluster-kafka"
)
SETTINGS = """
[kafka]
"group.consumer.assignors" = ["weighted", "uniform", "range"]
[weights]
source = "kafka://{servers}"
poll_ms = 1000
[plans]
poll_ms = 200
[node.groups.billing]
"consumer.assignor.approval" = "manual"
"""


def fill(servers):
    """Give one partition nearly all of the lag."""
    producer = ck.Producer({"bootstrap.servers": servers})
    for partition, count in ((0, 300), (1, 10), (2, 10), (3, 10)):
        for _ in range(count):
            producer.produce("orders", b"x", partition=partition)
    assert producer.flush(30) == 0


def test_a_plan_waits_is_approved_and_is_known_after_a_kill(tmp_path):
    settings = tmp_path / "muster.toml"

    def muster(*words, fails=False):
        done = run_as_text(*words, "--store", node.folder)
        assert bool(done.returncode) is fails, done.stderr + node.said()
        return done.stderr if fails else [json.loads(line) for line in done.stdout.splitlines()]

    def plans(status):
        done = run_as_text("plans", "billing", "--store", node.folder, "--status", status)
        return [json.loads(line)["plan_id"] for line in done.stdout.splitlines()]

    def share(name):
        """What a member holds, once all is held, by one member each; nothing before."""
        held = {one: sorted(mine) for one, mine in group.held().items()}
        return held[name] if sorted(itertools.chain(*held.values())) == ORDERS else []

    with led_cluster(tmp_path, {"orders": 4}, SETTINGS) as (node, one, two):
        fill(one.address)
        with Group(tmp_path, "billing", [one.address, two.address]) as group:
            group.join("a", ["orders"], group_protocol="consumer", group_instance_id="a")
            until(lambda: share("a") == ORDERS, node.said)
            group.join("b", ["orders"], group_protocol="consumer", group_instance_id="b")
            until(lambda: plans("waiting"), node.said)
            assert share("a") == ORDERS  # until someone approves
            (waiting,) = plans("waiting")
            muster("approve", "billing", waiting, "--json")
            until(lambda: share("a") and share("b"), node.said)
            assert waiting in plans("applied")
            (row,) = muster("explain", "billing", "--partition", "orders/0", "--json")
            assert row["assignor"] == "weighted"
            assert sorted(one["has"] for one in row["candidates"]) == [False, True]

            plan = tmp_path / "plan.json"
            muster("plan", "billing", "--drain", "a", "-o", plan, "--json", "--config", settings)
            done = run_as_text("apply", plan, "--store", node.folder, "--reason", "its disk")
            assert not done.returncode, done.stderr + node.said()
            until(lambda: share("b") == ORDERS, node.said)

            end(node.process)  # killed
            until(lambda: NODE not in leaders(two), node.said)
            said = muster("approve", "billing", waiting, fails=True)
            assert "no node is running" in said
            group.works(["b"])
            node.start("--listen", node.address, "--config", settings)
            node.wait_in_sync(3)
            assert "leads 3" in node.ask("lead", "--partitions", "0-2", "--yes").stdout
            group.join("c", ["orders"], group_protocol="consumer", group_instance_id="c")
            until(lambda: plans("waiting"), node.said)
            muster("approve", "billing", plans("waiting")[0], "--json")
            until(lambda: share("b") and share("c"), node.said)
            assert not group.held()["a"]  # still drained
