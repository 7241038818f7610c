"""Choose the engine for a target by its estimated cost on each.

The constants are measured: `make bench` writes them to conf/muster.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.config import Config, CostConfig

MIB = 1 << 20
WHOLE_BYTES_RANGE = 110
"""Memory that a range takes of a target that is computed whole: it stays columns (98 are measured,
200,000 members x 50 ranges). As records of members that all change it takes twice as much."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The size of a group: members, distinct subscriptions, ranges of the previous target."""

    members: int
    classes: int
    ranges: int


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of a computation: seconds on each engine, and memory in this process."""

    local_s: float
    local_mib: float
    spark_s: float


def estimate_cost(cost: CostConfig, size: GroupSize, *, tables: bool = False) -> CostEstimate:
    """Return the estimated cost of a computation.

    Parameters
    ----------
    tables
        Whether the group is read from tables, which takes more memory than to assign it.
    """
    members, classes, ranges = size.members, size.classes, size.ranges
    local_us = (
        cost.local_ns_member * members / 1e3
        + cost.local_us_class * classes
        + cost.local_ns_range * ranges / 1e3
    )
    spark_us = (
        cost.spark_ns_member * members / 1e3
        + cost.spark_us_class * classes
        + cost.spark_ns_range * ranges / 1e3
    )
    memory = cost.local_bytes_member * members + cost.local_bytes_range * ranges
    if tables:
        memory = cost.table_bytes_member * members + cost.table_bytes_range * ranges
    return CostEstimate(
        cost.local_ms / 1e3 + local_us / 1e6, memory / MIB, cost.spark_ms / 1e3 + spark_us / 1e6
    )


def fits_memory(
    config: Config, size: GroupSize, *, whole: bool = False, tables: bool = False
) -> bool:
    """Whether a computation fits into the memory that this process may use for it.

    Parameters
    ----------
    whole
        Whether its target is written as rows, without a record of each member.
    tables
        As for `estimate_cost`.
    """
    cost = config.cost
    if whole:
        less = min(cost.local_bytes_range, WHOLE_BYTES_RANGE)
        cost = replace(cost, local_bytes_range=less)
    return estimate_cost(cost, size, tables=tables).local_mib <= config.engine.local_mib_max


def choose_engine(
    config: Config, wanted: str, size: GroupSize, *, whole: bool = False, tables: bool = False
) -> str:
    """Return "local" or "spark": the wanted engine, or for "auto" the faster one that fits.

    Parameters
    ----------
    wanted
        "local", "spark", or "auto".
    whole
        Whether Spark computes the group in one task, as it does with weights: then only a group
        that does not fit this process goes there.
    tables
        As for `estimate_cost`.
    """
    if wanted != "auto":
        return wanted
    cost = estimate_cost(config.cost, size)
    local = fits_memory(config, size, tables=tables) and (whole or cost.local_s <= cost.spark_s)
    return "local" if local else "spark"
