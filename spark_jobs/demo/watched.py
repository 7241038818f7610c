"""Watch the groups of a Kafka cluster, from what it once wrote about them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from coordinator.history.watched import read_watched, tell_watched
from spark_jobs.session.package_files import demo_topic

SHOWN = 6


class Watched(NamedTuple):
    """What a recorded topic tells.

    Attributes
    ----------
    who
        Who coordinates the groups, and since when they are watched.
    reasons
        Why epochs began last: group, epoch, reason.
    groups, epochs
        How many there are.
    """

    who: str
    reasons: list[tuple[str, int, str]]
    groups: int
    epochs: int


def watch_recorded(store: Path) -> Watched:
    """Write a recorded topic into a store of its own, and return what the store says."""
    from coordinator.watcher.watch import watch  # noqa: PLC0415 - the command's help needs none

    shutil.rmtree(store, ignore_errors=True)
    with watch(demo_topic(), store) as watching:
        watching.wait()
    watched = read_watched(LogReader(store))
    epochs = frame(store, "epochs").select(["group_id", "group_epoch", "reason"]).to_pylist()
    return Watched(
        "" if watched is None else tell_watched(watched),
        [(row["group_id"], row["group_epoch"], row["reason"]) for row in epochs[-SHOWN:]],
        len(frame(store, "groups")),
        len(epochs),
    )
