"""A bucket for tests: the server, what it was asked, and the faults that it is to have."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import end

BUCKET = "bucket"
SECRET = "never-to-be-seen"
KEYS = ("AKIATESTS", SECRET)
VERSITYGW = "versitygw"
"""A server that keeps real files: `go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`."""
PATIENCE_S = 60.0


@dataclass
class S3Server:
    """moto in a process of its own (server.py), or a proxy before another server."""

    process: subprocess.Popen
    endpoint: str
    name: str = "moto"

    @classmethod
    def start(cls, upstream="", name="moto", host="127.0.0.1"):
        command = [sys.executable, "-m", "tests.support.s3.server", host, *filter(None, [upstream])]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            port = process.stdout.readline().strip()
            server = cls(process, f"http://127.0.0.1:{port}", name)
            if not upstream:
                server._ask("PUT", f"/{BUCKET}")
        except BaseException:
            end(process)
            raise
        return server

    @classmethod
    @contextlib.contextmanager
    def started(cls, **options):
        server = cls.start(**options)
        try:
            yield server
        finally:
            server.stop()

    def environment(self):
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "AKIATESTS",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def new_store(self):
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def new_bucket(self):
        name = uuid.uuid4().hex
        self._ask("PUT", f"/{name}")
        return f"s3://{name}"

    def fault(self, kind, match="", method="", times=1):
        """Have the next requests fail whose address contains a text."""
        self.faults([(kind, match, method, times)])

    def faults(self, faults):
        """Have the next requests fail as the first one says that is not used up."""
        self._ask("PUT", "/_control/faults?" + urllib.parse.urlencode({"all": json.dumps(faults)}))

    def heal(self):
        """Have no more requests fail."""
        self.faults([])
        self.weather(0, 0.0)

    def weather(self, seed, share):
        """Have any request fail from here on, by any fault, with this probability."""
        self._ask("PUT", f"/_control/weather?seed={seed}&share={share}")

    def made(self):
        """Return how many requests failed since the weather was set, by the kind of fault."""
        return json.loads(self._ask("GET", "/_control/made"))

    def requests(self, of=""):
        """Return the requests since the last call, as METHOD PATH?QUERY."""
        return [one for one in json.loads(self._ask("GET", "/_control/requests")) if of in one]

    def stop(self):
        end(self.process)

    def _ask(self, method, path):
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()


@dataclass
class Versitygw:
    """versitygw on a folder of its own; buckets are folders."""

    process: subprocess.Popen
    endpoint: str
    folder: str

    @classmethod
    def start(cls):
        """Start it; None where it is not installed."""
        program = shutil.which(VERSITYGW)
        if program is None:
            return None
        folder = tempfile.mkdtemp(prefix="muster-s3-")
        address = f"127.0.0.1:{_free_port()}"
        command = [program, "--port", address, "--access", KEYS[0], "--secret", SECRET, "--quiet"]
        process = subprocess.Popen(
            [*command, "posix", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        server = cls(process, f"http://{address}", folder)
        try:
            _wait_listens(address)
            Path(folder, BUCKET).mkdir()
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self):
        end(self.process)
        shutil.rmtree(self.folder)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def _wait_listens(address):
    host, port = address.split(":")
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens at {address}")
