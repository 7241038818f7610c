"""A rebalance as a trace: what OpenTelemetry is given, as values without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | list[str]
GROUP, CLIENT, ADDRESS = "messaging.consumer.group.name", "messaging.client.id", "client.address"
"""Attributes that OpenTelemetry names; those that it does not know begin with `muster.`."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of a span."""

    at_ms: int
    name: str
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanValue:
    """A span; times are milliseconds since 1970."""

    name: str
    begin_ms: int
    end_ms: int
    attributes: dict[str, Value] = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True)
class RebalanceTrace:
    """One rebalance of one group.

    Attributes
    ----------
    root
        The rebalance itself.
    parts
        The computation of its target or its phases, and a span for each member that is shown.
    """

    root: SpanValue
    parts: tuple[SpanValue, ...] = ()

    @property
    def spans(self) -> int:
        """How many spans it has."""
        return 1 + len(self.parts)


def describe_group(group_id: str, protocol: str) -> dict[str, Value]:
    """Return the attributes of a group."""
    return {GROUP: group_id, "messaging.system": "kafka", "muster.group.protocol": protocol}


def describe_client(client_id: str, host: str, instance_id: str | None) -> dict[str, Value]:
    """Return the attributes of a member's client."""
    values: dict[str, Value] = {CLIENT: client_id, ADDRESS: host}
    return values | ({} if instance_id is None else {"muster.instance.id": instance_id})
