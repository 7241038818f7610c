"""Weights, capacities and constraints that are given to one plan: read once, and noted nowhere."""

from __future__ import annotations

import time

from coordinator.config import Config
from coordinator.core.state.records import LoadsNoted
from coordinator.core.targets.basis import Basis
from coordinator.runtime.plan_tasks.kafka_weights import (
    LAG,
    GroupPosition,
    KafkaWeights,
    open_weights,
)
from coordinator.runtime.plan_tasks.weight_source import read_group_loads

RATE_S = 5.0
"""Between the two looks at a cluster that a rate needs."""


def read_plan_loads(source: str, config: Config, basis: Basis) -> LoadsNoted:
    """Return what a source says of one group now.

    Parameters
    ----------
    source
        A folder of tables, a table of weights, or a cluster as kafka://host:port.

    Raises
    ------
    ConfigError, SpecError
        The source does not exist, or what it says is invalid.
    OSError
        The cluster does not answer.
    """
    topics = {topic.key.name: topic.partitions for topic in basis.input.topics}
    opened = open_weights(source, config.weights)
    assert opened is not None, "a source is given"
    if not isinstance(opened, KafkaWeights):
        return read_group_loads(opened(), basis.group_id, topics)
    place = {basis.group_id: GroupPosition(topics, basis.committed)}
    tables = opened.read(place)
    if config.weights.measure != LAG:
        time.sleep(RATE_S)
        tables = opened.read(place)
    return read_group_loads(tables, basis.group_id, topics)
