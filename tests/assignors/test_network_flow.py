"""Minimum-cost flow, however many lengths its paths have."""

from __future__ import annotations

import numpy as np

from assignors.network_flow import Network, find_cheapest_flow


def test_a_flow_may_need_any_number_of_turns():
    """Each of 2^14 units takes a path that is dearer than the one before (Zadeh 1973)."""
    bits = 14
    arcs = [(0, 1, 1, 0)]  # tail, head, capacity, cost
    for at in range(1, bits + 1):
        source, sink, inner, outer = 2 * at, 2 * at + 1, 2 * at - 2, 2 * at - 1
        size = 2 ** (at - 1)
        arcs += [(source, inner, size, 0), (outer, sink, size, 0)]
        arcs += [(source, outer, size, 2**at - 1), (inner, sink, size, 2**at - 1)]
    tail, head, capacity, cost = np.array(arcs).T
    network, order = Network.of(2 * bits + 2, tail, head, capacity)
    flow = find_cheapest_flow(network, cost[order], 2 * bits, 2 * bits + 1, 2**bits)
    assert int((flow * cost[order]).sum()) == 2 * sum(range(2**bits))
