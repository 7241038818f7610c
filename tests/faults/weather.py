"""A log on S3 in bad weather: any request fails, in every way that requests do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable

from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    LogError,
    NewerLog,
    NoLog,
    WriterFenced,
)
from tests.support.lives import life

from .crowd import Broken
from .report import Outcome

SHARE = 0.08
"""Of the requests that fail."""
TAKES_OVER, REREADS, CARES = 0.08, 0.1, 0.1
"""How often, beside a commit, another coordinator claims; the holder replays; files are packed."""
STORM, STORMS, STORM_LASTS = 0.08, ("503", "never", "late", "lost"), 8
"""How often so many requests fail in a row, as no patience outlasts them."""


@dataclass
class Journal:
    """What was acknowledged, and what may have been written or not."""

    acknowledged: list[int] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)
    tally: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("unknown", "fenced"), 0))

    def check(self, found: list[int]) -> None:
        """See that a reading has all that was acknowledged, in order, and nothing else."""
        if [epoch for epoch in found if epoch not in self.unknown] != self.acknowledged:
            raise Broken(f"acknowledged {self.acknowledged}, unknown {self.unknown}, read {found}")
        if sorted(set(found)) != found:
            raise Broken(f"read twice or out of order: {found}")


def braved(server: Any, seed: int, times: int) -> Outcome:
    """Commit so many times in bad weather, with claims and packing between."""
    chance, store, journal = random.Random(seed), server.new_store(), Journal()
    log = _claimed(store)
    server.weather(seed, SHARE)
    for epoch in range(2, times + 2):
        if chance.random() < STORM:
            server.fault(chance.choice(STORMS), times=STORM_LASTS)
        _commit(log, journal, epoch)
        if chance.random() < REREADS:
            _try(lambda log=log: journal.check(_epochs(log.replay())))
        if chance.random() < CARES:
            _try(lambda log=log: log.maintain(pack=True))
        if chance.random() < TAKES_OVER:
            former, log = log, _claimed(store)
            _refuses(former, journal)
    made = server.made()
    server.heal()
    journal.check(_epochs(log.replay()))
    journal.check(_epochs(read_log(store)))
    _check_rows(store)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(made.items()))
    return Outcome(
        times,
        f"{len(journal.acknowledged)} commits acknowledged, none lost; {journal.tally['unknown']} "
        f"refused; {journal.tally['fenced']} fenced writers refused; of the requests {kinds}",
    )


def _check_rows(store: str) -> None:
    """See that other readers find each row once."""
    rows = DeltaTable(f"{store}/log").to_pyarrow_table(columns=["position"])
    positions = sorted(rows["position"].to_pylist())
    if positions != list(range(1, len(positions) + 1)):
        raise Broken(f"{store} has rows twice, or not at all: {positions}")


def _claimed(store: str) -> DeltaLog:
    """Claim the log; what a claim that failed has left is seen by the next try."""
    while True:
        log = DeltaLog(store)
        try:
            log.claim("weather", "", 1)
        except (CommitFailed, OSError):
            continue
        return log


def _commit(log: DeltaLog, journal: Journal, epoch: int) -> None:
    """Commit; what is not acknowledged is settled by a replay."""
    try:
        log.append(life(epoch), epoch)
    except (CommitFailed, OSError):
        journal.unknown.add(epoch)
        journal.tally["unknown"] += 1
        while not (found := _try(lambda: _epochs(log.replay()))):
            pass
        if epoch in found:
            journal.acknowledged.append(epoch)
        journal.unknown.discard(epoch)
        journal.check(found)
    else:
        journal.acknowledged.append(epoch)


def _refuses(former: DeltaLog, journal: Journal) -> None:
    """See that who was taken over writes nothing, whatever the weather."""
    while True:
        try:
            former.append(life(1_000_000), 1)
        except WriterFenced:
            journal.tally["fenced"] += 1
            return
        except (CommitFailed, OSError):
            continue
        raise Broken("a fenced coordinator has written")


def _try(what: Any) -> Any:
    """Do something; None where the weather was too bad. Nobody may take that for damage."""
    try:
        return what()
    except (WriterFenced, CorruptLog, NewerLog, NoLog):
        raise
    except (LogError, OSError):
        return None


def _epochs(batches: Any) -> list[int]:
    """Return the epochs of the lives that were read, one for each commit."""
    found = []
    for batch in batches:
        found += [one.epoch for one in batch.records if type(one).__name__ == "GroupMetadata"]
    return found
