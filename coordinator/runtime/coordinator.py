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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

from coordinator.clock import Clock, monotonic_ms, wall_ms
from coordinator.config import Config, ConfigError
from coordinator.core.events import Answer, DecidePlan
from coordinator.core.state.groups import State
from coordinator.engines.engine import Engine
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.async_coordinator import AsyncCoordinator
from coordinator.runtime.background_tasks import BackgroundTasks
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.plan_tasks.kafka_weights import KafkaWeights, open_weights
from coordinator.runtime.plan_tasks.weight_source import WeightSource
from coordinator.runtime.service_requests import ServiceRequests
from coordinator.runtime.topic_catalog import TopicCatalog, catalog_for
from coordinator.storage.lease import Lease, Takeover
from coordinator.storage.record_log import RecordLog
from coordinator.storage.store_claim import StandBy, claim_store, sleep
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.store_options import use_settings
from coordinator.telemetry.start import start_telemetry

T = TypeVar("T", bound="Coordinator")
logger = logging.getLogger("muster.coordinator")


class LedLog(RecordLog, Protocol):
    """A log whose records say more than those that are appended."""

    state: Callable[[], State]
    """Returns the state as of the records that are appended."""


class Coordinator(ServiceRequests):
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
        metrics: Metrics | None = None,
        stand_by: StandBy = sleep,
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
            A folder of tables, a table, "kafka://host:port", or a callable that returns
            `WeightTables` (docs/guide/plans.md#weights). None takes the setting `weights.source`.
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
        metrics
            Where several coordinators of one process are counted together; None: its own.
        stand_by
            Waits so many seconds for the holder of a lease; what it raises ends the waiting.

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
        config = _use(config)
        catalog = catalog_for(topics, config)
        source, config = _open_weights(weights, config)
        lease = None
        if log is None:
            log, lease = claim_store(store, config, takeover, address, clock, stand_by=stand_by)
        steady = monotonic_ms if clock is wall_ms else clock
        with _counting(config, metrics) as (counted, stop):
            processor = EventProcessor(log, config, clock, catalog, counted, steady)
            return _refuse_watched(cls._serve(processor, lease, engine, source, takeover, stop))

    @classmethod
    def open_watched(
        cls,
        store: str | Path | None,
        *,
        config: Config | None,
        topics: TopicCatalog | None,
        takeover: str,
        address: str,
        claimed: Clock,
        dated: Clock,
    ) -> Self:
        """Claim a store that shows the groups of a Kafka cluster: for `muster.watch`.

        Parameters
        ----------
        claimed, dated
            By what the claim and all other rows are dated.
        """
        config = _use(config)
        log, lease = claim_store(store, config, takeover, address, wall_ms, claimed)
        with _counting(config) as (metrics, stop):
            processor = EventProcessor(log, config, wall_ms, topics, metrics, monotonic_ms, dated)
            return cls._serve(processor, lease, None, None, takeover, stop)

    @classmethod
    def open_led(
        cls, log: LedLog, *, config: Config, topics: TopicCatalog, metrics: Metrics
    ) -> Self:
        """Serve the groups of a log that a cluster gives and takes: for `coordinator.kraft`.

        Parameters
        ----------
        log
            Claimed. It is asked for no lease, and has no store.
        """
        source, config = _open_weights(None, _use(config))
        processor = EventProcessor(log, config, wall_ms, topics, metrics, monotonic_ms)
        log.state = lambda: processor.state
        return cls._serve(processor, None, None, source, "refuse")

    @classmethod
    def _serve(
        cls,
        processor: EventProcessor,
        lease: Lease | None,
        engine: Engine | None,
        weights: WeightSource | KafkaWeights | None,
        takeover: str,
        stop: ExitStack | None = None,
    ) -> Self:
        """Load the log that was claimed, and serve; what was begun for it ends with it."""
        processor.metrics.watch(lambda: processor.state, lambda: processor.status.value)
        loop = EventLoop(processor, engine)
        patience = Patience(processor.log.store, waits=takeover != Takeover.REFUSE)
        found = cls(processor, loop, _start(loop, BackgroundTasks(loop, lease, weights), patience))
        if stop is not None:
            found.when_closed(stop.pop_all().close)
        return found

    @property
    def _loop(self) -> EventLoop:
        """The event loop, for callers that submit to it."""
        self._refuse_forked()
        return self._inner

    def _refuse_forked(self) -> None:
        """Refuse a forked child: it has no thread of ours, so no request would be answered."""
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
        """Answer pending requests, release the store, and stop; a second call does nothing.

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

    def make_way(self, *, on: bool) -> None:
        """Let another claim the log by committing less often, as a node does with a shard.

        Parameters
        ----------
        on
            Whether another should claim it; False to keep it after all.
        """
        self._inner.make_way(on=on)

    def name_late(self, addresses: Sequence[str]) -> None:
        """Tell those who stand by, in the lease, which nodes of a store are late.

        Parameters
        ----------
        addresses
            Of these nodes; none where all are heard of.
        """
        if self._background is not None:
            self._background.name_late(tuple(addresses))

    def read_requests(self) -> None:
        """Read the inbox now: a node looks there for all of its shards."""
        self._inner.read_requests()

    def decide_plan(self, event: DecidePlan) -> Answer:
        """Decide what another process asks of a plan, which is answered by a record.

        Parameters
        ----------
        event
            The request; of a refusal, the record says why.

        Returns
        -------
        Answer
            As `submit` has it.
        """
        return self._inner.decide_plan_here(event)

    def forward_plans(self, decide: Callable[[DecidePlan], Answer]) -> None:
        """Have another decide what processes ask of plans: a node, whose history this is.

        Parameters
        ----------
        decide
            Returns the answer once it is kept; raises a GroupError to be asked again.
        """
        self._inner.decide_plan = decide

    @property
    def asked(self) -> int:
        """How much was asked so far, in steady heartbeats: its rate is the coordinator's load."""
        return self._inner.asked

    def when_closed(self, work: Callable[[], object]) -> None:
        """Have something done once the coordinator has closed.

        Parameters
        ----------
        work
            Called in the thread that closes it; the last one registered runs first.
        """
        with self._closing:
            self._when_closed.append(work)


def _refuse_watched(coordinator: T) -> T:
    """Return a coordinator, but refuse a store of groups that Kafka coordinates."""
    found = coordinator.watched
    if found is None:
        return coordinator
    coordinator.close()
    raise ConfigError(
        f"the store shows the groups of the Kafka cluster {found.cluster.cluster_id}, which "
        f"coordinates them: follow it by `muster watch`, or give another store"
    )


@contextmanager
def _counting(
    config: Config, metrics: Metrics | None = None
) -> Iterator[tuple[Metrics, ExitStack]]:
    """Yield the metrics, which are sent where the settings say so, and what ends that.

    Those that were given are another's affair.
    """
    with ExitStack() as stop:
        if metrics is None:
            metrics = Metrics(config.metrics.groups_max)
            stop.callback(start_telemetry(config, metrics))
        yield metrics, stop


def _use(config: Config | None) -> Config:
    """Return the settings; how stores are reached counts for the whole process."""
    if config is not None:
        use_settings(config.store)
    return config or Config()


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
