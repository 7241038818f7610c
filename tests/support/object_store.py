"""Enough of S3 to read a folder, in a process of its own: delta-rs holds Python while it reads.

Says its port. While the file `error` is in its folder ("403 AccessDenied"), every answer is that.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "AKIAKNOWN"
ERROR = (
    "<?xml version='1.0'?><Error><Code>{}</Code><Message>no</Message>"
    f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>"
)


class Answers(BaseHTTPRequestHandler):
    folder: Path

    def do_GET(self):
        error = self.folder / "error"
        if error.exists():
            status, code = error.read_text().split()
            return self._send(int(status), ERROR.format(code).encode())
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix("/bucket").removeprefix("/")
        if not key:
            return self._list(parse_qs(url.query)["prefix"][0])
        path = self.folder / key
        if not path.is_file():
            return self._send(404, ERROR.format("NoSuchKey").encode())
        data, status, part = path.read_bytes(), 200, None
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            size = len(data)
            begin, end = (int(first), int(last) + 1) if first else (size - int(last), size)
            data, status = data[begin:end], 206
            part = f"bytes {begin}-{begin + len(data) - 1}/{size}"
        return self._send(status, data, part)

    do_HEAD = do_GET  # noqa: N815 - the base class finds it by this name

    def _list(self, prefix):
        found = sorted(file for file in self.folder.rglob("*") if file.is_file())
        keys = [(str(file.relative_to(self.folder)), file.stat().st_size) for file in found]
        row = (
            "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<ETag>e</ETag><Size>{}</Size></Contents>"
        )
        rows = [row.format(*entry) for entry in keys if entry[0].startswith(prefix)]
        head = "<ListBucketResult><IsTruncated>false</IsTruncated>"
        self._send(200, f"{head}{''.join(rows)}</ListBucketResult>".encode())

    def _send(self, status, body, part=None):
        self.send_response(status)
        if part is not None:
            self.send_header("Content-Range", part)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", "e")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    Answers.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    print(server.server_port, flush=True)  # noqa: T201 - the answer
    server.serve_forever()
