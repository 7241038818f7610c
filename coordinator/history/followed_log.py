"""A log that is followed: what views asked for is kept, and only rows that are new are read.

The newest rows are kept whole. What a view reads is kept by what it asked for, and is brought up to
date from them; so a change costs what is new in it, however many files the log has.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.records import KINDS, PARTITION_METADATA, TopicChanged
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.record_log import CLAIM
from coordinator.storage.record_schema import SCHEMA

KEPT_BYTES_MAX = 256 << 20
"""Of all that is kept for views; what is a quarter of it is not kept at all."""
TAIL_ROWS_MAX = 20_000
GROWN_ROWS = 10_000
"""By how much the rows of a state may grow until they are read from a snapshot again."""
EVERY = [*KINDS, CLAIM, PARTITION_METADATA]


_Place: TypeAlias = tuple[Hashable, tuple[str, ...]]
"""Which rows, and their columns."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows up to a position, and how many there were at first."""

    rows: pa.Table
    position: int
    begun: int


class FollowedLog:
    """The rows of a log, for views; any thread may ask.

    Parameters
    ----------
    reading
        The log as it is.
    bytes_max
        Most bytes of rows to keep.
    tail_max
        Most new rows to keep whole.
    """

    def __init__(
        self,
        reading: LogReader,
        bytes_max: int = KEPT_BYTES_MAX,
        tail_max: int = TAIL_ROWS_MAX,
    ) -> None:
        self._bytes_max, self._tail_max = bytes_max, tail_max
        self._bytes = 0
        self._kept: OrderedDict[_Place, _Kept] = OrderedDict()
        self._columns: dict[Hashable, list[tuple[str, ...]]] = {}
        self._lock = threading.Lock()
        self._tail = LogRows(reading).past(EVERY, SCHEMA.names, reading.position)
        self._after = self._position = reading.position

    def advance(self, reading: LogReader) -> None:
        """Read the rows that are new."""
        if reading.position <= self._position:
            return
        new = LogRows(reading).past(EVERY, SCHEMA.names, self._position)
        with self._lock:
            # A reader far behind reads again from the start, so old rows need not stay.
            tail = pa.concat_tables([self._tail, new])
            drop = max(0, len(tail) - max(self._tail_max, len(new)))
            if drop:
                self._after = int(tail["position"][drop - 1].as_py())
            self._tail = tail.slice(drop).unify_dictionaries().combine_chunks()
            self._position = reading.position

    def rows(self, reading: LogReader, group_id: str | None = None) -> LogRows:
        """Return the rows of a log up to the position of a reading, of a group if wanted."""
        return _FollowedRows(self, reading, group_id)

    def newer(self, after: int, until: int) -> pa.Table | None:
        """Return all rows after a position and up to another one, None if some are not kept."""
        with self._lock:
            first, last, tail = self._after, self._position, self._tail
        return _cut(tail, after, until) if first <= after <= until <= last else None

    def find(
        self,
        key: Hashable,
        columns: Sequence[str],
        position: int,
        read: Callable[[], pa.Table],
        choose: Callable[[pa.Table, Sequence[str]], pa.Table],
        *,
        grows: bool,
    ) -> pa.Table:
        """Return columns of the rows of a key as of a position.

        Parameters
        ----------
        key
            Which rows. If more columns of the same rows are kept, these are some of them.
        read
            Reads them from the log.
        choose
            Returns those of the key among new rows.
        grows
            Whether they are all that there ever was, and not those of a state.
        """
        kept_as, kept = self._find_kept(key, columns)
        if kept is not None and kept.position == position:
            return kept.rows.select(list(columns))
        new = None
        if kept is not None and (grows or len(kept.rows) <= kept.begun + GROWN_ROWS):
            new = self.newer(kept.position, position)
        if kept is not None and new is not None:
            names = kept.rows.column_names
            kept = _Kept(_join(kept.rows, choose(new, names)), position, kept.begun)
        else:
            rows = read()
            kept_as, kept = (key, tuple(columns)), _Kept(rows, position, len(rows))
        self._keep(kept_as, kept)
        return kept.rows.select(list(columns))

    def _find_kept(self, key: Hashable, columns: Sequence[str]) -> tuple[_Place, _Kept | None]:
        """Return what is kept of the rows of a key, with these columns or more."""
        wanted = tuple(columns)
        with self._lock:
            others = self._columns.get(key, ())
            if wanted not in others:
                wanted = next((one for one in others if set(one) >= set(wanted)), wanted)
            place = (key, wanted)
            kept = self._kept.get(place)
            if kept is not None:
                self._kept.move_to_end(place)
        return place, kept

    def _keep(self, place: _Place, kept: _Kept) -> None:
        with self._lock:
            before = self._kept.get(place)
            if before is not None and before.position > kept.position:
                return  # a look at a former position
            self._drop(place)
            if kept.rows.nbytes * 4 > self._bytes_max:
                return
            self._kept[place] = kept
            self._columns.setdefault(place[0], []).append(place[1])
            self._bytes += kept.rows.nbytes
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._kept)))

    def _drop(self, place: _Place) -> None:
        kept = self._kept.pop(place, None)
        if kept is None:
            return
        self._bytes -= kept.rows.nbytes
        key, columns = place
        self._columns[key].remove(columns)
        if not self._columns[key]:
            del self._columns[key]


class _FollowedRows(LogRows):
    """Rows of a followed log, as `LogRows` returns them."""

    def __init__(self, followed: FollowedLog, reading: LogReader, group_id: str | None) -> None:
        super().__init__(reading, group_id)
        self._followed = followed

    def past(self, kinds: Collection[str], columns: Sequence[str], after: int = 0) -> pa.Table:
        """See `LogRows.past`."""

        def read() -> pa.Table:
            return super(_FollowedRows, self).past(kinds, columns, after)

        if not after:
            return self._find("past", kinds, columns, read)
        new = self._followed.newer(after, self._reading.position)
        return read() if new is None else self._choose(new, kinds, columns)

    def present(self, kinds: Collection[str], columns: Sequence[str]) -> pa.Table:
        """See `LogRows.present`."""
        return self._find(
            "present", kinds, columns, lambda: super(_FollowedRows, self).present(kinds, columns)
        )

    def _find(
        self,
        what: str,
        kinds: Collection[str],
        columns: Sequence[str],
        read: Callable[[], pa.Table],
    ) -> pa.Table:
        return self._followed.find(
            (what, self.group_id, tuple(sorted(kinds))),
            columns,
            self._reading.position,
            read,
            lambda new, names: self._choose(new, kinds, names),
            grows=what == "past",
        )

    def _choose(self, rows: pa.Table, kinds: Collection[str], columns: Sequence[str]) -> pa.Table:
        mask = pc.is_in(rows["kind"], value_set=pa.array(sorted(kinds), pa.string()))
        if self.group_id is not None:
            ours = pc.fill_null(pc.equal(rows["group_id"], self.group_id), fill_value=False)
            mask = pc.and_(mask, pc.or_(ours, pc.equal(rows["kind"], TopicChanged.kind)))
        return rows.select(list(columns)).filter(mask)


def _cut(rows: pa.Table, after: int, until: int) -> pa.Table:
    """Return the rows after a position and up to another one."""
    first, end = np.searchsorted(rows["position"].to_numpy(), [after, until], side="right")
    return rows.slice(int(first), int(end - first))


def _join(before: pa.Table, new: pa.Table) -> pa.Table:
    if not len(new):
        return before
    return pa.concat_tables([before, new]).unify_dictionaries().combine_chunks()
