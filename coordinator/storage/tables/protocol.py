"""What a Delta table asks of its readers and writers, and whether Muster does that.

Commits and data files are ours, so no library refuses for us. A table that another program changed
(`ALTER TABLE … SET TBLPROPERTIES`) may ask for deletion vectors, change data or row ids.
"""

from __future__ import annotations

from deltalake import DeltaTable

FEATURES_READ = frozenset({"timestampNtz", "vacuumProtocolCheck"})
"""Reader features whose tables a reader of plain Parquet files reads right."""
FEATURES_WRITTEN = FEATURES_READ | {"appendOnly", "invariants"}
"""Writer features that ask nothing of who adds whole rows and removes none."""
FEATURES_APPENDED = FEATURES_WRITTEN | {"changeDataFeed", "deletionVectors"}
"""The same, for who never removes a row: only that needs change data or a deletion vector."""
READER_VERSION, WRITER_VERSION = 1, 2
"""The highest versions that are without features: what they ask is known."""
FEATURES_SINCE_READER, FEATURES_SINCE_WRITER = 3, 7
"""The versions from which a table lists its features (Delta's protocol, "Table Features")."""


def find_unread(table: DeltaTable) -> str | None:
    """Return what a table asks of its readers that Muster does not do; None when nothing."""
    asked = table.protocol()
    if asked.min_reader_version <= READER_VERSION:
        return None
    if asked.min_reader_version != FEATURES_SINCE_READER:
        return f"reader version {asked.min_reader_version}"
    return _list_unknown(asked.reader_features, FEATURES_READ)


def find_unwritten(table: DeltaTable, known: frozenset[str] = FEATURES_WRITTEN) -> str | None:
    """Return what a table asks of its writers that Muster does not do; None when nothing."""
    asked = table.protocol()
    if asked.min_writer_version <= WRITER_VERSION:
        return None
    if asked.min_writer_version != FEATURES_SINCE_WRITER:
        return f"writer version {asked.min_writer_version}"
    return _list_unknown(asked.writer_features, known)


def _list_unknown(asked: list[str] | None, known: frozenset[str]) -> str | None:
    unknown = sorted(set(asked or ()) - known)
    return f"the feature {', '.join(unknown)}" if unknown else None
