"""The metrics of a node: those of all its shards, and how many shards it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import Gauge

from coordinator.runtime.metrics import Metrics

STATES = ("served", "loading", "empty")
"""Of a node's shards: it answers for its groups; it reads its log; it has no log yet."""


class NodeMetrics(Metrics):
    """Metrics of all shards of a node.

    Parameters
    ----------
    groups_max
        How many groups have series of their own.
    """

    def __init__(self, groups_max: int) -> None:
        super().__init__(groups_max)
        self._shards = Gauge(
            "shards", "Shards that this node has, by state.", ("state",), registry=self.registry
        )
        self._claims = self._counter("shard_claims", "Claims of shards by this node.")
        self._losses = self._counter("shard_losses", "Shards that another node claimed.")
        self._root = Gauge(
            "coordinates_nodes", "1 where this node divides the shards.", registry=self.registry
        )

    def watch_shards(self, count: Callable[[str], int], root_epoch: Callable[[], int]) -> None:
        """Let the gauges be read when they are asked for.

        Parameters
        ----------
        count
            Returns how many shards are in a state.
        root_epoch
            Returns the epoch of our claim of the root; 0 while another has it.
        """
        for state in STATES:
            self._shards.labels(state).set_function(partial(count, state))
        self._root.set_function(lambda: int(root_epoch() > 0))

    def claimed(self) -> None:
        """Count a shard that this node claimed."""
        self._claims.inc()

    def fenced(self) -> None:
        """Count a shard that another node claimed: it does not end this one."""
        self._losses.inc()
