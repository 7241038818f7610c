"""S3, in a process of its own: moto, with what stores and networks do beside answering.

Says its port. `PUT /_control/faults?all=[[KIND, TEXT, METHOD, TIMES], …]` has the next requests fail
whose address contains a text; `GET /_control/requests` returns those since the last time. The kinds:

lost
    It is done, and its answer is lost.
late
    Its answer is lost, and it is done half a second later.
never
    It is lost, and never done.
deaf
    The conditions of a put are passed over, as by stores that have none.
503, 403
    It is refused.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import threading
from contextlib import nullcontext
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
REFUSALS = {"503": "503 Slow Down", "403": "403 Forbidden"}
LATE_S = 0.5


class Faults:
    """The application, with faults around it."""

    def __init__(self, inner):
        self._inner = inner
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._faults = []
        self._seen = []

    def __call__(self, environ, start_response):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        asked = {name: found[0] for name, found in parse_qs(environ["QUERY_STRING"]).items()}
        if path.startswith("/_control/"):
            answer = self._control(path, asked)
            start_response("200 OK", [("Content-Length", str(len(answer)))])
            return [answer]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ = environ | {"wsgi.input": io.BytesIO(body)}
        kind = self._take(f"{path}?{environ['QUERY_STRING']}", method)
        if kind in REFUSALS:
            start_response(REFUSALS[kind], [("Content-Length", "0")])
            return [b""]
        if kind == "deaf":
            environ = {name: value for name, value in environ.items() if name not in CONDITIONS}
        elif kind is not None:
            if kind == "lost":
                self._do(environ)
            elif kind == "late":
                threading.Timer(LATE_S, self._do, [environ]).start()
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        return self._answer(environ, start_response)

    def _do(self, environ):
        list(self._answer(environ, lambda *_: None))

    def _answer(self, environ, start_response):
        """Answer; one writes at a time, as moto looks at conditions before it puts."""
        with self._writing if environ["REQUEST_METHOD"] not in {"GET", "HEAD"} else nullcontext():
            return self._inner(environ, start_response)

    def _take(self, target, method):
        with self._lock:
            self._seen.append(f"{method} {target}")
            for fault in self._faults:
                kind, text, of, times = fault
                if times and text in target and of in {"", method}:
                    fault[3] -= 1
                    return kind
            return None

    def _control(self, path, asked):
        with self._lock:
            if path.endswith("requests"):
                answer, self._seen = json.dumps(self._seen).encode(), []
                return answer
            self._faults = json.loads(asked["all"])
            return b""


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server = make_server(
        "127.0.0.1", 0, Faults(DomainDispatcherApplication(create_backend_app)), threaded=True
    )
    print(server.server_port, flush=True)  # noqa: T201 - the answer
    server.serve_forever()
