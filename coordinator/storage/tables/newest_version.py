"""Open the Delta table of a coordinator at its newest version, or say what is wrong with it.

A list of Amazon's, Google's or Azure's store has all that was written before it; one of another
server may lack what is a moment old. Muster does not rely on lists: a version is the newest if the
next one is not there and was not removed, which it asks of the objects themselves (floor.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from coordinator.storage.record_log import (
    CommitFailed,
    CorruptLog,
    LogError,
    NewerLog,
    NoLog,
    Unreachable,
)
from coordinator.storage.tables.files import Files, StoreRefusedError
from coordinator.storage.tables.floor import read_floor
from coordinator.storage.tables.protocol import find_unread
from coordinator.storage.tables.recovery import (
    LAST_CHECKPOINT,
    RESTORE,
    commit_file,
    find_damage,
    log_folder,
)
from coordinator.storage.tables.store_errors import find_refusal
from coordinator.storage.tables.store_files import explain, is_remote, open_delta

FORMAT = 1
FORMAT_OF_SHARDS = 2
"""Of no log: it keeps a store of shards from being opened as a store of one."""
RESTORE_FILE = "restore it from a backup of the store"
FORMAT_PROPERTY = "muster.format"
PROPERTIES = {
    FORMAT_PROPERTY: str(FORMAT),
    # Packing replaces a file per commit: checkpoints need not list what is long gone. The files
    # themselves stay for readers, maintenance.py says how long.
    "delta.deletedFileRetentionDuration": "interval 1 minutes",
}
LIST_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""How long an object store's list is waited for that is older than its objects."""
_UNSUPPORTED = re.compile(
    r"Unsupported: (?:Feature '(\w+)'|Unsupported minimum (reader version \d+))"
)
"""How delta-rs refuses a table that asks for what it does not know itself."""
OpenTable: TypeAlias = Callable[[Files, str], DeltaTable]


class _Unexplained(CorruptLog):
    """delta-rs cannot read what is there, though no file is seen to be damaged."""


def open_newest(disk: Files, path: str) -> DeltaTable:
    """Open a table at its newest version.

    Raises
    ------
    NoLog
        The table does not exist.
    CorruptLog
        It cannot be read; the message names the file.
    Unreachable
        An object store does not answer.
    NewerLog
        A newer version of Muster made it.
    """
    try:
        return check_format(open_delta(path), path)
    except TableNotFoundError:
        raise NoLog(f"no coordinator's table found in {path}") from None
    except (DeltaError, OSError) as error:
        raise _explain(disk, path, error) from None


def _explain(disk: Files, path: str, error: Exception) -> LogError | StoreRefusedError:
    """Return the error for a table that delta-rs cannot read."""
    if disk.has_locks and not disk.is_folder(log_folder(path)):
        return NoLog(f"no coordinator's table found in {path}")
    if newer := find_unsupported(path, error):
        return newer
    if reason := _find_damage(disk, path):
        return CorruptLog(reason)
    return find_silence(path, error) or _Unexplained(_explain_damage(path, error))


def find_unsupported(path: str, error: Exception) -> NewerLog | None:
    """Return the error for a table that delta-rs refuses for a feature; None for any other."""
    unknown = _UNSUPPORTED.search(str(error))
    if unknown is None:
        return None
    return _refuse_unread(path, f"the feature {unknown[1]}" if unknown[1] else unknown[2])


def _refuse_unread(path: str, unknown: str) -> NewerLog:
    return NewerLog(
        f"{path} asks its readers for {unknown} of Delta, which Muster does not know: drop it from "
        f"the table, or {RESTORE}"
    )


def check_format(table: DeltaTable, path: str) -> DeltaTable:
    """Return a table of a coordinator that this version can read."""
    found = table.metadata().configuration.get(FORMAT_PROPERTY)
    if found is None or not found.isdigit():
        raise CorruptLog(
            f"{path} is a Delta table, but not of a coordinator: it has no property "
            f"{FORMAT_PROPERTY}; name another store"
        )
    if unknown := find_unread(table):
        raise _refuse_unread(path, unknown)
    if int(found) == FORMAT_OF_SHARDS:
        raise CorruptLog(
            f"{path} is not a log: its store has shards, but the file _shards.json is gone: "
            f"{RESTORE_FILE}"
        )
    if int(found) > FORMAT:
        raise NewerLog(
            f"{path} has format {found}, this version of Muster knows formats up to {FORMAT}: "
            f"open it with the version that wrote it, or a newer one"
        )
    return table


def find_new_columns(there: Schema, wanted: pa.Schema) -> Sequence[Field]:
    """Return the columns that a table lacks, and those whose structs lack a field.

    Raises
    ------
    pyarrow.ArrowException
        A column has another type in each.
    """
    return _find_new_columns(there.to_json(), wanted)


@lru_cache(maxsize=16)
def _find_new_columns(table: str, wanted: pa.Schema) -> Sequence[Field]:
    """Return them; of each shard the table has the same columns, and it takes a millisecond."""
    there = pa.schema(Schema.from_json(table).to_arrow())
    both = pa.unify_schemas([there, wanted], promote_options="permissive")
    new = [
        field for field in both if field.name not in there.names or there.field(field.name) != field
    ]
    return tuple(Schema.from_arrow(pa.schema(new)).fields)


def explain_unreadable(disk: Files, path: str, error: Exception) -> str:
    """Return why a table cannot be read: the file that is damaged, or what delta-rs says."""
    if reason := _find_damage(disk, path):
        return reason
    silence = find_silence(path, error)
    return _explain_damage(path, error) if silence is None else str(silence)


def _explain_damage(path: str, error: Exception) -> str:
    return f"{path} cannot be read: {explain(path, error)}: {RESTORE}"


def find_silence(path: str, error: Exception) -> Unreachable | StoreRefusedError | None:
    """Return the error for an object store that did not bring what delta-rs asked it for.

    None if it did, so something is wrong with what is there: then the OSError is not its.
    """
    if not (is_remote(path) and isinstance(error, OSError)):
        return None
    why = explain(path, error)
    return find_refusal(path, why) or Unreachable(f"{path} cannot be read now: {why}")


def read_number(path: str, table: DeltaTable, name: str) -> int | None:
    """Return a number that a table keeps for an application.

    delta-rs looks it up in the table's log when it is asked, which may be long after it opened it.

    Raises
    ------
    Unreachable
        The store does not answer.
    CommitFailed
        A successor has cleaned up what was to be read: look at the newest version again.
    """
    try:
        found = table.transaction_version(name)
    except (DeltaError, OSError) as error:
        raise find_silence(path, error) or CommitFailed(
            f"{path} cannot be read as it was opened: {explain(path, error)}"
        ) from None
    return None if found is None else int(found)


def _find_damage(disk: Files, path: str) -> str | None:
    with suppress(OSError):  # a file in place of a folder; an object store that does not answer
        return find_damage(disk, path)
    return None


def open_to_read(disk: Files, path: str) -> DeltaTable:
    """Open a table at a version that was the newest a moment ago.

    A list that lacks every commit of a table that is there is not believed: no table and an old
    table are different answers.

    Raises
    ------
    Unreachable, NoLog, CorruptLog, NewerLog
        As for `open_newest`.
    """

    def is_right(opened: DeltaTable | None) -> bool:
        return opened is not None or not _has_begun(disk, path)

    return _open_listed(disk, path, open_newest, is_right)


def follow_table(disk: Files, table: DeltaTable, path: str) -> DeltaTable:
    """Bring an open table up to its newest version, or reopen it; raises as `open_newest`.

    Reads only the commits that are new.
    """
    try:
        table.update_incremental()
        return check_format(table, path)
    except (DeltaError, OSError):  # cleaned up, damaged, or another table by now
        return open_to_read(disk, path)


def open_surely(
    disk: Files, path: str, known: int, open_table: OpenTable = open_newest
) -> DeltaTable:
    """Open a table at its newest version, also where lists may be older than objects.

    Parameters
    ----------
    known
        A version that was seen there; -1 for none.

    Raises
    ------
    Unreachable
        The store goes on listing less than it has.
    NoLog, CorruptLog, NewerLog
        As for `open_newest`.
    """

    def is_right(opened: DeltaTable | None) -> bool:
        if opened is None:
            return known < 0 and not _has_begun(disk, path)
        return _reach_newest(disk, path, opened)

    return _open_listed(disk, path, open_table, is_right)


def _open_listed(
    disk: Files, path: str, open_table: OpenTable, is_right: Callable[[DeltaTable | None], bool]
) -> DeltaTable:
    """Open a table, again until the list is right; None if it does not exist."""
    if not disk.lists_late:
        return open_table(disk, path)
    last: LogError = Unreachable(_explain_late(path))
    for pause_s in (*LIST_PAUSES_S, 0.0):
        try:
            opened = open_table(disk, path)
            if is_right(opened):
                return opened
        except NoLog:
            if is_right(None):
                raise
        except (Unreachable, _Unexplained) as error:
            last = error
            try:
                _has_begun(disk, path)
            except OSError:  # it is the network that fails
                raise error from None
        disk.pause(pause_s)
    if isinstance(last, _Unexplained):
        raise CorruptLog(_find_damage(disk, path) or str(last))
    raise last


def load_surely(disk: Files, path: str, table: DeltaTable, version: int) -> None:
    """Have a table at a version that is known to be there.

    Raises
    ------
    Unreachable
        The store goes on listing less than it has.
    NoLog, CorruptLog
        The table is gone, or cannot be read.
    """
    for pause_s in (*(LIST_PAUSES_S if disk.lists_late else ()), None):
        try:
            table.load_as_version(version)
        except (DeltaError, OSError) as error:
            if isinstance(error, OSError) or not disk.lists_late:
                raise _explain(disk, path, error) from None
            if pause_s is None:
                raise Unreachable(_explain_late(path)) from None
            disk.pause(pause_s)
        else:
            return


def _reach_newest(disk: Files, path: str, table: DeltaTable) -> bool:
    """Have a table at the version that was the newest when this was called.

    False where the store does not list that version yet. A busy writer may have a next version
    whenever a list is read: so the newest is looked for, not waited for.
    """
    version = table.version()
    newest = _find_newest(disk, path, version)
    if newest != version:
        try:
            table.load_as_version(newest)
        except (DeltaError, OSError):
            return False
        check_format(table, path)
    # Read last: the next version was not removed before it was looked for.
    return read_floor(disk, path) <= newest


def _find_newest(disk: Files, path: str, version: int) -> int:
    """Return the newest version from one that is there on: those after it have no gap."""
    there, step = version, 1
    while disk.exists(commit_file(path, there + step)):
        there, step = there + step, step * 2
    gone = there + step
    while gone - there > 1:
        middle = (there + gone) // 2
        if disk.exists(commit_file(path, middle)):
            there = middle
        else:
            gone = middle
    return there


def _has_begun(disk: Files, path: str) -> bool:
    """Whether there are commits: the first one, or a checkpoint since it was removed."""
    hint = os.path.join(log_folder(path), LAST_CHECKPOINT)
    return disk.exists(commit_file(path, 0)) or disk.exists(hint)


def _explain_late(path: str) -> str:
    return (
        f"the object store lists only a part of {log_folder(path)}: nothing is written until "
        "it lists everything"
    )
