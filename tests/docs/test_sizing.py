"""The page on sizing says what its command prints."""

from __future__ import annotations

import pytest

from benchmarks.sizing import Cluster, Costs, plan, print_plan, settle, simulate
from tests.conftest import ROOT


def test_the_page_has_the_table_of_the_command():
    cluster = Cluster()
    found = simulate(cluster.nodes, cluster.shards)
    assert print_plan(cluster, found) in (ROOT / "docs" / "design" / "sizing.md").read_text()


@pytest.mark.parametrize(("nodes", "counts"), [(8, {8}), (9, {8, 7}), (70, {1, 0})])
def test_each_node_has_about_its_share_of_shards(nodes, counts):
    """As the guide says of nodes that join."""
    assert {len(some) for some in settle(nodes, 64).values()} == counts


@pytest.mark.parametrize("name", ["heartbeats a second", "members a shard"])
def test_twice_the_members_need_twice_as_much(name):
    costs = Costs.read()
    one, two = (plan(Cluster(members=n * 1_000_000), costs)[name] for n in (1, 2))
    assert float(two.replace(",", "")) == pytest.approx(2 * float(one.replace(",", "")), rel=0.01)
