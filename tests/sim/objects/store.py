"""The real DeltaLog on a simulated object store: puts are lost, late or unanswered, lists are old.

What is put is there whole and stays, so a power cut takes nothing. Objects are files of a folder,
which delta-rs reads; nothing is published by a rename or kept by a lock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import Batch
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.newest_version import OpenTable, open_newest
from coordinator.storage.tables.recovery import commit_file, list_commits
from tests.sim.checkers import Violation
from tests.sim.delta import DeltaStore, FaultyDeltaLog, failing
from tests.sim.logs import LogFaults
from tests.sim.node import Node
from tests.sim.world import World

LATE_MS = 5_000
"""How much later a put may land than it was given up."""
OLD_MAX = 3
"""How many commits a list may lack."""


class ObjectDisk(Filesystem):
    """The objects as one coordinator sees them."""

    has_locks = needs_sync = False
    lands_late = lists_late = True

    def __init__(self, store: ObjectStore, node: Node) -> None:
        super().__init__()
        self._store = store
        self._node = node
        self._faults = node.faults

    def pause(self, seconds: float) -> None:
        """Take no time: what is tried again meets other chances."""

    def exists(self, path: str) -> bool:
        """Whether an object is there."""
        self._ask()
        return super().exists(path)

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        self._ask()
        return super().names(folder)

    def read(self, path: str) -> bytes:
        """Return what an object holds."""
        self._ask()
        return super().read(path)

    def write_rows(self, path: str, rows: pa.Table) -> int:
        """Put a data file; its writer gives it up if there is no answer."""
        self._faults.write()
        self._faults.disk("put is refused", errno.EIO)
        size = super().write_rows(path, rows)
        self._faults.disk("put is not answered", errno.ETIMEDOUT)
        return size

    def create(self, path: str, content: bytes) -> None:
        """Put an object where none is: now, later, or never."""
        self._faults.disk("put is refused", errno.EIO)
        if self._faults.happens("put lands late"):
            chance = self._node.world.chance
            wait = chance.between(1, LATE_MS, "late", os.path.basename(path), self._node.life)
            self._node.world.schedule.after(wait, self._land, path, content)
            raise OSError(errno.ETIMEDOUT, "not answered, lands later (simulated)", path)
        super().create(path, content)
        self._faults.disk("put is not answered", errno.ETIMEDOUT)

    def remove(self, path: str) -> None:
        """Remove an object."""
        self._store.removes(path)
        super().remove(path)

    def _land(self, path: str, content: bytes) -> None:
        with suppress(FileExistsError):
            super().create(path, content)
            self._node.world.tell(f"{os.path.basename(path)} lands late")

    def _ask(self) -> None:
        self._faults.disk("disk cannot be read", errno.EIO)


def listing(faults: LogFaults) -> OpenTable:
    """Return the look at the newest version, by lists that may lack the newest commits."""

    def open_listed(disk: Files, path: str) -> DeltaTable:
        table = open_newest(disk, path)
        if not faults.happens("list is old"):
            return table
        versions = [v for v in list_commits(Filesystem(), path) if v <= table.version()]
        lacks = min(faults.between(1, OLD_MAX, "lacks"), len(versions) - 1)
        if lacks > 0:
            with suppress(Exception):  # a checkpoint is newer: nobody would list it so
                return DeltaTable(path, version=versions[-1 - lacks])
        return table

    return open_listed


class ObjectLog(FaultyDeltaLog):
    """A DeltaLog on objects."""

    def __init__(self, store: ObjectStore, node: Node) -> None:
        faults = node.faults
        DeltaLog.__init__(
            self,
            store.folder,
            store.config,
            ObjectDisk(store, node),
            failing(faults),
            open_table=listing(faults),
        )
        self._faults = faults


class ObjectStore(DeltaStore):
    """A store whose objects are files of a temporary folder."""

    def open(self, node: Node) -> ObjectLog:
        """Return the log of a coordinator that starts."""
        return ObjectLog(self, node)

    def batches(self, after: int) -> Iterator[Batch]:
        """Yield what is there after a position: what is there is durable."""
        while os.path.exists(commit_file(self._log, self._durable + 1)):
            self._durable += 1
        try:
            yield from super().batches(after)
        except FileNotFoundError as error:
            raise Violation(f"a commit names a data file that is gone: {error}") from None

    def power_fails(self) -> None:
        """Lose nothing."""


class ObjectWorld(World):
    """A world whose coordinators share an object store."""

    store_kind = ObjectStore
