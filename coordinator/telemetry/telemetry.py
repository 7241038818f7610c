"""Sends traces and metrics to an OpenTelemetry collector, from a thread of its own.

No request waits for it: what it cannot send in time is dropped and counted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import set_span_in_context
from requests import Response, Session
from requests.exceptions import RequestException

from coordinator.telemetry.collector import Collector
from coordinator.telemetry.otlp_metrics import read_metrics
from coordinator.telemetry.trace_values import RebalanceTrace, SpanValue

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

SCOPE = "muster"
SPANS_MAX = 10_000
"""Those that wait for the collector; a rebalance that does not fit is dropped."""
BATCH = 512
"""How many spans one request has, about."""
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS = 60_000
LONGEST_MS = 86_400_000
"""The longest time between two: a thread cannot wait for `inf`."""
CLOSE_S = 2.0
"""How long the end waits for the collector to take what is left."""
NS = 1_000_000
"""Of a millisecond."""
REDIRECTS = range(300, 400)
logger = logging.getLogger("muster.telemetry")


class _Ended(SpanProcessor):
    """Collects the spans that a sampler takes."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.spans.append(span)


class Telemetry:
    """What sends the traces and metrics of a process.

    Parameters
    ----------
    collector
        Where to.
    registry
        The metrics to send.
    lost
        Counts what no collector took, by "traces" or "metrics".
    """

    def __init__(
        self,
        collector: Collector,
        registry: CollectorRegistry,
        version: str,
        lost: Callable[[str, int], object],
    ) -> None:
        self._registry, self._lost = registry, lost
        self._resource = _describe_process(version)
        self._since_ns = time.time_ns()
        self._traces = self._metrics = None
        if "traces" in collector.send:
            self._traces = OTLPSpanExporter(
                collector.url_of("traces"), headers=collector.headers, session=_session()
            )
        if "metrics" in collector.send:
            self._metrics = OTLPMetricExporter(
                collector.url_of("metrics"), headers=collector.headers, session=_session()
            )
        self._ended = _Ended()
        provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer(SCOPE, version)
        self._waiting: deque[RebalanceTrace] = deque()
        self._spans = 0
        self._change = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="muster-telemetry", daemon=True)
        self._thread.start()

    @property
    def traces(self) -> bool:
        """Whether traces are sent."""
        return self._traces is not None

    def tell(self, trace: RebalanceTrace) -> None:
        """Send a trace soon; where too much waits, it is dropped."""
        with self._change:
            fits = self._open and self._spans + trace.spans <= SPANS_MAX
            if fits:
                self._waiting.append(trace)
                self._spans += trace.spans
                self._change.notify()
        if not fits:
            self._lost("traces", 1)

    def close(self) -> None:
        """Send what is left, for a moment, and stop."""
        with self._change:
            if not self._open:
                return
            self._open = False
            self._change.notify()
        self._thread.join(CLOSE_S)
        for one in (self._traces, self._metrics):
            if one is not None:
                one.shutdown()
        self._thread.join(CLOSE_S)
        with self._change:
            left = len(self._waiting)
            self._waiting.clear()
        if left:
            self._lost("traces", left)
            logger.warning("%d traces are dropped: the collector did not take them in time", left)

    # In a thread of its own ----------------------------------------------------------------------

    def _run(self) -> None:
        every_s = _interval_s()
        due = time.monotonic() + every_s
        while True:
            with self._change:
                while self._open and not self._waiting and time.monotonic() < due:
                    self._change.wait(max(0.0, due - time.monotonic()))
                is_open = self._open
            self._send_traces()
            if self._metrics is not None and (not is_open or time.monotonic() >= due):
                self._send_metrics()
            if time.monotonic() >= due:
                due = time.monotonic() + every_s
            if not is_open and not self._waiting:
                return

    def _send_traces(self) -> None:
        """Send one batch of those that wait."""
        taken: list[RebalanceTrace] = []
        spans = 0
        with self._change:
            while self._waiting and spans < BATCH:
                taken.append(self._waiting.popleft())
                spans += taken[-1].spans
            self._spans -= spans
        if not taken or self._traces is None:
            return
        done = False
        try:
            for one in taken:
                emit(self._tracer, one)
            done = self._export_spans(self._ended.spans)
        except Exception:
            logger.exception("traces are not sent; the next ones are tried")
        self._ended.spans = []
        if not done:
            self._lost("traces", len(taken))

    def _export_spans(self, spans: Sequence[ReadableSpan]) -> bool:
        assert self._traces is not None
        return not spans or self._traces.export(spans) is SpanExportResult.SUCCESS

    def _send_metrics(self) -> None:
        assert self._metrics is not None
        done = False
        try:
            found = read_metrics(
                self._registry, self._resource, SCOPE, self._since_ns, time.time_ns()
            )
            done = self._metrics.export(found) is MetricExportResult.SUCCESS
        except Exception:
            logger.exception("metrics are not sent; the next ones are tried")
        if not done:
            self._lost("metrics", 1)


def emit(tracer: Tracer, trace: RebalanceTrace) -> None:
    """Make the spans of a rebalance."""
    root = tracer.start_span(
        trace.root.name, attributes=trace.root.attributes, start_time=trace.root.begin_ms * NS
    )
    inside = set_span_in_context(root)
    for one in trace.parts:
        _emit_part(tracer, one, inside)
    root.end(trace.root.end_ms * NS)


def _emit_part(tracer: Tracer, value: SpanValue, inside: Context) -> None:
    span = tracer.start_span(
        value.name, inside, attributes=value.attributes, start_time=value.begin_ms * NS
    )
    for moment in value.moments:
        span.add_event(moment.name, moment.attributes, moment.at_ms * NS)
    span.end(value.end_ms * NS)


def _describe_process(version: str) -> Resource:
    """Return what OpenTelemetry's variables say of this process, or that it is Muster."""
    found = Resource.create({"service.version": version})
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": SCOPE}))
    return found


def _interval_s() -> float:
    """Return how often metrics are sent."""
    try:
        wanted = float(os.environ.get(INTERVAL, INTERVAL_MS))
    except ValueError:
        wanted = 0
    if wanted > 0:
        return min(wanted, LONGEST_MS) / 1000
    logger.warning("%s is no number above 0: metrics are sent every %d ms", INTERVAL, INTERVAL_MS)
    return INTERVAL_MS / 1000


def _session() -> Session:
    """Return what asks over HTTP; it reads no body of an answer, however long that is."""
    session = Session()
    session.stream = True
    session.hooks["response"].append(_end_answer)
    return session


def _end_answer(response: Response, **_: object) -> None:
    """Close the connection; a redirect, which is not followed, is no success."""
    response.close()
    if response.status_code in REDIRECTS:
        raise RequestException(
            f"the collector answers {response.status_code}: give the address that it redirects to"
        )
