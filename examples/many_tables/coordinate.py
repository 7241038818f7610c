"""Coordinate the drivers of a night: who ingests which table, by how long each took last time.

python examples/many_tables/coordinate.py STORE TABLES HOST:PORT

TABLES is a file with a name in each line; partition n of the topic `tables` is line n. How long a
table took is the metadata of its committed offset, so the store itself has last night's durations.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pyarrow as pa

from muster import Config, Coordinator, WeightTables, frame, parse_config

GROUP, TOPIC = "nightly", "tables"
CONFIG = """
[weights]
poll_ms = 1000
half_life_ms = 0
"""
UNKNOWN_S = 1.0
"""What a table weighs that was never ingested."""


def last_durations(store: str) -> WeightTables:
    """Return how many seconds each table took last night."""
    if not Path(store).exists():
        return WeightTables()
    found = frame(store, "offsets", group_id=GROUP)
    seconds = [float(text or UNKNOWN_S) for text in found["metadata"].to_pylist()]
    return WeightTables(
        found.select(["topic", "partition"]).append_column("weight", pa.array(seconds))
    )


def coordinate(store: str, tables: int, config: Config | None = None) -> Coordinator:
    """Open the coordinator of so many tables."""
    durations = last_durations(store)
    config = config or parse_config(CONFIG, "coordinate.py")
    return Coordinator.open(store, config=config, topics={TOPIC: tables}, weights=lambda: durations)


def main(store: str, tables: str, address: str) -> None:
    """Serve until SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    count = len(Path(tables).read_text(encoding="utf-8").split())
    with coordinate(store, count) as coordinator, coordinator.serve(address) as serving:
        print(f"{count} tables at {serving.address}", flush=True)
        over.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
