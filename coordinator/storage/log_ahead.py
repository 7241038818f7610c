"""The log of a shard that moves: read before it is claimed, so that only its tail is left then."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.storage.data_files import Part, list_parts, read_batches
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.loaded_state import LoadedState
from coordinator.storage.record_decoder import ValueCache
from coordinator.storage.record_log import Batch, LogError, NoLog
from coordinator.storage.snapshot_table import Snapshots, read_snapshot_at
from coordinator.storage.store_marks import refuse_incomplete
from coordinator.storage.tables.claims import Claim, has_history
from coordinator.storage.tables.store_files import ask_each
from coordinator.storage.tables.store_root import find_root

logger = logging.getLogger("muster.coordinator")


class _Ahead(NamedTuple):
    """What was read before the claim, and the claim and snapshots that were the newest then."""

    loaded: LoadedState
    position: int
    epoch: int
    claim: Claim | None
    snapshots: Snapshots
    seen: ValueCache


class LogAhead(DeltaLog):
    """A DeltaLog that may be loaded before its claim: after it only the rest is left to read."""

    _ahead: _Ahead | None = None
    _seen_tables: tuple[list[Part], Snapshots] | None = None

    def look_ahead(self) -> bool:
        """Look at what the tables have, without reading a row; whether that was possible.

        That is most of what an object store is asked for, and costs nothing to keep.
        """
        try:
            self._seen_tables = self._look_at_tables()
        except (LogError, OSError) as error:
            logger.debug("%s is looked at later: %s", self._table.path, error)
        return self._seen_tables is not None

    def read_ahead(self) -> int:
        """Load the snapshot and what the log has after it; return the position that was reached.

        The log's owner goes on writing. What cannot be read now is read after the claim, which
        says what is wrong.
        """
        try:
            self._ahead = self._read_ahead()
        except NoLog:
            return 0
        except (LogError, OSError) as error:
            logger.info("%s is read after its claim: %s", self._table.path, error)
            return 0
        return self._ahead.position

    def _read_ahead(self) -> _Ahead:
        parts, snapshots = self._seen_tables or self._look_at_tables()
        claims, until = self._claims, self.position
        epoch = claims.newest_epoch
        seen, loaded = ValueCache(), LoadedState()
        loaded.read(read_snapshot_at(self._snapshots.path, snapshots, claims, until, seen))
        loaded.read(read_batches(self._disk, self._table.path, parts, loaded.position, seen))
        return _Ahead(loaded, until, epoch, claims.get(epoch), snapshots, seen)

    def _look_at_tables(self) -> tuple[list[Part], Snapshots]:
        """Return what the log and the snapshots have; an object store is asked for both at once.

        A claim waits for a round trip after the other, and each table takes six.
        """
        found: list[list[Part]] = []
        there: list[Snapshots] = []
        looks = {
            self.store: lambda: refuse_incomplete(find_root(self.store)),
            self._table.path: lambda: found.append(self._look_at_log()),
            self._snapshots.path: lambda: there.append(super(LogAhead, self)._list_snapshots()),
        }
        ask_each(lambda path: looks[path](), list(looks))
        return found[0], there[0]

    def _look_at_log(self) -> list[Part]:
        with self._table.lock:
            parts = list_parts(self._table.refresh())
            self._find_end(parts)
            return parts

    def _list_snapshots(self) -> Snapshots:
        """Return those that were there when it was read ahead: they prove as much of the log."""
        return super()._list_snapshots() if self._ahead is None else self._ahead.snapshots

    def take_ahead(self) -> tuple[LoadedState, Iterator[Batch]] | None:
        """Return what was loaded before the claim and what is left to read; None: replay all.

        It is taken once: a later replay needs all of the log.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None or not self._has(ahead):
            return None
        return ahead.loaded, self._read_rest(ahead)

    def _read_rest(self, ahead: _Ahead) -> Iterator[Batch]:
        with self._table.lock:
            self._settle()
            is_all = self.position == ahead.position + 1
        if is_all:  # but for our claim
            yield Batch(self.position, self._at_ms, self.epoch, [])
            return
        parts = list_parts(self._table.read())
        path = self._table.path
        batches = read_batches(self._disk, path, parts, ahead.position, ahead.seen)
        yield from self._care.until_stopped(batches)

    def _has(self, ahead: _Ahead) -> bool:
        """Whether it was read of this log: another may have been put in its place since."""
        return has_history(self._claims, ahead.epoch, ahead.claim, ahead.position)
