"""`muster backup`, `restore` and `reshard`: copy a store, and make stores from another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from coordinator.cli.inspect import SHARDS, print_done, say_watched
from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption, JsonOption, StoreOption
from coordinator.display import progress

Check = Annotated[bool, typer.Option(help="Reread the copy and check it, as muster verify does.")]


def backup(
    store: StoreOption,
    into: Annotated[
        str,
        typer.Option("--into", "--to", help="The backup: a new or empty folder, or a URL."),
    ],
    verify: Check = True,
    json_: JsonOption = False,
) -> None:
    """Copy a store, live or closed, into a backup.

    The copy is consistent: it has the log up to one position, and the snapshots and targets that
    belong to it. In a store of shards, this holds for each shard and the root. Every command
    refuses a backup that was interrupted.

    Example: `muster backup --store store --into s3://bucket/backup`
    """
    # Imported here because it is slow to import, and other commands do not need it.
    from coordinator.backup import backup as backed_up  # noqa: PLC0415
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415
    from coordinator.storage.shards import read_shards  # noqa: PLC0415

    if read_shards(store) is not None:
        from coordinator.backup.shard_copies import backup_shards  # noqa: PLC0415

        with progress.show("backup"):
            _print_shards("backup", into, backup_shards(store, into, check=verify), json_=json_)
        return
    with progress.show("backup"):
        done = backed_up(store, into, check=verify)
    say_watched(LogReader(into))
    print_done(asdict(done), SHARDS, asked=json_)


def restore(
    source: Annotated[str, typer.Option("--from", help="A backup, or another store.")],
    store: Annotated[str, typer.Option(help="The new store: a new or empty folder, or a URL.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="A position of the log, or a time such as 2026-03-01T12:00Z.", show_default="all"
        ),
    ] = None,
    verify: Check = True,
    json_: JsonOption = False,
) -> None:
    """Make a new store from a backup, as of a position or a time.

    Stop the coordinators of the old store first. A store of shards is restored as of a time, not a
    position.

    Example: `muster restore --from backup --store store2 --to 2026-03-01T12:00Z`
    """
    # Imported here for the same reason.
    from coordinator.backup import restore as restored  # noqa: PLC0415
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415
    from coordinator.storage.shards import read_shards  # noqa: PLC0415

    if read_shards(source) is not None:
        from coordinator.backup.shard_copies import restore_shards  # noqa: PLC0415

        with progress.show("restore"):
            _print_shards(
                "store", store, restore_shards(source, store, to, check=verify), json_=json_
            )
        return
    with progress.show("restore"):
        done = restored(source, store, to, check=verify)
    say_watched(LogReader(store))
    print_done(asdict(done), SHARDS, asked=json_)


def _print_shards(name: str, made: str, done: Mapping[str, Any], *, json_: bool) -> None:
    """Print what was copied of each shard."""
    rows = [{"shard": shard, **asdict(one)} for shard, one in sorted(done.items())]
    print_done({name: made, SHARDS: rows}, SHARDS, asked=json_)


def reshard(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A store that is not served now.")],
    store: Annotated[
        str, typer.Argument(metavar="TO", help="The new store: a new or empty folder, or a URL.")
    ],
    shards: Annotated[int, typer.Option(help="How many shards the new store has; 1: it has none.")],
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make a store with another number of shards from the groups of a store.

    Stop its coordinators first. The new store has the groups as they are now; their history stays
    in the old one.

    Example: `muster reshard store store64 --shards 64`
    """
    from coordinator.backup.reshard import reshard as resharded  # noqa: PLC0415

    settings = load_config(config)
    with progress.show("reshard"):
        done = resharded(source, store, shards, settings)
    print_done(asdict(done), SHARDS, asked=json_)
