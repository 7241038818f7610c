"""Several drivers read one topic: each in batches of what its member of a group owns.

A batch is `spark.read.format("kafka")` with offsets from the group. It is read, written and
committed while the member holds its partitions, so they move between batches only; nothing is kept
in a checkpoint, so nothing restarts when they do.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from coordinator.clock import monotonic_ms
from coordinator.errors import Fenced, UnavailableError
from coordinator.member import loop_thread
from coordinator.member.application import Held
from coordinator.member.member import Member
from coordinator.member.options import Place
from coordinator.member.transport import TopicPartition
from coordinator.watcher.kafka_brokers import EARLIEST, LATEST
from coordinator.wire.apis.list_offsets_api import END
from spark_jobs.streams.batch_bounds import Pace, Weights, bound_batch, weight_of
from spark_jobs.streams.kafka_topics import KafkaTopics, as_json
from spark_jobs.streams.source_options import SourceOptions, read_options
from spark_jobs.streams.stream_metrics import stream_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Work: TypeAlias = "Callable[[DataFrame, int], object]"
"""What a batch is handed to, as by `foreachBatch`."""
ANSWER_S = 10.0
PAUSE_MAX_S = 10.0
HEARTBEAT_MS = 1_000
"""Drivers are few, and each waits for what another one leaves until its next heartbeat."""
LOG_EVERY_MS = 60_000
logger = logging.getLogger("muster.spark")


class OffsetsGoneError(RuntimeError):
    """Records that the group has not read yet are no longer in the topic."""


class _Outcome(Enum):
    IDLE = auto()
    FAILED = auto()
    DONE = auto()
    MORE = auto()


class _Ranges(NamedTuple):
    """What a batch reads, and where the partitions end."""

    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    lag: int


class SharedSource:
    """Batches of the partitions that this driver's member owns; `shared_source` makes it.

    Attributes
    ----------
    batches, records
        How many batches were done, and how many offsets they had.
    fenced
        How many batches were refused, because another member owned a partition by then.
    lag
        How many records there are beyond the last batch, in what this driver owns.
    """

    def __init__(self, spark: SparkSession, member: Member, options: SourceOptions) -> None:
        self.batches = self.records = self.fenced = self.lag = 0
        self._spark, self._member, self._options = spark, member, options
        self._topics = KafkaTopics(options.settings)
        self._pace = Pace(options.batch_s)
        self._positions: dict[TopicPartition, int] = {}
        self._changes = -1
        self._stopped = threading.Event()
        self._running = threading.Lock()
        self._thread: loop_thread.LoopThread
        self._log_at_ms = 0

    def stop(self) -> None:
        """Let `run` return after the running batch; also from a signal handler, or from work."""
        self._stopped.set()

    def run(
        self, work: Work, timeout: float | None = None, *, idle_timeout: float | None = None
    ) -> None:
        """Hand batches to a function, until `stop`, or until the member has left.

        Parameters
        ----------
        work
            Called as work(rows, number) with the columns of Spark's Kafka source, in this thread,
            as by `foreachBatch`: what `foreach_partition_owner` returns, or your own. When it
            returns, the batch is committed. The number counts the batches of this source, from 0,
            and a batch that is repeated elsewhere has another one: it is not a key. Fenced, from it
            or from the commit, means that another driver owns a partition by now: the batch ends,
            and the next one begins with what the member owns then. Anything else ends this call.
        timeout
            Seconds after which no batch begins; None: never.
        idle_timeout
            Seconds without a new record after which it returns, for jobs that read what is there;
            None: never.

        Raises
        ------
        OffsetsGoneError
            Records that the group has not read were deleted, unless `failOnDataLoss` is false.
        ValueError
            `kafka` is a coordinator of Muster's, which has no records.
        GroupError
            The member was refused for good, or offsets may not be read.
        Exception
            What `work` raised: the batch is not committed.
        """
        if not callable(work):
            raise TypeError(f"work is {work!r}: give a function of (rows, number)")
        if self._member.has_left and self._member.failure is None:
            raise RuntimeError("the member is not open: run the source in its `with` block")
        if not self._running.acquire(blocking=False):
            raise RuntimeError("the source is running already: wait until that call has returned")
        self._stopped.clear()
        self._changes = -1
        self._member.hasten(HEARTBEAT_MS)
        self._thread = loop_thread.acquire()
        try:
            self._loop(work, timeout, idle_timeout)
            if self._member.failure is not None:
                raise self._member.failure
        finally:
            self._thread.ask(self._topics.close())
            loop_thread.release(self._thread)
            self._running.release()

    def _loop(self, work: Work, timeout: float | None, idle_timeout: float | None) -> None:
        interval_s = self._options.interval_s
        started = busy = time.monotonic()
        failures = 0
        while not (self._stopped.is_set() or self._member.has_left):
            now = time.monotonic()
            if timeout is not None and now - started >= timeout:
                return
            if idle_timeout is not None and now - busy >= idle_timeout:
                return
            outcome = self._batch(work)
            pause_s = now + interval_s - time.monotonic()
            if outcome is _Outcome.FAILED:
                pause_s = min(max(interval_s, 0.1) * 2**failures, PAUSE_MAX_S)
            failures = min(failures + 1, 30) if outcome is _Outcome.FAILED else 0
            if outcome is not _Outcome.IDLE:
                busy = time.monotonic()
            if outcome is not _Outcome.MORE and pause_s > 0:
                self._stopped.wait(pause_s)

    # A batch -------------------------------------------------------------------------------------

    def _batch(self, work: Work) -> _Outcome:
        """Read, work on and commit what there is of what the member owns, if there is anything."""
        with self._member.holding() as held:
            try:
                ranges = self._plan(held)
            except (Fenced, UnavailableError, OSError) as error:
                self._complain(f"cannot find out what there is to read, trying again: {error}")
                return _Outcome.FAILED
            self.lag = ranges.lag
            if not ranges.ends:
                return _Outcome.IDLE
            began = time.monotonic()
            try:
                work(self._read(ranges), self.batches)
                self._commit(ranges.ends)
            except Fenced as error:
                self._note_fenced(error)
                return _Outcome.FAILED
            self._note_done(ranges, time.monotonic() - began)
        return _Outcome.MORE if ranges.lag else _Outcome.DONE

    def _plan(self, held: Held) -> _Ranges:
        """Return what the next batch reads."""
        if held.changes != self._changes:
            self._positions = {}  # another member may have read on meanwhile
        places = sorted(held.partitions)
        if not places:
            return _Ranges({}, {}, 0)
        firsts, lasts = self._thread.ask(self._ask(places))
        if any(last >= END for last in lasts.values()):
            raise ValueError(
                f"kafka is {self._options.spark['kafka.bootstrap.servers']}, which has no records: "
                "it is a coordinator of Muster's; give the brokers that have the topic"
            )
        there = [place for place in places if place in firsts and place in lasts]
        self._locate([place for place in there if place not in self._positions], firsts, lasts)
        self._changes = held.changes
        for place in there:
            self._check_loss(place, firsts[place], lasts[place])
        lags = {place: lasts[place] - self._positions[place] for place in there}
        limits = [one for one in (self._options.max_records, self._pace.limit()) if one is not None]
        counts = bound_batch(lags, min(limits, default=None), self._options.weights)
        begins = {place: self._positions[place] for place in counts}
        ends = {place: begins[place] + count for place, count in counts.items()}
        return _Ranges(begins, ends, sum(lags.values()) - sum(counts.values()))

    async def _ask(
        self, places: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        only = self._options.committed_only
        firsts = await self._topics.offsets(places, EARLIEST)
        return firsts, await self._topics.offsets(places, LATEST, committed_only=only)

    def _locate(
        self,
        places: Collection[TopicPartition],
        firsts: Mapping[TopicPartition, int],
        lasts: Mapping[TopicPartition, int],
    ) -> None:
        """Find where the group is in partitions, and write down where it begins, if that is now."""
        if not places:
            return
        found = self._member.committed_offsets(places, ANSWER_S)
        if self._options.starting == "latest":
            new = {place: lasts[place] for place in places if place not in found}
            if new:  # else the next owner would begin later, and pass over what came meanwhile
                self._member.commit(_offsets(new), ANSWER_S)
        else:
            new = {place: firsts[place] for place in places if place not in found}
        self._positions |= {**found, **new}

    def _check_loss(self, place: TopicPartition, first: int, last: int) -> None:
        """Refuse to pass over records that are gone, unless that is what is wanted."""
        at = self._positions[place]
        if at > last:
            self._complain(f"{place} ends at {last}, and the group is at {at}: nothing is read")
        if at >= first:
            return
        gone = f"{place} begins at {first}, and the group is at {at}: {first - at} records are gone"
        if self._options.fails_on_loss:
            raise OffsetsGoneError(
                f"{gone}: reset the group's offsets, or give options={{'failOnDataLoss': 'false'}}"
            )
        logger.warning("%s; reading on from %d", gone, first)
        self._positions[place] = first

    def _read(self, ranges: _Ranges) -> DataFrame:
        numbers: dict[str, list[int]] = {}
        for topic, number in ranges.ends:
            numbers.setdefault(topic, []).append(number)
        reader = self._spark.read.format("kafka").options(**self._options.spark)
        return (
            reader.option("assign", json.dumps(numbers))
            .option("startingOffsets", as_json(ranges.begins))
            .option("endingOffsets", as_json(ranges.ends))
            .load()
        )

    def _commit(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit a batch that is done; Fenced when some of it is another member's by now."""
        mine = self._member.owned
        kept = _offsets({place: end for place, end in ends.items() if place in mine})
        try:
            if kept:
                self._member.commit(kept)
        except UnavailableError as error:
            self._complain(f"a batch is done and not committed yet, trying again: {error}")
            self._member.commit_later(kept)
        if len(kept) < len(ends):
            self._member.commit({place: ends[place] for place in ends if place not in kept})

    def _note_done(self, ranges: _Ranges, took_s: float) -> None:
        counts = {place: end - ranges.begins[place] for place, end in ranges.ends.items()}
        weights = self._options.weights
        self._pace.note(sum(n * weight_of(p, weights) for p, n in counts.items()), took_s)
        self._positions |= ranges.ends
        self.batches += 1
        self.records += sum(counts.values())
        stream_metrics().read(self._member.group_id, sum(counts.values()), ranges.lag)
        logger.info(
            "batch %d of group %s: %d records of %d partitions in %.1f s, %d are left",
            *(self.batches - 1, self._member.group_id, sum(counts.values()), len(counts)),
            *(took_s, ranges.lag),
        )

    def _note_fenced(self, error: Fenced) -> None:
        self._changes = -1
        self.fenced += 1
        stream_metrics().fenced(self._member.group_id)
        self._complain(f"a batch is left to another member: {error}")

    def _complain(self, text: str) -> None:
        """Say what is wrong, once a minute."""
        if monotonic_ms() >= self._log_at_ms:
            self._log_at_ms = monotonic_ms() + LOG_EVERY_MS
            logger.warning("group %s: %s", self._member.group_id, text)


def shared_source(
    spark: SparkSession,
    member: Member,
    *,
    kafka: str | Sequence[str],
    starting: str = "earliest",
    max_records: int | None = None,
    weights: Weights | None = None,
    batch_s: float | None = None,
    interval_s: float = 0.5,
    options: Mapping[str, Any] | None = None,
    tls: ssl.SSLContext | None = None,
    login: tuple[str, str, str] | None = None,
) -> SharedSource:
    """Return a source of batches of a Kafka topic that several drivers share.

    >>> with Member("kafka:9092", group_id="billing", topics="clicks") as member:  # doctest: +SKIP
    ...     source = shared_source(spark, member, kafka="kafka:9092")
    ...     source.run(foreach_partition_owner(member, "output"))

    Each driver reads what its member owns, from the group's offsets. Partitions move between
    batches, and no query restarts when they do; there is no checkpoint. With
    `foreach_partition_owner` each row is written once, even if drivers are killed or suspended;
    otherwise another driver repeats work on a batch whose driver is killed.

    Parameters
    ----------
    spark
        The driver's session, with Spark's Kafka source.
    member
        An open `Member` of any group: at `muster serve`, a `Coordinator`, or a Kafka 4.
    kafka
        host:port of brokers of the topics; `muster serve` has no records.
    starting
        Where to begin partitions without a committed offset: "earliest" or "latest".
    max_records
        About how many records a batch has at most.
    weights
        {topic or (topic, partition): what a record counts for}, where that is not 1.
    batch_s
        About how many seconds a batch should take: the time of earlier batches bounds its records.
        Partitions move between batches, and the member has its `rebalance_timeout_ms`.
    interval_s
        How far apart batches begin once everything is read.
    options
        Options of Spark's Kafka source, such as `kafka.isolation.level`, `failOnDataLoss`,
        `minPartitions`, `includeHeaders` or `kafka.ssl.truststore.location`.
    tls, login
        As for `Member`; executors log in as well, and take their certificates from options.

    Returns
    -------
    SharedSource
        Its `run` reads, until the member leaves; nothing is read before.

    Raises
    ------
    ValueError
        A value, an option or an address is invalid; the message names it.
    """
    if not isinstance(member, Member):
        raise ValueError(f"member is {member!r}: give a Member")  # noqa: TRY004 - as all values
    found = read_options(
        kafka, starting=starting, max_records=max_records, weights=weights, batch_s=batch_s,
        interval_s=interval_s, options=options, tls=tls, login=login,
    )  # fmt: skip
    return SharedSource(spark, member, found)


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[Place, int | tuple[int, str]]:
    """Return offsets as members take them, as types go."""
    return {(topic, number): offset for (topic, number), offset in offsets.items()}
