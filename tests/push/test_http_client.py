"""What a worker may answer, byte by byte: right, in pieces, and hostile."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.config import ConfigError
from coordinator.push.address import parse_url, parse_urls
from coordinator.push.http_client import post
from coordinator.push.messages import LostError

OK = b"HTTP/1.1 200 OK\r\n"


def ask(answer, *, hold=False, bytes_max=100, patience_s=10.0, seen=None):
    """What `post` returns of a server that answers with these pieces, then closes or holds."""

    async def main():
        over = asyncio.Event()

        async def serve(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(2)
            if seen is not None:
                seen.append(head + body)
            for piece in answer:
                writer.write(piece)
                await asyncio.sleep(0)
            if hold:
                await over.wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with asyncio.timeout(patience_s):
                return await post(
                    parse_url(f"http://127.0.0.1:{port}/w/"), "ping", b"{}",
                    token="t", tls=None, connect_s=1, bytes_max=bytes_max,
                )  # fmt: skip
        finally:
            over.set()
            server.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        [OK + b"Content-Length: 5\r\n\r\nhello"],
        [OK + b"Content-Length: 5\r\n\r\nhello and more"],
        [OK + b"\r\nhello"],
        [b"HTTP/1.0 200\r\n\r\nhello"],
        [OK, b"content-length:", b" 5\r\n", b"\r\nhe", b"llo"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"],
    ],
)
def test_an_answer_in_any_form_of_http(answer):
    seen = []
    assert ask(answer, seen=seen) == b"hello"
    assert seen[0].startswith(b"POST /w/ping HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer t\r\n" in seen[0]


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        ([], "unreachable", "the connection broke"),
        ([OK + b"Content-Length: 5\r\n\r\nhel"], "unreachable", "the connection broke"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "wrong answer", "no HTTP"),
        ([b"HTTP/1.1 abc\r\n\r\n"], "wrong answer", "no HTTP"),
        ([OK + b"x" * 70_000], "wrong answer", "no HTTP"),
        ([OK + b"Content-Length: 101\r\n\r\n"], "wrong answer", "answer_bytes_max, 100 bytes"),
        ([OK + b"Content-Length: -1\r\n\r\n"], "wrong answer", "a length is '-1'"),
        ([OK + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n"], "wrong answer", "a length is"),
        ([OK + b"\r\n" + b"x" * 101], "wrong answer", "answer_bytes_max"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n65\r\n"], "wrong answer", "answer_bytes_max"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], "wrong answer", "no HTTP"),
        ([b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n"], "refused", "302"),
        ([b"HTTP/1.1 409 No\r\n\r\n\x1b[31mred"], "refused", "status 409"),
    ],
)  # fmt: skip
def test_anything_else_is_a_lost_worker(answer, reason, says):
    with pytest.raises(LostError, match=says) as caught:
        ask(answer)
    assert caught.value.reason == reason
    assert "\x1b" not in str(caught.value)


def test_an_answer_that_never_ends_is_left_in_time():
    with pytest.raises(TimeoutError):
        ask([OK, b"X: "], hold=True, patience_s=0.1)


def test_nothing_listens():
    async def main():
        await post(
            parse_url("http://127.0.0.1:1"), "ping", b"{}",
            token="", tls=None, connect_s=1, bytes_max=1,
        )  # fmt: skip

    with pytest.raises(LostError) as caught:
        asyncio.run(main())
    assert caught.value.reason == "unreachable"


@pytest.mark.parametrize(
    "url",
    [
        "", "worker", "worker:8081", "ftp://worker", "http://", "http://a b", "http://w:99999",
        "http://user@w", "http://w?x=1", "http://w#x", "http://w\r\nX: y", "http://w:x", "http://ü",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match=r"push\.workers"):
        parse_url(url)


def test_an_address_stands_once():
    assert parse_url("https://w/a/b/")[1:] == (True, "w", 443, "/a/b")
    assert parse_url("http://[::1]:81").is_local
    assert not parse_url("http://worker").is_local
    with pytest.raises(ConfigError, match="twice"):
        parse_urls(("http://w", "http://w:80/"))
