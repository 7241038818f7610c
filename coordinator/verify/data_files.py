"""Read and check the rows of a table's data files, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.commit_reader import DataFile, TableFiles
from coordinator.storage.tables.recovery import RESTORE
from coordinator.storage.tables.store_files import files_at, refuse_silence, source_of
from coordinator.verify.statistics import FileSummary


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A data file with its number of rows and its first and last position, as its commit says."""

    file: DataFile
    path: str
    rows: int
    first: int
    last: int


def sort_by_position(table: TableFiles, files: list[DataFile]) -> list[NumberedFile]:
    """Return data files in the order of their positions.

    Raises
    ------
    CorruptLog
        A commit does not say which positions a file has, or two files share a position.
    """
    found = sorted((_number_file(table, file) for file in files), key=lambda one: one.first)
    for before, after in pairwise(found):
        if after.first <= before.last:
            raise CorruptLog(
                f"{after.path} begins with position {after.first}, which is also in "
                f"{before.path}: {RESTORE}"
            )
    return found


def _number_file(table: TableFiles, file: DataFile) -> NumberedFile:
    path, statistics = table.path(file), file.statistics
    try:
        low, high = statistics["minValues"]["position"], statistics["maxValues"]["position"]
        rows = statistics["numRecords"]
    except (KeyError, TypeError):
        low = high = rows = None
    if not all(isinstance(number, int) for number in (low, high, rows)):
        raise CorruptLog(f"the commits do not say which positions {path} has: {RESTORE}")
    if high - low + 1 != rows:
        raise CorruptLog(
            f"the commits say that {path} has {rows} rows with positions {low} to {high}: {RESTORE}"
        )
    return NumberedFile(file, path, rows, low, high)


def read_pieces(path: str, file: DataFile) -> Iterator[pa.Table]:
    """Yield the rows of a data file, one row group at a time; page checksums are verified.

    Raises
    ------
    FileNotFoundError
        The file does not exist. The caller knows whether it may have been cleaned up.
    Unreachable
        An object store does not bring it now.
    CorruptLog
        Its size differs from its commit, it cannot be read, or the statistics in the file or in its
        commit do not match its rows.
    """
    size = files_at(path).size(path)
    if size != file.bytes:
        raise CorruptLog(
            f"{path} is damaged: it has {size} bytes, its commit says {file.bytes}; {RESTORE}"
        )
    try:
        summaries = FileSummary()
        with pq.ParquetFile(source_of(path), page_checksum_verification=True) as opened:
            for group in range(opened.num_row_groups):
                rows = opened.read_row_group(group)
                rows.validate(full=True)
                summaries.add(opened.metadata.row_group(group), rows, path)
                yield rows
        summaries.compare(file, path)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        refuse_silence(path, error)
        first = str(error).partition("\n")[0]
        raise CorruptLog(f"{path} is damaged: {first}; {RESTORE}") from None
