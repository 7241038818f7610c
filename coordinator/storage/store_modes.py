"""File modes of a store: who may read and write it.

`log.folder_mode` decides when a coordinator makes it. From then on every writer, in any
process, follows what the store's folder and that of its log both allow: chmod changes it for all.
"""

from __future__ import annotations

import logging
import os

from coordinator.storage.tables.files import Files
from coordinator.storage.tables.filesystem import PRIVATE, Filesystem
from coordinator.storage.tables.store_files import files_at, is_remote

WIDEST = 0o775
"""All may read what is made in a store that is open to all; none of them may write."""
OTHERS_WRITE = 0o002
logger = logging.getLogger("muster.coordinator")


def filesystem_of(store: str, folder_mode: int = PRIVATE) -> Files:
    """Return the disk that makes files and folders of a store as those that are there.

    Parameters
    ----------
    folder_mode
        Of a store that has no log yet.
    """
    if is_remote(store):
        return files_at(store)
    try:
        top, log = os.stat(store), os.stat(_find_log(store))
    except (FileNotFoundError, NotADirectoryError):
        return Filesystem(folder_mode)
    return Filesystem(PRIVATE | (top.st_mode & log.st_mode & WIDEST), (log.st_uid, log.st_gid))


def warn_of_others(store: str, folder_mode: int) -> None:
    """Say in one line when a store lets in others than the setting says, or keeps them out.

    An older version or another setting may have made it, or another user its folder.
    """
    if is_remote(store):
        return
    try:
        modes = {path: os.stat(path).st_mode & 0o777 for path in (store, _find_log(store))}
    except OSError:
        return
    top, log = modes.values()
    odd = [path for path, mode in modes.items() if folder_mode & ~mode]
    if top & (log & ~folder_mode | OTHERS_WRITE):
        odd = [store]
    if odd:
        logger.warning(
            "%s has mode %04o, log.folder_mode is %04o: to change the store, chmod -R %s %s",
            odd[0],
            modes[odd[0]],
            folder_mode,
            _format_mode(folder_mode),
            store,
        )


def _find_log(store: str) -> str:
    return os.path.join(store, "log")


def _format_mode(mode: int) -> str:
    """Return a folder's mode as chmod takes it for folders and files at once."""
    words = {7: "rwX", 5: "rX", 0: ""}
    return f"u={words[mode >> 6 & 7]},g={words[mode >> 3 & 7]},o={words[mode & 7]}"
