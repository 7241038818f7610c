"""S3, in a process of its own, with what stores and networks do beside answering.

It is moto at the host given; or, given an address too, a proxy before the server there. Says its
port.
`PUT /_control/faults?all=[[KIND, TEXT, METHOD, TIMES], …]` has the next requests fail whose address
contains a text; `PUT /_control/weather?seed=N&share=S` has any request fail, with that probability;
`GET /_control/requests` returns those since the last time, `GET /_control/made` how many failed, by
kind. The kinds:

lost
    It is done, and its answer is lost.
late
    Its answer is lost, and it is done half a second later.
never
    It is lost, and never done.
cut
    It is done, and the connection ends in the middle of its answer.
stall
    It is done, and its answer comes after a second.
503, 429, 409, 412, 403
    It is refused; with 429 it may be sent again after a second, with 409 or 412 another request of
    the same put is under way.
stale
    A list is as it was a second ago. Amazon's never are, those of some servers may be.
weak, odd, tagless
    Its tags (ETag) are weak, so that no condition matches them; others each time; or none.
deaf
    The conditions of a put are passed over, as by stores that have none.
"""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from urllib.parse import parse_qs, urlsplit

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from tests.support.s3.lists import KnownLists, Lists

CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")
REFUSALS = {
    "503": "503 Slow Down",
    "403": "403 Forbidden",
    "409": "409 Conflict",
    "412": "412 Precondition Failed",
    "429": "429 Too Many Requests",
}
SAID = {
    "403": b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The signatures differ.</Message>
<AWSAccessKeyId>AKIATESTS</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256
20261124</StringToSign><CanonicalRequest>GET
x-amz-security-token:TOKEN-of-a-user</CanonicalRequest></Error>"""
}
"""What a refusal says in its body, as servers of S3 do."""
WEATHER = ("lost", "late", "never", "cut", "stall", "503", "429", "stale")
"""What any request may meet, and a list is oftener stale."""
STALE_SHARE = 0.5
LATE_S, STALL_S, PATIENCE_S = 0.5, 1.0, 60.0
ODD_TAGS = {"weak": "W/{}".format, "odd": lambda _: f'"{uuid.uuid4().hex}"', "tagless": str}
READS = ("GET", "HEAD")
SERVERS_OWN = ("connection", "transfer-encoding", "keep-alive", "server", "date")
"""Headers of an answer that this server makes itself."""


class Faults:
    """The application, with faults around it."""

    def __init__(self, inner, known):
        self._inner = inner
        self._known = known
        self._lock = threading.Lock()
        self._faults = []
        self._seen = []
        self._lists = Lists()
        self._weather, self._share = random.Random(0), 0.0
        self._made = Counter()

    def __call__(self, environ, start_response):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        asked = {name: found[0] for name, found in parse_qs(environ["QUERY_STRING"]).items()}
        if path.startswith("/_control/"):
            answer = self._control(path, asked)
            start_response("200 OK", [("Content-Length", str(len(answer)))])
            return [answer]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ = environ | {"wsgi.input": io.BytesIO(body)}
        is_list = method == "GET" and "list-type" in asked
        kind = self._take(f"{path}?{environ['QUERY_STRING']}", method, is_list)
        if kind in REFUSALS:
            more = [("Retry-After", "1")] if kind == "429" else []
            said = b"" if method == "HEAD" else SAID.get(kind, b"")
            start_response(REFUSALS[kind], [("Content-Length", str(len(said))), *more])
            return [said]
        if kind == "deaf":
            environ = {name: value for name, value in environ.items() if name not in CONDITIONS}
        elif kind in {"lost", "late", "never"}:
            if kind == "lost":
                self._answer(environ)
            elif kind == "late":
                threading.Timer(LATE_S, self._answer, [environ]).start()
            return self._hang_up(environ)
        if kind == "weak" and environ.get("HTTP_IF_MATCH", "").startswith("W/"):
            start_response(REFUSALS["412"], [("Content-Length", "0")])
            return [b""]
        status, headers, content = self._answer(environ)
        if kind in ODD_TAGS:
            headers = [
                (name, ODD_TAGS[kind](value) if name.lower() == "etag" else value)
                for name, value in headers
                if kind != "tagless" or name.lower() != "etag"
            ]
        if is_list:
            content = self._lists.show(content, asked.get("prefix", ""), stale=kind == "stale")
            headers = [one for one in headers if one[0].lower() != "content-length"]
            headers.append(("Content-Length", str(len(content))))
        if kind == "stall":
            time.sleep(STALL_S)
        start_response(status, headers)
        if kind == "cut" and method != "HEAD" and len(content) > 1:
            return self._cut(content, environ)
        return [content]

    def _cut(self, content, environ):
        yield content[: len(content) // 2]
        self._hang_up(environ)

    def _hang_up(self, environ):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

    def _answer(self, environ):
        """Return status, headers and content."""
        if environ["REQUEST_METHOD"] not in READS:
            self._lists.note(environ["PATH_INFO"])
            if self._known:
                with self._known.changed():
                    return self._ask(environ)
        elif self._known and "list-type=" in environ["QUERY_STRING"]:
            return self._known.get(environ, self._ask)
        return self._ask(environ)

    def _ask(self, environ):
        head = []
        made = self._inner(environ, lambda status, headers, *_: head.extend((status, headers)))
        content = b"".join(made)
        return head[0], list(head[1]), content

    def _take(self, target, method, is_list):
        with self._lock:
            self._seen.append(f"{method} {target}")
            for fault in self._faults:
                kind, text, of, times = fault
                if times and text in target and of in {"", method}:
                    fault[3] -= 1
                    self._made[kind] += 1
                    return kind
            if is_list and self._share and self._weather.random() < STALE_SHARE:
                self._made["stale"] += 1
                return "stale"
            if self._weather.random() < self._share:
                kind = self._weather.choice(WEATHER[:-1])
                self._made[kind] += 1
                return kind
            return None

    def _control(self, path, asked):
        with self._lock:
            if path.endswith("requests"):
                answer, self._seen = json.dumps(self._seen).encode(), []
                return answer
            if path.endswith("made"):
                return json.dumps(self._made).encode()
            if path.endswith("weather"):
                self._weather, self._share = random.Random(asked["seed"]), float(asked["share"])
                self._made.clear()
            else:
                self._faults = json.loads(asked["all"])
            return b""


class Proxy:
    """An application that has another server answer, whose address requests are signed for."""

    def __init__(self, upstream):
        self._upstream = urlsplit(upstream).netloc

    def __call__(self, environ, start_response):
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if environ.get(name):
                headers[name.replace("_", "-").lower()] = environ[name]
        headers["connection"] = "close"
        connection = http.client.HTTPConnection(self._upstream, timeout=PATIENCE_S)
        try:
            connection.request(
                environ["REQUEST_METHOD"],
                environ["RAW_URI"],
                environ["wsgi.input"].read(),
                headers,
            )
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        head = [one for one in answer.getheaders() if one[0].lower() not in SERVERS_OWN]
        start_response(f"{answer.status} {answer.reason}", head)
        return [content]


def application():
    """Return what answers: moto, or what is at the address given."""
    if len(sys.argv) > 2:
        return Faults(Proxy(sys.argv[2]), None)
    return Faults(create_backend_app("s3"), KnownLists())


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server = make_server(sys.argv[1], 0, application(), threaded=True)
    print(server.server_port, flush=True)  # noqa: T201 - the answer
    server.serve_forever()
