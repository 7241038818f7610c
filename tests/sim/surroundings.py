"""Topics, settings and groups, that others than members change."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from coordinator.core.events import (
    CatalogTopic,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    ListGroups,
)

if TYPE_CHECKING:
    from .world import World

TOPICS = ("a1", "a2", "b1", "b2")
RACKS = ("r1", "r2")
PARTITIONS_MAX = 8
SETTINGS = {
    "consumer.session.timeout.ms": ("6000", "12000", "30000"),
    "consumer.heartbeat.interval.ms": ("300", "2000"),
    "consumer.assignment.interval.ms": ("0", "500", "3000"),
    "consumer.assignor.imbalance": ("0", "1", "20%"),
    "consumer.assignor.max.moves": ("1", "2", "5"),
    "consumer.assignor.engine": ("local", "spark", "external"),
}


class Surroundings:
    """All that changes around coordinators and members."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._racks = world.chance.likely(0.2, "racks are known")

    def topic_comes(self, *key: object) -> None:
        """Create a topic, or let it grow, or move its replicas to other racks."""
        name = self._chance.pick(TOPICS, "topic", *key)
        old = self._world.topics.topics().get(name)
        count = self._chance.between(0, PARTITIONS_MAX, "partitions", *key)
        if old is None:
            self._set(name, _id(name, *key), count, *key)
        else:
            self._set(name, old.topic_id, max(count, old.partitions), *key)

    def topic_comes_again(self, *key: object) -> None:
        """Delete a topic and create it at once: it has another id."""
        name = self._chance.pick(TOPICS, "topic", *key)
        count = self._chance.between(0, PARTITIONS_MAX, "partitions", *key)
        self._set(name, _id(name, *key), count, *key)

    def topic_goes(self, *key: object) -> None:
        """Delete a topic."""
        name = self._chance.pick(TOPICS, "topic", *key)
        self._world.topics.delete(name)
        self._world.tell(f"topic {name} is deleted")

    def _set(self, name: str, topic_id: str, count: int, *key: object) -> None:
        racks: tuple[tuple[str, ...], ...] = ()
        if self._racks:
            racks = tuple(
                tuple(sorted(self._chance.some(RACKS, "racks", p, *key))) for p in range(count)
            )
        self._world.topics.set(name, CatalogTopic(topic_id, count, racks))
        self._world.tell(f"topic {name} has {count} partitions and the id {topic_id}")

    def settings_change(self, *key: object) -> None:
        """Give a group id other settings."""
        chance = self._chance
        settings = {
            name: chance.pick(values, name, *key)
            for name, values in SETTINGS.items()
            if chance.likely(0.4, "set", name, *key)
        }
        group_id = chance.pick(self._world.groups, "group", *key)
        self._world.tell(f"{group_id}: settings {settings}")
        self._world.ask(ConfigureGroup(group_id, settings), "settings", *key)

    def group_deleted(self, *key: object) -> None:
        """Ask to delete a group; refused while it has members."""
        group_id = self._chance.pick(self._world.groups, "group", *key)
        self._world.ask(DeleteGroup(group_id), "delete", *key)

    def described(self, *key: object) -> None:
        """Ask any coordinator what it knows."""
        node = self._chance.pick(self._world.nodes, "node", *key)
        group_id = self._chance.pick(self._world.groups, "group", *key)
        self._world.ask(DescribeGroup(group_id), "describe", *key, node=node)
        self._world.ask(ListGroups(), "list", *key, node=node)


def _id(*name: object) -> str:
    """Return an id that no other topic has."""
    return base64.urlsafe_b64encode(repr(name).encode()).decode().rstrip("=")
