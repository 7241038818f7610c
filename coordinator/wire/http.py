"""http: /metrics for Prometheus, /healthz and /readyz for whoever starts and stops the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from coordinator.status import Status
from coordinator.wire.serving import parse_address

OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503
TEXT = "text/plain; charset=utf-8"
LOST = {Status.FENCED.value, Status.CLOSED.value}
STANDS_BY = "stands by"
"""The status before there is a coordinator: another one has the store."""


class Pages:
    """The pages, served in a thread of their own.

    Attributes
    ----------
    status
        The coordinator's status as it was noticed last; it is ill when it has to be restarted.
    confirm
        Its status, after a look at the log: it is ready when active. None before there is one.
    registry
        Its metrics, once there are any.
    """

    def __init__(self, listen: str) -> None:
        self.status: Callable[[], str] = lambda: STANDS_BY
        self.confirm: Callable[[], str] | None = None
        self.registry: CollectorRegistry | None = None
        pages = self

        class Handler(BaseHTTPRequestHandler):
            """Answers one request."""

            timeout = 10

            def do_GET(self) -> None:
                """Answer."""
                code, kind, body = pages.page(self.path.partition("?")[0])
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                """Say nothing: probes come every second."""

        host, port = parse_address(listen, "server.http_listen")
        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from None
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="muster-http", daemon=True
        )
        self._thread.start()

    def page(self, path: str) -> tuple[int, str, bytes]:
        """Return the status code, type and content of a page."""
        status = (self.confirm if path == "/readyz" and self.confirm else self.status)()
        if path == "/metrics" and self.registry is not None:
            return OK, CONTENT_TYPE_LATEST, generate_latest(self.registry)
        if path in {"/metrics", "/readyz"}:
            ready = status == Status.ACTIVE.value
            return OK if ready else UNAVAILABLE, TEXT, f"{status}\n".encode()
        if path == "/healthz":
            return UNAVAILABLE if status in LOST else OK, TEXT, f"{status}\n".encode()
        return NOT_FOUND, TEXT, b"the pages are /metrics, /healthz, /readyz\n"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
