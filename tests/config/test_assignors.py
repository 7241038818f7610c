"""The assignors that a coordinator serves without a setting: an assignor is declared in one place."""

from __future__ import annotations

from assignors import registry
from coordinator.config.kafka import KafkaConfig


def test_each_built_in_assignor_is_served_kafkas_first():
    served = KafkaConfig().assignors
    assert served[:2] == ("uniform", "range")
    assert sorted(served) == sorted(registry.BUILT_IN)
