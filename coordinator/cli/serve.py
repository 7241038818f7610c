"""`muster serve` runs a coordinator for Kafka clients; `muster user` prints a line for a user."""

from __future__ import annotations

import getpass
import json
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.main import load_config
from coordinator.cli.options import (
    AdvertisedOption,
    ConfigOption,
    HttpOption,
    InsecureOption,
    LogLevelOption,
    StoreOrNone,
    TakeoverOption,
    WebOption,
)
from coordinator.cli.processes import check_processes, end_with_parent, run_processes
from coordinator.cli.service import (
    Service,
    Stop,
    check_store,
    check_web,
    explain_address,
    open_in_thread,
    warn_of_readers,
    with_addresses,
)
from coordinator.cli.terminal import log_to_stderr
from coordinator.config import Config, ConfigError
from coordinator.display.printable import as_json
from coordinator.runtime.threads_left import end_process
from coordinator.storage.lease import Takeover
from coordinator.storage.record_log import Unreachable
from coordinator.storage.shards import (
    NEEDS_ONE,
    Shards,
    check_count,
    make_shards,
    read_shards,
    refuse_count,
    refuse_with_shards,
)
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.store_files import MEMORY, root_of
from coordinator.telemetry.collector import find_collector

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.shards.node import Node

# Modules that serve are imported where they are used: other commands would wait for them.

logger = logging.getLogger("muster.coordinator")


def serve(
    store: StoreOrNone = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port to listen on [127.0.0.1:9092].")
    ] = None,
    advertised: AdvertisedOption = None,
    topics: Annotated[
        str | None,
        typer.Option(help="A .toml or .json file, a Delta table, or kafka://bootstrap servers."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="name=partitions; repeat for more topics.")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="Divide a new store permanently into this many shards, for nodes."),
    ] = None,
    node: Annotated[
        int | None, typer.Option(help="The id of this node, unlike the others' [server.node_id].")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Start this many nodes here, with consecutive ids and ports."),
    ] = None,
    takeover: TakeoverOption = Takeover.WAIT,
    http: HttpOption = None,
    push: Annotated[
        list[str] | None,
        typer.Option(help="The URL of a push worker; repeat for more [push.workers]."),
    ] = None,
    web: WebOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Serve groups to Kafka clients, on either group protocol, until SIGTERM or Ctrl-C.

    Example: `muster serve --store store --topic clicks=6 --web 127.0.0.1:8080`
    """
    from coordinator.wire.listener import load_access  # noqa: PLC0415

    settings = load_config(config)
    workers = (*settings.push.workers, *(push or ()))
    settings = replace(
        with_addresses(settings, http, web, insecure=insecure),
        push=replace(settings.push, workers=workers),
    )
    server = replace(
        settings.server,
        listen=listen or settings.server.listen,
        advertised=advertised or settings.server.advertised,
        node_id=settings.server.node_id if node is None else node,
    )
    settings = replace(settings, server=server)
    log_to_stderr(log_level or server.log_level, server.log_format)
    warn_of_readers(config, settings)
    load_access(server, settings.oauth)  # before it takes over the store
    _check_beside(settings, store)
    wanted = _read_topics(topics, topic or [])
    found = _find_shards(store, shards, settings, processes)
    if found is None or store is None:
        _serve(settings, store, wanted, takeover)
    else:
        _serve_shards(settings, store, found, wanted, takeover, processes)
    end_process(0)


def _serve_shards(
    settings: Config,
    store: str,
    shards: Shards,
    topics: dict[str, int] | str | None,
    takeover: Takeover,
    processes: int | None,
) -> None:
    """Be a node of a store of shards, or start several."""
    if takeover != Takeover.WAIT:
        raise ConfigError(f"--takeover {takeover} {NEEDS_ONE.format(store)}")
    refuse_with_shards(settings, store)
    if processes is None:
        end_with_parent()
        _serve_node(settings, store, shards, topics)
    else:
        run_processes(processes, settings, sys.argv[1:])


def _check_beside(settings: Config, store: str | None) -> None:
    """Refuse what cannot be served beside groups, before the store is taken over."""
    find_collector(settings)
    if settings.push.workers:
        from coordinator.push.push import PushAccess  # noqa: PLC0415

        PushAccess(settings.push, insecure=settings.server.insecure)
    if settings.web.listen:
        check_web(settings, store)


def user(
    name: Annotated[str, typer.Argument(help="The name to log in with.")],
    mechanism: Annotated[
        list[str] | None, typer.Option(help="SCRAM-SHA-256 or SCRAM-SHA-512; both by default.")
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="Iterations of the password's hash [server.scram_iterations]."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a user's line for server.sasl_users. Asks for the password, or reads it from stdin.

    Example: `muster user ann`
    """
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
    if json_:  # only if asked for: its line goes into a file of TOML
        typer.echo(as_json({"name": name, "verifiers": verifiers}))
    else:
        typer.echo(f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(verifiers)}")


def _find_shards(
    store: str | None, wanted: int | None, settings: Config, processes: int | None
) -> Shards | None:
    """Return the shards of a store, which is made where they are given; None where it is one."""
    if processes is not None:
        check_processes(processes, settings, store)
    if wanted is not None and wanted != 1:
        check_count(wanted, "--shards")
    check_store(store, settings)
    if store is None:
        if wanted is not None:
            raise ConfigError(f"--shards {wanted} needs a store: give --store too")
        return None
    if wanted is not None and wanted != 1:
        return make_shards(store, wanted, settings)
    try:
        found = read_shards(store)
    except (Unreachable, StoreRefusedError):
        return None  # the claim will wait for it, or say why it cannot
    if wanted is not None:
        refuse_count(store, found, wanted)
    if found is None and processes is not None:
        raise ConfigError(f"--processes {processes} needs a store of shards: give --shards too")
    return found


def _serve_node(
    settings: Config,
    store: str,
    shards: Shards,
    topics: dict[str, int] | str | None,
) -> None:
    """Coordinate the groups of some shards until stopped; others take them over then."""
    from coordinator.shards.node import Node  # noqa: PLC0415

    reload: list[Callable[[], object]] = []

    def start(node: Node, open_now: ExitStack) -> tuple[Node, str]:
        with explain_address("server.listen (--listen)"):
            serving = node.serve()
        open_now.callback(node.close)
        reload.append(serving.reload)
        place = f"node {serving.node.node_id} of store {store}, {shards.count} shards"
        return node, f"muster serves groups at {serving.address} ({place})"

    Service(
        open=lambda _stop: Node(store, shards, settings, topics),
        start=start,
        hang_up=lambda: [one() for one in reload],
    ).run(settings, store)


def _serve(
    settings: Config, store: str | None, topics: dict[str, int] | str | None, takeover: Takeover
) -> None:
    """Stand by until this process has the store, then serve until stopped or fenced."""
    server = settings.server
    reload: list[Callable[[], object]] = []

    def start(opened: tuple[Coordinator, str], open_now: ExitStack) -> tuple[Coordinator, str]:
        coordinator, listen = open_now.enter_context(opened[0]), opened[1]
        with explain_address("server.listen (--listen)"):
            serving = open_now.enter_context(coordinator.serve(listen))
        reload.append(serving.reload)
        if settings.push.workers:
            from coordinator.push.push import Push  # noqa: PLC0415

            open_now.enter_context(Push(coordinator, insecure=server.insecure))
        kept = f"store {store}" if store else "nothing is stored: no --store"
        return coordinator, f"muster serves groups at {serving.address} ({kept})"

    Service(
        open=lambda stop: _open(settings, store, topics, takeover, stop),
        start=start,
        hang_up=lambda: [one() for one in reload],
    ).run(settings, store)


def _open(
    settings: Config,
    store: str | None,
    topics: dict[str, int] | str | None,
    takeover: Takeover,
    stop: Stop,
) -> tuple[Coordinator, str] | None:
    """Return a coordinator that has the store, and the address to listen on; None after a stop.

    Until then answers tell clients who has it.
    """
    from coordinator.runtime.coordinator import Coordinator  # noqa: PLC0415
    from coordinator.wire.stand_by import StandBy  # noqa: PLC0415

    address = settings.server.advertised or settings.server.listen
    with ExitStack() as meanwhile:
        standing = None
        if store is not None and not root_of(store).startswith(f"{MEMORY}:"):
            standing = meanwhile.enter_context(StandBy(store, settings))
        opening = open_in_thread(
            stop,
            lambda: Coordinator.open(
                store, config=settings, topics=topics, takeover=takeover, address=address
            ),
        )
        if opening is None:
            return None
        listen = settings.server.listen
        if standing is not None:
            listen = standing.close(stays=opening.exception() is None)
        return opening.result(), listen


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
