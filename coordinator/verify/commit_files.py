"""Check that commits and checkpoints are complete, old ones too."""

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

REMEDY = f"remove it while no coordinator runs, its table can be read without; or {RESTORE}"
LOOKS_MAX = 3
"""How often the newest checkpoint is looked for while its writer makes newer ones."""


def check_commit_files(table: str) -> None:
    """Check every commit and checkpoint of a table; what its writer cleans up meanwhile is none.

    Raises
    ------
    CorruptLog
        One of them is not whole, or the newest checkpoint is named and not there.
    """
    folder = log_folder(table)
    _check_last_checkpoint(folder)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
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
    """See that the file that names the newest checkpoint names one that is there."""
    path = os.path.join(folder, LAST_CHECKPOINT)
    for _ in range(LOOKS_MAX):
        try:
            with open(path, "rb") as file:
                version = int(json.loads(file.read())["version"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CorruptLog(f"{path} is damaged ({error}): {REMEDY}") from None
        found = [CHECKPOINT_FILE.match(name) for name in os.listdir(folder)]
        if any(one and int(one[1]) == version for one in found):
            return
    raise CorruptLog(f"{path} names checkpoint {version}, which was not found: {REMEDY}")
