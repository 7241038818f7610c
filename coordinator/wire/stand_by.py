"""Answer clients while another coordinator has the store: name that one, and refuse the rest.

Clients learn of this server from the others, so that they find it when it takes over; tools ask
every node, so it answers, and has no groups.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Self

from assignors import SpecError
from coordinator.clock import monotonic_ms, wall_ms
from coordinator.config import Config
from coordinator.core.events import Answer, Event, ListGroupIds, ListGroups, Result
from coordinator.core.state.groups import Topic, TopicView
from coordinator.errors.status import Status, refusal
from coordinator.errors.trouble import Trouble
from coordinator.history.current_views import read_topics
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.lease import Lease
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import LogError
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.store_files import root_of
from coordinator.wire.acceptor import NoCounts
from coordinator.wire.codec import Api
from coordinator.wire.decoder import StandsByError
from coordinator.wire.listener import RunningServer

LOOK_S = 0.5
logger = logging.getLogger("muster.wire")


class NoRequestCounts(NoCounts):
    """Counts nothing: a server that stands by has no metrics."""

    def served(self, _requests: Mapping[str, int]) -> None:
        """Ignore it."""

    def throttled(self, _throttle_ms: int) -> None:
        """Ignore it."""

    def client_refused(self, _client: str) -> None:
        """Ignore it."""


class NoGroups:
    """What a server that stands by serves: the store's topics, and no groups.

    Attributes
    ----------
    topics
        As they were read last.
    """

    status = Status.STANDS_BY.value
    metrics = NoRequestCounts()

    def __init__(self, store: str, config: Config, nodes: StoreNodes) -> None:
        self._store = store
        self._read_at = -config.topics.poll_ms
        self.config = config
        self.nodes = nodes
        self.topics = TopicView()
        self.looks = {Api.METADATA: self.look_at_topics}

    def look_at_topics(self) -> None:
        """Read the topics from the store, unless that was done lately.

        Raises
        ------
        StandsByError
            They cannot be read now.
        """
        if monotonic_ms() - self._read_at < self.config.topics.poll_ms:
            return
        try:
            rows = read_topics(LogRows(LogReader(self._store))).to_pylist()
        except (LogError, SpecError, OSError) as error:
            raise StandsByError(f"topics cannot be read: {error}") from None
        found = [Topic.of(row["topic"], row["topic_id"], row["partitions"], ()) for row in rows]
        self.topics = TopicView.of({topic.key.name: topic for topic in found})
        self._read_at = monotonic_ms()

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Refuse what only the coordinator may answer; lists of groups are empty."""
        found: Future[list[Answer]] = Future()
        found.set_result(
            [
                Result(response=[])
                if isinstance(event, ListGroups | ListGroupIds)
                else refusal(Status.STANDS_BY)
                for event in events
            ]
        )
        return found

    def is_large(self, _event: Event) -> bool:
        """Nothing is decided here."""
        return False


class StandBy:
    """Serves clients from when another coordinator is seen to have the store until it is closed.

    Where the other one has the same address, behind which one process takes the place of the
    other, clients need no second one: then it does nothing.

    Parameters
    ----------
    store
        Where it is.
    config
        Its address is `server.listen`.
    look_s
        How often it is looked who has the store, at least.
    """

    def __init__(self, store: str, config: Config, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._store = root_of(store)
        self._config = config
        self._address = config.server.advertised or config.server.listen
        self._listen = config.server.listen
        self._server: RunningServer | None = None
        self._lock = threading.Lock()
        """So that nothing begins after the end, which waits for no store that does not answer."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muster-stand-by", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self, *, stays: bool = False) -> str:
        """Stop serving, and return the address to listen on: a port that was free stays ours.

        Parameters
        ----------
        stays
            The coordinator of this process serves the address now.
        """
        with self._lock:
            self._closed.set()
            server, self._server = self._server, None
        if server is not None:
            self._listen = server.listens
            server.close(stays=stays)
        return self._listen

    def _run(self) -> None:
        disk = filesystem_of(self._store)
        every_s = max(self._look_s, disk.poll_s)
        lease = Lease(self._store, "", self._address, self._config.lease, wall_ms, disk=disk)
        trouble = Trouble(
            logger.warning, "cannot tell clients that %s stands by: %s", self._address
        )
        while self._server is None and not self._closed.wait(every_s):
            try:
                holder = lease.holder()
                if holder is not None and holder.address != self._address:
                    self._serve(StoreNodes(self._store, self._config.lease, disk=disk))
            except Exception as error:  # noqa: BLE001 - it stands by all the same
                trouble.note(error)

    def _serve(self, nodes: StoreNodes) -> None:
        with self._lock:
            if not self._closed.is_set():
                groups = NoGroups(self._store, self._config, nodes)
                self._server = RunningServer(groups, self._config.server)
