"""What made each version of a Delta table, and which version a RESTORE brought back.

Delta keeps transaction ids when a table is restored: they say what was written once, while the rows
are those of an earlier version. To know whether rows are there, look here as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

OpenAt: TypeAlias = Callable[[int], DeltaTable]
"""Opens a table at a version."""
OpenAny: TypeAlias = Callable[[int | None], DeltaTable]
"""The same; the newest for None."""
RESTORE = "RESTORE"


class UnknownRestoreError(ValueError):
    """A table was restored to a version that its log no longer has."""


@dataclass(frozen=True, slots=True)
class Made:
    """What made a version.

    Attributes
    ----------
    version
        The version.
    operation
        Delta's name of what was done: `WRITE`, `RESTORE`, …; empty if the entry does not say.
    parameters
        Its parameters.
    user_metadata
        Text that its writer gave, where Spark keeps it.
    changes_rows
        Whether the version has other rows than the one before.
    """

    version: int
    operation: str
    parameters: dict[str, Any]
    user_metadata: str | None
    changes_rows: bool


class History(Protocol):
    """What made a table's versions."""

    def read(self, version: int | None) -> Iterator[Made]:
        """Yield what made the versions up to one, newest first, as far as the log has them."""

    def restored(self, made: Made) -> int:
        """Return the version whose rows a RESTORE brought back; raise UnknownRestoreError."""

    def has_run(self, run_id: str, version: int | None) -> bool:
        """Whether a version knows the transaction of a run."""


@dataclass(frozen=True, slots=True)
class OpenHistory:
    """The history of a table that can be opened."""

    open_at: OpenAny

    def read(self, version: int | None) -> Iterator[Made]:
        """Yield what made the versions up to one, newest first."""
        return read_history(self.open_at(version))

    def restored(self, made: Made) -> int:
        """Return the version whose rows a RESTORE brought back."""
        return restored_version(made, self.open_at)

    def has_run(self, run_id: str, version: int | None) -> bool:
        """Whether a version knows the transaction of a run."""
        return self.open_at(version).transaction_version(run_id) is not None


def read_history(table: DeltaTable, after: int = -1) -> Iterator[Made]:
    """Yield what made the versions of a table, newest first.

    Parameters
    ----------
    table
        Begins at the version at which it is opened.
    after
        The version before the last one that is read. Versions that are no longer in the log, and
        those before them, are left out.
    """
    log = DeltaStorageHandler.from_table(table._table)  # noqa: SLF001 - its store, of any kind
    for version in range(table.version(), after, -1):
        try:
            text = log.open_input_stream(f"_delta_log/{version:020}.json").read()
        except FileNotFoundError:
            return
        yield _made(version, text)


def _made(version: int, text: bytes) -> Made:
    info: dict[str, Any] = {}
    changes = False
    for line in text.splitlines():
        action = json.loads(line) if line.strip() else {}
        info = action.get("commitInfo") or info
        file = action.get("add") or action.get("remove") or {}
        changes = changes or bool(file.get("dataChange"))
    given = info.get("operationParameters")
    return Made(
        version, str(info.get("operation") or ""), given if isinstance(given, dict) else {},
        info.get("userMetadata"), changes,
    )  # fmt: skip


def restored_version(made: Made, open_at: OpenAt) -> int:
    """Return the version whose rows a RESTORE brought back.

    A RESTORE to a time names none: it is the newest one before it with the same files.

    Raises
    ------
    UnknownRestoreError
        The log no longer has it.
    """
    number = made.parameters.get("version")
    if number not in (None, "null"):
        return int(str(number))
    rows = _files(open_at(made.version))
    for version in range(made.version - 1, -1, -1):
        try:
            if _files(open_at(version)) == rows:
                return version
        except (DeltaError, OSError):
            break
    raise UnknownRestoreError(
        f"version {made.version} restored one that the table's log no longer has"
    )


def _files(table: DeltaTable) -> tuple[list[str], list[str]]:
    """Return what a version's rows are read from: its files, and what is deleted in them."""
    gone = pa.table(table.deletion_vectors()).to_pylist()
    return sorted(table.file_uris()), sorted(map(str, gone))
