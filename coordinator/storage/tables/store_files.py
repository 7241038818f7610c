"""Where a store is: a folder on this machine, or a URL of an object store."""

from __future__ import annotations

import os

from deltalake import DeltaTable

from coordinator.storage.tables.files import Files, Source
from coordinator.storage.tables.filesystem import Filesystem

_LOCAL = Filesystem()


def root_of(store: str | os.PathLike[str]) -> str:
    """Return the root of a store, of which paths in it begin."""
    return os.path.abspath(store)


def files_at(path: str) -> Files:  # noqa: ARG001 - every store is on a disk so far
    """Return the calls on files for a path, to read there; `filesystem_of` gives files modes."""
    return _LOCAL


def source_of(path: str) -> Source:
    """Return what pyarrow reads a file from."""
    return files_at(path).source(path)


def open_delta(path: str, version: int | None = None) -> DeltaTable:
    """Open a Delta table, at a version or its newest; delta-rs's errors are raised as they are."""
    return DeltaTable(path, version=version, storage_options=files_at(path).options())
