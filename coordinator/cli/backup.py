"""`muster backup` and `muster restore`: copy a store, and make a store from a copy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coordinator import progress

Check = Annotated[bool, typer.Option(help="Reread the copy and check it, as muster verify does.")]


def backup(
    store: Annotated[Path, typer.Option(help="The folder of the store, or its URL.")],
    into: Annotated[
        Path,
        typer.Option("--into", "--to", help="The backup: a new or empty folder, or a URL."),
    ],
    verify: Check = True,
) -> None:
    """Copy a store, live or closed, into a backup.

    The copy is consistent: it has the log up to one position, and the snapshots and targets that
    belong to it. Every command refuses a backup that was interrupted. Prints one line of JSON.
    """
    # Imported here because it is slow to import, and other commands do not need it.
    from coordinator.backup import backup as backed_up  # noqa: PLC0415
    from coordinator.cli.inspect import say_watched  # noqa: PLC0415
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415
    from coordinator.storage.shards import refuse_shards  # noqa: PLC0415

    refuse_shards(store)
    with progress.show("backup"):
        done = backed_up(store, into, check=verify)
    say_watched(LogReader(into))
    typer.echo(json.dumps(asdict(done)))


def restore(
    source: Annotated[Path, typer.Option("--from", help="A backup, or another store.")],
    store: Annotated[Path, typer.Option(help="The new store: a new or empty folder, or a URL.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="A position of the log, or a time such as 2026-03-01T12:00Z.", show_default="all"
        ),
    ] = None,
    verify: Check = True,
) -> None:
    """Make a new store from a backup, as of a position or a time.

    Stop the coordinators of the old store first. Prints one line of JSON.
    """
    # Imported here for the same reason.
    from coordinator.backup import restore as restored  # noqa: PLC0415
    from coordinator.cli.inspect import say_watched  # noqa: PLC0415
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415

    with progress.show("restore"):
        done = restored(source, store, to, check=verify)
    say_watched(LogReader(store))
    typer.echo(json.dumps(asdict(done)))
