"""The server of the pages, in a thread of its own: no other waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Self

import uvicorn

from coordinator.config import Config
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
from coordinator.wire.listener import bind_socket
from coordinator.wire.refusal_audit import Audit

BACKLOG = 128
END_S = 2
"""How long responses may take to end when the server is closed."""
HEAD_BYTES_MAX = 32_768
KEEP_ALIVE_S = 15
logger = logging.getLogger("muster.web")


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
        self._socket = bind_socket(listen, SETTING)
        self._socket.listen(BACKLOG)  # early connections wait for the thread
        _limit_stalls(self._socket)
        host = listen.rpartition(":")[0]
        scheme = "https" if self._access.tls else "http"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}/"
        self._closed = threading.Event()
        self._loop = asyncio.new_event_loop()
        # Open pages leave a quarter of the connections to those that are opened.
        self._hub = Hub(reader.count_changes, max(1, config.web.connections_max * 3 // 4))
        self._decider = PlanDecider(root_of(store), config.lease)
        site = Site(pages, self._access, self._readers, self._hub, self._decider, status, config)
        self._server = self._make_server(site, config)
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

    def _make_server(self, site: Site, config: Config) -> uvicorn.Server:
        settings = uvicorn.Config(
            make_app(site),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=END_S,
            limit_concurrency=config.web.connections_max,
        )
        settings.load()
        settings.ssl = self._access.tls
        return uvicorn.Server(settings)

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
        await self._server.serve(sockets=[self._socket])
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
