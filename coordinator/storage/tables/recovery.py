"""Recover from a torn commit, and name the file that makes a table unreadable.

delta-rs does not sync, we do, before a commit counts. So the newest commit file may be torn; it
was then never acknowledged, and is set aside. Any other damage is refused, by the file's name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.filesystem import UNFINISHED
from coordinator.storage.tables.store_files import is_remote, source_of

LOCK_S = 30.0
COMMIT_FILE = re.compile(r"^(\d{20})\.json$")
UNFINISHED_COMMIT = re.compile(rf"^\.(\d{{20}})\.json\.[0-9a-f]+{re.escape(UNFINISHED)}$")
CHECKPOINT_FILE = re.compile(r"^(\d{20})\.checkpoint(\.[\w.-]+)?\.parquet$")
LAST_CHECKPOINT = "_last_checkpoint"
ACTIONS = "muster.actions"
"""In the first line of a commit file: how many lines follow; fewer are a torn file."""
PREVIOUS = "muster.previous"
"""In the first line of a commit file: the digest of the one before it."""
RESTORE = "restore it from a copy of the store"
logger = logging.getLogger("muster.coordinator")


def log_folder(table: str) -> str:
    """Return the folder of a table's commits."""
    return os.path.join(table, "_delta_log")


def commit_file(table: str, version: int) -> str:
    """Return the file of a commit."""
    return os.path.join(log_folder(table), f"{version:020}.json")


def digest_entry(content: bytes) -> str:
    """Return the digest of a commit file, by which the next one names it."""
    return hashlib.sha256(content).hexdigest()


def lines_of(commit: bytes) -> list[str]:
    """Return the lines of a commit file.

    Only a line feed ends one: names in it may have what `str.splitlines` takes for an end.
    """
    return commit.decode().removesuffix("\n").split("\n") if commit else []


def list_commits(disk: Files, table: str) -> list[int]:
    """Return the versions that have a commit file."""
    names = disk.names(log_folder(table))
    return [int(found[1]) for name in names if (found := COMMIT_FILE.match(name))]


def list_remains(disk: Files, table: str) -> list[str]:
    """Return what lies in a table's folder and is not its `_delta_log`."""
    log = os.path.basename(log_folder(table))
    return [os.path.join(table, name) for name in disk.names(table) if name != log]


def set_aside_torn(disk: Files, table: str) -> None:
    """Move what a power cut tore out of the way: the newest commit, the newest checkpoint.

    What was synced is never torn, so that commit was never acknowledged; and a checkpoint holds
    only what the commits before it hold, which stay until it is synced.
    """
    if not find_torn(disk, table):
        return
    root, name = os.path.split(table)
    # Two coordinators that find the same must not both move it: the second would move the good
    # commit that the first one wrote in its place.
    with disk.lock(os.path.join(root, "_locks", f"{name}.repair"), LOCK_S) as held:
        if not held:
            raise CorruptLog(
                f"{find_torn(disk, table)} is torn, and another process has been using it for "
                f"{LOCK_S:.0f} s: stop that process, then reopen the store"
            )
        for path in find_torn(disk, table):
            aside = os.path.join(root, "_set_aside", f"{name}-{os.path.basename(path)}")
            disk.move(path, aside)
            disk.sync(log_folder(table))
            logger.warning("%s was torn by a crash and is set aside as %s", path, aside)


def find_torn(disk: Files, table: str) -> list[str]:
    """Return the newest commit or checkpoint of a table if it is not whole."""
    found = []
    versions = list_commits(disk, table)
    if versions and read_first_line(disk.read(commit_file(table, versions[-1]))) is None:
        found.append(commit_file(table, versions[-1]))
    names = disk.names(log_folder(table))
    checkpoint = max((name for name in names if CHECKPOINT_FILE.match(name)), default=None)
    broken = checkpoint is not None and not _is_readable(
        os.path.join(log_folder(table), checkpoint)
    )
    if checkpoint is not None and broken:
        found.append(os.path.join(log_folder(table), checkpoint))
    if LAST_CHECKPOINT in names and (broken or not _is_hint_valid(disk, table, names)):
        found.append(os.path.join(log_folder(table), LAST_CHECKPOINT))
    return found


def _is_hint_valid(disk: Files, table: str, names: list[str]) -> bool:
    """Whether the file that names the newest checkpoint names one that is there."""
    try:
        hint = json.loads(disk.read(os.path.join(log_folder(table), LAST_CHECKPOINT)))
        version = int(hint["version"])
    except FileNotFoundError:
        return True  # another coordinator has set it aside by now
    except (ValueError, TypeError, KeyError):
        return False
    there = {int(found[1]) for name in names if (found := CHECKPOINT_FILE.match(name))}
    return version in there


def find_damage(disk: Files, table: str) -> str | None:
    """Return what is wrong with the table's commits and the remedy; None when nothing is seen."""
    names = disk.names(log_folder(table))
    checkpoints = [int(found[1]) for name in names if (found := CHECKPOINT_FILE.match(name))]
    versions = list_commits(disk, table)
    expected = max(checkpoints, default=-1) + 1
    if checkpoints and max(versions, default=-1) < expected - 1:
        # Readers do without it, but no one can write after it.
        return f"{commit_file(table, expected - 1)} is missing: {RESTORE}"
    before = None
    for version in [version for version in versions if version >= expected]:
        path = commit_file(table, version)
        if version != expected:
            return f"{commit_file(table, expected)} is missing: {RESTORE}"
        content = disk.read(path)
        first = read_first_line(content)
        if first is None:
            return f"{path} is damaged: {remedy_for(path, newest=version == versions[-1])}"
        if broken := find_break(path, first, before):
            return broken
        before = digest_entry(content)
        expected += 1
    return None


def find_break(path: str, first: Mapping[str, Any], before: str | None) -> str | None:
    """Return what is wrong where an entry does not follow the one before it, None if nothing is.

    Parameters
    ----------
    first
        What its first line says.
    before
        The digest of the entry before; None where it was not read.
    """
    previous = first.get(PREVIOUS)
    if not previous or before is None or previous == before:
        return None
    return (
        f"{path} does not follow the entry before it: one of them was changed, or is of another "
        f"copy of the table: {RESTORE}"
    )


def remedy_for(commit: str, *, newest: bool) -> str:
    """Return what helps where a commit is damaged: the newest on a disk may be a power cut's."""
    if newest and not is_remote(commit):
        return f"a coordinator with log.fsync on sets it aside, else {RESTORE}"
    return RESTORE


def _is_readable(path: str) -> bool:
    try:
        pq.read_table(source_of(path)).validate(full=True)
    except (OSError, pa.ArrowException):
        return False
    return True


def read_first_line(content: bytes) -> dict[str, Any] | None:
    """Return what the first line of a commit file says; None where lines of it are missing."""
    try:
        lines = [json.loads(line) for line in lines_of(content)]
    except ValueError:
        return None
    first = lines[0].get("commitInfo", {}) if lines and isinstance(lines[0], dict) else None
    return first if first is not None and len(lines) > first.get(ACTIONS, 0) else None
