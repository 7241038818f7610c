"""Begins to send telemetry, where the settings ask for it; without it, nothing is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Protocol

from prometheus_client import CollectorRegistry

from coordinator.config import Config
from coordinator.core.state.groups import State
from coordinator.telemetry.collector import find_collector
from coordinator.telemetry.follower import Follower
from coordinator.telemetry.rebalance_follower import RebalanceFollower


class Counted(Protocol):
    """What a coordinator, or a node, counts."""

    registry: CollectorRegistry
    follow: Callable[[Callable[[], State]], Follower]

    def telemetry_lost(self, what: str, count: int) -> None:
        """Count what no collector took."""


def start_telemetry(config: Config, metrics: Counted) -> Callable[[], object]:
    """Begin to send these metrics, and the traces of what is counted there; return what ends it.

    Raises
    ------
    ConfigError
        The collector cannot be reached as the settings say (`find_collector`).
    """
    collector = find_collector(config)
    if collector is None:
        return lambda: None
    from coordinator.telemetry.telemetry import Telemetry  # noqa: PLC0415 - of an extra

    found = Telemetry(collector, metrics.registry, version("muster"), metrics.telemetry_lost)
    most = config.telemetry.members_max
    if found.traces:
        metrics.follow = lambda state: RebalanceFollower(found.tell, most, state)
    return found.close
