"""The Parquet files of an input: one list for the engines that read them and for its identity.

And the one file of an output, whichever engine wrote its rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from assignors import SpecError
from coordinator.errors.texts import gist
from coordinator.storage.tables.table_io import TableRef, replace_file


def list_files(table: TableRef) -> list[str]:
    """Return the files that pyarrow, and so the local engine, reads for a Parquet table.

    Of a folder these are all below it, with any suffix, except for names that begin with `_` or
    `.` and what is in such folders.
    """
    if os.path.isfile(table.path):
        return [table.path]
    # with a schema given, pyarrow opens none of them
    return sorted(pq.ParquetDataset(table.path, schema=pa.schema([])).files)


def read_schemas(table: TableRef, what: str) -> dict[str, pa.Schema]:
    """Return the schemas of a Parquet table's files, by file.

    Raises
    ------
    SpecError
        No file is there, one is not Parquet, or one has a column that the first lacks: pyarrow
        would pass over it.
    """
    found: dict[str, pa.Schema] = {}
    for file in list_files(table):
        try:
            found[file] = pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise SpecError(
                f"{what} {file!r} cannot be read as Parquet: {gist(error).rstrip('.')}: write it "
                "again, or move it out of the folder"
            ) from None
        names = found[file].names
        if twice := [name for name in names if names.count(name) > 1]:
            raise SpecError(
                f"{what} {file!r} has a column {twice[0]!r} twice: leave one of them out"
            )
    if not found:
        raise SpecError(f"{what} {table.path!r} has no Parquet files outside of hidden folders")
    first, *others = found
    for file in others:
        _check_columns(found[file], found[first], f"{what} {file!r}", first)
    return found


def join_files(folder: str, output: str, metadata: Mapping[str, str]) -> None:
    """Replace a Parquet file by the rows of a folder's, in the order of their names.

    It holds one row group at a time.
    """
    files = list_files(TableRef(folder, None, delta=False))

    def groups() -> Iterator[pa.Table]:
        for file in files:
            with pq.ParquetFile(file) as part:
                yield from map(part.read_row_group, range(part.num_row_groups))

    schema = pq.read_schema(files[0]).with_metadata(metadata)
    replace_file(output, schema, groups())


def _check_columns(schema: pa.Schema, first: pa.Schema, what: str, first_file: str) -> None:
    """Refuse columns whose values would be lost, or have no type in the first file."""
    kinds = dict(zip(first.names, first.types, strict=True))
    for field in schema:
        known = kinds.get(field.name, pa.null())
        if is_untyped(known) and not is_untyped(field.type):
            lacks = "has no type" if field.name in kinds else "is missing"
            raise SpecError(
                f"{what} has a column {field.name!r} that {lacks} in {first_file!r}: write all "
                "files with the same columns"
            )


def is_untyped(kind: pa.DataType) -> bool:
    """Whether all values are null, or lists without any but null."""
    return pa.types.is_null(kind) or (pa.types.is_list(kind) and is_untyped(kind.value_type))
