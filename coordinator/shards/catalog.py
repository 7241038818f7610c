"""One source of topics for all shards of a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from coordinator.clock import monotonic_ms
from coordinator.core.events import CatalogTopic
from coordinator.core.state.groups import Topic, TopicView
from coordinator.core.state.partition_spans import kafka_id
from coordinator.runtime.topic_catalog import TopicCatalog


class SharedCatalog:
    """A catalog that is read once for all who ask within a while.

    Parameters
    ----------
    every_ms
        How old an answer may be.
    shards
        The topic of the shards, which is found by its id alone: nodes ask for it, clients do not.

    Attributes
    ----------
    find_offsets
        As the catalog's; None where it has none.
    """

    def __init__(self, catalog: TopicCatalog, every_ms: int, shards: Topic) -> None:
        self._catalog, self._every_ms, self._shards = catalog, every_ms, shards
        self._lock = threading.Lock()
        self._found: Mapping[str, CatalogTopic] | None = None
        self._read_ms = 0
        self._view = TopicView()
        self.find_offsets = getattr(catalog, "find_offsets", None)

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Return all topics; raises as the catalog."""
        with self._lock:
            now = monotonic_ms()
            if self._found is None or now - self._read_ms >= self._every_ms:
                found = self._catalog.topics()
                if found != self._found:
                    self._found = found
                    self._view = self._make_view(found)
                self._read_ms = now
            return self._found

    def _make_view(self, found: Mapping[str, CatalogTopic]) -> TopicView:
        topics = {
            name: Topic.of(name, one.topic_id, one.partitions, one.racks)
            for name, one in found.items()
        }
        by_id = {kafka_id(one.key.topic_id): one for one in (*topics.values(), self._shards)}
        return TopicView(topics, by_id)

    @property
    def view(self) -> TopicView:
        """The topics as they were read last."""
        return self._view
