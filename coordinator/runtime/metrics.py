"""The coordinator's metrics, under Kafka's names (K-120…K-127, G-145, G-146) and a few.

Kafka's hyphens are underscores here. What Kafka lacks is tagged by group (group_series.py):
assignment time, moved partitions, load spread, fences by cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from coordinator.config import MetricsConfig
from coordinator.core.events import Event, Heartbeat, OffsetCommit
from coordinator.core.reasons import SEPARATOR
from coordinator.core.state.classic_group import ClassicState
from coordinator.core.state.groups import GroupState, State
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    GroupUnread,
    OffsetCommitted,
    Record,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.rows.member_table import count_all_owned
from coordinator.core.state.transactions import OffsetPending
from coordinator.core.watched.lags import find_lags
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import LOST
from coordinator.runtime.group_series import GroupSeries
from coordinator.telemetry.follower import Follower

FENCES = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
}
COUNTED = {GroupMetadata, TargetMetadata, ClassicGroupWritten, GroupUnread, Tombstone}
"""Records that are counted one by one."""
OFFSETS = {OffsetCommitted, OffsetPending}
ENDS_OF_GROUPS = {GroupMetadata.kind, ClassicGroupWritten.kind}
MS_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000)


class Metrics:
    """The metrics of one coordinator, in a registry of its own.

    Parameters
    ----------
    groups_max
        How many groups have series of their own.

    Attributes
    ----------
    follow
        Makes what follows the rebalances of a coordinator, by its state.
    """

    def __init__(self, groups_max: int = MetricsConfig().groups_max) -> None:
        self.registry = CollectorRegistry()
        self.follow: Callable[[Callable[[], State]], Follower] = lambda _: Follower()
        self._by_group = GroupSeries(groups_max)
        self._generations = self._counter(
            "group_completed_rebalance",
            "Assignments of classic groups written, by why they were made.",
            ("group", "reason"),
        )
        self._rebalances = self._counter(
            "consumer_group_rebalance", "Group epoch bumps, by reason.", ("group", "reason")
        )
        self._targets = self._counter(
            "target_assignment", "Target assignments made.", ("group", "assignor")
        )
        self._moved = self._counter(
            "moved_partitions", "Partitions moved to another member.", ("group",)
        )
        self._assigning = self._histogram(
            "assignment_time_ms", "Time to compute a target, ms.", ("group",)
        )
        self._failures = self._counter(
            "target_assignment_failed", "Target computations that failed.", ("group",)
        )
        self._targets_lost = self._counter(
            "target_assignment_lost", "Targets missing from the table of targets.", ("group",)
        )
        self._fences = self._counter("fences", "Requests fenced, by cause.", ("group", "cause"))
        self._commits = self._counter("offset_commit", "Offsets committed.")
        self._expirations = self._counter("offset_deletion", "Offsets deleted or expired.")
        self._flush = self._histogram("batch_flush_time_ms", "Time to make a batch durable, ms.")
        self._flushes = self._counter("batch_flush", "Batches made durable.")
        self._failed = self._counter("commit_failed", "Batches that could not be made durable.")
        self._maintenance = self._counter(
            "log_maintenance_failed", "Runs of log maintenance, and snapshots, that failed."
        )
        self._catalog = self._counter(
            "topic_catalog_failed", "Reads of the topic catalog that failed."
        )
        self._processing = self._histogram(
            "event_processing_time_ms", "Time to process a batch and make it durable, ms."
        )
        self._queued = self._histogram(
            "event_queue_time_ms", "Time a request waits in the queue, ms."
        )
        self._queue = Gauge(
            "event_queue_size", "Requests waiting for the event loop.", registry=self.registry
        )
        self._load = Gauge(
            "partition_load_time_max", "Longest time to load the log, ms.", registry=self.registry
        )
        self._idle = Gauge(
            "thread_idle_ratio_avg",
            "Share of time that the event loop is idle.",
            registry=self.registry,
        )
        self._lost = Gauge(
            "fenced", "1 when another coordinator claimed the store.", registry=self.registry
        )
        self._load_max = 0.0
        self._served: list[tuple[Callable[[], State], Callable[[], str]]] = []
        self._telemetry_lost = self._counter(
            "telemetry_lost", "Traces and exports of metrics that no collector took.", ("what",)
        )
        self._add_wire()
        self._add_push()
        self._add_watch()

    def _add_wire(self) -> None:
        self._requests = self._counter("wire_requests", "Requests received, by API.", ("api",))
        self._closed = self._counter(
            "wire_closed", "Connections closed by the server, by reason.", ("reason",)
        )
        self._throttled = self._counter("wire_throttled", "Requests throttled by a quota.")
        self._throttle = self._counter(
            "wire_throttle_time_ms", "Time that clients were throttled, ms."
        )
        self._refused = self._counter(
            "wire_refused", "Clients refused, by software name.", ("client",)
        )
        self._connections = Gauge(
            "wire_connections", "Open client connections.", registry=self.registry
        )

    def _add_push(self) -> None:
        self._pushed = self._counter(
            "push_requests", "Requests to push workers, by kind.", ("kind",)
        )
        self._push_losses = self._counter(
            "push_lost", "Push workers that were lost, by reason.", ("reason",)
        )
        self._push_lies = self._counter(
            "push_offsets_refused", "Offsets of push workers that were refused."
        )
        self._push_workers = Gauge(
            "push_workers", "Workers that listen, by state.", ("state",), registry=self.registry
        )

    def _add_watch(self) -> None:
        self._unread = self._counter(
            "watched_group_unread", "Groups of a Kafka cluster that could no longer be read."
        )
        self._watched = self._counter(
            "watched_records", "Records of Kafka's topic of groups that were read.", ("partition",)
        )
        self._watch_lag = Gauge(
            "watched_lag",
            "Records of Kafka's topic of groups that are not read yet.",
            ("partition",),
            registry=self.registry,
        )
        self._passed_over = self._counter(
            "watched_records_passed_over",
            "Records of Kafka's that are not about groups of ours, by type.",
            ("type",),
        )
        self._undecodable = self._counter(
            "watched_records_undecodable", "Records of Kafka's that could not be decoded."
        )

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=MS_BUCKETS)

    def watch(self, state: Callable[[], State], status: Callable[[], str]) -> None:
        """Let the gauges of groups be read from a state when they are asked for.

        Of several coordinators they are sums, without those that were closed before this one.
        """
        self._by_group.there = self._is_there
        if not self._served:
            self.registry.register(_Groups(self._served, self._by_group))
        self._served[:] = [one for one in self._served if one[1]() not in LOST]
        self._served.append((state, status))

    def _is_there(self, group_id: str) -> bool:
        states = [state() for state, _ in self._served]
        return any(group_id in one.groups or group_id in one.classic for one in states)

    def watch_push(self, workers: Callable[[], tuple[int, int]]) -> None:
        """Let the gauge of workers be read: how many there are, and how many are registered."""
        registered, waiting = (self._push_workers.labels(s) for s in ("registered", "waiting"))
        registered.set_function(lambda: workers()[1])
        waiting.set_function(lambda: workers()[0] - workers()[1])

    def push_asked(self, kind: str) -> None:
        """Count a request to a worker that listens."""
        self._pushed.labels(kind).inc()

    def push_lost(self, reason: str) -> None:
        """Count a worker that listens and was lost."""
        self._push_losses.labels(reason).inc()

    def push_refused(self, offsets: int) -> None:
        """Count offsets of a worker that do not count."""
        self._push_lies.inc(offsets)

    def loaded(self, took_ms: float) -> None:
        """Count a replay of the log; groups that it does not know are gone."""
        self._by_group.keep_those_there()
        self._load_max = max(self._load_max, took_ms)
        self._load.set(self._load_max)

    def committed(self, records: Sequence[Record], took_ms: float) -> None:
        """Count a batch that is durable."""
        self._flushes.inc()
        self._flush.observe(took_ms)
        for kind, some in groupby(records, type):
            if kind in OFFSETS:  # thousands in a request
                self._commits.inc(sum(1 for _ in some))
            elif kind in COUNTED:
                for record in some:
                    self._count(record)

    def _count(self, record: Record) -> None:
        if isinstance(record, GroupMetadata):
            self._by_group.of(self._rebalances, record.group_id, record.reason).inc()
        elif isinstance(record, TargetMetadata) and record.assignor:
            self._by_group.of(self._targets, record.group_id, record.assignor).inc()
            self._by_group.of(self._moved, record.group_id).inc(record.moved or 0)
        elif isinstance(record, ClassicGroupWritten):
            first = record.reason.partition(SEPARATOR)[0]
            self._by_group.of(self._generations, record.group_id, first).inc()
            if record.assignor:
                self._by_group.of(self._targets, record.group_id, record.assignor).inc()
                self._by_group.of(self._moved, record.group_id).inc(record.moved or 0)
        elif isinstance(record, GroupUnread):
            self._unread.inc()
            self._by_group.drop(record.group_id)
        elif isinstance(record, Tombstone) and record.of == OffsetCommitted.kind:
            self._expirations.inc()
        elif isinstance(record, Tombstone) and record.of in ENDS_OF_GROUPS:
            self._by_group.drop(record.group_id)

    def refused(self, event: Event, error: GroupError) -> None:
        """Count a request that was fenced."""
        if error.code in FENCES and isinstance(event, Heartbeat | OffsetCommit):
            self._by_group.of(self._fences, event.group_id, error.code.name).inc()

    def assigned(self, group_id: str, took_ms: float) -> None:
        """Count the computation of a target."""
        self._by_group.of(self._assigning, group_id).observe(took_ms)

    def computation_failed(self, group_id: str) -> None:
        """Count a failed computation."""
        self._by_group.of(self._failures, group_id).inc()

    def target_lost(self, group_id: str) -> None:
        """Count a whole target that is gone from the table of targets."""
        self._by_group.of(self._targets_lost, group_id).inc()

    def processed(self, queued_ms: float, took_ms: float, waiting: int, idle: float) -> None:
        """Count one round of the loop."""
        self._queued.observe(queued_ms)
        self._processing.observe(took_ms)
        self._queue.set(waiting)
        self._idle.set(idle)

    def commit_failed(self) -> None:
        """Count a batch that could not be made durable."""
        self._failed.inc()

    def maintenance_failed(self) -> None:
        """Count a run of log maintenance that failed, or a snapshot."""
        self._maintenance.inc()

    def served(self, requests: Mapping[str, int]) -> None:
        """Count requests of clients on the wire, by API."""
        for api, count in requests.items():
            self._requests.labels(api).inc(count)

    def connected(self, more: int) -> None:
        """Count a client on the wire that came, or went (−1)."""
        self._connections.inc(more)

    def throttled(self, throttle_ms: int) -> None:
        """Count a request whose client is not listened to for a while."""
        self._throttled.inc()
        self._throttle.inc(throttle_ms)

    def closed(self, reason: str) -> None:
        """Count a connection that we closed."""
        self._closed.labels(reason).inc()

    def client_refused(self, client: str) -> None:
        """Count that a client's software was refused."""
        self._refused.labels(client).inc()

    def kafka_read(self, partition: int, records: int) -> None:
        """Count records of a partition of Kafka's topic of groups."""
        self._watched.labels(str(partition)).inc(records)

    def kafka_lag(self, partition: int, records: int) -> None:
        """Say how many records of a partition are not read yet."""
        self._watch_lag.labels(str(partition)).set(records)

    def kafka_passed_over(self, type_: str, records: int) -> None:
        """Count records of a type that is not ours."""
        self._passed_over.labels(type_).inc(records)

    def kafka_undecodable(self, records: int) -> None:
        """Count records that could not be decoded."""
        self._undecodable.inc(records)

    def telemetry_lost(self, what: str, count: int) -> None:
        """Count traces, or exports of metrics, that are lost."""
        self._telemetry_lost.labels(what).inc(count)

    def catalog_failed(self) -> None:
        """Count a time when topics could not be read."""
        self._catalog.inc()

    def fenced(self) -> None:
        """Say that another coordinator has the store."""
        self._by_group.keep_those_there()
        self._lost.set(1)


class _Groups:
    """Gauges that follow from the state."""

    def __init__(
        self,
        served: Sequence[tuple[Callable[[], State], Callable[[], str]]],
        by_group: GroupSeries,
    ) -> None:
        self._served = served
        self._by_group = by_group

    def collect(self) -> Iterable[Metric]:
        """Return today's values."""
        known = [state() for state, _ in list(self._served)]
        groups = [group for state in known for group in list(state.groups.values())]
        by_state = dict.fromkeys((s.value for s in GroupState), 0)
        spreads: dict[str, int] = {}
        members: dict[str, int] = {}
        for group in groups:
            by_state[group.state.value] += 1
            loads = count_all_owned(group.members)
            label = self._by_group.label(group.group_id)
            members[label] = members.get(label, 0) + len(loads)
            spread = max(loads) - min(loads) if loads else 0
            spreads[label] = max(spreads.get(label, 0), spread)
        count = GaugeMetricFamily("group_count", "Groups, by protocol.", labels=["protocol"])
        count.add_metric(["consumer"], len(groups))
        classic = [group for state in known for group in list(state.classic.values())]
        count.add_metric(["classic"], sum(map(_count_classic, known)))
        consumer = GaugeMetricFamily(
            "consumer_group_count", "Consumer groups, by state.", labels=["state"]
        )
        for name, number in by_state.items():
            consumer.add_metric([name.lower()], number)
        states = dict.fromkeys(ClassicState, 0)
        for one in classic:
            states[one.state] += 1
            label = self._by_group.label(one.group_id)
            members[label] = members.get(label, 0) + len(one.members)
        by_protocol = GaugeMetricFamily(
            "classic_group_count", "Classic groups, by state.", labels=["state"]
        )
        for state_name, number in states.items():
            by_protocol.add_metric([state_name.lower()], number)
        offsets = GaugeMetricFamily("offset_count", "Committed offsets.")
        offsets.add_metric(
            [], sum(len(found) for state in known for found in list(state.offsets.values()))
        )
        return [
            count,
            consumer,
            by_protocol,
            _by_label("group_members", "Members of a group.", members),
            self._list_lags(known),
            _by_label(
                "load_spread", "Largest member load minus the smallest, in partitions.", spreads
            ),
            offsets,
            _count_logs([status() for _, status in self._served]),
        ]

    def _list_lags(self, known: Iterable[State]) -> GaugeMetricFamily:
        lags: dict[str, int] = {}
        for state in known:
            for group_id in list(state.loads):
                found = find_lags(state, group_id)
                if found:
                    label = self._by_group.label(group_id)
                    lags[label] = lags.get(label, 0) + sum(found.values())
        text = "Records that a watched group has not committed yet, where that is known."
        return _by_label("group_lag", text, lags)


def _count_classic(state: State) -> int:
    """Count the groups that are not of the consumer protocol: classic ones, and mere offsets."""
    known = state.offsets.keys() | set(state.classic)
    return len(known - state.groups.keys())


def _count_logs(statuses: Sequence[str]) -> GaugeMetricFamily:
    found = GaugeMetricFamily("num_partitions", "Logs, by state.", labels=["state"])
    for name in ("loading", "active", "failed"):
        found.add_metric([name], statuses.count(name))
    return found


class _NoLog:
    def collect(self) -> Iterable[Metric]:
        return [_count_logs([])]


def make_stand_by_metrics() -> CollectorRegistry:
    """Return the metrics of a process that stands by: it can be reached, and has no log."""
    found = CollectorRegistry()
    found.register(_NoLog())
    return found


def _by_label(name: str, text: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    found = GaugeMetricFamily(name, text, labels=["group"])
    for label, value in values.items():
        found.add_metric([label], value)
    return found
