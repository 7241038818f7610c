"""`muster compact`: compact a store's log, and drop targets past the retention."""

from __future__ import annotations

import os
from dataclasses import asdict

from coordinator.cli.inspect import SHARDS, print_done
from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption, JsonOption, StoreOption
from coordinator.display import progress


def compact(
    store: StoreOption,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Compact the log of a store, and drop targets older than the retention.

    A live coordinator is asked to compact its log; without one, this process does. No row of the
    log is deleted. Prints what was done; with --json one line, or one per shard.

    Example: `muster compact --store store`
    """
    settings = load_config(config)
    # Imported here because it is slow to import, and other commands do not need it.
    from coordinator.clock import wall_ms  # noqa: PLC0415
    from coordinator.storage.compaction import compact as compacted  # noqa: PLC0415
    from coordinator.storage.shards import stores_of  # noqa: PLC0415

    stores = stores_of(store)
    for one in stores:
        with progress.show("compacting"):
            done = asdict(compacted(one, settings, wall_ms()))
        named = {} if one == store else {"shard": os.path.basename(one)}
        print_done(named | done, SHARDS, asked=json_)
