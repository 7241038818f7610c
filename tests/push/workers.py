"""Workers that listen, for tests: they note what they are asked, and misbehave on request."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from coordinator.config import PushConfig
from tests.member.runs import with_sessions_of

SESSION_MS = 1_000
"""A worker's session timeout: a fifth of its member's."""
QUICK = with_sessions_of(5 * SESSION_MS, push=PushConfig(retry_ms=50))
"""A worker that is silent is lost soon. A busy machine may lose one unasked."""
STEADY_MS = 4_000
STEADY = with_sessions_of(5 * STEADY_MS, push=PushConfig(retry_ms=50))
"""No worker is lost unless it is unheard of for seconds; there are three pings in a session."""


class Worker:
    """A worker in a thread.

    Attributes
    ----------
    log
        (time, kind, partitions) of each request, when it was answered.
    offsets
        How far it came, by (topic, partition), of what is started.
    instead
        By kind, what makes an answer (status, body) in place of the right one.
    busy_max
        How many requests it had at a time, at most.
    """

    def __init__(self, *, port=0, tls=None, **said):
        self.said = {"group_id": "g", "topics": ["clicks"]} | said
        self.log, self.offsets, self.instead, self.bodies = [], {}, {}, []
        self.asked = []
        self.busy = self.busy_max = 0
        self.lock = threading.Lock()
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                worker.serve(self)

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None  # of clients that trust no one
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def serve(self, handler):
        kind = handler.path.strip("/")
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.busy += 1
            self.busy_max = max(self.busy, self.busy_max)
            self.bodies.append((kind, asked, dict(handler.headers)))
            self.asked.append((time.monotonic(), kind, asked))
        answer = self.instead.get(kind, self.right_answer)
        status, body = answer(kind, asked)
        with self.lock:
            self.busy -= 1
            places = {(p["topic"], p["partition"]): p["offset"] for p in asked["partitions"]}
            self.log.append((time.monotonic(), kind, places))
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        with suppress(OSError):  # the client no longer waits
            handler.wfile.write(body)

    def right_answer(self, kind, asked):
        if kind == "register":
            self.offsets.clear()
            return 200, json.dumps(self.said).encode()
        places = {(p["topic"], p["partition"]): p["offset"] for p in asked["partitions"]}
        if kind == "start":
            self.offsets |= {place: offset or 0 for place, offset in places.items()}
        body = self.report()
        if kind == "stop":
            for place in places:
                self.offsets.pop(place, None)
        return 200, body

    def report(self, *more):
        rows = [(topic, number, at) for (topic, number), at in self.offsets.items()]
        names = ("topic", "partition", "offset")
        found = [dict(zip(names, row, strict=True)) for row in (*rows, *more)]
        return json.dumps({"offsets": found}).encode()

    def kinds(self):
        return [kind for _, kind, _ in self.log]

    def when(self, kind, place):
        return [at for at, what, places in self.log if what == kind and place in places]

    def works_until(self):
        """Until when it works on what it has, as docs/reference/push.md says."""
        at, asked = [(at, asked) for at, kind, asked in self.asked if kind != "register"][-1]
        answered = max(then for then, _, _ in self.log if then <= at)
        return answered + asked["session_timeout_ms"] / 1_000

    def close(self):
        self.server.shutdown()
        self.server.server_close()
