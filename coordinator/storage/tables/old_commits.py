"""Which files of a table's log may be removed once a checkpoint holds what they say.

Not the entries by which a writer that slept learns that it was replaced: the first one of the
table, those that raise its epoch, and those that take the version of a write that was given up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

from coordinator.storage.tables.commit_writer import APP, STAYS
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.recovery import (
    CHECKPOINT_FILE,
    COMMIT_FILE,
    PREVIOUS,
    UNFINISHED_COMMIT,
    commit_file,
    lines_of,
    log_folder,
)


class OldCommits:
    """The old files of one table's log; each entry that another coordinator wrote is read once."""

    def __init__(self, table: FencedTable, disk: Files) -> None:
        self._table = table
        self._disk = disk
        self._stay: set[int] = set()
        """Entries of others that stay."""

    def find_removable(self, version: int) -> list[str]:
        """Return the paths of what a checkpoint of a version makes needless, oldest first."""
        folder = log_folder(self._table.path)
        found = []
        commits = []
        for name in self._disk.names(folder):
            if (one := COMMIT_FILE.match(name)) and int(one[1]) < version:
                commits.append(int(one[1]))
            elif (one := CHECKPOINT_FILE.match(name) or UNFINISHED_COMMIT.match(name)) and int(
                one[1]
            ) < version:
                found.append(os.path.join(folder, name))
        removable = self._without_staying(commits)
        return [*found, *(commit_file(self._table.path, one) for one in removable)]

    def _without_staying(self, versions: list[int]) -> list[int]:
        own_from, sealed = self._table.own_from, self._table.sealed
        unknown = set(versions) - self._stay
        others = [one for one in sorted(unknown) if one < own_from or own_from < 0]
        self._stay.update(self._find_staying(others))
        stay = self._stay | sealed | {0, own_from}
        return [one for one in versions if one not in stay]

    def _find_staying(self, versions: list[int]) -> Iterator[int]:
        """Yield those of others' entries, in order, that stay.

        Entries of an older version of Muster do not say so: their epochs are compared.
        """
        newest = -1
        for version in versions:
            with suppress(FileNotFoundError):  # another coordinator has removed it
                info, epoch = _read_entry(self._disk.read(commit_file(self._table.path, version)))
                if info is None or info.get(STAYS) or (PREVIOUS not in info and epoch > newest):
                    yield version
                newest = max(newest, epoch)


def _read_entry(content: bytes) -> tuple[dict[str, object] | None, int]:
    """Return an entry's first line, None where it cannot be read, and its epoch."""
    try:
        lines = [json.loads(line) for line in lines_of(content)]
        numbers = [line["txn"] for line in lines if "txn" in line]
        epochs = [int(one["version"]) for one in numbers if one["appId"] == APP]
        infos = [line["commitInfo"] for line in lines if "commitInfo" in line]
        return dict(infos[0]) if infos else {}, max(epochs, default=-1)
    except (ValueError, TypeError, KeyError):
        return None, -1
