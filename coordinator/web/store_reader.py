"""Looks at a store: what one page has read, the next one shares, until the log has changed."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa

from coordinator.history.frames import WITHOUT_GROUPS, read_view
from coordinator.history.log_reader import AsOf, LogReader
from coordinator.storage.tables.store_files import root_of
from coordinator.web.activity import Activity

T = TypeVar("T")
KEPT_MAX = 64
"""How many things that were read are kept; of a very large group one may have tens of MB."""
PAST_S = 60.0
"""How long a look at a former position is kept."""
SETTLED_S = 0.05
"""A folder's time of change may be this coarse: what changed later may not be seen in it."""


class Kept:
    """Keeps what was computed last; what several threads want at once is computed once."""

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._found: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what is kept under a key, or compute it. An error is raised, and not kept."""
        with self._lock:
            found = self._found.get(key)
            if mine := found is None:
                found = self._found[key] = Future()
                while len(self._found) > self._most:
                    self._found.popitem(last=False)
            else:
                self._found.move_to_end(key)
        assert found is not None
        if mine:
            try:
                found.set_result(compute())
            except BaseException as error:  # noqa: BLE001 - raised below, for all who wait
                with self._lock:
                    self._found.pop(key, None)
                found.set_exception(error)
        result: T = found.result()
        return result


class Look:
    """A store as of one position.

    Attributes
    ----------
    reading
        Its log up to there.
    """

    def __init__(self, reading: LogReader, kept: Kept, version: Callable[[str], int]) -> None:
        self.reading = reading
        self._kept = kept
        self._version = version

    def view(self, name: str, group_id: str | None = None) -> pa.Table:
        """Return the rows of a view, of one group if wanted."""
        if name in WITHOUT_GROUPS:
            group_id = None
        return self.once(group_id, ("view", name), lambda: read_view(self.reading, name, group_id))

    def once(self, group_id: str | None, what: Hashable, compute: Callable[[], T]) -> T:
        """Return what was computed of a group, or of all, unless that has changed."""
        position = self.reading.position
        # A newer look may have read on meanwhile: what this one sees is as of its own position.
        version = position if group_id is None else min(self._version(group_id), position)
        return self._kept.get((group_id, version, what), compute)


class StoreReader:
    """Reads a store for pages; any thread may ask.

    Parameters
    ----------
    store
        The folder that a coordinator was opened with, of one that runs or has run.

    Raises
    ------
    SpecError
        There is no store.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = root_of(store)
        self._commits = os.path.join(self.store, "log", "_delta_log")
        self._lock = threading.Lock()
        self._kept = Kept()
        self._past = Kept(8)
        self._stamp: tuple[int, bool] = (0, False)
        self.activity = Activity()
        self._newest = self._open()

    @property
    def position(self) -> int:
        """The newest position that was seen."""
        return self._newest.reading.position

    def has_changed(self) -> bool:
        """Whether the log has new commits, as far as can be seen without reading it."""
        stamp, settled = self._stamp
        return not settled or stamp != self._read_stamp()[0]

    def newest(self) -> Look:
        """Return a look at the newest position."""
        with self._lock:
            if self.has_changed():
                self._newest = self._open()
            return self._newest

    def past(self, as_of: AsOf | str) -> Look:
        """Return a look at a former position or time.

        Raises
        ------
        SpecError
            The log has none.
        """
        reading = LogReader(self.store, as_of)

        def open_past() -> Look:
            kept = Kept(16)
            return Look(reading, kept, lambda _: reading.position)

        # Maintenance replaces files, and removes them later: no look is kept for long.
        return self._past.get((reading.position, time.monotonic() // PAST_S), open_past)

    def _open(self) -> Look:
        stamp = self._read_stamp()
        reading = LogReader(self.store)
        self.activity.advance(reading)
        self._stamp = stamp
        return Look(reading, self._kept, self.activity.version)

    def _read_stamp(self) -> tuple[int, bool]:
        """Return when commits changed last, and whether another change would show another time."""
        try:
            changed_ns = os.stat(self._commits).st_mtime_ns
        except OSError:
            return 0, False
        return changed_ns, time.time() - changed_ns / 1e9 > SETTLED_S
