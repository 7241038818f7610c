"""The real DeltaLog in a folder that all coordinators share, on a disk that fails.

The disk forgets, when the power fails, whatever was not synced; so it need not really sync. What
the checkers take for the log is what is durable: nothing may act on anything else.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from coordinator.config import LogConfig
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_decoder import ValueCache, decode_batches
from coordinator.storage.record_log import Batch
from coordinator.storage.tables.commit_writer import Commit, WriteCommit, write_commit
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.recovery import commit_file, log_folder

from .chance import Chance
from .checkers import Violation
from .logs import LogFaults
from .node import Node

CHOSEN_NAME = re.compile(r"part-[0-9a-f]{32}|\.[0-9a-f]{32}(?=\.tmp)")
"""What of the names of files differs from run to run."""


class FaultyDisk(Filesystem):
    """The disk as one coordinator sees it."""

    syncs_beside = False  # faults are drawn in an order

    def __init__(self, store: DeltaStore, faults: LogFaults) -> None:
        self._store = store
        self._faults = faults

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        self._faults.disk("disk cannot be read", errno.EIO)
        return super().exists(path)

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        self._faults.disk("disk cannot be read", errno.EIO)
        return super().names(folder)

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        self._faults.disk("disk cannot be read", errno.EIO)
        return super().read(path)

    def write_rows(self, path: str, rows: pa.Table) -> int:
        """Write a data file, or the first half of one."""
        self._faults.write()
        size = super().write_rows(path, rows)
        try:
            self._faults.disk("disk full", errno.ENOSPC)
        except OSError:
            os.truncate(path, size // 2)
            raise
        return size

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._store.removes(path)
        super().remove(path)

    def sync(self, path: str) -> None:
        """Make a file, or the names in a folder, durable."""
        self._faults.disk("disk cannot sync", errno.EIO)
        self._store.synced(path)


class FaultyDeltaLog(DeltaLog):
    """A DeltaLog that fails as its faults say."""

    def __init__(self, store: DeltaStore, faults: LogFaults) -> None:
        super().__init__(store.folder, store.config, FaultyDisk(store, faults), failing(faults))
        self._faults = faults

    def replay(self) -> Iterator[Batch]:
        """Replay the log."""
        self._faults.replay()
        yield from super().replay()


def failing(faults: LogFaults) -> WriteCommit:
    """Return the writing of commits with faults around it."""

    def write(disk: Filesystem, path: str, commit: Commit) -> None:
        faults.commit("before")
        faults.take_over()
        write_commit(disk, path, commit)
        faults.commit("after")

    return write


class DeltaStore:
    """A store in a temporary folder.

    Attributes
    ----------
    folder
        Root path of the tables.
    """

    def __init__(self, chance: Chance) -> None:
        self.folder = tempfile.mkdtemp(prefix="muster-sim-")
        self.config = LogConfig(
            reopen_commits=chance.pick((3, 10, 50), "reopen"),
            pack_commits=chance.pick((7, 30, 200), "pack"),
            files_kept_ms=0,  # no reader of a simulation takes its time
            commits_kept_ms=0,
        )
        self._chance = chance
        self._log = os.path.join(self.folder, "log")
        self._contents: set[str] = set()
        self._names: set[str] = set()
        """Files whose content, and whose names, would survive a power cut."""
        self._durable = self._read = -1
        self._cuts = 0

    def open(self, node: Node) -> FaultyDeltaLog:
        """Return the log of a coordinator that starts."""
        return FaultyDeltaLog(self, node.faults)

    def batches(self, after: int) -> Iterator[Batch]:
        """Yield what is durable after a position, as each commit wrote it."""
        while self._read < self._durable:
            self._read += 1
            with open(commit_file(self._log, self._read)) as file:
                actions = [json.loads(line) for line in file]
            for added in (action["add"] for action in actions if "add" in action):
                if added["dataChange"]:
                    rows = pq.read_table(os.path.join(self._log, added["path"]))
                    yield from (
                        batch
                        for batch in decode_batches(rows, ValueCache())
                        if batch.position > after
                    )

    def synced(self, path: str) -> None:
        """Note what would survive a power cut."""
        if not os.path.isdir(path):
            self._contents.add(path)
            return
        there = {os.path.join(path, name) for name in os.listdir(path)}
        self._names |= there
        if path == log_folder(self._log):
            # What comes after a version that is not durable would be lost with it.
            while commit_file(self._log, self._durable + 1) in self._names & self._contents:
                self._durable += 1

    def removes(self, path: str) -> None:
        """Be called before a file is removed."""
        folder, name = os.path.split(path)
        if folder == self._log and name.endswith(".parquet"):
            table = DeltaTable(folder)
            if name in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist():
                raise Violation(f"version {table.version()} names a data file that is removed")

    def power_fails(self) -> None:
        """Tear, or lose, every file that was not synced."""
        self._cuts += 1
        for folder, _, names in sorted(os.walk(self.folder)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if path not in self._contents or path not in self._names:
                    self._contents.discard(path)
                    self._names.discard(path)
                    self._tear(
                        path, self._chance.draw("torn", CHOSEN_NAME.sub("", name), self._cuts)
                    )

    def _tear(self, path: str, how: float) -> None:
        size = os.path.getsize(path)
        if how < 0.25:
            os.unlink(path)
        elif how < 0.5:
            os.truncate(path, 0)
        elif how < 0.75:
            os.truncate(path, size // 2)
        else:
            with open(path, "r+b") as file:
                file.write(b"\0" * size)

    def plain(self, text: str) -> str:
        """Return a text without what differs from run to run."""
        return CHOSEN_NAME.sub("part", text.replace(self.folder, "store"))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)
