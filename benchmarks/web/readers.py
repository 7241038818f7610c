"""Browsers that keep pages open: `python -m benchmarks.web.readers URL PATH COUNT`.

In a process of their own: in the coordinator's they would take Python's lock from it.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit


async def main(url: str, path: str, count: int) -> None:
    """Open pages, say that they are open, and read what comes until the server ends."""
    at = urlsplit(url)
    opened = [await asyncio.open_connection(at.hostname, at.port) for _ in range(count)]
    for reader, writer in opened:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode())
        status = await reader.readline()
        assert status.split()[1] == b"200", status
    print("open", flush=True)
    await asyncio.gather(*(_read(reader) for reader, _ in opened))


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
