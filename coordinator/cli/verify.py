"""`muster verify`: check a store, live or closed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated

import typer

from coordinator.cli.main import FAILURE, exit_with_error
from coordinator.display.progress import show
from coordinator.storage.record_log import CorruptLog


def verify(
    store: Annotated[str, typer.Option(help="The folder of the store, or its URL.")],
) -> None:
    """Check a store: its log, snapshots and targets, owners and epochs.

    Reads everything, writes nothing, and does not disturb a live coordinator. If the store is
    sound, prints one line of JSON and exits with 0. If it is damaged, prints the first damage to
    stderr and exits with 1. If the store is missing, exits with 2. If an object store does not
    return all of it now, the rest is unknown: exits with 3, try again. In a store of shards,
    every shard is checked.
    """
    # Imported here because they are slow to import, and other commands do not need them.
    from coordinator.cli.inspect import say_watched  # noqa: PLC0415
    from coordinator.history.log_reader import LogReader  # noqa: PLC0415
    from coordinator.storage.shards import stores_of  # noqa: PLC0415
    from coordinator.verify import verify as verified  # noqa: PLC0415

    try:
        with show("verify"):
            stores = stores_of(store)
            found = [asdict(verified(one)) for one in stores]
    except CorruptLog as error:
        exit_with_error(str(error), FAILURE)
    for one in stores:
        say_watched(LogReader(one))
    if stores == [store]:
        typer.echo(json.dumps({"sound": True, **found[0]}))
        return
    named = [
        {"shard": os.path.basename(one), **row} for one, row in zip(stores, found, strict=True)
    ]
    typer.echo(json.dumps({"sound": True, "shards": named}))
