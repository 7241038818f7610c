"""The root of a store: which folder, or place in a bucket, can be one."""

from __future__ import annotations

import os

from coordinator.config import ConfigError
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import ELSEWHERE, MEMORY, files_at, is_remote, root_of

FOLDERS = ("log", "snapshots", "targets", "inbox", "proposals", "requests", "plans")
"""What a store has in its folder."""


def refuse_inside(root: str, what: str) -> None:
    """Refuse what is a table, or below a table or a queue of a store, which cleans up there.

    Raises
    ------
    ConfigError
        It is.
    """
    if root.startswith(f"{MEMORY}:"):
        return
    files, parts = files_at(root), root.split("/")
    for at in range(len(parts) - 1, 2 if is_remote(root) else 0, -1):
        store = "/".join(parts[:at])
        if parts[at] in FOLDERS and files.is_folder(log_folder(f"{store}/log")):
            raise ConfigError(
                f"{what} {root} is in {parts[at]}, a folder of the store {store}, which would "
                "take its files for its own: name a folder elsewhere"
            )


def find_root(store: str | os.PathLike[str]) -> str:
    """Return the root path of a store.

    Raises
    ------
    ConfigError
        It can be no folder of ours.
    """
    remedy = "name a folder of its own, or None to keep nothing"
    text = str(store)
    if not isinstance(store, str | os.PathLike) or not text or "\0" in text:
        raise ConfigError(f"the store is {store!r}: {remedy}")
    root = root_of(text)
    if odd := ELSEWHERE.search(root):
        raise ConfigError(
            f"the store {text} has {odd[0]!r} in its path, and Delta would take that for another "
            f"path: {remedy}"
        )
    if is_remote(root):
        return root
    if os.path.exists(root) and not os.path.isdir(root):
        raise ConfigError(f"the store {text} is a file: {remedy}")
    if os.path.exists(log_folder(root)):
        raise ConfigError(f"the store {text} is itself a Delta table: {remedy}")
    return root
