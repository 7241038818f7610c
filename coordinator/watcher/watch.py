"""`watch`: a store that shows what a Kafka cluster's coordinator does, and one who follows it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Self

import msgspec

from coordinator.config import KAFKA, Config, ConfigError
from coordinator.core.state.records import KafkaWatched
from coordinator.errors import GroupError
from coordinator.errors.trouble import Trouble
from coordinator.history.log_reader import LogReader
from coordinator.history.watched import read_watched
from coordinator.runtime.coordinator import Coordinator
from coordinator.storage.store_claim import has_log
from coordinator.watcher.describe_source import DescribeSource
from coordinator.watcher.follow_by import FollowBy
from coordinator.watcher.kafka_source import KafkaSource
from coordinator.watcher.records_file import RecordsFile
from coordinator.watcher.source import Source
from coordinator.watcher.watched_store import WatchedStore

ASK_AGAIN_S = 1.0
logger = logging.getLogger("muster.watch")


class Watch:
    """Follows a Kafka cluster in a thread of its own, until it is closed; see `watch`.

    Attributes
    ----------
    coordinator
        Shows the groups: describe, list, offsets, plans, pages. It changes nothing.
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
    by: str = FollowBy.TOPIC,
    config: Config | None = None,
    takeover: str = "wait",
) -> Watch:
    """Keep the history of a Kafka cluster's groups in a store.

    Parameters
    ----------
    source
        kafka://host:port,… of a cluster, or the path of a dump (docs/guide/watch.md).
    store
        Folder of the tables, or its URL; None keeps them in memory. No coordinator may use it.
    by
        How a cluster is followed: "topic" reads its topic of groups; "describe" asks it about the
        groups, for a cluster that does not let us read the topic.
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
        The cluster cannot be reached, and the store does not show its groups yet.
    BusyError
        Another process has the store, and takeover is "refuse".
    """
    config = config or Config()
    followed = open_source(source, config, by) if isinstance(source, str | Path) else source
    opened = open_store(followed, store, config, takeover)
    assert opened is not None, "without a stop it is waited for"
    return Watch(opened, followed)


def open_source(source: str | Path, config: Config, by: str = FollowBy.TOPIC) -> Source:
    """Return what a source names: a cluster or a file."""
    if by not in list(FollowBy):
        raise ConfigError(f"by is {by!r}: give one of {', '.join(FollowBy)}")
    if not str(source).startswith(KAFKA):
        return RecordsFile(source)
    settings = config.watch
    if by == FollowBy.DESCRIBE:
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
    source: Source,
    store: str | Path | None,
    config: Config,
    takeover: str,
    stop: threading.Event | None = None,
    observed: str = "",
) -> WatchedStore | None:
    """Return a store that a source can be written to.

    Parameters
    ----------
    stop
        What ends the wait for a cluster that does not answer yet; None: it is not waited for.
    observed
        How the cluster is watched, if not as the source says.

    Returns
    -------
    WatchedStore or None
        None after a stop.
    """
    cluster = _find_cluster(source, store, stop)
    if cluster is None:
        return None
    if observed:
        cluster = msgspec.structs.replace(cluster, observed=observed)
    try:
        return WatchedStore.open(
            store,
            cluster,
            config=config,
            topics=source.topics,
            takeover=takeover,
            session_ms=config.watch.session_ms,
            is_live=source.is_live,
        )
    except GroupError as error:
        raise ConfigError(str(error)) from None


def _find_cluster(
    source: Source, store: str | Path | None, stop: threading.Event | None
) -> KafkaWatched | None:
    """Ask which cluster it is; while no broker answers, the store says it, or it is waited for."""
    trouble = Trouble(logger.warning, "the Kafka cluster does not answer, %s: %s")
    while True:
        try:
            return source.find_cluster()
        except OSError as error:
            known = read_watched(LogReader(store)) if store and has_log(store) else None
            if known is None and stop is None:
                raise
            then = "showing what is in the store, and trying again" if known else "standing by"
            trouble.note(error, then)
        if known is not None or stop is None or stop.wait(ASK_AGAIN_S):
            return known
