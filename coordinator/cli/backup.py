"""`muster backup` and `muster restore`: copies of a store, and stores from copies."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coordinator import progress

Check = Annotated[
    bool, typer.Option(help="Read the copy again and check it, as muster verify does.")
]


def backup(
    store: Annotated[Path, typer.Option(help="The folder of the store.")],
    into: Annotated[Path, typer.Option(help="A folder that is new or empty.")],
    verify: Check = True,
) -> None:
    """Copy a store, live or closed, into a backup.

    The copy is consistent: the log up to one position, with the snapshots and targets it needs. A
    backup that was killed is refused by every command. Prints one line of JSON.
    """
    # What reads a store is imported where it is used: every other command would wait for it.
    from coordinator.backup import backup as backed_up  # noqa: PLC0415

    with progress.show("backup"):
        done = backed_up(store, into, check=verify)
    typer.echo(json.dumps(asdict(done)))


def restore(
    source: Annotated[Path, typer.Option("--from", help="A backup, or another store.")],
    store: Annotated[Path, typer.Option(help="The new store: a folder that is new or empty.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="A position of the log, or a time: 2026-03-01T12:00Z.", show_default="all"
        ),
    ] = None,
    verify: Check = True,
) -> None:
    """Make a new store from a backup, as it was at a position or a time.

    Stop the coordinators of the old store first. Prints one line of JSON.
    """
    # As above.
    from coordinator.backup import restore as restored  # noqa: PLC0415

    with progress.show("restore"):
        done = restored(source, store, to, check=verify)
    typer.echo(json.dumps(asdict(done)))
