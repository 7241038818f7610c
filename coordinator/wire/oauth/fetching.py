"""Asks an authorization server: no answer takes longer than it may, or is longer."""

from __future__ import annotations

import io
import time
from http.client import HTTPResponse
from typing import IO, TYPE_CHECKING, Any
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from coordinator.config.safe_urls import is_safe_url

if TYPE_CHECKING:
    import socket
    from http.client import HTTPMessage

    from _typeshed import WriteableBuffer


def fetch(request: Request, within_s: float, bytes_max: int) -> bytes:
    """Return what a URL answers, as urllib does, but from each step only to where `is_safe_url`.

    Raises
    ------
    OSError
        It cannot be opened, leads elsewhere, takes too long, or answers more than `bytes_max`.
    ValueError, HTTPException
        It is no HTTP.
    """
    until = time.monotonic() + within_s

    class Answer(HTTPResponse):
        def __init__(
            self,
            sock: socket.socket,
            debuglevel: int = 0,
            method: str | None = None,
            url: str | None = None,
        ) -> None:
            super().__init__(sock, debuglevel, method, url)
            self.fp.close()
            self.fp = io.BufferedReader(_ReaderUntil(sock, until))

    def timed(connect: Any) -> Any:  # noqa: ANN401 - urllib's
        def begin(host: str, **settings: Any) -> Any:  # noqa: ANN401 - the same
            connection = connect(host, **settings)
            connection.response_class = Answer
            return connection

        return begin

    class Plain(HTTPHandler):
        def do_open(self, http_class: Any, req: Request, **more: Any) -> HTTPResponse:  # noqa: ANN401
            return super().do_open(timed(http_class), req, **more)

    class Secure(HTTPSHandler):
        def do_open(self, http_class: Any, req: Request, **more: Any) -> HTTPResponse:  # noqa: ANN401
            return super().do_open(timed(http_class), req, **more)

    opener = build_opener(Plain, Secure, _SafeRedirects)
    with opener.open(request, timeout=within_s) as answer:
        text: bytes = answer.read(bytes_max + 1)
    if len(text) > bytes_max:
        raise OSError(f"it has more than {bytes_max} bytes")
    return text


class _ReaderUntil(io.RawIOBase):
    """Reads from a socket until a time: a server that sends a byte at a time gets no more of it."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._socket, self._until = sock, until
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("its answer takes too long")
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        if not is_safe_url(newurl):
            raise OSError(f"it leads to {newurl}, which anyone between could read and change")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
