"""`muster serve` runs a coordinator for Kafka clients; `muster user` prints a line for a user."""

from __future__ import annotations

import gc
import getpass
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator import progress
from coordinator.cli.main import load_config
from coordinator.cli.terminal import log_to_stderr
from coordinator.config import Config, ConfigError, ServerConfig, folder_mode
from coordinator.extras import require
from coordinator.history.log_reader import format_time
from coordinator.runtime.threads_left import end_process, leave
from coordinator.status import LOST, WAITS, Status
from coordinator.storage.record_log import LogError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.patience import is_waited_for
from coordinator.storage.tables.store_files import MEMORY, is_remote, root_of

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator

# Modules that serve are imported where they are used: other commands would wait for them.

logger = logging.getLogger("muster.coordinator")
TAKEOVERS = ("wait", "refuse", "force")
LOOK_S = 0.2
HEALTH_S = 0.2
"""How long a probe of health waits for a look at the log, which a store may not answer."""
SWITCH_S = 0.0005
"""How long a thread may keep Python's global lock while others wait. With Python's default, 5 ms,
the thread of the sockets loses that much at each read and write while another thread works."""
GC_THRESHOLDS = 5_000, 4, 50
"""For `gc.set_threshold`: with Python's (700, 10, 10), ten thousand joins that wait make it look at
all objects five times, for up to 0.1 s each, and nobody is answered meanwhile. It looks at all as
rarely as with (10_000, 10, 10), whose second step takes 30 to 50 ms, and this one's 10."""


def serve(
    store: Annotated[
        str | None,
        typer.Option(help="The folder of the store, or its URL; without it, nothing is stored."),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port to listen on [127.0.0.1:9092].")
    ] = None,
    advertised: Annotated[
        str | None, typer.Option(help="host:port for clients, if different from --listen.")
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(help="A .toml or .json file, a Delta table, or kafka://bootstrap servers."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="name=partitions; repeat for more topics.")
    ] = None,
    takeover: Annotated[
        str, typer.Option(help="If another coordinator has the store: wait, refuse or force.")
    ] = "wait",
    http: Annotated[
        str | None, typer.Option(help="host:port of /metrics, /healthz and /readyz.")
    ] = None,
    push: Annotated[
        list[str] | None,
        typer.Option(help="The URL of a push worker; repeat for more [push.workers]."),
    ] = None,
    web: Annotated[str | None, typer.Option(help="host:port of web pages [web.listen].")] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow other addresses than loopback without TLS and login."
        ),
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            help="The lowest level to log: debug, info, warning or error [server.log_level]."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings, see conf/muster.toml.")] = None,
) -> None:
    """Serve groups to Kafka clients, on either group protocol, until SIGTERM or Ctrl-C."""
    from coordinator.wire.listener import load_access  # noqa: PLC0415

    if takeover not in TAKEOVERS:
        raise ConfigError(f"--takeover is {takeover!r}: give one of {', '.join(TAKEOVERS)}")
    settings = load_config(config)
    workers = (*settings.push.workers, *(push or ()))
    settings = replace(
        settings,
        server=_server_of(settings.server, listen, advertised, http, insecure=insecure),
        push=replace(settings.push, workers=workers),
        web=replace(settings.web, listen=web or settings.web.listen),
    )
    server = settings.server
    log_to_stderr(log_level or server.log_level)
    _warn_of_readers(config, settings)
    load_access(server)  # before it takes over the store
    if workers:
        from coordinator.push.push import PushAccess  # noqa: PLC0415

        PushAccess(settings.push, insecure=server.insecure)
    if settings.web.listen:
        _check_web(settings, store)
    _check_store(store, settings)
    _serve(settings, store, _read_topics(topics, topic or []), takeover)
    end_process(0)


def _server_of(
    server: ServerConfig,
    listen: str | None,
    advertised: str | None,
    http: str | None,
    *,
    insecure: bool,
) -> ServerConfig:
    """Return the settings of a server with what the command line says instead."""
    return replace(
        server,
        listen=listen or server.listen,
        advertised=advertised or server.advertised,
        http_listen=http or server.http_listen,
        insecure=insecure or server.insecure,
    )


def user(
    name: Annotated[str, typer.Argument(help="The name to log in with.")],
    mechanism: Annotated[
        list[str] | None, typer.Option(help="SCRAM-SHA-256 or SCRAM-SHA-512; both by default.")
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="Iterations of the password's hash [server.scram_iterations]."),
    ] = None,
) -> None:
    """Print a user's line for server.sasl_users. Asks for the password, or reads it from stdin."""
    from coordinator.wire.sasl import HASHES, Verifier, check_iterations  # noqa: PLC0415

    if iterations is None:
        iterations = load_config(None).server.scram_iterations
    check_iterations(iterations, "--iterations (server.scram_iterations)")
    wanted = mechanism or list(HASHES)
    for one in wanted:
        if one not in HASHES:
            raise ConfigError(f"--mechanism is {one!r}: give {' or '.join(HASHES)}")
    asked = getpass.getpass if sys.stdin.isatty() else lambda _: sys.stdin.readline().rstrip("\n")
    password = asked("Password: ")
    if not password:
        raise ConfigError("the password is empty: give one")
    verifiers = [str(Verifier.of(one, password, iterations=iterations)) for one in wanted]
    typer.echo(f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(verifiers)}")


def _serve(
    settings: Config, store: str | None, topics: dict[str, int] | str | None, takeover: str
) -> None:
    """Stand by until this process has the store, then serve until stopped or fenced."""
    from prometheus_client import disable_created_metrics  # noqa: PLC0415

    from coordinator.core.events import RecordAudit  # noqa: PLC0415
    from coordinator.http.page_server import PageServer  # noqa: PLC0415

    disable_created_metrics()  # type: ignore[no-untyped-call]  # most series would be there twice
    sys.setswitchinterval(SWITCH_S)
    stop = _Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    hung_up = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
    server = settings.server
    with _explain_address("server.http_listen (--http)"):
        pages = PageServer(server) if server.http_listen else None
    if pages is not None and store is not None:
        pages.status = lambda: WAITS if is_waited_for(store) else Status.STANDS_BY.value
    with progress.show("opening the store"):
        opened = _open(settings, store, topics, takeover, stop)
    if opened is None:
        logger.info("stopped by %s before it had the store", stop.asked_by)
        return
    with ExitStack() as open_now:
        coordinator, listen = open_now.enter_context(opened[0]), opened[1]
        gc.collect()
        gc.freeze()  # loaded modules stay: without scanning them, heartbeats cost a fifth less
        gc.set_threshold(*GC_THRESHOLDS)
        with _explain_address("server.listen (--listen)"):
            serving = open_now.enter_context(coordinator.serve(listen))
        if settings.push.workers:
            from coordinator.push.push import Push  # noqa: PLC0415

            open_now.enter_context(Push(coordinator, insecure=server.insecure))
        if settings.web.listen:
            with _explain_address("web.listen (--web)"):
                shown = open_now.enter_context(coordinator.serve_web())
            typer.echo(f"muster shows the groups at {shown.url}")
        if pages is not None:
            open_now.callback(pages.close)  # wrong logins up to now are in the audit
            pages.registry = coordinator.metrics.registry
            pages.status = lambda: look_at_health(coordinator)
            pages.confirm = coordinator.confirm_status
            pages.remark = lambda: _explain_topics(coordinator)
            if server.audit_ms:
                pages.audit = lambda records: coordinator.submit([RecordAudit(records)])
        kept = f"store {store}" if store else "nothing is stored: no --store"
        typer.echo(f"muster serves groups at {serving.address} ({kept})")
        while not stop.wait(LOOK_S):
            if hung_up.is_set():
                hung_up.clear()
                serving.reload()
            if coordinator.status in LOST:
                raise LogError(_explain_end(coordinator.status, store))
        logger.info("stopped by %s", stop.asked_by)


def look_at_health(coordinator: Coordinator) -> str:
    """Return what a coordinator says of its health, once it has had a moment to look at its log.

    A process that was stopped may be a zombie that is asked nothing: only the question tells it.
    """
    coordinator.confirm_status(HEALTH_S)
    return coordinator.health


class _Stop(threading.Event):
    """That this process is to end, and the signal that asks for it."""

    asked_by = ""

    def ask(self, number: int, _frame: object) -> None:
        """Take a signal."""
        self.asked_by = self.asked_by or signal.Signals(number).name
        self.set()


def _explain_topics(coordinator: Coordinator) -> str:
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


def _open(
    settings: Config,
    store: str | None,
    topics: dict[str, int] | str | None,
    takeover: str,
    stop: threading.Event,
) -> tuple[Coordinator, str] | None:
    """Return a coordinator that has the store, and the address to listen on; None after a stop.

    Until then clients are told who has it.
    """
    from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415
    from coordinator.wire.stand_by import StandBy  # noqa: PLC0415

    opening: Future[Coordinator] = Future()
    server = settings.server

    def open_store() -> None:
        address = server.advertised or server.listen
        try:
            opening.set_result(
                Coordinator.open(
                    store, config=settings, topics=topics, takeover=takeover, address=address
                )
            )
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    with ExitStack() as meanwhile:
        standing = None
        if store is not None and not root_of(store).startswith(f"{MEMORY}:"):
            standing = meanwhile.enter_context(StandBy(store, settings))
        # Opening may wait for hours and cannot be interrupted, so a stop does not wait for it.
        opens = threading.Thread(target=open_store, daemon=True)
        opens.start()
        while not opening.done():
            if stop.wait(LOOK_S):
                leave(opens)
                return None
        listen = server.listen
        if standing is not None:
            listen = standing.close(stays=opening.exception() is None)
        return opening.result(), listen


def _warn_of_readers(path: Path | None, config: Config) -> None:
    """Warn if every user can read the settings, and passwords for a cluster are among them."""
    from coordinator.wire.access import warn_of_readers  # noqa: PLC0415

    named = path or os.environ.get("MUSTER_CONFIG")
    names = (*config.topics.kafka, *config.weights.kafka)
    if named and any("password" in name or "secret" in name for name in names):
        warn_of_readers("--config", str(named))


def _check_web(config: Config, store: str | None) -> None:
    """Refuse pages that cannot be served, before waiting for the store."""
    require("--web (web.listen)", "web")
    if store is None:
        raise ConfigError("--web (web.listen) shows a store: give --store too")
    from coordinator.web.access import WebAccess  # noqa: PLC0415 - as above

    WebAccess(config, config.web.listen).close()


def _check_store(store: str | None, config: Config) -> None:
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
def _explain_address(setting: str) -> Iterator[None]:
    """Name the setting in the error for an address that cannot be bound."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{setting}: {error.strerror}: stop what listens there, or give another address"
        ) from None


def _read_topics(source: str | None, single: list[str]) -> dict[str, int] | str | None:
    """Return the topics or their source, or None to use the source in the settings."""
    if source and single:
        raise ConfigError(
            f"--topics {source} and --topic {single[0]} exclude each other: give one of them"
        )
    return dict(_parse_topic(text) for text in single) if single else source


def _parse_topic(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not equals or not name or not (count.isascii() and count.isdigit()):
        raise ConfigError(f"--topic is {text!r}: give name=partitions, as in clicks=12")
    return name, int(count)
