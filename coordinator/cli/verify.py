"""`muster verify`: check a store, live or closed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.main import FAILURE, exit_with_error
from coordinator.progress import show
from coordinator.storage.record_log import CorruptLog


def verify(
    store: Annotated[Path, typer.Option(help="The folder of the store.")],
) -> None:
    """Check a store: its log, snapshots and targets, owners and epochs.

    Reads everything, writes nothing, and does not disturb a live coordinator. Prints one line of
    JSON and ends with 0 when the store is sound; with 1, and the first damage on stderr, when it is
    not; with 2 when there is no store.
    """
    # What reads a store is imported where it is used: every other command would wait for it.
    from coordinator.verify import verify as verified  # noqa: PLC0415

    try:
        with show("verify"):
            found = verified(store)
    except CorruptLog as error:
        exit_with_error(str(error), FAILURE)
    typer.echo(json.dumps({"sound": True, **asdict(found)}))
