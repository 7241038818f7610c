"""`muster verify`: check a store, live or closed."""

from __future__ import annotations

import os
from dataclasses import asdict

from coordinator.cli.inspect import SHARDS, print_done, say_watched
from coordinator.cli.main import FAILURE, exit_with_error
from coordinator.cli.options import JsonOption, StoreOption
from coordinator.display.progress import show
from coordinator.storage.record_log import CorruptLog


def verify(
    store: StoreOption,
    json_: JsonOption = False,
) -> None:
    """Check a store: its log, snapshots and targets, owners and epochs.

    Reads everything, writes nothing, and does not disturb a live coordinator. If the store is
    sound, prints what was counted and exits with 0. If it is damaged, prints the first damage to
    stderr and exits with 1. If the store is missing, exits with 2. If an object store does not
    return all of it now, the rest is unknown: exits with 3, try again. In a store of shards,
    every shard is checked.

    Example: `muster verify --store store`
    """
    # Imported here because they are slow to import, and other commands do not need them.
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
        print_done({"sound": True, **found[0]}, SHARDS, asked=json_)
        return
    named = [
        {"shard": os.path.basename(one), **row} for one, row in zip(stores, found, strict=True)
    ]
    print_done({"sound": True, SHARDS: named}, SHARDS, asked=json_)
