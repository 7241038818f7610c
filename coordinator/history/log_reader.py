"""Read a store as of a position or a time. Neither a claim nor a JVM is needed."""

from __future__ import annotations

import logging
import operator
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from assignors import SpecError
from coordinator.core.state.groups import Group, State
from coordinator.core.state.records import Record
from coordinator.core.state.replay import replay, set_whole_target
from coordinator.core.state.target_assignment import NOT_READ
from coordinator.display.times import format_time
from coordinator.storage.data_files import Part, list_parts, read_parts
from coordinator.storage.delta_log import follow_log_table, open_log_table
from coordinator.storage.log_scan import LogScan
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.record_log import Batch, CorruptLog, NoLog
from coordinator.storage.shards import refuse_shards, store_of, stores_of
from coordinator.storage.snapshot_table import list_snapshots, read_snapshot_at
from coordinator.storage.tables.claims import Claims, numbers_of
from coordinator.storage.tables.store_files import ask_each, files_at, refuse_silence, source_of
from coordinator.storage.tables.store_root import find_root
from coordinator.storage.target_table import load_target

if TYPE_CHECKING:
    import pyarrow.dataset as ds

logger = logging.getLogger("muster.coordinator")
EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
POSITION = re.compile(r"-?[0-9]{1,18}\Z")
SHOWN_MAX = 255
SCAN_S = 60.0
"""How long the files of a state are taken to be there: they are removed minutes after that."""
AsOf: TypeAlias = int | datetime | str | None
"""A position of the log, a time, either of them as text, or None for now."""


def parse_as_of(text: str, option: str = "--as-of") -> int | datetime:
    """Parse an option: a whole number is a position, ISO 8601 is a time, in UTC by default.

    Raises
    ------
    SpecError
        The text is neither.
    """
    if POSITION.match(text):
        return int(text)
    try:
        # Python 3.11 takes a time that ends with a zero byte.
        time = datetime.fromisoformat(text if text.isprintable() else "")
    except ValueError:
        shown = text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
        raise SpecError(
            f"{option} {shown!r} is neither a position nor a time: give a whole number, or a time "
            f"such as 2026-03-01T12:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def check_as_of(as_of: object) -> int | datetime | None:
    """Check the type of a position or time, and return it.

    Raises
    ------
    SpecError
        It is neither, or a time without a time zone.
    """
    if isinstance(as_of, str):
        return parse_as_of(as_of)
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise SpecError(
                f"as_of {as_of} has no time zone: give one, as in "
                f"datetime(2026, 3, 1, 12, tzinfo=UTC)"
            )
        return as_of
    if as_of is None:
        return None
    if isinstance(as_of, SupportsIndex) and not isinstance(as_of, bool):
        return operator.index(as_of)  # accepts NumPy's integers too
    raise SpecError(
        f"as_of {as_of!r} is neither a position nor a time: give a whole number, or a datetime "
        f"with a time zone"
    )


class BeforeLogError(SpecError):
    """A time is before the first record of a log."""


class LogReader:
    """The log of a store up to a position.

    Attributes
    ----------
    store
        Its folder.
    position, at_ms
        The position of the last row to read, and when it was written (ms since 1970).
    fragments
        Files that were read lately, by their paths: what their ends say of them is known.

    Raises
    ------
    SpecError
        The store is missing or empty, or the position or time is outside of its log.
    CorruptLog, NewerLog
        The log cannot be read.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        as_of: AsOf = None,
        *,
        opened: tuple[DeltaTable, str] | None = None,
    ) -> None:
        as_of = check_as_of(as_of)
        self.store = find_root(store)
        self._folder = os.path.join(self.store, "log")
        try:
            self._table = _open_table(self.store, opened)
            self._parts = list_parts(self._table)
        except CorruptLog:
            refuse_shards(store)  # it has a log that no version opens
            raise
        except NoLog:
            refuse_shards(store)
            raise SpecError(
                f"{store} is not the store of a coordinator: name the folder that a coordinator "
                f"was opened with"
            ) from None
        if not self._parts:
            raise SpecError(f"the log of {store} is empty: no coordinator has claimed it yet")
        self._scanned: tuple[float, LogScan | None] = (0.0, None)
        self.fragments: dict[str, ds.Fragment] = {}
        self._live = as_of is None
        self.position = self._position_of(as_of)
        self.at_ms = self._at(self.position)

    def follow(self) -> LogReader:
        """Return the log as it is now; of a table that is open, only new commits are read."""
        return LogReader(self.store, opened=(self._table, self._parts[-1].path))

    @property
    def table_id(self) -> str:
        """What Delta calls the table of the log: another one has another id."""
        return str(self._table.metadata().id)

    @property
    def first_position(self) -> int:
        """The first position that the log has."""
        return int(self._parts[0].first)

    @property
    def version(self) -> int:
        """The version of the table, when it was read last."""
        return int(self._table.version())

    def find(self, as_of: AsOf) -> tuple[int, int]:
        """Return the position that another one or a time means in this log, and when it was.

        Raises
        ------
        SpecError
            It is not in the log.
        """
        position = self._position_of(check_as_of(as_of))
        return position, self._at(position)

    def moment_of(self, position: int) -> tuple[int, int]:
        """Return the first and the last position of the rows around one that have its time.

        What is decided at once is written with one time, so no decision is cut there.
        """
        at_ms, first, last = self._at(position), position, position
        for part in self._parts:
            if part.last < position or (part.first > position and last != part.first - 1):
                continue
            times = self._times(part)["at_ms"].to_numpy()
            later = np.flatnonzero(times[max(0, position - part.first) :] != at_ms)
            last = max(part.first, position) + int(later[0]) - 1 if len(later) else part.last
        for part in reversed(self._parts):
            if part.first > position or (part.last < position and first != part.last + 1):
                continue
            times = self._times(part)["at_ms"].to_numpy()[: position - part.first + 1]
            before = np.flatnonzero(times != at_ms)
            first = part.first + int(before[-1]) + 1 if len(before) else part.first
        return first, last

    def files(self, after: int = 0) -> list[str]:
        """Return the data files that have rows after a position and up to this one, in order.

        Raises
        ------
        CorruptLog
            Rows are missing between them.
        """
        parts = [part for part in self._parts if part.first <= self.position]
        for before, part in pairwise(parts):
            if part.first != before.last + 1:
                raise CorruptLog(
                    f"rows from position {before.last + 1} on are missing in or before "
                    f"{part.path}: restore it from a copy of the store"
                )
        return [os.path.join(self._folder, part.path) for part in parts if part.last > after]

    def scan(self) -> LogScan:
        """Return the files that make the state: listed again once they may have been replaced."""
        now = time.monotonic()
        at, found = self._scanned
        if found is None or now - at > SCAN_S:
            parts = self._parts if found is None else None
            found = LogScan.of(self.store, self.position, parts)
            self._scanned = now, found
        return found

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield each data file of the log, and how many rows it has."""
        for part in self._parts:
            yield os.path.join(self._folder, part.path), part.rows

    def state(self) -> State:
        """Return the state at the position."""
        state, seen, after = State(), ValueCache(), 0
        for batch in self._snapshot(seen):
            for record in batch.records:
                replay(state, record)
            after = batch.position
        for record in self._records(after, seen):
            replay(state, record)
        return state

    def read_target(self, group: Group) -> None:
        """Read a group's target if it is in the table `targets`: the log only names it.

        Raises
        ------
        LostTarget
            The target's rows are no longer in the table.
        """
        stored = group.installed.stored if group.installed else None
        if group.targets.whole is NOT_READ and stored is not None:
            set_whole_target(group, load_target(self.store, stored))

    def unknown(self, group_id: str) -> SpecError:
        """Return the error for a group that was not found."""
        watched = self.state().watched
        unread = None if watched is None else watched.unread.get(group_id)
        if unread is not None:
            return SpecError(
                f"group {group_id!r} cannot be read: the record at offset {unread.offset} of "
                f"partition {unread.partition} of the Kafka cluster's topic of groups is wrong: "
                f"{unread.reason}; its other groups can"
            )
        return SpecError(
            f"group {group_id!r} is not in {self.store} at position {self.position}: "
            f"`muster groups --store {self.store}` lists the groups"
        )

    def _records(self, after: int, seen: ValueCache) -> Iterator[Record]:
        for piece in read_parts(self._folder, self._parts, after):
            rows = piece.filter(pc.less_equal(piece["position"], self.position))
            for record in decode_rows(rows, seen):
                if record is not None:  # None is a claim
                    yield record
            if piece["position"][-1].as_py() >= self.position:
                return

    def _snapshot(self, seen: ValueCache) -> Iterator[Batch]:
        """Yield the newest snapshot if the position is not before it, else nothing."""
        if not self._live:
            return
        path = os.path.join(self.store, "snapshots")
        claims = Claims(numbers_of(self._folder, lambda: self._table))
        there = list_snapshots(files_at(path), path)
        yield from read_snapshot_at(path, there, claims, self.position, seen)

    def _position_of(self, as_of: int | datetime | None) -> int:
        last = self._parts[-1].last
        if as_of is None:
            return last
        if isinstance(as_of, datetime):
            return self._position_at(as_of)
        if not 1 <= as_of <= last:
            raise SpecError(
                f"position {as_of} is not in the log of {self.store}: it has positions 1 to "
                f"{last}; give one of them"
            )
        return as_of

    def _position_at(self, time: datetime) -> int:
        """Return the last position written at or before a time."""
        ms = (time - EPOCH) // MILLISECOND
        now_ms = (datetime.now(UTC) - EPOCH) // MILLISECOND
        if ms > max(self._at(self._parts[-1].last), now_ms):
            raise SpecError(f"{time.isoformat()} is in the future: give a time in the past")
        for part in reversed(self._parts):
            rows = self._times(part)
            before = np.flatnonzero(rows["at_ms"].to_numpy() <= ms)
            if len(before):
                return int(rows["position"][int(before[-1])].as_py())
        begin = format_time(self._at(self._parts[0].first))
        raise BeforeLogError(
            f"{time.isoformat()} is before the first record of {self.store}: give a time from "
            f"{begin} on"
        )

    def _at(self, position: int) -> int:
        part = next(part for part in self._parts if part.first <= position <= part.last)
        return int(self._times(part)["at_ms"][position - part.first].as_py())

    def _times(self, part: Part) -> pa.Table:
        columns = ["position", "at_ms"]
        path = os.path.join(self._folder, part.path)
        try:
            return pq.read_table(source_of(path), columns=columns)
        except (OSError, pa.ArrowException) as error:
            refuse_silence(path, error)
            raise CorruptLog(f"{path} cannot be read: {error}") from None


def _open_table(store: str, opened: tuple[DeltaTable, str] | None) -> DeltaTable:
    """Open the table of a log; one that is open, with its last file, is only brought up to now."""
    return open_log_table(store) if opened is None else follow_log_table(store, *opened)


def open_logs(
    store: str | os.PathLike[str], as_of: AsOf = None, group_id: str | None = None
) -> list[LogReader]:
    """Return the logs of a store, as of a position or a time: one, or those of its shards.

    Parameters
    ----------
    group_id
        Only the log that has this group.

    Raises
    ------
    SpecError
        The log is missing, or was at that time, or a position stands for several logs; else as
        `LogReader`.
    """
    if isinstance(group_id, str):
        own = store_of(store, group_id)
        try:
            return [LogReader(own, as_of)]
        except SpecError:
            if own == os.fspath(store) or own in stores_of(store):
                raise
            raise SpecError(
                f"group {group_id!r} is not in {store}: the shard for it, {own}, has no groups yet"
            ) from None
    as_of, stores = check_as_of(as_of), stores_of(store)
    if not stores:
        raise SpecError(f"{store} has no groups yet: no shard of it has a log")
    if len(stores) == 1:
        return [LogReader(stores[0], as_of)]
    if isinstance(as_of, int):
        raise SpecError(
            f"{as_of} is a position, and {store} has {len(stores)} logs: give a time, or name a "
            "group"
        )

    def read(one: str) -> LogReader | BeforeLogError:
        try:
            return LogReader(one, as_of)
        except BeforeLogError as error:
            return error  # its shard had no groups then

    answers = ask_each(read, stores)
    found = [one for one in answers if isinstance(one, LogReader)]
    if not found:
        raise next(one for one in answers if isinstance(one, BeforeLogError))
    return found
