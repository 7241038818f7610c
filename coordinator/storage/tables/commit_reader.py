"""Read the commits of a Delta table file by file, without delta-rs.

For `muster verify`, which does not trust the table's writers, and for copies of a table that is
being written. Nothing is written here, and nothing locked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.storage.record_log import CorruptLog, NoLog
from coordinator.storage.tables.commit_writer import COPY
from coordinator.storage.tables.recovery import (
    ACTIONS,
    CHECKPOINT_FILE,
    COMMIT_FILE,
    RESTORE,
    commit_file,
    digest_entry,
    find_break,
    lines_of,
    log_folder,
    remedy_for,
)
from coordinator.storage.tables.store_files import ask_each, files_at, refuse_silence, source_of

LISTINGS_MAX = 10
"""How often the commits are listed again when their writer cleans up meanwhile."""
PIECES = re.compile(r"^\.(\d{10})\.(\d{10})$")
"""Of a checkpoint in several files: which one it is, and of how many."""
TOGETHER = 256
"""So many entries are asked of an object store before the first of them is read."""
KNOWN = ("protocol", "metaData", "txn", "add", "remove")

LoggedAction: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a version of a table names.

    Attributes
    ----------
    name
        Its path in the table's folder.
    bytes
        Its size, as the commit says.
    add
        The whole action of the commit.
    copy
        What the commit has of its rows (`CopiedFile`); empty for nothing.
    """

    name: str
    bytes: int
    add: LoggedAction
    copy: str = ""

    @property
    def statistics(self) -> LoggedAction:
        """What the commit says of its rows; empty when it says nothing that can be read."""
        try:
            found = json.loads(self.add.get("stats") or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def partition(self) -> dict[str, str | None]:
        """Its values of the columns by which the table is partitioned."""
        return dict(self.add.get("partitionValues") or {})


@dataclass(slots=True)
class TableFiles:
    """One version of a table: its data files, and what commits say of the table itself.

    Attributes
    ----------
    writers
        The last transaction number of each Delta application that wrote here.
    digest
        Of the entry of the version; None where that was not read.
    """

    folder: str
    version: int = -1
    protocol: LoggedAction = field(default_factory=dict)
    metadata: LoggedAction = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    digest: str | None = None

    def path(self, file: DataFile) -> str:
        """Return where a data file is."""
        return os.path.join(self.folder, file.name)

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""
        return dict(self.metadata.get("configuration") or {})

    def apply(self, actions: Iterable[LoggedAction], source: str) -> None:
        """Change the version by the actions of one commit or checkpoint.

        Raises
        ------
        CorruptLog
            An action is malformed, or the number of a writer falls.
        """
        copy = ""
        for action in actions:
            try:
                if info := action.get("commitInfo"):
                    copy = str(info.get(COPY) or "")
                self._apply(action, source, copy)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                text = f"{type(error).__name__}: {error}"
                raise CorruptLog(
                    f"{source} is damaged: an action in it cannot be read ({text}): {RESTORE}"
                ) from None

    def _apply(self, action: LoggedAction, source: str, copy: str) -> None:
        if protocol := action.get("protocol"):
            self.protocol = dict(protocol)
        if metadata := action.get("metaData"):
            self.metadata = dict(metadata)
        if txn := action.get("txn"):
            app, number = str(txn["appId"]), int(txn["version"])
            if number < self.writers.get(app, number):
                raise CorruptLog(
                    f"{source}: the number of writer {app!r} falls from {self.writers[app]} to "
                    f"{number}: a fenced coordinator wrote after its successor; {RESTORE}"
                )
            self.writers[app] = number
        if add := action.get("add"):
            name = _resolve_path(str(add["path"]), source)
            if add.get("deletionVector"):
                raise CorruptLog(
                    f"{source}: rows of {name} are deleted by a deletion vector, and Muster never "
                    f"writes one: another program changed the table; {RESTORE}"
                )
            self.files[name] = DataFile(name, int(add["size"]), add, copy)
        if remove := action.get("remove"):
            self.files.pop(_resolve_path(str(remove["path"]), source), None)


def read_table_files(folder: str) -> TableFiles:
    """Return the newest version of a table.

    Raises
    ------
    NoLog
        The folder is missing, or has nothing of a table.
    CorruptLog
        A commit or checkpoint is missing or damaged; the message names it.
    """
    for _ in range(LISTINGS_MAX):
        checkpoints, versions = _list_versions(folder)
        if not checkpoints and not versions:
            _refuse_nothing(folder)
        try:
            return _read(folder, checkpoints, versions)
        except FileNotFoundError as error:  # the writer has cleaned up since we listed
            gone = error.filename
    raise CorruptLog(f"{gone} disappeared on every attempt to read it: try again, or {RESTORE}")


def read_next(table: TableFiles, version: int) -> TableFiles:
    """Return a later version of a table, by the entries that came since.

    Raises
    ------
    FileNotFoundError
        One is not there.
    CorruptLog
        One is damaged.
    """
    found = replace(table, writers=dict(table.writers), files=dict(table.files))
    _apply_entries(found, range(found.version + 1, version + 1))
    return found


def _apply_entries(table: TableFiles, versions: Sequence[int]) -> None:
    """Bring a table forward by entries that follow it, of which each must follow the one before."""
    before = None  # what it follows may have been read in another moment
    for first in range(0, len(versions), TOGETHER):
        some = versions[first : first + TOGETHER]
        paths = [commit_file(table.folder, version) for version in some]
        contents = ask_each(lambda path: files_at(path).read(path), paths)
        for version, path, content in zip(some, paths, contents, strict=True):
            newest = version == versions[-1]
            table.apply(_read_linked(content, path, before, newest=newest), path)
            table.version = version
            table.digest = before = digest_entry(content)


def _refuse_nothing(folder: str) -> None:
    """Refuse a folder without commits; without rows too it is a table that is just being made."""
    there = files_at(folder).names_below(folder)
    if rows := [name for name in there if name.endswith(".parquet")]:
        raise CorruptLog(
            f"{log_folder(folder)} has no commits, while {rows[0]} is there: {RESTORE}"
        )
    raise NoLog(f"no coordinator's table found in {folder}")


def _list_versions(folder: str) -> tuple[dict[int, list[str]], list[int]]:
    """Return the whole checkpoints, as the names of their files, and the versions of commits."""
    try:
        names = files_at(folder).names(log_folder(folder))
    except NotADirectoryError:
        return {}, []
    versions = [int(found[1]) for name in names if (found := COMMIT_FILE.match(name))]
    whole: dict[int, list[str]] = {}
    pieces: dict[tuple[int, int], list[str]] = {}
    for name in names:
        found = CHECKPOINT_FILE.match(name)
        if found is None:
            continue
        piece = PIECES.match(found[2] or "")
        if not found[2]:
            whole[int(found[1])] = [name]
        elif piece:
            pieces.setdefault((int(found[1]), int(piece[2])), []).append(name)
    for (version, count), found_pieces in pieces.items():
        if len(found_pieces) == count:
            whole.setdefault(version, found_pieces)
    return whole, versions


def _read(folder: str, checkpoints: dict[int, list[str]], versions: list[int]) -> TableFiles:
    table = TableFiles(folder)
    if checkpoints:
        table.version = max(checkpoints)
        for name in checkpoints[table.version]:
            path = os.path.join(log_folder(folder), name)
            table.apply(read_checkpoint(path), path)
        if max(versions, default=-1) < table.version:
            # Readers do without it, but no one can write after it.
            missing = commit_file(folder, table.version)
            raise CorruptLog(f"{missing} is missing: {RESTORE}")
    later = [version for version in versions if version > table.version]
    gap = next((n for at, n in enumerate(later) if n != table.version + 1 + at), None)
    _apply_entries(table, later if gap is None else later[: later.index(gap)])
    if gap is not None:
        raise CorruptLog(f"{commit_file(folder, table.version + 1)} is missing: {RESTORE}")
    if not table.protocol or not table.metadata:
        raise CorruptLog(f"{log_folder(folder)} does not describe the table itself: {RESTORE}")
    return table


def _read_linked(
    content: bytes, path: str, before: str | None, *, newest: bool
) -> list[LoggedAction]:
    """Return the actions of a commit, once it is seen to follow the one before."""
    actions = list(_read_actions(content, path, newest=newest))
    for first in (action["commitInfo"] for action in actions if "commitInfo" in action):
        if broken := find_break(path, first, before):
            raise CorruptLog(broken)
    return actions


def read_commit(path: str, *, newest: bool) -> Iterator[LoggedAction]:
    """Return the actions of a commit.

    Raises
    ------
    FileNotFoundError
        Not found.
    CorruptLog
        It is not whole.
    """
    return _read_actions(files_at(path).read(path), path, newest=newest)


def _read_actions(content: bytes, path: str, *, newest: bool) -> Iterator[LoggedAction]:
    remedy = remedy_for(path, newest=newest)
    try:
        actions = [json.loads(line) for line in lines_of(content)]
        infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
        whole = len(actions) > (int(infos[0].get(ACTIONS, 0)) if infos else 0)
    except (ValueError, TypeError, KeyError, AttributeError):
        whole, actions = False, []
    if not whole or not actions:
        raise CorruptLog(f"{path} is damaged: {remedy}")
    return iter(actions)


def read_checkpoint(path: str) -> Iterator[LoggedAction]:
    """Yield the actions of a checkpoint, or of one file of it.

    Raises
    ------
    FileNotFoundError
        Not found.
    CorruptLog
        It cannot be read.
    """
    try:
        with pq.ParquetFile(source_of(path), page_checksum_verification=True) as file:
            names = set(file.schema_arrow.names)
            if "sidecar" in names and not {"add"} <= names:
                raise CorruptLog(f"{path} is a checkpoint of a kind that Muster never writes")
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=[n for n in KNOWN if n in names])
                for row in rows.to_pylist(maps_as_pydicts="strict"):
                    yield {name: value for name, value in row.items() if value is not None}
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        refuse_silence(path, error)
        first = str(error).partition("\n")[0]
        raise CorruptLog(f"{path} is damaged ({first}): {RESTORE}") from None


def _resolve_path(path: str, source: str) -> str:
    """Return a data file's path as the file system has it; one outside of the table is refused."""
    name = unquote(path)
    parts = name.split("/")
    if not name or os.path.isabs(name) or "://" in name or "\0" in name or ".." in parts:
        raise CorruptLog(
            f"{source} names a data file outside of its table, {path!r}: another program wrote it; "
            f"{RESTORE}"
        )
    return name
