"""Follow `__consumer_offsets` of a cluster by Fetch, without a group of its own.

Fetch and not a consumer of librdkafka: that shows records, and a batch is what Kafka wrote at once.
All partitions are read uncommitted; what a transaction wrote waits for its marker here, so that a
long one holds up nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from coordinator.clock import wall_ms
from coordinator.config import ConfigError
from coordinator.core.state.records import KafkaWatched
from coordinator.errors import GroupError
from coordinator.errors.status import LOST
from coordinator.member.client_settings import ClientSettings
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.watcher.kafka_brokers import (
    ANY,
    EARLIEST,
    READ_UNCOMMITTED,
    ClusterMetadata,
    KafkaBrokers,
    ask_cluster,
    offsets_asked,
)
from coordinator.watcher.lag_notes import follow_lags
from coordinator.watcher.partition_changes import PartitionLoad
from coordinator.watcher.record_batches import (
    BatchError,
    RecordBatch,
    read_batches,
)
from coordinator.watcher.time_order import TimeOrder
from coordinator.watcher.watched_store import TOPIC, WatchedStore
from coordinator.wire.codec import Api

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_AUTHORIZED = 1, 3, 29
WAIT_MS = 500
FETCH_BYTES, PARTITION_BYTES = 32 << 20, 4 << 20
PAUSES_S = (0.1, 0.3, 1.0, 3.0)
ROUND_MS, WAIT_FOR_MS = 200, 10_000
LOOK_S = 0.1
TOMBSTONES_MS = 86_400_000
"""How long a cleaned topic keeps tombstones by Kafka's default of `delete.retention.ms`."""
PATIENCE_LEAST_MS = 60_000
CLOCKS_MS = 5_000
"""By how much the clocks of a broker and of this machine may differ."""
logger = logging.getLogger("muster.watch")


class KafkaSource:
    """A Kafka cluster whose topic of groups may be read.

    Parameters
    ----------
    servers
        host:port of some brokers, with or without kafka:// before them.
    settings
        Of the client, in librdkafka's names.
    topic
        Kafka's topic of groups.
    offsets_ms, topics_ms
        How often offsets are written, and topics are asked for.
    lag_ms
        How often the lag of groups is noted; 0 for never.
    reread_ms
        How often a partition is reread at most, because of groups that could not be read.
    round_ms
        How often a broker is asked at most, of which everything was read: it answers at once.
    wait_for_ms
        How long what is behind waits for a partition that cannot be read.

    Raises
    ------
    ConfigError
        An address or a setting is invalid.
    """

    topics: TopicCatalog | None = None
    is_live = True

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        topic: str = TOPIC,
        offsets_ms: int = 10_000,
        lag_ms: int = 0,
        topics_ms: int = 5_000,
        reread_ms: int = 600_000,
        round_ms: int = ROUND_MS,
        wait_for_ms: int = WAIT_FOR_MS,
    ) -> None:
        self._settings = ClientSettings.read(servers, settings or {})
        self._topic = topic
        self.offsets_ms, self.topics_ms, self.reread_ms = offsets_ms, topics_ms, reread_ms
        self.lag_ms, self.round_ms, self.wait_for_ms = lag_ms, round_ms, wait_for_ms

    def find_cluster(self) -> KafkaWatched:
        """Return which cluster it is; see `Source`."""
        found = ask_cluster(self._settings, self._topic)
        if found.error == NOT_AUTHORIZED:
            raise ConfigError(
                f"the cluster does not let this user see {self._topic}: allow DESCRIBE and READ on "
                "that topic, or watch with --by describe"
            )
        return KafkaWatched(found.cluster_id, "topic", wall_ms())

    def follow(self, store: WatchedStore, stop: threading.Event) -> None:
        """Write to the store what the cluster does; see `Source`."""
        while not stop.is_set():
            brokers = KafkaBrokers(self._settings, cluster_id=store.watched.cluster.cluster_id)
            following = _Following(self, brokers, self._topic, store)
            try:
                asyncio.run(following.run(stop))
            except GroupError as error:
                if store.coordinator.status in LOST:
                    raise
                logger.warning("reading on from where the store is: %s", error)
                stop.wait(1.0)


class _Following:
    """One reading of the topic, from where the store is, until the store fails or a stop."""

    def __init__(
        self, source: KafkaSource, brokers: KafkaBrokers, topic: str, store: WatchedStore
    ) -> None:
        self._source, self._brokers, self._topic, self._store = source, brokers, topic, store
        self._loads: dict[int, PartitionLoad] = {}
        self._again: set[int] = set()
        """Partitions that are reread once they are read to their ends."""
        self._until_ms: dict[int, int] = {}
        """Up to when all that Kafka wrote to a partition is read."""
        self._patience_ms: float | None = None
        self._order = TimeOrder()
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._described_s = 0.0
        self._complaints: dict[int | str, str] = {}
        """What was logged about unread parts: by broker, `ANY` for the cluster, or text."""
        self._answered_s: dict[int, float] = {}
        self._asked_again_s: dict[int, float] = {}
        """When partitions were read last, and when one that could not be is asked for again."""
        self._missing_ms: int | None = None
        """When the topic was seen to be missing."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, stop: threading.Event) -> None:
        """Follow until a stop.

        Raises
        ------
        GroupError
            The store does not take what was read.
        """
        self._loop = asyncio.get_running_loop()
        self._store.translator.find_topics = self._find_topics
        following = follow_lags(self._brokers, self._store, self._write, self._source.lag_ms)
        lags = asyncio.create_task(following)
        flushed = looked = time.monotonic()
        try:
            while not stop.is_set():
                now = time.monotonic()
                if now - self._described_s >= self._source.topics_ms / 1000:
                    await self._describe()
                if now - flushed >= self._source.offsets_ms / 1000:
                    await self._write(self._store.flush)
                    flushed = time.monotonic()
                if now - looked >= self._source.reread_ms / 1000:
                    self._again |= self._store.find_unread(missed=True)
                    looked = now
                for task in (*self._fetchers.values(), lags):
                    if task.done():
                        task.result()
                await self._wait_no_longer(now)
                await asyncio.sleep(LOOK_S)
            await self._write(self._store.flush)
        finally:
            self._store.translator.find_topics = None
            tasks = (*self._fetchers.values(), lags)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._brokers.close()

    # Brokers and topics --------------------------------------------------------------------------

    async def _describe(self) -> None:
        """Ask for topics and leaders; while no broker answers, things stay as they are."""
        self._described_s = time.monotonic()
        try:
            found = await self._brokers.describe(self._topic)
        except (OSError, GroupError) as error:
            self._complain(f"the Kafka cluster does not answer, trying again: {error}")
            return
        if not found.error:
            if self._complaints.pop(ANY, ""):
                logger.warning("the Kafka cluster can be read now")
        elif found.error == UNKNOWN_TOPIC:
            self._complain(f"the cluster has no topic {self._topic} yet: it has no groups")
            if not self._store.next_offsets():  # else it comes back, as while a broker starts
                self._missing_ms = wall_ms()
                self._note_end()
        else:
            self._complain(f"{self._topic} cannot be read: Kafka's error {found.error}")
        await self._write(partial(self._store.report_topics, found.topics, 0))
        if self._patience_ms is None:
            await self._find_patience()
        self._leaders = found.leaders
        for partition in found.leaders:
            if partition not in self._offsets:
                self._begin(partition)
        for node_id in set(found.leaders.values()) - self._fetchers.keys() - {-1}:
            self._fetchers[node_id] = asyncio.create_task(self._fetch_from(node_id))

    async def _find_patience(self) -> None:
        """Find how long Kafka keeps what says that a group is gone, with a margin for clocks."""
        value = await self._brokers.topic_setting(self._topic, "delete.retention.ms")
        kept_ms = int(value) if value is not None and value.isdecimal() else TOMBSTONES_MS
        self._patience_ms = max(kept_ms / 2, PATIENCE_LEAST_MS)

    def _find_topics(self) -> None:
        """Ask for topics now, from the thread that writes: a record names one that is new."""
        assert self._loop is not None
        asked: Future[ClusterMetadata] = asyncio.run_coroutine_threadsafe(
            self._brokers.describe(self._topic), self._loop
        )
        with contextlib.suppress(OSError, GroupError):
            self._store.report_topics(asked.result().topics, 0)

    def _begin(self, partition: int) -> None:
        self._answered_s[partition] = time.monotonic()
        known = self._store.next_offsets()
        if partition in known:
            self._offsets[partition] = known[partition]
            self._until_ms[partition] = self._store.read_until()[partition]
            if partition in self._store.find_unread(missed=False):
                self._again.add(partition)
            self._order.expect(partition)
        else:
            self._offsets[partition] = 0
            self._loads[partition] = PartitionLoad()

    def _complain(self, text: str, whom: int | str = ANY) -> None:
        """Log a complaint once, and again when it changes."""
        if text != self._complaints.get(whom):
            logger.warning("%s", text)
        self._complaints[whom] = text

    async def _wait_no_longer(self, now_s: float) -> None:
        """Hand on what waits for a partition that has no leader, or that cannot be read."""
        late = [
            partition
            for partition in self._order.awaited
            if now_s - self._answered_s[partition] > self._source.wait_for_ms / 1000
            and self._order.has_room(partition)
        ]
        for partition in late:
            self._order.pass_over(partition)
            text = "cannot be read: what others have waits for it no longer"
            self._complain(f"partition {partition} of {self._topic} {text}", f"late {partition}")
        if late:
            await self._hand_on(())

    # Fetching ------------------------------------------------------------------------------------

    async def _fetch_from(self, node_id: int) -> None:
        """Fetch what a broker leads, as long as it does."""
        failed = 0
        while True:
            wanted = [
                p for p, leader in self._leaders.items() if leader == node_id and self._may_read(p)
            ]
            if not wanted:
                await asyncio.sleep(LOOK_S)
                continue
            begun = time.monotonic()
            try:
                asked = {partition: self._offsets[partition] for partition in wanted}
                answer = await self._brokers.ask(node_id, Api.FETCH, **self._request(asked))
                (topic,) = answer.responses or (None,)
                # One that is led elsewhere now, or reread, is asked for from another offset.
                found = [
                    one
                    for one in (topic.partitions if topic else ())
                    if self._offsets.get(int(one.partition_index)) == asked[one.partition_index]
                ]
                loaded = set(self._loads)
                moved = [await self._take(one) for one in found]
                read = {int(one.partition_index) for one in found if not int(one.error_code)}
                await self._hand_on(read - loaded)
            except OSError as error:
                self._complain(f"broker {node_id} cannot be read, trying again: {error}", node_id)
                moved = [True]
            if any(moved):
                self._described_s = 0.0
                await asyncio.sleep(PAUSES_S[min(failed, len(PAUSES_S) - 1)])
                failed += 1
            else:
                failed = 0
                self._complaints.pop(node_id, None)
                if all(map(self._is_at_end, wanted)):
                    again = begun + self._source.round_ms / 1000
                    await asyncio.sleep(max(0.0, again - time.monotonic()))

    def _may_read(self, partition: int) -> bool:
        if time.monotonic() < self._asked_again_s.get(partition, 0.0):
            return False
        return partition in self._loads or self._order.has_room(partition)

    def _request(self, asked: Mapping[int, int]) -> dict[str, object]:
        partitions = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": PARTITION_BYTES}
            for number, offset in sorted(asked.items())
        ]
        return {
            "max_wait": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "isolation_level": READ_UNCOMMITTED,
            "topics": [{"topic": self._topic, "partitions": partitions}],
            "forgotten_topics_data": [],
        }

    async def _take(self, found: Any) -> bool:  # noqa: ANN401 - kio's message
        """Take what was fetched of a partition; whether it must be asked for elsewhere."""
        partition, code = int(found.partition_index), int(found.error_code)
        if code == OFFSET_OUT_OF_RANGE:
            return await self._start_over(partition)
        if code:
            return True
        data = bytes(found.records or b"")
        batches = self._read(partition, data)
        if batches is None:
            return False
        if batches:
            self._offsets[partition] = batches[-1].last_offset + 1
        if self._is_new(partition, batches):
            del self._loads[partition]
        load, end = self._loads.get(partition), int(found.high_watermark)
        self._ends[partition] = end
        self._store.counts.note_lag(partition, end - self._offsets[partition])
        if load is not None:
            await self._load(partition, load, batches, end)
            return False
        self._order.add(partition, batches, len(data), at_end=self._is_at_end(partition))
        return False

    def _read(self, partition: int, data: bytes) -> list[RecordBatch] | None:
        """Return the batches before one that is damaged; None where that is the first one."""
        batches: list[RecordBatch] = []
        try:
            for batch in read_batches(data):
                batches.append(batch)  # noqa: PERF402 - those before a damaged one count
        except BatchError as error:
            if not batches:
                text = (
                    f"partition {partition} of {self._topic} cannot be read, trying again: {error}"
                )
                self._complain(text, f"partition {partition}")
                pause_s = min(PAUSES_S[-1], self._source.wait_for_ms / 1000)
                self._asked_again_s[partition] = time.monotonic() + pause_s
                return None
        self._complaints.pop(f"partition {partition}", None)
        self._answered_s[partition] = time.monotonic()
        return batches

    def _is_new(self, partition: int, batches: list[RecordBatch]) -> bool:
        """Whether a first reading finds what was written since the topic was missing: history."""
        if partition not in self._loads or self._missing_ms is None or not batches:
            return False
        first = batches[0]
        times = [one.timestamp_ms for one in first.records[:1]]
        return first.base_offset == 0 and times >= [self._missing_ms - CLOCKS_MS]

    async def _hand_on(self, read: Iterable[int]) -> None:
        """Write what waits no longer, of all partitions: at once, as a thread for each is dear."""
        async with self._writing:  # one at a time: none may overtake another
            ready = list(self._order.take())
            if ready:
                await asyncio.to_thread(self._store.take_all, ready)
            self._note_end()
        for partition in read:
            self._note_time(partition)
            is_done = self._is_at_end(partition) and not self._order.has(partition)
            if is_done and partition in self._again:
                await self._reread(partition)

    def _is_at_end(self, partition: int) -> bool:
        return self._offsets[partition] >= self._ends.get(partition, 0)

    def _note_time(self, partition: int) -> None:
        """Note that a partition is read up to now; reread one that was not for too long."""
        now_ms = wall_ms()
        assert self._patience_ms is not None, "it is found before anything is read"
        if now_ms - self._until_ms.get(partition, now_ms) > self._patience_ms:
            self._again.add(partition)
        if self._is_at_end(partition):
            self._until_ms[partition] = now_ms

    async def _reread(self, partition: int) -> None:
        """Read all of a partition that is read to its end: what ended, and is cleaned up, ends.

        And a group comes back that could not be read, if all of it can by now.
        """
        await self._write(self._store.flush)
        self._again.discard(partition)
        self._loads[partition] = PartitionLoad(end=self._offsets[partition])
        self._offsets[partition] = 0

    async def _load(
        self, partition: int, load: PartitionLoad, batches: list[RecordBatch], high_watermark: int
    ) -> None:
        if load.end is None:
            load.end = high_watermark
        load.take(batches)
        if self._offsets[partition] < load.end:
            return
        records, read = load.finish(), load.changes
        bring = partial(self._store.load, partition, records, partitions=len(self._leaders))
        next_offset = max(read.next_offset, load.end)
        await self._write(partial(bring, next_offset, read.open_offset, read_ms=load.began_ms))
        del self._loads[partition]
        self._until_ms[partition] = load.began_ms
        self._offsets[partition] = self._store.next_offsets()[partition]
        self._order.expect(partition)

    def _note_end(self) -> None:
        """Note it when all partitions are read to their ends."""
        if self._order.is_live and not self._loads:
            self._store.note_live()
            self._store.has_caught_up = True

    async def _start_over(self, partition: int) -> bool:
        """Begin at the first offset that is there: what came before was cleaned up.

        For a partition that was read before, it is not known what is missing: all of it is
        reread, and what it no longer has ends.
        """
        leader = self._leaders.get(partition, -1)
        asked = offsets_asked([(self._topic, partition)], EARLIEST)
        answer = await self._brokers.ask(leader, Api.LIST_OFFSETS, **asked)
        ((found,),) = [topic.partitions for topic in answer.topics]
        if int(found.error_code):
            return True
        if partition not in self._loads:
            logger.warning(
                "partition %d of %s begins at %d, behind where it was read: reading it again",
                *(partition, self._topic, int(found.offset)),
            )
            self._order.drop(partition)
            self._loads[partition] = PartitionLoad()
        self._offsets[partition] = int(found.offset)
        return False

    async def _write(self, work: Callable[[], None]) -> None:
        async with self._writing:
            await asyncio.to_thread(work)
