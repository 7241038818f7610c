"""log_reader: what a store says, now or as of a position or a time, without a claim and a JVM."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assignors import SpecError
from coordinator.delta_log import table
from coordinator.delta_table import Table, transact
from coordinator.disk import Disk
from coordinator.history.ownership_history import History
from coordinator.log import Batch, LogError, NoLog
from coordinator.parts import Part, parts_of, read_parts
from coordinator.records import Record, TopicChanged
from coordinator.replay import read, replay
from coordinator.rows import Seen, decode
from coordinator.snapshots import read_snapshot
from coordinator.state import Group, State
from coordinator.target_table import load
from coordinator.targets import NOT_READ

logger = logging.getLogger("muster.coordinator")
AsOf: TypeAlias = int | datetime | None
"""A position of the log, a time, or None: now."""


def parse_as_of(text: str | None) -> AsOf:
    """Read --as-of: a position is a whole number, a time is ISO 8601, in UTC unless it says.

    Raises
    ------
    SpecError
        It is neither.
    """
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise SpecError(
            f"--as-of {text!r} is neither a position nor a time: give a whole number, or a time "
            f"such as 2026-03-01T12:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class Reading:
    """The log of a store up to a position.

    Attributes
    ----------
    position, at_ms
        Of the last row that is read.

    Raises
    ------
    SpecError
        There is no store, it is empty, or the position or time is outside of its log.
    CorruptLog, NewerLog
        The log cannot be read.
    """

    def __init__(self, store: str | os.PathLike[str], as_of: AsOf = None) -> None:
        self._store = os.path.abspath(store)
        self._folder = os.path.join(self._store, "log")
        try:
            self._parts = parts_of(table(self._store))
        except NoLog:
            raise SpecError(
                f"{store} is no store of a coordinator: name the folder that it was opened with"
            ) from None
        if not self._parts:
            raise SpecError(f"the log of {store} is empty: no coordinator has claimed it yet")
        self._live = as_of is None
        self.position = self._position_of(as_of)
        self.at_ms = self._at(self.position)

    def records(self, group_id: str | None = None) -> Iterator[tuple[int, int, Record]]:
        """Yield position, at_ms and record; of one group and the topics only, when it is given."""
        yield from self._records(0, Seen(), group_id)

    def state(self) -> State:
        """Return the state at the position."""
        state, seen, after = State(), Seen(), 0
        for batch in self._snapshot(seen):
            for record in batch.records:
                replay(state, record)
            after = batch.position
        for _, _, record in self._records(after, seen):
            replay(state, record)
        return state

    def read_target(self, group: Group) -> None:
        """Read a group's whole target, if a job computed one: the log has its name only.

        Raises
        ------
        LostTarget
            Its rows are not in the table of targets any more.
        """
        if group.targets.whole is NOT_READ and group.installed is not None:
            read(group, load(self._store, group.installed))

    def history(self, group_id: str) -> History:
        """Return what happened to a group.

        Raises
        ------
        SpecError
            The log has no such group.
        """
        history = History(group_id)
        there = False
        for position, at_ms, record in self.records(group_id):
            history.tell(record, position, at_ms)
            there = there or not isinstance(record, TopicChanged)
        if not there:
            raise self.unknown(group_id)
        return history

    def unknown(self, group_id: str) -> SpecError:
        """Return the refusal of a group that is not there."""
        return SpecError(
            f"group {group_id!r} is not in {self._store} at position {self.position}: "
            f"`muster groups --store {self._store}` lists those that are"
        )

    def _records(
        self, after: int, seen: Seen, group_id: str | None = None
    ) -> Iterator[tuple[int, int, Record]]:
        for piece in read_parts(self._folder, self._parts, after):
            rows = piece.filter(pc.less_equal(piece["position"], self.position))
            if group_id is not None:
                rows = rows.filter(_about(rows, group_id))
            columns = (rows["position"].to_pylist(), rows["at_ms"].to_pylist(), decode(rows, seen))
            for position, at_ms, record in zip(*columns, strict=True):
                if record is not None:  # a claim has none
                    yield position, at_ms, record
            if piece["position"][-1].as_py() >= self.position:
                return

    def _snapshot(self, seen: Seen) -> Iterator[Batch]:
        """Yield the newest snapshot; an earlier state is replayed from the beginning."""
        if not self._live:
            return
        snapshots = Table(os.path.join(self._store, "snapshots"), Disk(), transact, sync=False)
        try:
            snapshots.refresh()
        except NoLog:
            return
        except LogError as error:
            logger.warning("snapshots are passed over: %s", error)
            return
        yield from read_snapshot(snapshots, self.position, seen)

    def _position_of(self, as_of: AsOf) -> int:
        last = self._parts[-1].last
        if as_of is None:
            return last
        if isinstance(as_of, datetime):
            return self._position_at(as_of)
        if not 1 <= as_of <= last:
            raise SpecError(
                f"position {as_of} is not in the log of {self._store}: it has positions 1 to {last}"
            )
        return as_of

    def _position_at(self, time: datetime) -> int:
        """Return the last position written at a time or before it."""
        ms = int(time.timestamp() * 1000)
        if ms > max(self._at(self._parts[-1].last), datetime.now(UTC).timestamp() * 1000):
            raise SpecError(f"{shown_time(ms)} is still to come: name a time that has passed")
        for part in reversed(self._parts):
            rows = self._times(part)
            before = np.flatnonzero(rows["at_ms"].to_numpy() <= ms)
            if len(before):
                return int(rows["position"][int(before[-1])].as_py())
        begin = shown_time(self._at(self._parts[0].first))
        raise SpecError(
            f"{shown_time(ms)} is before the first record of {self._store}, written at {begin}"
        )

    def _at(self, position: int) -> int:
        part = next(part for part in self._parts if part.first <= position <= part.last)
        return int(self._times(part)["at_ms"][position - part.first].as_py())

    def _times(self, part: Part) -> pa.Table:
        columns = ["position", "at_ms"]
        return pq.read_table(os.path.join(self._folder, part.path), columns=columns)


def _about(rows: pa.Table, group_id: str) -> pa.Array:
    """Return which rows are of a group, or of a topic."""
    topics = pc.equal(rows["kind"], TopicChanged.kind)
    if "group_id" not in rows.column_names:  # no row of the file has one
        return topics
    return pc.or_kleene(pc.equal(rows["group_id"], group_id), topics)


def shown_time(ms: int) -> str:
    """Return a time of the log as text: ISO 8601 in UTC, to the millisecond."""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
