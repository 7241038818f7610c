"""`Coordinator`, the group coordinator that a pipeline embeds or a server serves.

It claims a store when the lease allows it, replays the log, and serves requests from any thread
through one event loop. Everything slow runs beside that loop: regular expressions, computations,
topics, the lease, log maintenance.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coordinator.clock import Clock, monotonic_ms, wall_ms
from coordinator.compute.engine import Engine
from coordinator.config import Config, ConfigError
from coordinator.core.events import RecordAudit
from coordinator.core.state import TopicView
from coordinator.errors import ErrorCode, GroupError
from coordinator.extras import require
from coordinator.runtime.async_coordinator import AsyncCoordinator
from coordinator.runtime.background_tasks import BackgroundTasks
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.group_requests import GroupRequests
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.plan_tasks.kafka_weights import KafkaWeights, open_weights
from coordinator.runtime.plan_tasks.weight_source import WeightSource
from coordinator.runtime.topic_catalog import TopicCatalog, catalog_for
from coordinator.status import STUCK, Status
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import RecordLog
from coordinator.storage.store_claim import claim_store
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.store_options import use_settings

if TYPE_CHECKING:
    from coordinator.web.server import WebServer
    from coordinator.wire.call import FindOffsets
    from coordinator.wire.listener import RunningServer

logger = logging.getLogger("muster.coordinator")


class Coordinator(GroupRequests):
    """A group coordinator over one store.

    >>> from coordinator import Coordinator
    >>> with Coordinator.open(None, topics={"clicks": 4}) as coordinator:
    ...     answer = coordinator.consumer_group_heartbeat(
    ...         group_id="g", member_id="m1", member_epoch=0, rebalance_timeout_ms=60_000,
    ...         subscribed_topic_names=["clicks"], topic_partitions={})
    >>> answer.assignment
    {'clicks': [0, 1, 2, 3]}

    All methods may be called from any thread. No answer leaves before its records are durable. A
    child that is forked has no coordinator: what it asks is refused.

    Attributes
    ----------
    aio
        The same requests as coroutines.
    """

    def __init__(
        self, processor: EventProcessor, loop: EventLoop, background: BackgroundTasks | None
    ) -> None:
        self._processor = processor
        self._inner = loop
        self._process = os.getpid()
        self._background = background
        self._closing = threading.RLock()
        self._when_closed: list[Callable[[], object]] = [lambda: atexit.unregister(self.close)]
        atexit.register(self.close)  # its threads use native code, which needs the interpreter
        self.aio = AsyncCoordinator(self)

    @classmethod
    def open(
        cls,
        store: str | Path | None,
        *,
        config: Config | None = None,
        topics: TopicCatalog | Mapping[str, int] | str | None = None,
        weights: WeightSource | str | Path | None = None,
        engine: Engine | None = None,
        takeover: str = "wait",
        address: str = "",
        clock: Clock = wall_ms,
        log: RecordLog | None = None,
    ) -> Self:
        """Claim a store, replay its log, and serve.

        Parameters
        ----------
        store
            Folder of the tables (docs/design/log_format.md#store), or its URL (guide: stores);
            None keeps everything in memory.
        config
            The settings; None takes the defaults. [store] counts for the whole process.
        topics
            Where topic metadata comes from: a catalog, just {topic: partitions}, or a source named
            as in the setting `topics.source`, which stands when this is left out.
        weights
            Where weights, capacities and constraints of groups come from: a folder of tables, a
            table of weights, "kafka://host:port", or a callable that returns `WeightTables`
            (docs/guide/plans.md#weights). None takes the setting `weights.source`.
        engine
            What computes very large targets; None finds them by the entry points `muster.engines`.
        takeover
            "wait" until the lease of another coordinator ends, or an object store answers;
            "refuse" names the holder; "force" claims at once and fences it.
        address
            Where this coordinator can be reached, for those that look for it.
        clock
            Ms since 1970; deadlines run on it too. Without one they run on the monotonic clock.
        log
            An open log, in place of the store's.

        Returns
        -------
        Coordinator
            It serves; close it, or use it as a context manager. The interpreter's end closes it.

        Raises
        ------
        BusyError
            Another coordinator has the store, and takeover is "refuse".
        ConfigError
            The store can be no folder of ours, or the source of topics or weights cannot be read.
        LogError
            The log is corrupt, or of a newer version; the message names the file.
        """
        if config is not None:
            use_settings(config.store)
        config = config or Config()
        catalog = catalog_for(topics, config)
        source, config = _open_weights(weights, config)
        lease = None
        if log is None:
            log, lease = claim_store(store, config, takeover, address, clock)
        steady = monotonic_ms if clock is wall_ms else clock
        metrics = Metrics(config.metrics.groups_max)
        processor = EventProcessor(log, config, clock, catalog, metrics, steady)
        metrics.watch(lambda: processor.state, lambda: processor.status.value)
        loop = EventLoop(processor, engine)
        patience = Patience(log.store, waits=takeover != "refuse")
        return cls(processor, loop, _start(loop, BackgroundTasks(loop, lease, source), patience))

    @property
    def _loop(self) -> EventLoop:
        """The loop, for who asks it something."""
        self._refuse_forked()
        return self._inner

    def _refuse_forked(self) -> None:
        """Refuse a child that was forked: no thread of ours is there, nobody would answer."""
        here = os.getpid()
        if here != self._process:
            raise GroupError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The coordinator is in process {self._process}, this one ({here}) was forked from "
                "it: open one here, or ask that one over the wire (Coordinator.serve).",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer what is asked, hand the store over at once, and stop; twice is no fault.

        In a forked child this does nothing: the coordinator is its parent's.
        """
        if os.getpid() != self._process:
            return
        with self._closing:
            self._inner.close()
            if self._background is not None:
                self._background.close()
            self._processor.log.close()
            while self._when_closed:
                self._when_closed.pop()()

    def when_closed(self, work: Callable[[], object]) -> None:
        """Have something done once the coordinator has closed.

        Parameters
        ----------
        work
            Called in the thread that closes it; what was asked last goes first.
        """
        with self._closing:
            self._when_closed.append(work)

    @property
    def status(self) -> str:
        """What the coordinator is doing: "active", or why it refuses; in a fork, "closed"."""
        here = os.getpid() == self._process
        return (self._processor.status if here else Status.CLOSED).value

    @property
    def health(self) -> str:
        """The status, or "stuck": the log has not let it answer for as long as a lease lives.

        A coordinator that is stuck has given its lease up, and may recover if nobody took it over.
        """
        return STUCK if self._processor.is_stuck else self.status

    @property
    def metrics(self) -> Metrics:
        """The Prometheus metrics; serve `metrics.registry`."""
        return self._processor.metrics

    @property
    def config(self) -> Config:
        """The settings."""
        return self._processor.config

    @property
    def topics(self) -> TopicView:
        """The topics that the coordinator knows now; never changed, replaced by a new view."""
        return self._processor.topics

    @property
    def topics_unread_since(self) -> int | None:
        """Since when the source of topics cannot be read, in ms since 1970; None while it can.

        Meanwhile topics are those that were read last.
        """
        watch = self._processor.topic_watch
        return None if watch is None else watch.unread_since_ms

    @property
    def find_offsets(self) -> FindOffsets | None:
        """What asks the Kafka cluster that has the topics for offsets; None where none has."""
        watch = self._processor.topic_watch
        return None if watch is None else watch.find_offsets

    @property
    def nodes(self) -> StoreNodes | None:
        """The servers of the store, to be one of; None where no other process has it."""
        log = self._processor.log
        if log.store is None:
            return None
        return StoreNodes(log.store, self.config.lease, lambda: log.epoch)

    def serve(self, listen: str | None = None, *, insecure: bool = False) -> RunningServer:
        """Let Kafka clients join over the wire, beside the callers in this process.

        Parameters
        ----------
        listen
            host:port, instead of the configured one; port 0 takes any that is free.
        insecure
            Listen beyond this machine even without TLS and login.

        Returns
        -------
        RunningServer
            Its `address` is what clients connect to; closing it ends their connections.

        Raises
        ------
        ConfigError
            Something configured cannot be used, or the address is not safe to open.
        OSError
            The address is taken.
        """
        self._refuse_forked()
        from coordinator.wire.listener import serve  # noqa: PLC0415 - the codec takes its time

        return serve(self, listen, insecure=insecure)

    def serve_web(self, listen: str | None = None, *, insecure: bool = False) -> WebServer:
        """Show the groups to browsers: the pages of `muster web`, over this coordinator's store.

        Parameters
        ----------
        listen, insecure
            As for `serve`.

        Returns
        -------
        WebServer
            Its `url` is the address of the pages; closing it ends them.

        Raises
        ------
        ConfigError
            There is no store, something configured cannot be used, or the address is not safe to
            open.
        MissingExtraError
            `muster[web]` is not installed. It is a ConfigError, too.
        OSError
            The address is taken.
        """
        self._refuse_forked()
        if self._processor.log.store is None:
            raise ConfigError("the pages need a store: open the coordinator with one")
        require("Coordinator.serve_web", "web")
        from coordinator.web.server import WebServer  # noqa: PLC0415 - an extra

        server = self.config.server
        config = replace(self.config, server=replace(server, insecure=insecure or server.insecure))
        return WebServer(
            self._processor.log.store,
            config,
            listen,
            lambda records: self.submit([RecordAudit(records)]),
            lambda: self.status,
        )

    def refresh_topics(self) -> None:
        """Ask the catalog for topics now, instead of at its next turn.

        Raises
        ------
        GroupError
            The coordinator is closed.
        """
        self._loop.call(self._processor.see_topics).result()

    def tick(self) -> None:
        """Fire the timers that are due now: for a clock of your own, after you moved it.

        Raises
        ------
        GroupError
            The coordinator is closed.
        """
        self._loop.call(self._processor.tick).result()

    def confirm_status(self, patience_s: float = 1.0) -> str:
        """Return the status as of now: "active" only if the log was just seen to be ours.

        `status` is what was noticed last; a process that was stopped may not know yet that another
        one has the store.

        Parameters
        ----------
        patience_s
            How long the loop has to answer, in seconds.

        Returns
        -------
        str
            A status, or "busy" when the loop did not answer in time.
        """
        look = self._loop.call(self._processor.confirm)
        try:
            look.result(patience_s)
        except TimeoutError:
            look.cancel()
            return "busy"
        except GroupError:
            pass  # closed
        return self.status

    def progress(self) -> str:
        """Report on the targets that engines compute now.

        Returns
        -------
        str
            One line: stage and rows of each; "" when none is computed.
        """
        return self._loop.target_jobs.progress()

    def cancel_computation(self, group_id: str) -> bool:
        """Cancel the target that is computed for a group; it is begun again later.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        bool
            Whether one was being computed.
        """
        return self._loop.target_jobs.cancel(group_id)


def _open_weights(
    weights: WeightSource | str | Path | None, config: Config
) -> tuple[WeightSource | KafkaWeights | None, Config]:
    """Return the source of weights, and settings that name it: pages say what weights are."""
    if isinstance(weights, str):
        config = replace(config, weights=replace(config.weights, source=weights))
    return open_weights(
        config.weights.source if weights is None else weights, config.weights
    ), config


def _start(loop: EventLoop, background: BackgroundTasks, patience: Patience) -> BackgroundTasks:
    """Load the log while the lease is renewed, then serve."""
    background.hold()
    try:
        patience.run(loop.processor.load)
    except BaseException:
        background.close()
        loop.processor.log.close()
        raise
    loop.start()
    background.start()
    return background
