"""What `muster serve` and `muster watch` share: a process that has a store until it is stopped."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import typer

from coordinator.config import Config, ConfigError, folder_mode
from coordinator.display import progress
from coordinator.display.times import format_time
from coordinator.errors.status import LOST, WAITS, Status
from coordinator.extras import require
from coordinator.runtime.metrics import make_stand_by_metrics
from coordinator.runtime.threads_left import leave
from coordinator.storage.record_log import LogError
from coordinator.storage.shards import refuse_shards
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.patience import is_waited_for
from coordinator.storage.tables.store_files import is_remote, root_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from coordinator.http.page_server import PageServer
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.shards.node import Node

LOOK_S = 0.2
HEALTH_S = 0.2
"""How long a probe of health waits for a look at the log, which a store may not answer."""
SWITCH_S = 0.0005
"""How long a thread may keep Python's global lock while others wait. With Python's default, 5 ms,
the thread of the sockets loses that much at each read and write while another thread works."""
GC_THRESHOLDS = 5_000, 4, 1_000
"""For `gc.set_threshold`: with Python's (700, 10, 10), ten thousand joins that wait make it look at
all objects five times, for up to 0.1 s each, without answering meanwhile. The second step of
(10_000, 10, 10) takes 30 to 50 ms, and this one's 10. With 50 in place of 1,000, one request with
100,000 offsets has it look at all of what that request is made of, for 0.16 s. It may be rare:
connections and requests leave no cycles behind, of which there are few that become old."""
T = TypeVar("T")
logger = logging.getLogger("muster.coordinator")


class Stop(threading.Event):
    """That this process must end, and what asks for it: a signal, or an event."""

    asked_by = ""

    def ask(self, number: int, _frame: object) -> None:
        """Take a signal."""
        self.end(signal.Signals(number).name)

    def end(self, by: str) -> None:
        """Let the process end."""
        self.asked_by = self.asked_by or by
        self.set()


@dataclass(frozen=True, slots=True)
class Service(Generic[T]):
    """What a process does with a store.

    Attributes
    ----------
    open
        Returns what has the store; None once a stop was asked for. It may wait for hours.
    start
        Begins to serve with it; what must be closed again goes onto the stack. Returns the
        coordinator and a line for the user.
    look
        Called a few times a second: it may end the service by returning True, or by an error.
    hang_up
        Called after SIGHUP.
    is_ready
        Whether a service that has its store has come so far that others may rely on it.
    registry
        Returns the metrics to show in place of the coordinator's own.
    """

    open: Callable[[Stop], T | None]
    start: Callable[[T, ExitStack], tuple[Coordinator | Node, str]]
    look: Callable[[], bool] = lambda: False
    hang_up: Callable[[], object] = lambda: None
    is_ready: Callable[[], bool] = lambda: True
    registry: Callable[[CollectorRegistry], CollectorRegistry] = lambda own: own

    def run(self, settings: Config, store: str | None) -> None:
        """Stand by until this process has the store, then serve until stopped or fenced.

        Raises
        ------
        ConfigError
            An address is taken.
        LogError
            The store is lost to another process, or failed.
        """
        from prometheus_client import disable_created_metrics  # noqa: PLC0415

        from coordinator.core.events import RecordAudit  # noqa: PLC0415
        from coordinator.http.page_server import PageServer  # noqa: PLC0415

        disable_created_metrics()  # type: ignore[no-untyped-call]  # most series would be there twice
        sys.setswitchinterval(SWITCH_S)
        stop = Stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop.ask)
        hung_up = threading.Event()
        signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
        server = settings.server
        with explain_address("server.http_listen (--http)"):
            pages = PageServer(server) if server.http_listen else None
        if pages is not None and store is not None:
            pages.registry = make_stand_by_metrics()
            pages.status = lambda: WAITS if is_waited_for(store) else Status.STANDS_BY.value
        ready = Ready(self.is_ready)
        opened = self._open(stop, pages)
        if opened is None:
            logger.info("stopped by %s before it had the store", stop.asked_by)
            return
        with ExitStack() as open_now:
            coordinator, says = self.start(opened, open_now)
            gc.collect()
            gc.freeze()  # loaded modules stay: without scanning them, heartbeats cost a fifth less
            gc.set_threshold(*GC_THRESHOLDS)
            if settings.web.listen:
                with explain_address("web.listen (--web)"):
                    shown = open_now.enter_context(coordinator.serve_web())
                if not self.is_ready():
                    ready.prepare = shown.prepare
                typer.echo(f"muster shows the groups at {shown.url}")
            if pages is not None:
                open_now.callback(pages.close)  # wrong logins up to now are in the audit
                pages.registry = self.registry(coordinator.metrics.registry)
                pages.status = lambda: ready.unless_behind(look_at_health(coordinator))
                pages.confirm = lambda: ready.unless_behind(coordinator.confirm_status())
                pages.remark = lambda: _explain_topics(coordinator)
                if server.audit_ms:
                    pages.audit = lambda records: coordinator.submit([RecordAudit(records)])
            typer.echo(says)
            while not stop.wait(LOOK_S):
                if hung_up.is_set():
                    hung_up.clear()
                    self.hang_up()
                if coordinator.status in LOST:
                    raise LogError(_explain_end(coordinator.status, store))
                ready.look()
                if self.look():
                    return
            logger.info("stopped by %s", stop.asked_by)

    def _open(self, stop: Stop, pages: PageServer | None) -> T | None:
        """Wait for the store; without it, nothing is left that listens."""
        opened = None
        try:
            with progress.show("opening the store"):
                opened = self.open(stop)
        finally:
            if opened is None and pages is not None:
                pages.close()
        return opened


class Ready:
    """Whether others may rely on a service, its first page included.

    Parameters
    ----------
    is_ready
        Whether it has come so far.

    Attributes
    ----------
    prepare
        Begins to read what the first page needs; None where pages were opened on all of it.
    """

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self.prepare: Callable[[], Future[None]] | None = None
        self._preparing: Future[None] | None = None

    def look(self) -> None:
        """Have the first page prepared, once what it shows is there."""
        if self.prepare is not None and self._preparing is None and self._is_ready():
            self._preparing = self.prepare()

    def unless_behind(self, status: str) -> str:
        """Return a status, or that what is relied on is still being read."""
        self.look()
        is_shown = self.prepare is None or (self._preparing is not None and self._preparing.done())
        ready = status != Status.ACTIVE.value or (self._is_ready() and is_shown)
        return status if ready else Status.LOADING.value


def open_in_thread(stop: Stop, open_: Callable[[], T]) -> Future[T] | None:
    """Open in a thread, and wait for it; None after a stop.

    Opening may wait for hours and cannot be interrupted, so a stop does not wait for it.
    """
    opening: Future[T] = Future()

    def run() -> None:
        try:
            opening.set_result(open_())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    opens = threading.Thread(target=run, daemon=True)
    opens.start()
    while not opening.done():
        if stop.wait(LOOK_S):
            leave(opens)
            return None
    return opening


def look_at_health(coordinator: Coordinator | Node) -> str:
    """Return what a coordinator says of its health, once it has had a moment to look at its log.

    A process that was stopped may be a zombie that is asked nothing: only the question tells it.
    """
    coordinator.confirm_status(HEALTH_S)
    return coordinator.health


def _explain_topics(coordinator: Coordinator | Node) -> str:
    """Say since when topics cannot be read; not why, which names a cluster or a file."""
    since = coordinator.topics_unread_since
    return "" if since is None else f"topics cannot be read since {format_time(since)}"


def _explain_end(status: str, store: str | None) -> str:
    """Say why this process ends, and what its owner does about it."""
    if status == Status.FENCED.value:
        return f"another coordinator has taken over {store}: restart to stand by"
    if status == Status.BROKEN.value:
        return f"the disk of {store} did not confirm a commit: check the disk, then restart"
    return f"the coordinator of {store} has failed: see its log, then restart"


def with_addresses(config: Config, http: str | None, web: str | None, *, insecure: bool) -> Config:
    """Return settings with the addresses that the command line says instead."""
    server = replace(
        config.server,
        http_listen=http or config.server.http_listen,
        insecure=insecure or config.server.insecure,
    )
    return replace(config, server=server, web=replace(config.web, listen=web or config.web.listen))


def warn_of_readers(path: Path | None, config: Config) -> None:
    """Warn if every user can read the settings, and passwords for a cluster are among them."""
    from coordinator.wire.access import warn_of_readers  # noqa: PLC0415

    named = path or os.environ.get("MUSTER_CONFIG")
    of_clients = (config.topics, config.weights, config.watch, config.gateway)
    names = [name for one in of_clients for name in one.kafka]
    if named and any("password" in name or "secret" in name for name in names):
        warn_of_readers("--config", str(named))


def check_web(config: Config, store: str | None) -> None:
    """Refuse pages that cannot be served, before waiting for the store."""
    require("--web (web.listen)", "web")
    if store is None:
        raise ConfigError("--web (web.listen) shows a store: give --store too")
    from coordinator.web.access import WebAccess  # noqa: PLC0415 - as above

    WebAccess(config, config.web.listen).close()


def check_single_log(store: str | None) -> None:
    """Refuse a store of shards, which `muster serve` alone serves."""
    if store is not None:
        refuse_shards(store, "name another folder: muster serve alone serves shards")


def check_store(store: str | None, config: Config) -> None:
    """Refuse a store folder that cannot be created, before waiting for its lease."""
    if store is None:
        return
    root = root_of(store)
    if is_remote(root):
        return  # its bucket is there or not
    try:
        Filesystem(folder_mode(config.log)).make_folder(root)
    except OSError as error:
        raise ConfigError(
            f"--store {store} cannot be created: {error.strerror}: give a writable folder"
        ) from None


@contextmanager
def explain_address(setting: str) -> Iterator[None]:
    """Name the setting in the error for an address that cannot be bound."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{setting}: {error.strerror}: stop what listens there, or give another address"
        ) from None
