"""repair: what a power cut can leave behind, and which file is to blame when a table cannot be read.

delta-rs does not sync, we do, before a commit counts. So the newest commit file may be torn, and
then nobody was told of it: it is set aside. Any other damage is refused, by the file's name.
"""

from __future__ import annotations

import json
import logging
import os
import re

from coordinator.disk import Disk
from coordinator.log import CorruptLog

LOCK_S = 30.0
COMMIT_FILE = re.compile(r"^(\d{20})\.json$")
CHECKPOINT_FILE = re.compile(r"^(\d{20})\.checkpoint(\.[\w.-]+)?\.parquet$")
ACTIONS = "muster.actions"
"""In the first line of a commit file: how many lines follow; fewer are a torn file."""
logger = logging.getLogger("muster.coordinator")


def log_folder(table: str) -> str:
    """Return the folder of a table's commits."""
    return os.path.join(table, "_delta_log")


def commit_file(table: str, version: int) -> str:
    """Return the file of a commit."""
    return os.path.join(log_folder(table), f"{version:020}.json")


def commits(disk: Disk, table: str) -> list[int]:
    """Return the versions that have a commit file."""
    names = disk.names(log_folder(table))
    return [int(found[1]) for name in names if (found := COMMIT_FILE.match(name))]


def set_aside_torn(disk: Disk, table: str) -> None:
    """Move a torn newest commit out of the way; one that was synced is never torn.

    The lock: two coordinators that find it torn must not both move it, the second would move the
    good commit that the first one wrote in its place.
    """
    versions = commits(disk, table)
    if not versions or _whole(disk, commit_file(table, versions[-1])):
        return
    root, name = os.path.split(table)
    with disk.lock(os.path.join(root, "_locks", f"{name}.repair"), LOCK_S) as held:
        if not held:
            raise CorruptLog(
                f"{commit_file(table, versions[-1])} is torn, and somebody else has been at work "
                f"on it for {LOCK_S:.0f} s: end that process and open the store again"
            )
        path = commit_file(table, versions[-1])
        if not disk.exists(path) or _whole(disk, path):
            return
        aside = os.path.join(root, "_set_aside", f"{name}-{os.path.basename(path)}")
        disk.move(path, aside)
        disk.sync(log_folder(table))
    logger.warning(
        "%s was torn by a crash before anybody was told of it: it is set aside as %s", path, aside
    )


def damaged(disk: Disk, table: str) -> str | None:
    """Return what is wrong with the table's commits, by file; None when nothing is seen."""
    names = disk.names(log_folder(table))
    checkpoints = [int(found[1]) for name in names if (found := CHECKPOINT_FILE.match(name))]
    versions = commits(disk, table)
    expected = max(checkpoints, default=-1) + 1
    for version in [version for version in versions if version >= expected]:
        if version != expected:
            return f"{commit_file(table, expected)} is missing"
        if not _whole(disk, commit_file(table, version)):
            return f"{commit_file(table, version)} is damaged"
        expected += 1
    return None


def _whole(disk: Disk, path: str) -> bool:
    """Whether a commit file holds every line that was written."""
    try:
        lines = [json.loads(line) for line in disk.read(path).decode().splitlines()]
    except ValueError:
        return False
    first = lines[0].get("commitInfo", {}) if lines and isinstance(lines[0], dict) else None
    return first is not None and len(lines) > first.get(ACTIONS, 0)
