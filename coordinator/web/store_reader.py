"""Looks at a store: what one page has read, the next one shares, until the log has changed."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.config import LeaseConfig
from coordinator.history.current_views import read_group_states, read_member_states
from coordinator.history.epoch_views import read_begun_epochs
from coordinator.history.followed_log import KEPT_BYTES_MAX, FollowedLog
from coordinator.history.frames import compute_view, sort_rows
from coordinator.history.log_reader import AsOf, LogReader
from coordinator.history.log_rows import LogRows
from coordinator.history.view_schemas import WITHOUT_GROUPS
from coordinator.storage.lease import Holder, read_holder
from coordinator.storage.nodes import Node, StoreNodes
from coordinator.storage.record_log import NoLog, Unreachable
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import commit_file
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.tables.store_root import find_root
from coordinator.web.activity import Activity
from coordinator.web.errors import NoGroupError

T = TypeVar("T")
KEPT_MAX = 64
"""How many things that were read are kept; of a very large group one may have tens of MB."""
VERSIONS_MAX = 2
"""Of how many versions each is kept: a page may still be drawn from the one before."""
SERVERS_S = 2.0
"""How long it is kept who coordinates a store and who stands by."""
PAST_S = 60.0
"""How long a look at a former position is kept."""
UNFOLLOWED = {"audit", "events", "log", "offsets", "targets"}
"""Views of rows that `Activity` leaves out."""
PRESENT = {"epochs": read_begun_epochs, "groups": read_group_states}
"""Views without the columns that pages do not show and that are dear."""
Stamp: TypeAlias = tuple[int, int]


class Kept:
    """Keeps what was computed last; what several threads want at once is computed once."""

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._found: OrderedDict[tuple[Hashable, int], Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, what: Hashable, version: int, compute: Callable[[], T]) -> T:
        """Return what is kept of a version, or compute it. An error is raised, and not kept."""
        key = what, version
        with self._lock:
            found = self._found.get(key)
            if mine := found is None:
                found = self._found[key] = Future()
                self._let_go(what)
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

    def _let_go(self, what: Hashable) -> None:
        """Let go of former versions: each may be as large as the history."""
        versions = sorted(version for kept, version in self._found if kept == what)
        for version in versions[:-VERSIONS_MAX]:
            del self._found[what, version]
        while len(self._found) > self._most:
            self._found.popitem(last=False)


class Look:
    """A store as of one position.

    Attributes
    ----------
    reading
        Its log up to there.
    """

    def __init__(self, reading: LogReader, kept: Kept, followed: Followed | None) -> None:
        self.reading = reading
        self._kept = kept
        self._followed = followed

    def rows(self, group_id: str | None = None) -> LogRows:
        """Return the rows of the log, of one group if wanted."""
        if self._followed is None:
            return LogRows(self.reading, group_id)
        return self._followed.log.rows(self.reading, group_id)

    def view(self, name: str, group_id: str | None = None) -> pa.Table:
        """Return the rows of a view, of one group if wanted.

        Epochs have no `reached_at` and groups no `incarnation`: a page does not wait for all that
        there ever was of members or groups.
        """
        if name in WITHOUT_GROUPS:
            group_id = None

        def read() -> pa.Table:
            rows = self.rows(group_id)
            if name in PRESENT:
                return sort_rows(name, PRESENT[name](rows))
            return compute_view(rows, name)

        if group_id is None and name in PRESENT:
            return self.once_of_list(("view", name), read)
        return self.once(group_id, ("view", name), read, followed=name not in UNFOLLOWED)

    def view_of(self, name: str, group_id: str) -> pa.Table:
        """Return the rows of a view for a group, which may be none.

        Raises
        ------
        NoGroupError
            The group does not exist.
        """
        found = self.view(name, group_id)
        if not len(found) and not self.has_group(group_id):
            raise NoGroupError(group_id)
        return found

    def has_group(self, group_id: str) -> bool:
        """Whether there is such a group."""
        return len(self.view("groups", group_id)) > 0

    def members(self, group_id: str | None = None) -> pa.Table:
        """Return the rows of the view `members`, without what members subscribe to."""

        def read() -> pa.Table:
            return sort_rows("members", read_member_states(self.rows(group_id)))

        if group_id is None:
            return self.once_of_list("members", read)
        return self.once(group_id, "members", read)

    def once(
        self,
        group_id: str | None,
        what: Hashable,
        compute: Callable[[], T],
        *,
        followed: bool = True,
    ) -> T:
        """Return what was computed of a group, or of all, unless that has changed.

        Parameters
        ----------
        followed
            Whether `Activity` tells when it changes; else each new row of the log may be one of it.
        """
        version = self.version(group_id if followed else None)
        return self._kept.get((group_id, what), version, compute)

    def once_of_list(self, what: Hashable, compute: Callable[[], T]) -> T:
        """Return what was computed of all groups, unless the list of them has changed.

        Claims and commits of offsets are no change of it.
        """
        version = self.reading.position
        if self._followed is not None:
            version = min(self._followed.activity.changes, version)
        return self._kept.get((None, what), version, compute)

    def version(self, group_id: str | None) -> int:
        """Return a number that is another one once a group has changed; without one, any of them.

        Commits of offsets are no change of a group.
        """
        position = self.reading.position
        if group_id is None or self._followed is None:
            return position
        # A newer look may have read on meanwhile: what this one sees is as of its own position.
        return min(self._followed.activity.version(group_id), position)


class Followed:
    """A log that is followed, and what was read of it."""

    def __init__(self, reading: LogReader, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self.log = FollowedLog(reading, bytes_max)
        self.activity = Activity()
        self.kept = Kept()
        self.look = self.advance(reading)

    def advance(self, reading: LogReader) -> Look:
        """Read what is new, and look at it."""
        self.log.advance(reading)
        self.activity.advance(self.log.rows(reading), reading.position)
        self.look = Look(reading, self.kept, self)
        return self.look


@dataclass(frozen=True, slots=True)
class Servers:
    """Who coordinates a store, as far as its lease says, and who stands by.

    Attributes
    ----------
    holder
        Who had the lease last; None if the file says nothing.
    is_live
        Whether the lease has not ended.
    stand_bys
        Servers that are seen to stand by; a process that has no server is not seen.
    """

    holder: Holder | None = None
    is_live: bool = False
    stand_bys: tuple[Node, ...] = ()

    @property
    def shown(self) -> Hashable:
        """What a page says of them: each renewal makes another lease."""
        holder, stand_bys = self.holder, self.stand_bys
        who = holder and (holder.token, holder.coordinator_epoch)
        return who, self.is_live, tuple(one.address for one in stand_bys)


class ServersReader:
    """Reads who coordinates a store and who stands by; any thread may ask.

    Parameters
    ----------
    clock
        Seconds that never go back.

    Attributes
    ----------
    changes
        How often another one was seen.
    """

    def __init__(
        self,
        store: str,
        disk: Files,
        lease: LeaseConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._disk, self._store = disk, store
        self._nodes = StoreNodes(store, lease, disk=disk)
        self._ttl_s = lease.ttl_ms / 1000
        self._every_s = max(SERVERS_S, 5 * disk.poll_s)
        self._lock = threading.Lock()
        self._read_at = self._renewed_at = -math.inf
        self._seen = Servers()
        self.changes = 0

    def read(self, now_ms: int, *, fresh: bool = False) -> Servers:
        """Return them as they were seen lately, or are now; what cannot be read says nothing."""
        with self._lock:
            now = self._clock()
            if not fresh and now - self._read_at < self._every_s:
                return self._seen
            first, self._read_at = self._read_at == -math.inf, now
            holder, before = read_holder(self._disk, self._store), self._seen
            if holder != before.holder and not first:
                self._renewed_at = now  # by our clock: that of the store may be behind
            is_live = holder is not None and (
                holder.expires_ms > now_ms or now - self._renewed_at < self._ttl_s
            )
            nodes: tuple[Node, ...] = ()
            with suppress(OSError):
                nodes = self._nodes.look()
            stand_bys = tuple(one for one in nodes if not one.coordinator_epoch)
            self._seen = Servers(holder, is_live, stand_bys)
            self.changes += self._seen.shown != before.shown
            return self._seen


class StoreReader:
    """Reads a store for pages; any thread may ask.

    Parameters
    ----------
    store
        The folder that a coordinator was opened with, of one that runs or has run; or its URL.
    lease
        How long a lease lives.
    bytes_max
        Of what is kept of its log.

    Raises
    ------
    SpecError
        The store is missing.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        lease: LeaseConfig | None = None,
        bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self.store = find_root(store)
        self._folder = os.path.join(self.store, "log")
        self._disk = files_at(self.store)
        self.servers = ServersReader(self.store, self._disk, lease or LeaseConfig())
        self._lock = threading.Lock()
        self._past = Kept(8)
        self._next_look, self._changed, self._looks = 0.0, False, 0
        self._looked_at = time.monotonic()
        self._unseen = ""
        """Why the last look failed; empty if it did not."""
        self._followed = Followed(LogReader(self.store), bytes_max)
        self._commit = self._stamp(self._followed.look.reading.version)

    def of(self, _group_id: str) -> StoreReader:
        """Return the reader of the log that has a group."""
        return self

    def parts(self) -> list[StoreReader]:
        """Return the readers of all logs."""
        return [self]

    def find_servers(
        self, now_ms: int, _group_id: str | None = None, *, fresh: bool = False
    ) -> Servers:
        """Return who coordinates a group, or all; see `ServersReader.read`."""
        return self.servers.read(now_ms, fresh=fresh)

    @property
    def activity(self) -> Activity:
        """When groups changed."""
        return self._followed.activity

    @property
    def position(self) -> int:
        """The newest position that was seen."""
        return self._followed.look.reading.position

    def has_changed(self) -> bool:
        """Whether the log has new commits, as far as can be seen without reading it.

        Raises
        ------
        OSError, Unreachable
            It cannot be seen, now or a moment ago.
        """
        now = time.monotonic()
        if self._changed or now < self._next_look:
            if self._unseen:
                raise Unreachable(self._unseen)
            return self._changed
        self._looked_at = now
        self._next_look = now + self._disk.poll_s  # of an object store: a look is two requests
        try:
            self._changed, self._unseen = self._look(), ""
        except OSError as error:  # no page shows what was there before, nor waits for it again
            self._next_look, self._unseen = time.monotonic() + self._disk.poll_s, str(error)
            raise
        return self._changed

    def _look(self) -> bool:
        version = self._followed.look.reading.version
        # The next commit may have come and been cleaned up, or this be another store by now.
        return (
            self._disk.exists(commit_file(self._folder, version + 1))
            or self._commit is None
            or self._commit != self._stamp(version)
        )

    def count_changes(self) -> int:
        """Return a number that is another one once the store has changed.

        Who asks for it learns of each change, though another reader may have looked at it already.
        """
        commits = self.count_commits()
        self.servers.read(wall_ms())
        return commits + self.servers.changes

    def count_commits(self, every_s: float = 0.0) -> int:
        """Return a number that is another one once the log has new commits.

        Parameters
        ----------
        every_s
            How old a look may be that saw none.
        """
        looks = self._looks  # first: one that is taken meanwhile must not be counted twice
        if time.monotonic() - self._looked_at < every_s:
            return looks + self._changed
        return looks + self.has_changed()

    def newest(self) -> Look:
        """Return a look at the newest position.

        Raises
        ------
        LogError
            The store is gone, or cannot be read.
        """
        with self._lock:
            if self.has_changed():
                self._follow()
            return self._followed.look

    def past(self, as_of: AsOf | str) -> Look:
        """Return a look at a former position or time.

        Raises
        ------
        SpecError
            The log has none.
        """
        reading = LogReader(self.store, as_of)
        # Maintenance replaces files, and removes them later: no look is kept for long.
        key = "past", reading.position
        minute = int(time.monotonic() // PAST_S)
        return self._past.get(key, minute, lambda: Look(reading, Kept(16), None))

    def _follow(self) -> None:
        before = self._followed.look.reading
        try:
            reading = before.follow()
        except SpecError as error:
            raise NoLog(str(error)) from None
        if reading.table_id != before.table_id or reading.position < before.position:
            # Another store was made in the same place.
            self._followed = Followed(reading, self._bytes_max)
        elif reading.position > before.position:
            self._followed.advance(reading)
        self._commit, self._changed = self._stamp(reading.version), False
        self._looks += 1

    def _stamp(self, version: int) -> Stamp | None:
        """Return what tells the commit of a version from that of another store; None without it."""
        path = commit_file(self._folder, version)
        if self._disk.poll_s:
            return (0, 0) if self._disk.exists(path) else None
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns
