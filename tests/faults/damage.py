"""Files of a store are cut, overwritten or removed while no coordinator runs."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from coordinator import Coordinator
from coordinator.config import LogConfig
from coordinator.core.events import Heartbeat
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.lease import Lease
from coordinator.storage.record_log import LogError
from coordinator.storage.state_loader import write_snapshot
from tests.support.fingerprint import fingerprint
from tests.support.members import state_of

from .crowd import Broken
from .node import LARGE, SMALL
from .process import QUICK
from .report import Outcome
from .said import said

EVENTS = 60
SNAPSHOTS = (20, 40)
NOISE = 64
"""Bytes that are overwritten."""


@dataclass(frozen=True, slots=True)
class Lived:
    """A store, and the state that its log says, with and without the newest commit."""

    store: Path
    whole: object
    without_newest: object
    newest: Path


def damaged(store: Path, seed: int, times: int) -> Outcome:
    """Damage one file of a copy of a store, and open it, so many times."""
    chance, came = random.Random(seed), Counter[str]()
    lived = live(store)
    files = [file for file in sorted(store.rglob("*")) if file.is_file() and _matters(file)]
    for _ in range(times):
        file = chance.choice(_likely(files, lived, chance))
        how = chance.choice(sorted(HARMS) if file != lived.newest else sorted(SEEN))
        copy = store.with_name("copy")
        shutil.copytree(store, copy)
        harmed = copy / file.relative_to(store)
        HARMS[how](harmed, chance)
        try:
            came[_opened(copy, harmed, lived)] += 1
        except Broken as error:
            raise Broken(f"{file.relative_to(store)}, {how}: {error}") from None
        shutil.rmtree(copy)
    return Outcome(times, "; ".join(f"{n} times {what}" for what, n in came.most_common()))


def live(store: Path) -> Lived:
    """Make a store with commits, checkpoints, packed files and snapshots."""
    log = DeltaLog(store, LogConfig(reopen_commits=10, pack_commits=25))
    lease = Lease(str(store), "the one before", "", QUICK.lease, lambda: 1)
    lease.wait()
    lease.publish_epoch(log.claim("the one before", "", 1))
    ticks = count(1)
    processor = EventProcessor(log, QUICK, lambda: next(ticks), DictCatalog(SMALL | LARGE))
    processor.load()
    before: object = None
    for number in range(EVENTS):
        before = fingerprint(processor.state)
        processor.run([_joins_or_leaves(number)])
        if log.is_maintenance_due():
            log.maintain()
        if number in SNAPSHOTS:
            write_snapshot(log, number)
    newest = max((store / "log" / "_delta_log").glob("*.json"))
    return Lived(store, fingerprint(processor.state), before, newest)


def _joins_or_leaves(number: int) -> Heartbeat:
    """Every third event a member leaves that joined before."""
    if number % 3 == 2:
        return Heartbeat("g", f"m{number - 1}", -1)
    return Heartbeat(
        "g", f"m{number}", 0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=sorted(SMALL), topic_partitions={},
    )  # fmt: skip


def _matters(file: Path) -> bool:
    return "_locks" not in file.parts


def _likely(files: list[Path], lived: Lived, chance: random.Random) -> list[Path]:
    """Return files of one kind: there are many old commits, and one newest."""
    kinds = [
        [lived.newest],
        [file for file in files if file.suffix == ".json" and file.parent == lived.newest.parent],
        [file for file in files if file.suffix == ".parquet" and file.parent.name == "log"],
        [file for file in files if "checkpoint" in file.name],
        [file for file in files if "snapshots" in file.parts],
        [file for file in files if file.name == "_lease.json"],
    ]
    return chance.choice(kinds)


# What is done to a file --------------------------------------------------------------------------


def _cut(file: Path, chance: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])


def _zero(file: Path, chance: random.Random) -> None:
    """As a file system leaves a block that it never wrote."""
    content = bytearray(file.read_bytes())
    at = chance.randrange(len(content))
    content[at:] = bytes(len(content) - at)
    file.write_bytes(content)


def _overwrite(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = chance.randrange(max(1, len(content) - NOISE))
    content[at : at + NOISE] = chance.randbytes(min(NOISE, len(content) - at))
    file.write_bytes(content)


def _remove(file: Path, _chance: random.Random) -> None:
    file.unlink()


HARMS: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut,
    "zeros": _zero,
    "overwritten": _overwrite,
    "removed": _remove,
}


SEEN = HARMS.keys() - {"removed"}
"""Of the newest commit: a log without it is what it was before."""

# What comes of it --------------------------------------------------------------------------------


def _opened(store: Path, harmed: Path, lived: Lived) -> str:
    """Open a store, and say what came of it."""
    with said() as heard:
        try:
            coordinator = Coordinator.open(
                store, config=QUICK, topics=SMALL | LARGE, takeover="refuse"
            )
        except LogError as error:
            if harmed.name not in str(error):
                raise Broken(f"refused without the file's name: {error}") from None
            return "refused by the file's name"
        with coordinator:
            found = fingerprint(state_of(coordinator))
    if found == lived.whole:
        return "opened with everything"
    if harmed.name == lived.newest.name and found == lived.without_newest:
        if not any(str(harmed) in text for text in heard):
            raise Broken(f"the newest commit is gone, and nothing is said: {heard}")
        return "opened without the newest commit, which was set aside"
    raise Broken("another state than the log's")
