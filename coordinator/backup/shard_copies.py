"""Back up and restore a store of shards: each shard, and the root with the group of the nodes.

A shard is copied as a store of its own is, up to a position of its own log. No group is in two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime

from assignors import SpecError
from coordinator.backup.backup import BackupResult, backup, write_mark
from coordinator.backup.destination import create_destination
from coordinator.backup.restore import RestoreResult, restore
from coordinator.config import Config
from coordinator.history.log_reader import AsOf, BeforeLogError, parse_as_of
from coordinator.storage.shards import (
    FILE,
    ROOT,
    Shards,
    read_shards,
    root_at,
    stores_of,
    write_shards,
)
from coordinator.storage.store_marks import refuse_copy, refuse_incomplete, sum_file
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.tables.store_root import find_root


def backup_shards(
    store: str | os.PathLike[str], into: str | os.PathLike[str], *, check: bool = True
) -> dict[str, BackupResult]:
    """Copy every shard of a store, and the root, as `backup` copies a store.

    Returns
    -------
    dict
        What was copied of each shard that has a log, by its number as text, and of "root".

    Raises
    ------
    ConfigError, NoLog, NewerLog, CorruptLog, CommitFailed
        As `backup`; of one shard, it is refused whole.
    """
    root, shards = _open(store)
    refuse_copy(root)
    with create_destination(str(into), root, f"a backup of {root}") as made:
        write_shards(made, shards, Config())
        done = {
            name: backup(part, made + part.removeprefix(root), check=check)
            for name, part in _parts(root)
        }
        newest = max((one.at for one in done.values()), default="")
        write_mark(made, 0, newest, 0, {FILE: sum_file(f"{made}/{FILE}")})
    return done


def restore_shards(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    to: AsOf = None,
    *,
    check: bool = True,
) -> dict[str, RestoreResult]:
    """Make a new store of shards, each as it was at a time, as `restore` makes a store.

    Parameters
    ----------
    to
        A time; None is the newest position of each shard.

    Returns
    -------
    dict
        As `backup_shards`; without shards that had no log yet.

    Raises
    ------
    SpecError
        `to` is a position, of which each shard has its own, or no shard had a log at that time.
    ConfigError, NoLog, NewerLog, CorruptLog, CommitFailed
        As `restore`; of one shard, it is refused whole.
    """
    root, shards = _open(source)
    refuse_incomplete(root)
    to = parse_as_of(to, "--to") if isinstance(to, str) else to
    if to is not None and not isinstance(to, datetime):
        raise SpecError(f"--to is {to}, a position, of which each shard has its own: give a time")
    with create_destination(str(store), root, f"a store restored from {root}") as made:
        write_shards(made, shards, Config())
        done, before = {}, None
        for name, part in _parts(root):
            try:
                done[name] = restore(part, made + part.removeprefix(root), to, check=check)
            except BeforeLogError as error:  # its shard had no groups then
                before = error
        if not done.keys() - {ROOT} and before is not None:
            raise before
    return done


def _open(store: str | os.PathLike[str]) -> tuple[str, Shards]:
    shards = read_shards(store)
    if shards is None:
        raise SpecError(f"{store} is not a store of shards: copy it as a store of one")
    return find_root(store), shards


def _parts(root: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the store of the root, and of each shard, that has a log."""
    if files_at(root).is_folder(log_folder(f"{root_at(root)}/log")):
        yield ROOT, root_at(root)
    for one in stores_of(root):
        yield os.path.basename(one), one
