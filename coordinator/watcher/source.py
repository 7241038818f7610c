"""Where a watched store gets from what a Kafka cluster's coordinator does."""

from __future__ import annotations

import threading
from typing import Protocol

from coordinator.core.state.records import KafkaWatched
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.watcher.watched_store import WatchedStore


class Source(Protocol):
    """A Kafka cluster, or records of one."""

    topics: TopicCatalog | None
    """Where the cluster's topics are read, again and again; None: the source reports them."""
    is_live: bool
    """Whether what it brings happens now."""

    def find_cluster(self) -> KafkaWatched:
        """Return whose groups these are, and since when they are watched.

        Raises
        ------
        OSError
            The cluster cannot be reached.
        ConfigError
            It cannot be watched; the message says what is missing.
        """

    def follow(self, store: WatchedStore, stop: threading.Event) -> None:
        """Write to the store what the cluster does, until the source ends, or until a stop.

        While the cluster cannot be reached, the source says so and tries again.
        """
