"""A collector on loopback: what OpenTelemetry's protocol says it is sent, read by its own schema.

It shares nothing with Muster, and behaves as badly as it is asked to.
"""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATHS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Collector(ThreadingHTTPServer):
    """Answers as `mode` says: ok, error, busy, redirect, garbage, endless, or silent until the end."""

    daemon_threads = True
    request_queue_size = 50

    def __init__(self, mode="ok"):
        self.mode, self.got, self.headers, self.asked = mode, [], [], 0
        self.came, self.ended = threading.Condition(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self):
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def wait(self, found, seconds=20):
        """Wait until something is true of it."""
        with self.came:
            assert self.came.wait_for(lambda: found(self), seconds), (self.asked, len(self.got))

    @property
    def spans(self):
        """All spans that it got, each with the attributes as a dict."""
        return [
            span
            for one in self.got if isinstance(one, ExportTraceServiceRequest)
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]  # fmt: skip

    @property
    def metrics(self):
        """The metrics that it got last, by name."""
        last = [one for one in self.got if isinstance(one, ExportMetricsServiceRequest)][-1]
        return {
            metric.name: metric
            for resource in last.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resource(self):
        """What it was sent about the process."""
        last = self.got[-1]
        of = last.resource_spans if hasattr(last, "resource_spans") else last.resource_metrics
        return attributes(of[0].resource)


def attributes(value):
    """The attributes of a span, a point, an event, or a resource, as a dict."""
    found = {}
    for one in value.attributes:
        kind = one.value.WhichOneof("value")
        got = getattr(one.value, kind)
        found[one.key] = (
            [each.string_value for each in got.values] if kind == "array_value" else got
        )
    return found


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        collector = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with collector.came:
            collector.asked += 1
            collector.headers.append(dict(self.headers.items()))
            if collector.mode == "ok":
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.got.append(PATHS[self.path].FromString(body))
            collector.came.notify_all()
        with contextlib.suppress(OSError):
            self._answer(collector)

    def _answer(self, collector):
        if collector.mode == "silent":
            collector.ended.wait(30)
            return
        if collector.mode == "garbage":
            self.wfile.write(b"\x00\xff" * 500)
            return
        code = {"error": 500, "busy": 503, "redirect": 307}.get(collector.mode, 200)
        self.send_response(code)
        if collector.mode == "redirect":
            self.send_header("Location", "http://127.0.0.1:9/steal")
        if collector.mode == "endless":
            self.end_headers()
            while not collector.ended.is_set():
                self.wfile.write(b"x" * 65_536)
                time.sleep(0.001)
            return
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words):
        """Say nothing."""


@contextlib.contextmanager
def collecting(mode="ok"):
    """A collector that runs until the block ends."""
    collector = Collector(mode)
    thread = threading.Thread(target=lambda: collector.serve_forever(0.05), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.ended.set()
        collector.shutdown()
        collector.server_close()
        thread.join()
