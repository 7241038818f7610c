"""One HTTP request to one worker: bounded in what is read, on a connection of its own.

A request is never sent twice, and a redirect is not followed. The caller says how long it takes.
"""

from __future__ import annotations

import asyncio
import ssl

from coordinator.display.printable import visible
from coordinator.push.address import Address
from coordinator.push.messages import LostError

HEAD_BYTES_MAX = 16_384
OK = 200
SHOWN = 200
"""How much of what a worker says is shown, in characters."""


async def post(
    address: Address,
    name: str,
    body: bytes,
    *,
    token: str,
    tls: ssl.SSLContext | None,
    connect_s: float,
    bytes_max: int,
) -> bytes:
    """Send a request and return the body of its answer.

    Parameters
    ----------
    address
        The worker's.
    name
        What is asked, the last part of the path.
    body
        JSON.
    token
        What the worker knows us by; "" for nothing.
    tls
        For an address with https.
    connect_s
        How long connecting may take, in seconds.
    bytes_max
        How long the body of the answer may be.

    Raises
    ------
    LostError
        The connection failed, or no answer 200 of at most that many bytes came.
    """
    try:
        async with asyncio.timeout(connect_s):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=tls if address.is_tls else None,
                limit=HEAD_BYTES_MAX,
            )
    except (OSError, UnicodeError) as error:
        why = str(error) or "no connection in time"
        raise LostError("unreachable", why) from None
    try:
        writer.write(_head(address, name, len(body), token) + body)
        await writer.drain()
        return await _read_answer(reader, bytes_max)
    except (OSError, EOFError) as error:
        raise LostError("unreachable", f"the connection broke: {error or 'closed'}") from None
    except (asyncio.LimitOverrunError, ValueError) as error:
        raise LostError("wrong answer", f"no HTTP: {error}") from None
    finally:
        writer.transport.abort()


def _head(address: Address, name: str, length: int, token: str) -> bytes:
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"POST {address.path}/{name} HTTP/1.1",
        f"Host: {host}:{address.port}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Connection: close",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def _read_answer(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Return the body of an answer 200; ValueError for what is not HTTP."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, _, rest = head[0].partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise ValueError(f"it begins with {visible(head[0][:SHOWN])!r}")
    fields = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    body = await _read_body(reader, fields, bytes_max)
    if int(status) != OK:
        text = visible(body[:SHOWN].decode("utf-8", "replace"))
        raise LostError("refused", f"status {status}: {text}")
    return body


async def _read_body(reader: asyncio.StreamReader, fields: dict[str, str], bytes_max: int) -> bytes:
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader, bytes_max)
    length = fields.get("content-length")
    if length is not None:
        return await reader.readexactly(_length(length, 10, bytes_max))
    body = bytearray()
    while piece := await reader.read(65_536):
        body += piece
        _check(len(body), bytes_max)
    return bytes(body)


async def _read_chunks(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    body = bytearray()
    while True:
        line = (await reader.readuntil(b"\r\n")).decode("latin-1")
        size = _length(line.partition(";")[0].strip(), 16, bytes_max)
        _check(len(body) + size, bytes_max)
        if size == 0:
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readuntil(b"\r\n")


def _length(text: str, base: int, bytes_max: int) -> int:
    if not text.isascii() or not text.isalnum() or len(text) > 18:  # noqa: PLR2004 - of 64 bits
        raise ValueError(f"a length is {visible(text[:SHOWN])!r}")
    length = int(text, base)
    _check(length, bytes_max)
    return length


def _check(length: int, bytes_max: int) -> None:
    if length > bytes_max:
        raise LostError(
            "wrong answer", f"the answer is longer than push.answer_bytes_max, {bytes_max} bytes"
        )
