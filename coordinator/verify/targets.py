"""Check that the targets named in the log exist and match their digests."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.groups import State
from coordinator.core.state.records import TargetMetadata
from coordinator.display.progress import task
from coordinator.storage import target_table
from coordinator.storage.record_log import CorruptLog, LostTarget, NoLog
from coordinator.storage.tables.commit_reader import DataFile, TableFiles, read_table_files
from coordinator.storage.tables.recovery import RESTORE
from coordinator.storage.tables.store_files import refuse_silence
from coordinator.storage.target_digest import digest_rows
from coordinator.verify.data_files import read_pieces

ROWS = ("member_id", "topic_id", "first_partition", "partition_count")
KEYS = ("group_id", "assignment_epoch")
REMEDY = f"{RESTORE}; otherwise members keep what they own, and a coordinator computes a new target"


def check_targets(store: str, installed: list[TargetMetadata], state: State) -> int:
    """Check the targets that records name. Targets past their retention may be missing.

    Parameters
    ----------
    installed
        The records, in order.
    state
        The state at the end of the log. It says which targets are in force.

    Returns
    -------
    int
        How many targets exist.

    Raises
    ------
    CorruptLog
        A target in force is missing, or the rows of a target do not match its record.
    """
    folder = os.path.join(store, "targets")
    try:
        table = read_table_files(folder)
    except NoLog:
        table = TableFiles(folder)
    files = _group_by_target(table)
    needed = [group.installed for group in state.groups.values()]
    found = 0
    with task("verify: targets", len(installed)) as progress:
        for record in installed:
            there = files.get((record.group_id, str(record.assignment_epoch)), [])
            found += _check_target(
                table, there, record, in_force=any(record is one for one in needed)
            )
            progress.advance()
    return found


def _group_by_target(table: TableFiles) -> dict[tuple[str | None, str | None], list[DataFile]]:
    found: dict[tuple[str | None, str | None], list[DataFile]] = {}
    for file in table.files.values():
        group_id, epoch = (file.partition.get(key) for key in KEYS)
        found.setdefault((group_id, epoch), []).append(file)
    return found


def _check_target(
    table: TableFiles, files: list[DataFile], record: TargetMetadata, *, in_force: bool
) -> bool:
    """Check one target, and return whether it exists."""
    what = (
        f"the target of group {record.group_id!r} for assignment epoch {record.assignment_epoch}, "
        f"run {record.computation_id!r}, in {table.folder}"
    )
    rows = _read_rows(table, files, str(record.computation_id))
    if not len(rows) and record.ranges and not in_force:
        return False
    if len(rows) != record.ranges:
        raise CorruptLog(f"{what} has {len(rows)} rows, not {record.ranges}: {REMEDY}")
    found = digest_rows(rows)
    if found != record.digest:
        raise CorruptLog(f"{what}: the digest is {found}, not {record.digest}; {REMEDY}")
    if in_force:
        _check_loadable(os.path.dirname(table.folder), record)
    if twice := _find_overlap(rows):
        raise CorruptLog(f"{what} gives {twice} to two members: {REMEDY}")
    return True


def _check_loadable(store: str, record: TargetMetadata) -> None:
    """Check that a coordinator can load a target at the version its record names."""
    table = os.path.join(store, "targets")
    try:
        assert record.stored is not None, "only targets in the table are checked"
        target_table.load_target(store, record.stored)
    except (LostTarget, OSError) as error:
        refuse_silence(table, error)
        raise CorruptLog(f"{error}: {REMEDY}") from None


def _read_rows(table: TableFiles, files: list[DataFile], run_id: str) -> pa.Table:
    """Return the rows of a run."""
    schema = pa.schema(
        [(name, pa.int32() if "partition" in name else pa.string()) for name in ROWS]
    )
    pieces = [schema.empty_table()]
    for file in sorted(files, key=lambda file: file.name):
        path = table.path(file)
        try:
            for piece in read_pieces(path, file):
                mine = piece.filter(pc.equal(piece["run_id"], run_id))
                pieces.append(mine.select(ROWS).cast(schema))
        except FileNotFoundError:
            if file.name in read_table_files(table.folder).files:
                raise CorruptLog(f"{path} is missing: {REMEDY}") from None
            # Otherwise `muster compact` has removed it.
        except (KeyError, pa.ArrowException) as error:
            raise CorruptLog(f"{path} is damaged: {error}; {REMEDY}") from None
    return pa.concat_tables(pieces).combine_chunks()


def _find_overlap(rows: pa.Table) -> str:
    """Name a partition that is in two ranges; "" without one."""
    topics = rows["topic_id"].dictionary_encode().combine_chunks()  # as texts they may be too long
    topic = topics.indices.to_numpy()
    first = rows["first_partition"].to_numpy().astype(np.int64)
    end = first + rows["partition_count"].to_numpy()
    order = np.lexsort((first, topic))
    topic, first, end = topic[order], first[order], end[order]
    overlaps = np.flatnonzero((topic[1:] == topic[:-1]) & (first[1:] < end[:-1]))
    if not len(overlaps):
        return ""
    at = int(overlaps[0]) + 1
    return f"partition {first[at]} of topic id {topics.dictionary[int(topic[at])].as_py()!r}"
