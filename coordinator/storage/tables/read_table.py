"""A table as its entries say, each of which is read once, and not by delta-rs.

delta-rs reads all entries since a checkpoint for each thing that it is asked: a start behind many
of them would be long, and an object store would be asked for each of them seven times. Of few it
takes two milliseconds, which a node that takes hundreds of shards has for each of their tables.
This reader is `muster verify`'s. What it does not like, it leaves to delta-rs, and to the messages
about a damaged table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.table import ProtocolVersions

from coordinator.storage.record_log import LogError, NoLog
from coordinator.storage.tables.commit_reader import (
    DataFile,
    TableFiles,
    read_next,
    read_table_files,
)
from coordinator.storage.tables.commit_writer import COPY
from coordinator.storage.tables.files import Files
from coordinator.storage.tables.newest_version import check_format, open_newest
from coordinator.storage.tables.store_files import open_delta

WHOLE = ("long", "integer", "short", "byte")
"""Types of columns, in Delta's words, whose values are whole numbers."""
logger = logging.getLogger("muster.coordinator")


class ReadTable(DeltaTable):
    """What a coordinator asks of a table, as its entries say; the rest is asked of delta-rs.

    Parameters
    ----------
    found
        Its newest version.
    """

    def __init__(self, found: TableFiles) -> None:
        self._found = found  # it is replaced, never changed: another thread may read it
        self._described: dict[str, dict[str, Any]] = {}

    @cached_property
    def _table(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - delta-rs's own
        return open_delta(self._found.folder, self._found.version)._table  # noqa: SLF001

    @property
    def digest(self) -> str | None:
        """Of the entry of its version, as it was read; None where it was not."""
        return self._found.digest

    @property
    def table_uri(self) -> str:
        """Where it is."""
        return self._found.folder

    def version(self) -> int:
        """Return the version."""
        return self._found.version

    def transaction_version(self, app_id: str) -> int | None:
        """Return the number of an application."""
        return self._found.writers.get(app_id)

    def protocol(self) -> ProtocolVersions:
        """Return what it asks of who reads and writes it."""
        protocol = self._found.protocol
        return ProtocolVersions(
            int(protocol["minReaderVersion"]),
            int(protocol["minWriterVersion"]),
            protocol.get("writerFeatures"),
            protocol.get("readerFeatures"),
        )

    def metadata(self) -> Any:  # noqa: ANN401 - delta-rs's own has more
        """Return its properties."""
        return SimpleNamespace(configuration=self._found.properties())

    def schema(self) -> Schema:
        """Return its columns."""
        return Schema.from_json(str(self._found.metadata["schemaString"]))

    def get_add_actions(self, flatten: bool = False) -> Any:  # noqa: ANN401, FBT001 - as there
        """Return its data files, and what commits say of their rows."""
        assert flatten, "that is how it is asked for"
        files, known = self._found.files, self._described
        fields = json.loads(self._found.metadata["schemaString"])["fields"]
        whole = {one["name"] for one in fields if one["type"] in WHOLE}
        self._described = {
            name: known.get(name) or _describe(file, whole) for name, file in files.items()
        }
        return pa.Table.from_pylist(list(self._described.values()))

    def load_as_version(self, version: Any) -> None:  # noqa: ANN401 - as there
        """Read on, up to a version."""
        self._found = read_next(self._found, version)
        self.__dict__.pop("_table", None)


def _describe(file: DataFile, whole: Collection[str]) -> dict[str, Any]:
    """Return what delta-rs says of a data file; `whole` are the columns of whole numbers."""
    statistics = file.statistics
    least, most = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
    return {
        "path": file.name,
        COPY: file.copy,
        "size_bytes": file.bytes,
        "num_records": statistics.get("numRecords"),
        "min.position": least.get("position"),
        "max.position": most.get("position"),
        "max.coordinator_epoch": most.get("coordinator_epoch"),
        "max.at_ms": most.get("at_ms"),
        **{
            f"partition.{name}": int(value) if value is not None and name in whole else value
            for name, value in file.partition.items()
        },
    }


def open_table(disk: Files, path: str) -> DeltaTable:
    """Open a table at its newest version, by its entries where they can be read so.

    Raises
    ------
    NoLog, CorruptLog, Unreachable, NewerLog
        As for `open_newest`.
    """
    try:
        return check_format(ReadTable(read_table_files(path)), path)
    except NoLog:
        raise
    except (LogError, OSError, KeyError, TypeError, ValueError) as error:
        logger.debug("%s: %s", path, error)  # delta-rs meets the same, and says why
    return open_newest(disk, path)
