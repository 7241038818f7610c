"""A bucket for tests: the server, what it was asked, and the faults that it is to have."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass

BUCKET = "bucket"
SECRET = "never-to-be-seen"
KEYS = ("AKIATESTS", SECRET)


@dataclass
class S3Server:
    """moto in a process of its own (server.py)."""

    process: subprocess.Popen
    endpoint: str

    @classmethod
    def start(cls):
        command = [sys.executable, "-m", "tests.support.s3.server"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        port = process.stdout.readline().strip()
        server = cls(process, f"http://127.0.0.1:{port}")
        server._ask("PUT", f"/{BUCKET}")
        return server

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

    def fault(self, kind, match="", method="", times=1):
        """Have the next requests fail whose address contains a text."""
        self.faults([(kind, match, method, times)])

    def faults(self, faults):
        """Have the next requests fail as the first one says that is not used up."""
        self._ask("PUT", "/_control/faults?" + urllib.parse.urlencode({"all": json.dumps(faults)}))

    def heal(self):
        """Have no more requests fail."""
        self.faults([])

    def requests(self, of=""):
        """Return the requests since the last call, as METHOD PATH?QUERY."""
        return [one for one in json.loads(self._ask("GET", "/_control/requests")) if of in one]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def _ask(self, method, path):
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()
