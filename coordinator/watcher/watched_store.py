"""A store that shows the groups of a Kafka cluster: it is written by what that cluster says.

A `Coordinator` has it, with its lease, its log, its pages and its answers; but it decides nothing.
A reader of Kafka hands over what it read, one partition of Kafka's topic at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec

from coordinator.config import Config, ConfigError
from coordinator.core.events import CatalogTopic
from coordinator.core.state.groups import Watched
from coordinator.core.state.records import KafkaWatched, PartitionRead
from coordinator.core.watched.follow import find_places, list_groups, list_unread, name_topics
from coordinator.core.watched.unread_groups import group_of
from coordinator.core.watched_events import KafkaWrote
from coordinator.errors import GroupError
from coordinator.runtime.coordinator import Coordinator
from coordinator.runtime.topic_catalog import TopicCatalog, find_changes, slice_report
from coordinator.storage.store_claim import has_log
from coordinator.watcher.kafka_clock import KafkaClock
from coordinator.watcher.partition_changes import NONE_OPEN, Change, PartitionChanges
from coordinator.watcher.read_counts import ReadCounts
from coordinator.watcher.record_batches import KafkaRecord, RecordBatch
from coordinator.watcher.seen_members import read_seen
from coordinator.watcher.translator import Translator

TOPIC = "__consumer_offsets"
TOGETHER = 500
"""Changes that are written together."""
logger = logging.getLogger("muster.watch")


class WatchedStore:
    """Writes what Kafka's coordinator wrote; one thread uses it.

    Parameters
    ----------
    coordinator
        Has the store.
    clock
        By which rows are dated.

    Attributes
    ----------
    coordinator
        Answers what the groups are, serves pages, and refuses to change anything.
    translator
        Makes records of Kafka's, and counts what it cannot.
    counts
        How much was read.
    has_caught_up
        Whether all was read that there was when reading began.
    """

    def __init__(self, coordinator: Coordinator, clock: KafkaClock, session_ms: int) -> None:
        self.coordinator = coordinator
        self.translator = Translator(lambda: coordinator.topics, session_ms)
        self.counts = ReadCounts(coordinator.metrics, self.translator.faults)
        self.has_caught_up = False
        self._clock = clock
        self._partitions: dict[int, PartitionChanges] = {}
        self._missed: set[str] = set()
        """Groups that cannot be read, and of which something was written since."""
        self._until_ms: dict[int, int] = {}
        """Up to when partitions are read, as it is written with what is read of them."""
        self._is_unsure = True
        """Whether it is the store that knows how far partitions are read."""

    @classmethod
    def open(
        cls,
        store: str | Path | None,
        cluster: KafkaWatched,
        *,
        config: Config | None = None,
        topics: TopicCatalog | None = None,
        takeover: str = "wait",
        address: str = "",
        session_ms: int = 45_000,
        is_live: bool = True,
    ) -> Self:
        """Claim a store, replay its log, and have it show the groups of a cluster.

        Parameters
        ----------
        cluster
            Whose groups, and since when; of a store that has been watched, the first one stands.
        topics
            Where topics are read, again and again; None: they are reported.
        is_live
            Whether a new store begins now; else it begins when the first record was written.

        Raises
        ------
        ConfigError
            The store has groups of its own, or of another cluster.
        """
        clock = KafkaClock()

        def begin() -> int:
            if store is None or not has_log(store):
                clock.note(cluster.timestamp)
                clock.is_live = is_live
            return clock()

        coordinator = Coordinator.open_watched(
            store,
            config=config,
            topics=topics,
            takeover=takeover,
            address=address,
            claimed=begin,
            dated=clock,
        )
        found = cls(coordinator, clock, session_ms)
        try:
            found._begin(cluster)
            if store is not None:
                found.translator.note_seen(read_seen(str(store), session_ms))
        except BaseException:
            coordinator.close()
            raise
        return found

    def _begin(self, cluster: KafkaWatched) -> None:
        """Say in the log whose groups these are, if it does not yet, and go on where it ends."""
        watched = self.coordinator.watched
        is_known = watched is not None and watched.cluster.cluster_id == cluster.cluster_id
        if watched is not None and is_known:
            self._find_places()
            self.translator.names |= self.coordinator.look(name_topics)
            if watched.cluster.observed == cluster.observed:
                return
            cluster = msgspec.structs.replace(cluster, timestamp=watched.cluster.timestamp)
        try:
            self._write(KafkaWrote((cluster,), cluster.timestamp, explains=False))
        except GroupError as error:
            raise ConfigError(str(error)) from None

    @property
    def watched(self) -> Watched:
        """What the store says of the cluster."""
        found = self.coordinator.watched
        assert found is not None, "a store that was begun says so"
        return found

    def next_offsets(self) -> dict[int, int]:
        """Return where to continue reading each partition that was read.

        Raises
        ------
        GroupError
            After a write that failed: the store does not know yet what it has.
        """
        self._find_places()
        return {number: one.next_offset for number, one in self._partitions.items()}

    def report_topics(self, topics: Mapping[str, CatalogTopic], at_ms: int) -> None:
        """Note which topics there are, where no catalog does."""
        self._clock.note(at_ms)
        known = self.coordinator.topics.by_name
        event = find_changes(topics, known)
        for some in slice_report(event, known) if event is not None else ():
            _raise(self.coordinator.submit([some]).result())

    def load(
        self,
        partition: int,
        records: Iterable[KafkaRecord],
        next_offset: int,
        open_offset: int = NONE_OPEN,
        partitions: int = 0,
        read_ms: int = 0,
    ) -> None:
        """Take all of a partition: what a compacted topic keeps is not a history.

        Of one that was read before, only what differs from what the store has is written.

        Parameters
        ----------
        partitions
            How many there are, if these records are all that one has: groups that they do not name
            are gone.
        read_ms
            Up to when all that Kafka wrote is read; 0: when the last of these was written.
        """
        self._find_places()
        is_new, records = partition not in self._partitions, list(records)
        event = replace(self.translator.load(records), partitions=partitions)
        self._partitions[partition] = PartitionChanges(next_offset, open_offset)
        read = PartitionRead(TOPIC, partition, next_offset, open_offset, read_ms)
        self._write(self._place(event, read, None))
        self.translator.keep(self.coordinator.look(list_groups))
        if is_new:
            self.counts.note(partition, records)

    def take(self, partition: int, batches: Iterable[RecordBatch]) -> None:
        """Take what was read of one partition; see `take_all`."""
        self.take_all([(partition, batches)])

    def take_all(self, read: Iterable[tuple[int, Iterable[RecordBatch]]]) -> None:
        """Take what was read of partitions, in order; what is written is written when it returns.

        Changes of several partitions are written together, each whole. Offsets wait for `flush`, or
        for the partition's next change.

        Raises
        ------
        GroupError
            It is not written, or not all of it: read all partitions on from `next_offsets`.
        """
        self._find_places()
        waiting: list[KafkaWrote] = []
        records: dict[int, list[KafkaRecord]] = {}
        for partition, batches in read:
            found = list(batches)
            records.setdefault(partition, []).extend(r for batch in found for r in batch.records)
            for change in self._partitions.setdefault(partition, PartitionChanges()).take(found):
                waiting.append(self._translate(partition, change))
                if len(waiting) == TOGETHER:
                    self._write_taken(waiting)
                    waiting = []
        self._write_taken(waiting)
        for partition, some in records.items():
            self.counts.note(partition, some)

    def _write_taken(self, events: Sequence[KafkaWrote]) -> None:
        self._write(*events)
        self._note_missed(events)

    def _note_missed(self, events: Iterable[KafkaWrote]) -> None:
        unread = self.watched.unread
        if unread:
            named = {group_of(one) for event in events for one in event.records}
            named |= {one.group_id for event in events for one in event.unreadable}
            self._missed |= named & unread.keys()
            self.translator.forget(named & unread.keys())

    def find_unread(self, *, missed: bool) -> set[int]:
        """Return the partitions that have groups that cannot be read.

        Parameters
        ----------
        missed
            Only those in which Kafka has written of such a group since this was last asked.
        """
        unread = self.coordinator.look(list_unread)
        found = {one.partition for one in unread if not missed or one.group_id in self._missed}
        self._missed.clear()
        return found

    def read_until(self) -> dict[int, int]:
        """Return up to when all that Kafka wrote is read, ms since 1970, by partition."""
        found = self.coordinator.look(find_places)
        return {number: read.timestamp for number, read in found.items()}

    def write(self, events: Sequence[KafkaWrote]) -> None:
        """Write changes that were not read from Kafka's topic, each whole; raises as `take`."""
        for event in events:
            self._clock.note(event.at_ms)
        self._write(*events)

    def flush(self) -> None:
        """Write the offsets that wait, and how far all partitions were read; raises as `take`."""
        self._find_places()
        found = [(number, one.flush()) for number, one in self._partitions.items()]
        self._write(*(self._translate(number, one) for number, one in found if one is not None))

    def note_live(self) -> None:
        """Note that what is read from now on happens now."""
        self._clock.is_live = True

    def _translate(self, partition: int, change: Change) -> KafkaWrote:
        event = self.translator.take([*change.offsets, *change.records])
        event = event or KafkaWrote((), change.at_ms)
        read = PartitionRead(TOPIC, partition, change.next_offset, change.open_offset)
        return self._place(event, read, change.follows)

    def _place(self, event: KafkaWrote, read: PartitionRead, follows: int | None) -> KafkaWrote:
        """Return an event that also says how far the partition was read: both, or neither, land."""
        at_ms = self._clock.note(event.at_ms)
        until_ms = max(at_ms, read.timestamp, self._until_ms.get(read.partition, 0))
        self._until_ms[read.partition] = until_ms
        read = msgspec.structs.replace(read, timestamp=until_ms)
        return replace(
            event,
            records=(*event.records, read),
            at_ms=at_ms,
            offsets=(*event.offsets, read.offset),
            partition=read.partition,
            follows=follows,
        )

    def _write(self, *events: KafkaWrote) -> None:
        if not events:
            return
        try:
            _raise(self.coordinator.submit([*events]).result())
        except GroupError:
            self._is_unsure = True
            raise

    def _find_places(self) -> None:
        """Go on where the store is: what was taken and is not written will be taken again."""
        if self._is_unsure:
            places = self.coordinator.look(find_places)
            self._partitions = {
                number: PartitionChanges(read.offset, read.open_offset)
                for number, read in places.items()
            }
            self._until_ms = {number: read.timestamp for number, read in places.items()}
            self._is_unsure = False

    def close(self) -> None:
        """Release the store; offsets that wait are read again."""
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _raise(answers: Iterable[object]) -> None:
    for answer in answers:
        if isinstance(answer, GroupError):
            raise copy(answer)  # others may hold it, and tracebacks would pile up on it
