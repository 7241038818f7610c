"""The real DeltaLog on a simulated object store: puts are lost, late or unanswered, lists are old.

What is put is there whole and stays, so a power cut takes nothing. Objects are files of a folder,
which delta-rs reads; nothing is published by a rename or kept by a lock.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable

from coordinator.core.state.groups import State
from coordinator.core.state.records import OffsetCommitted, Record
from coordinator.core.state.replay import replay_all
from coordinator.storage import snapshot_table
from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.record_log import Batch, CorruptLog
from coordinator.storage.tables import object_files
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.newest_version import OpenTable, open_newest
from coordinator.storage.tables.recovery import commit_file, list_commits
from tests.sim.chance import Chance
from tests.sim.checkers import Violation
from tests.sim.delta import DeltaStore, FaultyDeltaLog, failing
from tests.sim.logs import LogFaults
from tests.sim.node import Node
from tests.sim.world import World
from tests.support.fingerprint import fingerprint

LATE_MS = 5_000
"""How much later a put may land than it was given up."""
OLD_MAX = 3
"""How many commits a list may lack."""

ALWAYS_OLD_S = -1.0
"""An age that nothing has: the real clock, which both ages are compared with, decides nothing."""


class ObjectDisk(Filesystem):
    """The objects as one coordinator sees them."""

    has_locks = needs_sync = syncs_beside = False
    lands_late = lists_late = True

    def __init__(self, store: ObjectStore, node: Node) -> None:
        super().__init__()
        self._store = store
        self._node = node
        self._faults = node.faults

    @property
    def trust_s(self) -> float:
        """For how long an entry that was seen is taken to be there; often that is over."""
        return ALWAYS_OLD_S if self._faults.happens("what was seen is old") else 3_600.0

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
        self._store.numbers[path] = len(self._store.numbers)
        self._faults.disk("put is refused", errno.EIO)
        size = super().write_rows(path, rows)
        self._faults.disk("put is not answered", errno.ETIMEDOUT)
        return size

    def create(self, path: str, content: bytes) -> None:
        """Put an object where none is: now, later, or never."""
        self._faults.disk("put is refused", errno.EIO)
        if self._faults.happens("put lands late"):
            self._land_later(path, content)
            raise OSError(errno.ETIMEDOUT, "not answered, lands later (simulated)", path)
        if self._faults.happens("put conflicts with itself"):
            self._land_later(path, content)
            object_files.resolve_create(self, path, content)
        super().create(path, content)
        self._faults.disk("put is not answered", errno.ETIMEDOUT)

    def remove(self, path: str) -> None:
        """Remove an object."""
        self._store.removes(path)
        super().remove(path)

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove objects; some may stay, and it is not the oldest that go first."""
        found = list(paths)
        stay = []
        if self._faults.happens("removals are partial"):
            numbers = self._store.numbers
            stay = [
                one
                for one in found
                if self._faults.between(0, 1, f"{numbers.get(one, os.path.basename(one))}")
            ]
        for path in reversed([one for one in found if one not in stay]):
            self.remove(path)
        if stay:
            raise OSError(errno.EIO, f"{len(stay)} objects stay (simulated)", stay[0])

    def _land_later(self, path: str, content: bytes) -> None:
        chance = self._node.world.chance
        wait = chance.between(1, LATE_MS, "late", os.path.basename(path), self._node.life)
        self._node.world.schedule.after(wait, self._land, path, content)

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
            with suppress(Exception):  # a checkpoint is newer: no reader would list it so
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
        self._store = store

    def append(self, records: Sequence[Record], at_ms: int) -> int:
        """Make records durable; a copy of the store may begin before."""
        if records and self._faults.happens("store is copied"):
            self._store.begin_copy()
        return super().append(records, at_ms)

    def snapshot(self, records: Iterable[Record], position: int, at_ms: int) -> None:
        """Write a snapshot; a copy that was begun gets it, beside the log of before."""
        super().snapshot(records, position, at_ms)
        self._store.end_copy()


class ObjectStore(DeltaStore):
    """A store whose objects are files of a temporary folder.

    Attributes
    ----------
    numbers
        The data files in the order of their puts; their names differ from run to run.
    """

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.numbers: dict[str, int] = {}

    _copy: str | None = None
    """Where the log was copied to, while the snapshots are yet to be."""

    def begin_copy(self) -> None:
        """Copy the log of the store, as it is now."""
        self._drop_copy()
        self._copy = tempfile.mkdtemp(prefix="muster-sim-copy-")
        shutil.copytree(self._log, f"{self._copy}/log")

    def end_copy(self) -> None:
        """Copy the snapshots, as they are now; a coordinator on the copy believes its log alone."""
        if self._copy is None:
            return
        shutil.copytree(f"{self.folder}/snapshots", f"{self._copy}/snapshots")
        log = DeltaLog(self._copy, self.config)
        try:
            log.claim("copy", "", 0)
        except CorruptLog as error:  # it sees that rows are lost
            if "has lost rows" not in str(error):
                raise Violation(f"a copy cannot be opened: {error}") from None
        else:
            self._check_copy(log)
        self._drop_copy()

    def _check_copy(self, log: DeltaLog) -> None:
        """Go on beyond what the original had, and compare what a load finds with the rows."""
        while log.position <= self._position_copied():
            log.append([OffsetCommitted("copied", "t", "id", 0, log.position)], 0)
        loaded, there = State(), State()
        for state, batches in ((loaded, log.replay()), (there, read_log(str(self._copy)))):
            for batch in batches:
                replay_all(state, batch.records)
        mine, logged = fingerprint(loaded), fingerprint(there)
        for group_id, group in mine["groups"].items():
            if group["computation"] is None:  # a snapshot leaves it out once its input is no more
                logged["groups"][group_id]["computation"] = None
        if mine != logged:
            raise Violation("a copy that was made of the live store loads what its log has not")

    def _position_copied(self) -> int:
        """Return the position of the newest snapshot that the copy has."""
        found = snapshot_table.list_snapshots(Filesystem(), f"{self._copy}/snapshots")
        return max((one.position for one in found), default=0)  # its writer was refused

    def _drop_copy(self) -> None:
        if self._copy is not None:
            shutil.rmtree(self._copy)
        self._copy = None

    def close(self) -> None:
        """Remove the folders."""
        self._drop_copy()
        super().close()

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
