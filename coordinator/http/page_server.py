"""Serve /metrics for Prometheus, and /healthz and /readyz for probes.

Health pages return one word, to anyone; /readyz adds a line if topics cannot be read. Metrics
name groups, so beyond this machine they need a login. One thread reads all requests, so a slow
client costs a socket for some seconds, but no thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from coordinator.config import ServerConfig
from coordinator.errors.status import LOST, STUCK, Status
from coordinator.http.metrics_access import Page, PageAccess, text_page
from coordinator.wire.acceptor import Acceptor, ConnectionSlot, NoCounts, network_of
from coordinator.wire.acls import normalize_host
from coordinator.wire.listener import bind_socket
from coordinator.wire.refusal_audit import Audit

PATHS = ("/metrics", "/healthz", "/readyz")
CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX = 50, 10
"""For one more the oldest ends, so that who says nothing keeps out no probe; an address ends its
own."""
ACCEPTED_MAX = 2 * CONNECTIONS_MAX
"""Those in a TLS handshake among them."""
HEAD_BYTES_MAX = 8_192
CONNECTION_S = 10.0
"""How long a connection may last, from accepting it to the end of the response."""
HEAD_S = 3.0
"""How long a client may take to send its request."""
logger = logging.getLogger("muster.wire")


class PageServer:
    """The HTTP server of the pages, in a thread of its own.

    Parameters
    ----------
    head_s
        How long a client may take to send its request.

    Attributes
    ----------
    status
        Returns what the coordinator says of its health. /healthz fails if it must be restarted:
        it no longer answers, or has been stuck for as long as a lease lives.
    confirm
        Checks the log and returns the coordinator's status. /readyz succeeds if it is active. None
        without a coordinator.
    remark
        Returns what /readyz says beside the status; "" for nothing.
    registry
        The metrics: the coordinator's, or those of a stand-by; None where there are none.
    audit
        Takes the records of wrong logins.
    address
        The host and port of the pages.

    Raises
    ------
    ConfigError
        An address or a file cannot be used.
    OSError
        The address is in use.
    """

    def __init__(self, config: ServerConfig, *, head_s: float = HEAD_S) -> None:
        self.status: Callable[[], str] = lambda: Status.STANDS_BY.value
        self.confirm: Callable[[], str] | None = None
        self.remark: Callable[[], str] = lambda: ""
        self.registry: CollectorRegistry | None = None
        self.audit: Audit = lambda _records: None
        access = PageAccess(config)
        sock = bind_socket(config.http_listen, "server.http_listen")
        host, _, _ = config.http_listen.rpartition(":")
        self.address = f"{host}:{sock.getsockname()[1]}"
        self._access = access
        self._head_s = head_s
        self._limits = replace(
            config,
            connections_max=ACCEPTED_MAX,
            connections_per_address_max=0,
        )
        self._stop: Callable[[], object] = lambda: None
        begun: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(sock, begun)), name="muster-http", daemon=True
        )
        self._thread.start()
        begun.result()

    async def _serve(self, sock: socket.socket, begun: Future[None]) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        connections: dict[PageConnection, None] = {}
        # Each page has a thread: metrics take a while, and readiness waits for the coordinator.
        pools = {path: ThreadPoolExecutor(1, f"muster{path}") for path in (*PATHS, "")}

        def answer(path: str, login: str, host: str, name: str) -> asyncio.Future[Page]:
            pool = pools.get(path, pools[""])
            return loop.run_in_executor(pool, self.page, path, login, host, name)

        acceptor = Acceptor(
            sock,
            lambda: self._access.tls,
            self._limits,
            NoCounts(),
            lambda slot: PageConnection(slot, connections, answer, self._head_s),
        )
        self._stop = lambda: loop.call_soon_threadsafe(end.set) if loop.is_running() else None
        begun.set_result(None)
        every_s = self._limits.audit_ms / 1000 or None
        while not end.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(end.wait(), every_s)
            await loop.run_in_executor(pools["/metrics"], self._write_audit)
        acceptor.close()
        for connection in list(connections):
            connection.end()
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.sleep(0)

    def page(self, path: str, login: str = "", host: str = "", name: str = "") -> Page:
        """Return a page; login, host and name are those of `PageAccess.refuse`.

        Anyone may ask for health, under any name: a kubelet asks the address of its pod.
        """
        status = (self.confirm if path == "/readyz" and self.confirm else self.status)()
        if path == "/metrics":
            refused = self._access.refuse(login, host, name)
            if refused is not None:
                return refused
            if self.registry is not None:
                return Page(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self.registry))
        if path in {"/metrics", "/readyz"}:
            fine = status == Status.ACTIVE.value
            remark = self.remark() if path == "/readyz" else ""
            return _status_page(f"{status}\n{remark}" if remark else status, fine=fine)
        if path == "/healthz":
            return _status_page(status, fine=status not in {*LOST, STUCK})
        return text_page(HTTPStatus.NOT_FOUND, f"page not found: the pages are {', '.join(PATHS)}")

    def _write_audit(self) -> None:
        """Write the wrong logins, in the thread that notes them."""
        try:
            if records := self._access.logins.take():
                self.audit(records)
        except Exception:
            logger.exception("wrong logins are not in the audit")

    def close(self) -> None:
        """Stop."""
        self._stop()
        self._thread.join()


class PageConnection(asyncio.Protocol):
    """One connection: one request, one answer.

    Attributes
    ----------
    network
        Whose it is, as connections are counted.
    """

    def __init__(
        self,
        slot: ConnectionSlot,
        connections: dict[PageConnection, None],
        answer: Callable[[str, str, str, str], asyncio.Future[Page]],
        head_s: float,
    ) -> None:
        self._slot = slot
        self.network = network_of(slot.address)
        self._connections = connections
        self._page = answer
        self._head_s = head_s
        self._asked = bytearray()
        self._answering = False
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._slot.taken = True
        self._transport = cast("asyncio.Transport", transport)
        self._make_room()
        self._connections[self] = None
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(self._head_s, self._end_if_silent),
            loop.call_later(CONNECTION_S, self.end),
        ]

    def data_received(self, data: bytes) -> None:
        """Read the head of a request, and ignore the rest."""
        if self._answering:
            return
        self._asked += data
        if b"\r\n\r\n" in self._asked or b"\n\n" in self._asked:
            self._answer()
        elif len(self._asked) > HEAD_BYTES_MAX:
            self._send(text_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers"))

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._transport = None
        self._connections.pop(self, None)
        self._slot.release()
        for timer in self._timers:
            timer.cancel()

    def _make_room(self) -> None:
        """End the oldest connection where there are as many as there may be."""
        ours = [one for one in self._connections if one.network == self.network]
        if len(ours) >= CONNECTIONS_PER_ADDRESS_MAX:
            ours[0].end()
        elif len(self._connections) >= CONNECTIONS_MAX:
            next(iter(self._connections)).end()

    def end(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _end_if_silent(self) -> None:
        if not self._answering:
            self.end()

    def _answer(self) -> None:
        lines = self._asked.decode("latin-1").split("\n")
        method, _, target = lines[0].strip().partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        if not target:
            self._send(text_page(HTTPStatus.BAD_REQUEST, "no HTTP"))
        elif method not in {"GET", "HEAD"}:
            self._send(text_page(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD"))
        else:
            self._answering = True
            login, name = (_find_header(lines[1:], one) for one in ("authorization", "host"))
            found = self._page(path, login, normalize_host(self._slot.address), name)
            found.add_done_callback(
                lambda done: self._finish_answer(done, head_only=method == "HEAD")
            )

    def _finish_answer(self, done: asyncio.Future[Page], *, head_only: bool) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            logger.error("no page", exc_info=error)
            self._send(
                text_page(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed: see the process's log"
                )
            )
        else:
            self._send(done.result(), head_only=head_only)

    def _send(self, page: Page, *, head_only: bool = False) -> None:
        self._answering = True
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {page.code} {page.code.phrase}\r\nContent-Type: {page.kind}\r\n"
            f"Content-Length: {len(page.body)}\r\nConnection: close\r\n{page.head}\r\n"
        )
        self._transport.write(head.encode() + (b"" if head_only else page.body))
        self._transport.close()


def _find_header(lines: list[str], wanted: str) -> str:
    """Return the value of a header, or ""."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""


def _status_page(text: str, *, fine: bool) -> Page:
    return text_page(HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE, text)
