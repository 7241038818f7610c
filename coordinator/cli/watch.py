"""`muster watch`: the groups of a Kafka cluster, in a store of Muster's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator.cli.main import load_config
from coordinator.cli.options import (
    ConfigOption,
    HttpOption,
    InsecureOption,
    LogLevelOption,
    TakeoverOption,
    WebOption,
    choice,
)
from coordinator.cli.service import (
    Service,
    Stop,
    check_single_log,
    check_store,
    check_web,
    open_in_thread,
    warn_of_readers,
    with_addresses,
)
from coordinator.cli.terminal import log_to_stderr
from coordinator.config import KAFKA, Config, ConfigError
from coordinator.display.times import format_time
from coordinator.runtime.threads_left import end_process
from coordinator.storage.lease import Takeover
from coordinator.watcher.follow_by import FollowBy

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.watcher.source import Source
    from coordinator.watcher.watch import Watch


def watch(
    cluster: Annotated[
        str | None, typer.Argument(help="kafka://host:port,… of some brokers.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="The folder of the store, or its URL; not a coordinator's store."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(help="A dump of __consumer_offsets, instead of a cluster (guide: watch)."),
    ] = None,
    by: Annotated[
        FollowBy,
        choice(
            "--by",
            FollowBy,
            "How: topic reads __consumer_offsets, describe asks every few seconds, where that "
            "topic may not be read [watch.poll_ms].",
        ),
    ] = FollowBy.TOPIC,
    compacted: Annotated[
        bool,
        typer.Option(
            "--compacted", help="The dump is of a compacted topic: a state, not a history."
        ),
    ] = False,
    web: WebOption = None,
    http: HttpOption = None,
    takeover: TakeoverOption = Takeover.WAIT,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Watch the groups of a Kafka cluster: who owns what, since when, and why. Changes nothing.

    Example: `muster watch kafka://localhost:9092 --store watched`
    """
    if store is None:
        raise ConfigError("--store is missing: name a folder, or the URL of a bucket's folder")
    settings = with_addresses(load_config(config), http, web, insecure=insecure)
    log_to_stderr(log_level or settings.server.log_level, settings.server.log_format)
    warn_of_readers(config, settings)
    if settings.web.listen:
        check_web(settings, store)
    source = _find_source(cluster, records, settings, by, compacted=compacted)
    check_single_log(store)
    check_store(store, settings)
    _run(source, str(records or cluster), store, settings, takeover)
    end_process(0)


def _find_source(
    cluster: str | None, records: Path | None, settings: Config, by: FollowBy, *, compacted: bool
) -> Source:
    from coordinator.watcher.records_file import RecordsFile  # noqa: PLC0415
    from coordinator.watcher.watch import open_source  # noqa: PLC0415

    if (cluster is None) == (records is None):
        raise ConfigError("give a cluster (kafka://broker:9092) or --records FILE, one of them")
    if records is not None:
        if by != FollowBy.TOPIC:
            raise ConfigError(f"--by {by} asks a cluster: leave --records out")
        return RecordsFile(records, is_compacted=compacted)
    if compacted:
        raise ConfigError("--compacted describes a dump: give --records FILE too")
    if cluster is None or not cluster.startswith(KAFKA):
        raise ConfigError(f"the cluster is {cluster!r}: give kafka://host:port")
    return open_source(cluster, settings, by)


def _run(source: Source, named: str, store: str, settings: Config, takeover: Takeover) -> None:
    """Stand by until this process has the store, then follow the source until stopped."""
    from coordinator.watcher.watch import Watch, open_store  # noqa: PLC0415

    following: list[Watch] = []

    def open_watched(stop: Stop) -> Watch | None:
        opening = open_in_thread(stop, lambda: open_store(source, store, settings, takeover, stop))
        found = None if opening is None else opening.result()
        return None if found is None else Watch(found, source)

    def start(opened: Watch, open_now: ExitStack) -> tuple[Coordinator, str]:
        following.append(open_now.enter_context(opened))
        return opened.coordinator, f"muster watches {named} (store {store})"

    def look() -> bool:
        ended = following[0].wait(0)
        if ended:
            _tell(following[0])
        return ended and not settings.web.listen

    Service(
        open=open_watched,
        start=start,
        look=look,
        is_ready=lambda: following[0].store.has_caught_up,
    ).run(settings, store)


def _tell(watched: Watch) -> None:
    """Say what a source that has ended was."""
    counts, faults = watched.store.counts, watched.store.translator.faults
    groups = len(watched.coordinator.list_groups()["groups"])
    passed = sum(faults.passed_over.values())
    read, span = sum(counts.records.values()), ""
    if counts.first_ms is not None and counts.last_ms is not None:
        span = f", written {format_time(counts.first_ms)} to {format_time(counts.last_ms)}"
    typer.echo(
        f"{groups} groups; records read: {read}{span}; passed over: {passed}, undecodable: "
        f"{faults.count}"
    )
