"""`watch`: a store that shows what a Kafka cluster's coordinator does, and one who follows it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

from coordinator.config import KAFKA, Config, ConfigError
from coordinator.errors import GroupError
from coordinator.runtime.coordinator import Coordinator
from coordinator.watcher.describe_source import DescribeSource
from coordinator.watcher.kafka_source import KafkaSource
from coordinator.watcher.records_file import RecordsFile
from coordinator.watcher.source import Source
from coordinator.watcher.watched_store import WatchedStore

TOPIC, DESCRIBE = "topic", "describe"
"""How a cluster is followed."""


class Watch:
    """Follows a Kafka cluster in a thread of its own, until it is closed; see `watch`.

    Attributes
    ----------
    coordinator
        Says what the groups are: describe, list, offsets, plans, pages. It changes nothing.
    """

    def __init__(self, store: WatchedStore, source: Source) -> None:
        self.coordinator: Coordinator = store.coordinator
        self._store, self._source = store, source
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="muster-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._source.follow(self._store, self._stop)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failure = error

    @property
    def store(self) -> WatchedStore:
        """What is written."""
        return self._store

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the source ends, as a file does; return whether it has.

        Raises
        ------
        GroupError, OSError, ConfigError
            Why following it has ended early.
        """
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop following, write what was read, and release the store."""
        self._stop.set()
        self._thread.join()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def watch(
    source: str | Path | Source,
    store: str | Path | None,
    *,
    by: str = TOPIC,
    config: Config | None = None,
    takeover: str = "wait",
) -> Watch:
    """Keep what a Kafka cluster's coordinator does with its groups in a store.

    Parameters
    ----------
    source
        kafka://host:port,… of a cluster, or the path of a dump (docs/guide/watch.md).
    store
        Folder of the tables, or its URL; None keeps them in memory. No coordinator may have it.
    by
        How a cluster is followed: by the "topic" of groups, or, where that may not be read, by what
        it answers when it is asked to "describe" them.
    config
        The settings; [watch] says how the cluster is reached.
    takeover
        As for `Coordinator.open`: of two that watch into one store, one stands by.

    Returns
    -------
    Watch
        It follows the cluster already; close it, or use it as a context manager.

    Raises
    ------
    ConfigError
        The source or the store cannot be used.
    OSError
        The cluster cannot be reached.
    BusyError
        Another process has the store, and takeover is "refuse".
    """
    config = config or Config()
    followed = open_source(source, config, by) if isinstance(source, str | Path) else source
    return Watch(open_store(followed, store, config, takeover), followed)


def open_source(source: str | Path, config: Config, by: str = TOPIC) -> Source:
    """Return what a source names: a cluster or a file."""
    if by not in {TOPIC, DESCRIBE}:
        raise ConfigError(f"--by (by=) is {by!r}: give {TOPIC} or {DESCRIBE}")
    if not str(source).startswith(KAFKA):
        return RecordsFile(source)
    settings = config.watch
    if by == DESCRIBE:
        return DescribeSource(
            str(source), settings.kafka, poll_ms=settings.poll_ms, lag_ms=settings.lag_ms
        )
    return KafkaSource(
        str(source),
        settings.kafka,
        topic=settings.topic,
        offsets_ms=settings.offsets_ms,
        lag_ms=settings.lag_ms,
        topics_ms=settings.poll_ms,
    )


def open_store(
    source: Source, store: str | Path | None, config: Config, takeover: str
) -> WatchedStore:
    """Return a store that a source can be written to."""
    try:
        return WatchedStore.open(
            store,
            source.find_cluster(),
            config=config,
            topics=source.topics,
            takeover=takeover,
            session_ms=config.watch.session_ms,
            is_live=source.is_live,
        )
    except GroupError as error:
        raise ConfigError(str(error)) from None
