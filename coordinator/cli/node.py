"""`muster node`: be a node of a Kafka cluster; check, join and leave its partitions."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from assignors import SpecError
from coordinator.cli import render
from coordinator.cli.inspect import print_json, wants_json
from coordinator.cli.main import FAILURE, load_config
from coordinator.cli.options import (
    ConfigOption,
    HttpOption,
    InsecureOption,
    JsonOption,
    LogLevelOption,
    WebOption,
    one_of,
)
from coordinator.cli.service import check_web, with_addresses
from coordinator.cli.terminal import Terminal, log_to_stderr
from coordinator.config import KAFKA, Config, ConfigError
from coordinator.config.settings import TelemetryConfig
from coordinator.display import progress
from coordinator.display.printable import visible_values

if TYPE_CHECKING:
    from coordinator.kraft.admin import ClusterAdmin
    from coordinator.kraft.membership import Move
    from coordinator.kraft.metadata_image import MetadataImage
    from coordinator.kraft.node_files import NodeFiles
    from coordinator.member.client_settings import ClientSettings

DONE_S, SYNC_S = 60.0, 600.0
T = TypeVar("T")


class Action(StrEnum):
    """What to do with a node."""

    RUN = "run"
    CHECK = "check"
    JOIN = "join"
    LEAD = "lead"
    YIELD = "yield"
    LEAVE = "leave"


def node(
    action: Annotated[
        Action,
        typer.Argument(
            parser=one_of("the action", Action),
            help="run: be a node, until stopped. check: what is in the way; changes nothing. join: "
            "get partitions. lead: coordinate their groups. yield: let brokers do so. leave: give "
            "them back, and unregister.",
        ),
    ] = Action.RUN,
    cluster: Annotated[
        str | None, typer.Option(help="kafka://host:port,… of some brokers.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="The folder of the store: the node's logs are in it.")
    ] = None,
    node_id: Annotated[
        int | None,
        typer.Option(help="An id that no broker has; later, the store knows it.", min=0),
    ] = None,
    rack: Annotated[str | None, typer.Option(help="A rack that brokers have.")] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="host:port where brokers and clients reach the node, so that it can lead; of "
            "several listeners NAME=host:port,…. Without it, it only follows."
        ),
    ] = None,
    web: WebOption = None,
    http: HttpOption = None,
    insecure: InsecureOption = False,
    partitions: Annotated[
        str | None,
        typer.Option(help="Of __consumer_offsets: 3,7,10-14. yield, leave: all by default."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do what the plan says, without asking.")
    ] = False,
    json_: JsonOption = False,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Be a node of a Kafka cluster that follows or leads partitions of its topic of groups.

    Example: `muster node check --cluster kafka://localhost:9092 --store node1 --node-id 1001`
    """
    if store is None:
        raise ConfigError("--store is missing: name a folder, for the node's ids and logs")
    settings = with_addresses(load_config(config), http, web, insecure=insecure)
    log_to_stderr(log_level or settings.server.log_level, settings.server.log_format)
    asked = _Asked(cluster, store, node_id, rack, settings, is_sure=yes)
    numbers = None if partitions is None else parse_partitions(partitions)
    if action == Action.RUN:
        if settings.web.listen:
            check_web(settings, store)
        _run(asked, listen)
    elif action == Action.CHECK:
        _check(asked, json_=json_)
    elif action == Action.JOIN:
        _join(asked, _needed(numbers, "get"))
    elif action == Action.LEAD:
        _lead(asked, _needed(numbers, "lead"))
    elif action == Action.YIELD:
        _yield(asked, numbers)
    else:
        _leave(asked, numbers)


def _needed(numbers: T | None, purpose: str) -> T:
    if numbers is None:
        raise ConfigError(f"--partitions is missing: name those to {purpose}, such as 3,7")
    return numbers


class _Asked:
    """What every action needs."""

    def __init__(
        self,
        cluster: str | None,
        store: str,
        node_id: int | None,
        rack: str | None,
        settings: Config,
        *,
        is_sure: bool,
    ) -> None:
        from coordinator.kraft.node_files import NodeFiles  # noqa: PLC0415

        self.node_id, self.rack, self.is_sure = node_id, rack, is_sure
        self.cluster, self.store = cluster or "", store
        self.settings = settings
        self.files: NodeFiles = NodeFiles(store)
        self.brokers, self.controllers = read_access(cluster, settings)

    def known_id(self) -> int:
        """Return the id of the node that the store is of."""
        was = self.files.read_state()
        if was is None:
            raise ConfigError(
                f"{self.files.folder} is of no node yet: start `muster node` with that store first"
            )
        if self.node_id not in {None, was.node_id}:
            raise ConfigError(f"--node-id is {self.node_id}, but the store is of {was.node_id}")
        return was.node_id


def read_access(cluster: str | None, settings: Config) -> tuple[ClientSettings, ClientSettings]:
    """Return how brokers and controllers are reached.

    Raises
    ------
    ConfigError
        An address or a setting is invalid.
    """
    from coordinator.member.client_settings import ClientSettings  # noqa: PLC0415

    if cluster is None or not cluster.startswith(KAFKA):
        raise ConfigError(f"--cluster is {cluster!r}: give kafka://host:port")
    ours = settings.node
    brokers = ClientSettings.read(cluster, ours.kafka, "node.kafka", "muster-node")
    same = ours.controllers_kafka or ours.kafka
    name = "node.controllers_kafka" if ours.controllers_kafka else "node.kafka"
    controllers = ClientSettings.read(ours.controllers or cluster, same, name, "muster-node")
    return brokers, controllers if ours.controllers else controllers._replace(servers=[])


def parse_partitions(text: str) -> frozenset[int]:
    """Return the numbers of partitions, such as of 3,7,10-14.

    Raises
    ------
    ConfigError
        It names none, or what is no number.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"--partitions has {part.strip()!r}: give numbers, such as 3,7,10-14")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


# Running -------------------------------------------------------------------------------------


def _run(asked: _Asked, listen: str | None) -> None:
    from coordinator.kraft.node import ClusterNode  # noqa: PLC0415

    settings = asked.settings
    node = ClusterNode(
        asked.brokers,
        asked.controllers,
        asked.files,
        asked.node_id,
        asked.rack,
        settings,
        listen or "",
    )

    async def run() -> str:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        return await node.run(stop)

    def run_with_history() -> str:
        from coordinator.cli import node_service  # noqa: PLC0415
        from coordinator.watcher.watch import open_source  # noqa: PLC0415

        ours = replace(settings.watch, kafka=settings.watch.kafka or settings.node.kafka)
        kept = replace(settings, watch=ours)
        if listen:  # what the node leads is traced as it is decided, not as it is read again
            kept = replace(kept, telemetry=TelemetryConfig())
        return node_service.run_with_history(
            node, _guarded, lambda: open_source(asked.cluster, kept), asked.store, kept
        )

    keeps_history = listen or settings.web.listen or settings.server.http_listen
    with asked.files.held():
        why = run_with_history() if keeps_history else _guarded(run())
        typer.echo(f"muster node: {why}", err=True)


def _guarded(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; what the cluster refuses is bad input."""
    from coordinator.errors import GroupError  # noqa: PLC0415
    from coordinator.kraft.links import RefusedError  # noqa: PLC0415
    from coordinator.kraft.metadata_records import MetadataError  # noqa: PLC0415

    try:
        return asyncio.run(work)
    except (RefusedError, MetadataError, GroupError) as error:
        raise ConfigError(str(error)) from None


# Plans ---------------------------------------------------------------------------------------


def _with_admin(asked: _Asked, work: Callable[[ClusterAdmin], Coroutine[Any, Any, T]]) -> T:
    from coordinator.kraft.admin import ClusterAdmin  # noqa: PLC0415

    async def run() -> T:
        admin = ClusterAdmin(asked.brokers, asked.controllers)
        try:
            return await work(admin)
        finally:
            await admin.close()

    return _guarded(run())


def _check(asked: _Asked, *, json_: bool) -> None:
    from coordinator.kraft.links import RefusedError  # noqa: PLC0415
    from coordinator.kraft.membership import BAD, Finding, check_cluster  # noqa: PLC0415

    was = asked.files.read_state()
    node_id = asked.node_id if was is None else asked.known_id()

    async def check(admin: ClusterAdmin) -> list[Finding]:
        try:
            found = await admin.read()
        except RefusedError as error:
            return [Finding(BAD, "rights", str(error))]
        is_ours = was is not None and was.cluster_id == found.cluster_id
        obstacle = await _find_obstacle(asked, found.image, node_id)
        return check_cluster(
            found.image,
            found.operations,
            node_id,
            asked.rack,
            is_ours=is_ours,
            obstacle=obstacle,
        )

    with progress.show("asking the cluster"):
        findings = _with_admin(asked, check)
    rows = [one._asdict() for one in findings]
    if wants_json(json_):
        print_json(rows)
    else:
        render.print_rows(Terminal(), visible_values(rows))
    if any(one.level == BAD for one in findings):
        raise SystemExit(FAILURE)


async def _find_obstacle(asked: _Asked, image: MetadataImage, node_id: int | None) -> str:
    """Return why a node cannot lead, with these settings; "" where it can."""
    from coordinator.kraft.requests.access import open_access  # noqa: PLC0415

    number = -1 if node_id is None else node_id
    try:
        await open_access(asked.settings, image, number, asked.brokers)
    except ConfigError as error:
        return str(error).removeprefix("--listen: ")
    return ""


def _join(asked: _Asked, partitions: frozenset[int]) -> None:
    from coordinator.kraft.admin import move_replicas  # noqa: PLC0415
    from coordinator.kraft.membership import plan_join  # noqa: PLC0415
    from coordinator.kraft.registration import find_replicas  # noqa: PLC0415

    node_id = asked.known_id()

    def are_in_sync(image: MetadataImage) -> bool:
        held = find_replicas(image, node_id)
        return all(n in held and node_id in held[n].isr for n in partitions)

    async def join(admin: ClusterAdmin) -> None:
        moves = plan_join(await admin.image(), node_id, partitions)
        if not moves:
            typer.echo(f"node {node_id} is a replica of all of them already")
            return
        _ask(asked, moves)
        strays = await move_replicas(admin, asked.files, node_id, moves)
        for one in strays:
            where = ", ".join(map(str, one.after)) if one.after else "nowhere: no broker is free"
            typer.echo(f"{one.topic}-{one.partition} was placed here meanwhile: moved to {where}")
        if await admin.wait_until(are_in_sync, SYNC_S) is None:
            raise SpecError(
                f"not all are in sync after {SYNC_S:.0f} s: the node goes on, `muster node check` "
                "shows which are not"
            )
        typer.echo(f"node {node_id} is in sync in {len(moves)} more partitions")

    _with_admin(asked, join)


def _lead(asked: _Asked, partitions: frozenset[int]) -> None:
    node_id = asked.known_id()
    _order(asked, partitions, lambda leader: leader == node_id, leads=True)
    typer.echo(f"node {node_id} leads {len(partitions)} partitions")


def _yield(asked: _Asked, partitions: frozenset[int] | None) -> None:
    node_id = asked.known_id()
    count = _order(asked, partitions, lambda leader: leader not in {node_id, -1}, leads=False)
    typer.echo(f"brokers lead {count} partitions of node {node_id}")


def _order(
    asked: _Asked, partitions: frozenset[int] | None, are_led: Callable[[int], bool], *, leads: bool
) -> int:
    """Make the node the first or the last replica, and have the first ones elected."""
    from coordinator.kraft.admin import move_replicas  # noqa: PLC0415
    from coordinator.kraft.membership import plan_order  # noqa: PLC0415
    from coordinator.kraft.registration import find_replicas  # noqa: PLC0415

    node_id = asked.known_id()

    async def order(admin: ClusterAdmin) -> int:
        image = await admin.image()
        numbers = find_replicas(image, node_id).keys() if partitions is None else partitions
        moves = plan_order(image, node_id, numbers, leads=leads)
        _ask(asked, moves)
        await move_replicas(
            admin, asked.files, node_id, [one for one in moves if one.before != one.after]
        )
        await admin.elect(numbers)

        def is_done(image: MetadataImage) -> bool:
            held = find_replicas(image, node_id)
            return all(n in held and are_led(held[n].leader) for n in numbers)

        if await admin.wait_until(is_done, DONE_S) is None:
            raise SpecError(f"not all have their new leader after {DONE_S:.0f} s: run this again")
        return len(numbers)

    return _with_admin(asked, order)


def _leave(asked: _Asked, partitions: frozenset[int] | None) -> None:
    from coordinator.kraft.admin import move_replicas  # noqa: PLC0415
    from coordinator.kraft.membership import find_late, plan_leave  # noqa: PLC0415

    node_id = asked.known_id()

    async def leave(admin: ClusterAdmin) -> None:
        moves = plan_leave(await admin.image(), node_id, partitions)
        ends = "" if partitions is not None else f"then node {node_id} is unregistered"
        _ask(asked, moves, ends)
        await move_replicas(admin, asked.files, node_id, moves)
        left = {(one.topic, one.partition) for one in moves}

        def are_back(image: MetadataImage) -> bool:
            return not left & {(topic.name, n) for topic, n in image.held_by(node_id)}

        if await admin.wait_until(are_back, DONE_S) is None:
            late = ", ".join(map(str, find_late(await admin.image(), moves))) or "none"
            raise SpecError(
                f"node {node_id} still has replicas after {DONE_S:.0f} s: controllers take them "
                f"away once all others are in sync (not in sync: {late}). Then run this again"
            )
        if partitions is None:
            await admin.unregister(node_id)
            await admin.wait_until(lambda image: node_id not in image.brokers, DONE_S)
            typer.echo(f"node {node_id} has left: it has no replicas, and is not registered")
        else:
            typer.echo(f"node {node_id} has given back {len(moves)} partitions")

    _with_admin(asked, leave)


def _ask(asked: _Asked, moves: list[Move], ends: str = "") -> None:
    """Show a plan, and ask whether to do it."""
    for one in moves:
        before, after = (",".join(map(str, ids)) for ids in (one.before, one.after))
        typer.echo(f"{one.topic}-{one.partition}: replicas {before} -> {after}")
    if ends:
        typer.echo(ends)
    if asked.is_sure:
        return
    if not sys.stdin.isatty():
        raise ConfigError("nothing was changed: give --yes to do this without a terminal")
    if not typer.confirm("Do this?"):
        raise ConfigError("nothing was changed")
