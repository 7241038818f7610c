"""A worker in plain Python, without Muster: `python examples/push_worker.py 8081 billing clicks`.

`muster serve --push http://127.0.0.1:8081` connects to it; docs/reference/push.md has the rules.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

BEARER = f"Bearer {os.environ.get('PUSH_TOKEN', '')}".rstrip()


class Worker(BaseHTTPRequestHandler):
    """Does what it is asked; one request at a time."""

    offsets, lock = {}, threading.Lock()  # how far each partition came that is started
    session, until, answered = None, 0.0, 0.0

    def do_POST(self) -> None:
        """Answer a request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        places = {(p["topic"], p["partition"]): p["offset"] or 0 for p in asked["partitions"]}
        with Worker.lock:  # a piece of work is done, or not begun
            if self.headers.get("Authorization", "Bearer") != BEARER:
                self.send_error(401)
                return
            if self.path == "/register":
                Worker.offsets = {}
                Worker.session, Worker.answered = asked["session"], time.monotonic()
            elif asked["session"] != Worker.session or time.monotonic() > Worker.until:
                self.send_error(409)  # another's, or too late: it registers again
                return
            Worker.until = Worker.answered + asked["session_timeout_ms"] / 1_000
            rows = [{"topic": t, "partition": p, "offset": o} for (t, p), o in self.offsets.items()]
            if self.path == "/start":
                Worker.offsets |= places
            elif self.path == "/stop":
                Worker.offsets = {p: o for p, o in self.offsets.items() if p not in places}
        answer = {"group_id": sys.argv[2], "topics": sys.argv[3:], "offsets": rows}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        Worker.answered = time.monotonic()
        self.wfile.write(body)


def work() -> None:
    """Read and write each partition's next piece, unless another worker may have it by now."""
    while time.sleep(0.05) is None:
        with Worker.lock:
            for (topic, partition), offset in Worker.offsets.items():
                if time.monotonic() < Worker.until:
                    print(time.time(), f"{topic}-{partition}", offset, flush=True)
                    Worker.offsets[topic, partition] += 1


threading.Thread(target=work, daemon=True).start()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Worker).serve_forever()
