"""The topics of a cluster's metadata, and its settings of groups, as coordinators ask for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from coordinator.config import ConfigError, NodeConfig
from coordinator.config.kafka import (
    KAFKAS_OF_GROUPS,
    KafkaConfig,
    group_settings,
    own_group_settings,
)
from coordinator.core.events import CatalogTopic, ConfigureGroup
from coordinator.core.state.groups import TopicView
from coordinator.kraft.metadata_image import MetadataImage
from coordinator.kraft.partition_records import make_view
from coordinator.wire.call import from_uuid

GROUP_SETTINGS = 32
"""The kind of resource that groups are."""
logger = logging.getLogger("muster.node")


class ImageCatalog:
    """The topics of the cluster's metadata, for coordinators, and its settings of groups.

    Attributes
    ----------
    settings
        By group, those that Muster has, too, within its bounds, and those of its own.
    """

    def __init__(self, config: KafkaConfig, node: NodeConfig) -> None:
        self._config = config
        self._own = {
            name: own_group_settings(config, settings) for name, settings in node.groups.items()
        }
        self._topics: dict[str, CatalogTopic] = {}
        self.view = TopicView()
        self.settings: dict[str, dict[str, str]] = {}

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Return all topics; any thread may ask."""
        return self._topics

    def update(self, image: MetadataImage) -> None:
        """Take what the metadata says now."""
        found = dict(sorted(read_topics(image).items()))
        if found != self._topics:
            self._topics, self.view = found, make_view(found)

    def update_settings(self, image: MetadataImage) -> list[ConfigureGroup]:
        """Take the settings of groups; return what has changed of them."""
        before, of_cluster = self.settings, read_group_settings(image, self._config)
        names = of_cluster.keys() | self._own.keys()
        self.settings = {
            name: of_cluster.get(name, {}) | self._own.get(name, {}) for name in sorted(names)
        }
        return [
            ConfigureGroup(name, self.settings.get(name, {}))
            for name in sorted(before.keys() | self.settings.keys())
            if before.get(name) != self.settings.get(name)
        ]


def read_topics(image: MetadataImage) -> dict[str, CatalogTopic]:
    """Return the topics of a cluster, with the racks of the replicas of each partition."""
    racks = {node_id: one.rack for node_id, one in image.brokers.items()}
    found: dict[str, CatalogTopic] = {}
    for topic in image.topics.values():
        places = [
            tuple(sorted({racks.get(node_id) or "" for node_id in one.replicas} - {""}))
            for _, one in sorted(topic.partitions.items())
        ]
        known = tuple(places) if any(places) else ()
        found[topic.name] = CatalogTopic(from_uuid(topic.topic_id), len(places), known)
    return found


def read_group_settings(image: MetadataImage, config: KafkaConfig) -> dict[str, dict[str, str]]:
    """Return the cluster's settings of groups, of those that Muster knows and can have."""
    found: dict[str, dict[str, str]] = {}
    for (kind, name), settings in image.settings.items():
        known = {key: value for key, value in settings.items() if key in KAFKAS_OF_GROUPS}
        if kind != GROUP_SETTINGS or not known:
            continue
        try:
            found[name] = group_settings(config, known)
        except ConfigError as error:
            logger.warning("group %s has its settings from Muster's own: %s", name, error)
    return found
