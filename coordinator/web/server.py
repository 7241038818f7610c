"""The server of the pages, in a thread of its own: no other waits for it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Self, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.config import Config, ServerConfig
from coordinator.errors import GroupError
from coordinator.history.findings.limits import MINUTE_MS
from coordinator.storage.tables.store_files import root_of
from coordinator.web.access import SETTING, Viewer, WebAccess
from coordinator.web.app import READERS, make_app
from coordinator.web.guard import Site
from coordinator.web.live import STALL_S, Hub
from coordinator.web.pages import Pages
from coordinator.web.plan_decider import PlanDecider
from coordinator.web.rendering import compile_templates
from coordinator.web.shards_reader import open_reader
from coordinator.web.weights import name_weights
from coordinator.wire.acceptor import (
    Acceptor,
    ConnectionSlot,
    NoCounts,
    limit_connections,
    raise_files_limit,
)
from coordinator.wire.listener import bind_socket
from coordinator.wire.refusal_audit import Audit

BACKLOG = 128
END_S = 2
"""How long responses may take to end when the server is closed."""
HEAD_BYTES_MAX = 32_768
REQUEST_S = 15.0
FILES_SHARE = 4
"""One file descriptor of so many may be a browser's: the others are the coordinator's."""
logger = logging.getLogger("muster.web")
client_logger = logging.getLogger("muster.web.clients")
client_logger.setLevel(logging.ERROR)  # what any client can cause is not worth a line each


class WebServer:
    """Serves the pages of a store until it is closed; a context manager.

    Parameters
    ----------
    store
        The folder of the store.
    config
        The settings: [web], and of [server] the logins, access lists and certificate.
    listen
        host:port; port 0 takes any that is free. None takes the setting.
    audit
        Takes the records of wrong logins; without it only the process's log has them.
    status
        Returns the status of the coordinator of this process, for which the pages are.
    request_s
        How long a connection may have no request: before its first one, and after each answer.

    Attributes
    ----------
    url
        Where the pages are.

    Raises
    ------
    ConfigError
        A file cannot be used, or the address is not safe to open.
    SpecError
        The store is missing.
    OSError
        The address is taken.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        config: Config | None = None,
        listen: str | None = None,
        audit: Audit | None = None,
        status: Callable[[], str] = str,
        *,
        request_s: float = REQUEST_S,
    ) -> None:
        config = config or Config()
        listen = listen or config.web.listen
        self._access = WebAccess(config, listen)
        reader = open_reader(store, config)
        name = os.path.basename(root_of(store))
        kept_ms = config.kafka.offsets_retention_minutes * MINUTE_MS
        weight = name_weights(config.weights)
        pages = Pages(reader, name, weight=weight, retention_ms=kept_ms)
        self._readers = ThreadPoolExecutor(READERS, "muster-web-read")
        files = raise_files_limit()
        most = limit_connections(
            "web.connections_max", config.web.connections_max, files, files // FILES_SHARE
        )
        self._socket = bind_socket(listen, SETTING)
        self._socket.listen(BACKLOG)  # early connections wait for the thread
        _limit_stalls(self._socket)
        host = listen.rpartition(":")[0]
        scheme = "https" if self._access.tls else "http"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}/"
        self._closed = threading.Event()
        self._loop = asyncio.new_event_loop()
        # Open pages leave a quarter of the connections to those that are opened.
        self._hub = Hub(reader.count_changes, max(1, most * 3 // 4))
        self._decider = PlanDecider(root_of(store), config.lease)
        site = Site(pages, self._access, self._readers, self._hub, self._decider, status, config)
        self._server = self._make_server(site, config.server, most, request_s)
        self._reread_s = config.server.reread_ms / 1000
        self._audit, self._audit_s = audit, config.server.audit_ms / 1000
        self._pages = pages
        self.prepare()
        self._thread = threading.Thread(target=self._run, name="muster-web", daemon=True)
        self._thread.start()
        if self._reread_s:
            threading.Thread(target=self._reread, name="muster-web-access", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def prepare(self) -> Future[None]:
        """Prepare what the first page needs, before the first request."""
        viewer = Viewer("", "", logged_in=False, access=self._access)
        return self._readers.submit(_warm, self._pages, viewer)

    def close(self) -> None:
        """Close all connections, and stop; may be called twice."""
        self._closed.set()
        self._decider.close()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._hub.end)
        self._server.should_exit = True
        self._thread.join()
        self._write_audit()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._access.close()

    def _make_server(
        self, site: Site, config: ServerConfig, connections_max: int, request_s: float
    ) -> BrowserServer:
        settings = uvicorn.Config(
            make_app(site),
            http=H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=math.ceil(request_s),
            timeout_graceful_shutdown=END_S,
            limit_concurrency=connections_max,
        )
        # Those in a TLS handshake among them.
        limits = replace(config, connections_max=2 * connections_max, connections_per_address_max=0)
        return BrowserServer(settings, self._socket, limits, lambda: self._access.tls, request_s)

    def _reread(self) -> None:
        while not self._closed.wait(self._reread_s):
            try:
                self._access.reload()
            except Exception:
                logger.exception("reload failed: TLS, users and access lists stay as they were")

    def _write_audit(self) -> None:
        """Write the wrong logins, in the thread that notes them, or after its end."""
        records = self._access.logins.take()
        if records and self._audit is not None and self._audit_s:
            with suppress(GroupError):  # of a fork
                self._audit(records)

    async def _serve(self) -> None:
        async def write_audit() -> None:
            while True:
                await asyncio.sleep(self._audit_s)
                self._write_audit()

        writing = asyncio.create_task(write_audit()) if self._audit_s else None
        await self._server.serve()
        if writing is not None:
            writing.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception:
            logger.exception("the pages end")
        finally:
            self._socket.close()


class BrowserServer(uvicorn.Server):
    """Serves connections as long as there is room, and file descriptors that no other needs.

    Parameters
    ----------
    limits
        How many connections are accepted, and how long a TLS handshake may take.
    request_s
        How long a connection may have no request.

    Attributes
    ----------
    waiting
        The connections without a request, by when that began.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sock: socket.socket,
        limits: ServerConfig,
        tls: Callable[[], ssl.SSLContext | None],
        request_s: float,
    ) -> None:
        super().__init__(config)
        self.request_s = request_s
        self.waiting: dict[BrowserConnection, None] = {}
        self._socket, self._limits, self._tls = sock, limits, tls
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets or [])
        self._acceptor = Acceptor(
            self._socket,
            self._tls,
            self._limits,
            NoCounts(),
            lambda slot: BrowserConnection(self, slot),
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end what there is."""
        if self._acceptor is not None:
            self._acceptor.close()
        await super().shutdown(sockets)

    def make_room(self) -> None:
        """End the oldest connection without a request where there are as many as there may be."""
        if len(self.waiting) > 1 and len(self.server_state.connections) >= (
            self.config.limit_concurrency or 0
        ):
            next(iter(self.waiting)).end()


class BrowserConnection(H11Protocol):
    """One connection of a browser, which ends where no request comes in time."""

    def __init__(self, server: BrowserServer, slot: ConnectionSlot) -> None:
        super().__init__(server.config, server.server_state, {}, asyncio.get_running_loop())
        self.logger = client_logger
        self._server = server
        self._slot = slot
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._slot.taken = True
        super().connection_made(cast("asyncio.Transport", transport))
        self._wait()
        self._server.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._stop_waiting()
        self._slot.release()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there."""
        super().on_response_complete()
        if not self._is_answering():
            self._wait()

    def end(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._server.waiting[self] = None
        self._timer = self.loop.call_later(self._server.request_s, self.transport.close)

    def _stop_waiting(self) -> None:
        self._server.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _limit_stalls(listening: socket.socket) -> None:
    """Have the system end connections whose peer takes nothing, with what is still to be sent.

    Closing one waits until all was sent, which never ends if the peer does not read.
    """
    with suppress(AttributeError, OSError):  # not every system has it
        limit_ms = int((STALL_S + END_S) * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)


def _warm(pages: Pages, viewer: Viewer) -> None:
    """Read what the first page needs; see `WebServer.prepare`."""
    try:
        compile_templates()
        pages.groups({}, viewer)
    except Exception as error:  # noqa: BLE001 - the request for a page will say it
        logger.warning("the first page is not prepared: %s", error)
