"""How much each shard has to do: nodes measure it, and the root divides the shards by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.runtime.plan_tasks.weight_source import WeightSource, WeightTables
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import NODES, SHARDS_TOPIC

MEASURED_S = 5.0
"""Over how long a load is measured at least."""
BASE = 20.0
"""What a shard weighs without members: a load is nothing to move shards for if it is less."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What was asked of a shard up to a moment, and its load then; None before it is known."""

    epoch: int
    asked: int
    at_s: float
    load: float | None = None


class ShardLoads:
    """Measures what is asked of the shards of a node, in steady heartbeats a second.

    Parameters
    ----------
    asked
        Returns for each shard the epoch of its claim, and how much was asked since then.
    """

    def __init__(
        self,
        asked: Callable[[], Mapping[int, tuple[int, int]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._asked, self._clock = asked, clock
        self._measured: dict[int, _Measured] = {}
        self._lock = Lock()

    def measure(self) -> dict[int, float]:
        """Return the load of each shard that was here for long enough to have one."""
        with self._lock:
            now = self._clock()
            self._measured = {
                shard: _measure(self._measured.get(shard), epoch, asked, now)
                for shard, (epoch, asked) in self._asked().items()
            }
            found = {shard: one.load for shard, one in self._measured.items()}
        return {shard: load for shard, load in found.items() if load is not None}


def _measure(before: _Measured | None, epoch: int, asked: int, now: float) -> _Measured:
    if before is None or before.epoch != epoch:
        return _Measured(epoch, asked, now)
    if now - before.at_s < MEASURED_S:
        return before
    return _Measured(epoch, asked, now, round((asked - before.asked) / (now - before.at_s), 1))


class ShardWeights:
    """The weights by which the root divides shards, as a source of weights.

    A shard weighs what its node says; while none says it, such as in a move, the last one counts.
    While a node is late no weight changes: its shards may have to move, and no others beside them.

    Parameters
    ----------
    source
        What else the tables say of the group of the nodes: capacities, states and constraints.
    is_late
        Whether some node is late.
    """

    def __init__(
        self,
        count: int,
        nodes: StoreNodes,
        source: WeightSource | None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._nodes, self._source, self._is_late = nodes, source, is_late
        self._weights = [BASE] * count

    def __call__(self) -> WeightTables:
        """Return the tables of the group of the nodes."""
        others = WeightTables() if self._source is None else self._source()
        self._nodes.look()
        for node in () if self._is_late() else self._nodes.every():
            for shard, load in node.loads.items():
                if 0 <= shard < len(self._weights) and self._nodes.has_last(node, shard):
                    self._weights[shard] = BASE + max(load, 0.0)
        count = len(self._weights)
        table = pa.table(
            {
                "group_id": [NODES] * count,
                "topic": [SHARDS_TOPIC] * count,
                "partition": range(count),
                "weight": self._weights,
            }
        )
        return WeightTables(table, _of_nodes(others.members), _of_nodes(others.constraints))


def _of_nodes(table: pa.Table | None) -> pa.Table | None:
    """Return the rows that name the group of the nodes."""
    if table is None or "group_id" not in table.column_names:
        return None
    return table.filter(pc.equal(table["group_id"], NODES))
