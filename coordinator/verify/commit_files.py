"""Check that all commits and checkpoints are complete, including old ones."""

from __future__ import annotations

import json
import os

from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.commit_reader import read_checkpoint, read_commit
from coordinator.storage.tables.recovery import (
    CHECKPOINT_FILE,
    COMMIT_FILE,
    LAST_CHECKPOINT,
    RESTORE,
    log_folder,
)
from coordinator.storage.tables.store_files import files_at, refuse_silence

REMEDY = f"stop all coordinators and remove it, the table is readable without it; or {RESTORE}"
LOOKS_MAX = 3
"""How often to look for the newest checkpoint while its writer makes newer ones."""


def check_commit_files(table: str) -> None:
    """Check every commit and checkpoint of a table. Files that its writer cleans up are skipped.

    Raises
    ------
    CorruptLog
        A file is incomplete, or `_last_checkpoint` names a checkpoint that does not exist, and no
        newer one does.
    """
    folder = log_folder(table)
    _check_last_checkpoint(folder)
    names = files_at(folder).names(folder)
    newest = max(filter(COMMIT_FILE.match, names), default=None)
    for name in names:
        path = os.path.join(folder, name)
        try:
            if COMMIT_FILE.match(name):
                read_commit(path, newest=name == newest)
            elif CHECKPOINT_FILE.match(name):
                for _ in read_checkpoint(path):
                    pass
        except FileNotFoundError:
            continue


def _check_last_checkpoint(folder: str) -> None:
    """Check that the checkpoint named by `_last_checkpoint` exists, or a newer one."""
    path = os.path.join(folder, LAST_CHECKPOINT)
    for _ in range(LOOKS_MAX):
        try:
            version = int(json.loads(files_at(path).read(path))["version"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            refuse_silence(path, error)
            raise CorruptLog(f"{path} is damaged ({error}): {REMEDY}") from None
        found = [CHECKPOINT_FILE.match(name) for name in files_at(folder).names(folder)]
        if any(one and int(one[1]) >= version for one in found):
            return  # it may be older than the newest: readers list what comes after it
        if files_at(folder).exists(os.path.join(folder, f"{version:020}.checkpoint.parquet")):
            return  # the list is older
    raise CorruptLog(f"{path} names checkpoint {version}, which does not exist: {REMEDY}")
