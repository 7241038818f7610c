"""What streams do with Kafka's groups, as metrics in Prometheus's own registry.

A driver has no coordinator, whose registry they could be in: `prometheus_client.start_http_server`
shows them.
"""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge


class StreamMetrics:
    """Counters by group."""

    def __init__(self) -> None:
        self._committed = Counter(
            "muster_stream_offsets_committed", "Offsets of streams committed.", ("group",)
        )
        self._failures = Counter(
            "muster_stream_commit_failures",
            "Requests to commit offsets of streams that failed or were refused.",
            ("group",),
        )
        self._pending = Gauge(
            "muster_stream_offsets_pending", "Offsets that wait to be committed.", ("group",)
        )

        self._records = Counter(
            "muster_shared_source_records", "Records read by shared sources.", ("group",)
        )
        self._fenced = Counter(
            "muster_shared_source_fenced", "Batches left to another member.", ("group",)
        )
        self._lag = Gauge(
            "muster_shared_source_lag",
            "Records that the last batch left in its partitions.",
            ("group",),
        )

    def committed(self, group_id: str, offsets: int, pending: int) -> None:
        """Note that offsets were committed, and how many wait."""
        self._committed.labels(group_id).inc(offsets)
        self._pending.labels(group_id).set(pending)

    def failed(self, group_id: str) -> None:
        """Note that a request failed."""
        self._failures.labels(group_id).inc()

    def read(self, group_id: str, records: int, lag: int) -> None:
        """Note a batch, and how many records were there beyond it."""
        self._records.labels(group_id).inc(records)
        self._lag.labels(group_id).set(lag)

    def fenced(self, group_id: str) -> None:
        """Note that a batch was refused."""
        self._fenced.labels(group_id).inc()


@cache
def stream_metrics() -> StreamMetrics:
    """Return the metrics of this process."""
    return StreamMetrics()
