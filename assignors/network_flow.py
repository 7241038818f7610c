"""Maximum flow and minimum-cost flow on small integer networks.

scipy counts in int32 and wraps silently, and which of several optima it returns depends on the
order of the arcs. So capacities are checked here, the method is pinned, and arcs are always solved
sorted by (tail, head): the same network gives the same flow, no matter what code built it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from assignors import solvers
from assignors.arrays import Bools, Ints, Longs, offsets_of

_INT32_MAX = 2**31 - 1
_METHOD: Final = "dinic"
_STEP_BITS = 26  # dijkstra drops zero weights: a path of fewer than 2²⁶ arcs adds its arc count


@dataclass(frozen=True, slots=True)
class Network:
    """Arcs tail → head with integer capacities; sorted by (tail, head), no two alike."""

    nodes: int
    tail: Longs
    head: Longs
    capacity: Longs

    @classmethod
    def of(cls, nodes: int, tail: Ints, head: Ints, capacity: Ints) -> tuple[Network, Longs]:
        """Sort arcs; also return the permutation used."""
        order = np.argsort(tail * np.int64(nodes) + head, kind="stable")
        columns = [np.asarray(column[order], dtype=np.int64) for column in (tail, head, capacity)]
        return cls(nodes, *columns), order


class ArcBlocks:
    """The arcs of a network with costs, added as named blocks; each block's flow has its name."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._blocks: list[tuple[Longs, ...]] = []

    def add(
        self,
        name: str,
        tail: Longs | int,
        head: Longs | int,
        capacity: Longs | int,
        *,
        cost: int = 0,
    ) -> None:
        """Add arcs; a number stands for all of the block.

        Parameters
        ----------
        tail, head, capacity
            (arcs,) each.
        cost
            Of a unit on each arc, 0 or more.
        """
        self._names.append(name)
        self._blocks.append(np.broadcast_arrays(tail, head, capacity, np.int64(cost)))

    def find_cheapest_flow(
        self, nodes: int, source: int, sink: int, amount: int
    ) -> dict[str, Longs]:
        """Carry `amount` from source to sink at the least total cost.

        Returns
        -------
        dict
            The flow of each block, (arcs,), by its name.

        Raises
        ------
        AssertionError
            The network cannot carry `amount`: the caller built it wrongly.
        """
        tail, head, capacity, cost = (
            np.concatenate(column) for column in zip(*self._blocks, strict=True)
        )
        network, order = Network.of(nodes, tail, head, np.minimum(capacity, amount))
        flow = np.empty(len(order), dtype=np.int64)
        flow[order] = find_cheapest_flow(network, cost[order], source, sink, amount)
        ends = np.cumsum([len(block[0]) for block in self._blocks])
        return dict(zip(self._names, np.split(flow, ends[:-1]), strict=True))


def find_maximum_flow(network: Network, source: int, sink: int) -> Longs:
    """Return a maximum flow, one figure an arc.

    Raises
    ------
    OverflowError
        A capacity does not fit int32.
    """
    capacity = network.capacity
    if len(capacity) and int(capacity.max()) > _INT32_MAX:
        raise OverflowError(f"capacity {int(capacity.max())} is above int32")
    if len(capacity) == 0:
        return np.zeros(0, dtype=np.int64)
    solved = solvers.maximum_flow(
        _to_matrix(network, capacity.astype(np.int32)), source, sink, method=_METHOD
    )
    flow = solved.flow
    # The answer holds every arc and its reverse; ours are found by their (tail, head) key.
    row = np.repeat(np.arange(network.nodes, dtype=np.int64), np.diff(flow.indptr))
    at = np.searchsorted(row * network.nodes + flow.indices, _pack_arcs(network))
    return np.maximum(flow.data[at].astype(np.int64), 0)


def find_reached(network: Network, flow: Longs, start: int) -> Bools:
    """Tell which nodes the residual graph of `flow` reaches from `start`."""
    tail, head = _residual_arcs(network, flow)
    return _search(network.nodes, tail, head, start)


def find_reaching(network: Network, flow: Longs, end: int) -> Bools:
    """Tell which nodes reach `end` in the residual graph of `flow`."""
    tail, head = _residual_arcs(network, flow)
    return _search(network.nodes, head, tail, end)


def find_cheapest_flow(network: Network, cost: Longs, source: int, sink: int, amount: int) -> Longs:
    """Carry `amount` from source to sink at the least total cost (primal-dual).

    Parameters
    ----------
    network
        Without antiparallel arcs.
    cost
        Cost of a unit on each arc, 0 or more.

    Raises
    ------
    AssertionError
        The network cannot carry `amount`: the caller built it wrongly.
    """
    flow = np.zeros(len(cost), dtype=np.int64)
    potential = np.zeros(network.nodes, dtype=np.int64)
    out = network.tail == source
    residual = _Residual.of(network, cost, flow)
    while True:  # each turn finds paths that are dearer, of which there are finitely many
        flow += residual.augment(potential, source, sink, len(cost))
        if int(flow[out].sum()) == amount:
            return flow
        residual = _Residual.of(network, cost, flow)
        potential += residual.find_distances(potential, source, sink)


@dataclass(frozen=True, slots=True)
class _Residual:
    """What a flow leaves open: arcs forward, then arcs that take flow back."""

    nodes: int
    arc: Longs
    forward: int
    tail: Longs
    head: Longs
    capacity: Longs
    cost: Longs

    @classmethod
    def of(cls, network: Network, cost: Longs, flow: Longs) -> _Residual:
        ahead = np.flatnonzero(flow < network.capacity)
        back = np.flatnonzero(flow > 0)
        return cls(
            network.nodes,
            np.concatenate([ahead, back]),
            len(ahead),
            *_residual_arcs(network, flow),
            np.concatenate([network.capacity[ahead] - flow[ahead], flow[back]]),
            np.concatenate([cost[ahead], -cost[back]]),
        )

    def reduce_costs(self, potential: Longs) -> Longs:
        return self.cost + potential[self.tail] - potential[self.head]

    def find_distances(self, potential: Longs, source: int, sink: int) -> Longs:
        """Return the shortest distance to each node by reduced cost, at most that of the sink."""
        weight = (self.reduce_costs(potential) << _STEP_BITS) + 1
        network, _ = Network.of(self.nodes, self.tail, self.head, weight)
        matrix = _to_matrix(network, network.capacity.astype(np.float64))
        found = solvers.dijkstra(matrix, indices=np.array([source]))[0]
        if not np.isfinite(found[sink]):
            raise AssertionError("the sink is out of reach: the network cannot carry its amount")
        return np.asarray(np.minimum(found, found[sink]).astype(np.int64) >> _STEP_BITS)

    def augment(self, potential: Longs, source: int, sink: int, arcs: int) -> Longs:
        """Return the flow change of a maximum flow over the arcs of reduced cost 0."""
        free = np.flatnonzero(self.reduce_costs(potential) == 0)
        network, order = Network.of(
            self.nodes, self.tail[free], self.head[free], self.capacity[free]
        )
        moved = find_maximum_flow(network, source, sink)
        place, change = free[order], np.zeros(arcs, dtype=np.int64)
        ahead = place < self.forward
        change[self.arc[place[ahead]]] += moved[ahead]
        change[self.arc[place[~ahead]]] -= moved[~ahead]
        return change


def _residual_arcs(network: Network, flow: Longs) -> tuple[Longs, Longs]:
    """Return tails and heads of the residual graph: arcs forward, then those that take back."""
    ahead, back = flow < network.capacity, flow > 0
    return (
        np.concatenate([network.tail[ahead], network.head[back]]),
        np.concatenate([network.head[ahead], network.tail[back]]),
    )


def _to_matrix(network: Network, data: npt.NDArray[Any]) -> Any:  # noqa: ANN401 - scipy's stubs tell arrays from matrices
    indptr = offsets_of(np.bincount(network.tail, minlength=network.nodes))
    shape = (network.nodes, network.nodes)
    return solvers.csr_array(
        (data, network.head.astype(np.int32), indptr.astype(np.int32)), shape=shape
    )


def _pack_arcs(network: Network) -> Longs:
    return network.tail * network.nodes + network.head


def _search(nodes: int, tail: Longs, head: Longs, start: int) -> Bools:
    network, _ = Network.of(nodes, tail, head, np.ones(len(tail), dtype=np.int32))
    matrix = _to_matrix(network, network.capacity)
    out = np.zeros(nodes, dtype=np.bool_)
    out[solvers.breadth_first_order(matrix, start, return_predecessors=False)] = True
    return out
