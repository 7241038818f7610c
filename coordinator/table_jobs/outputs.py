"""Check that an output does not exist, or is an earlier assignment.

Refusals happen here before a lock is taken or an input is read, so they leave no trace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from assignors import SpecError
from assignors.parse_tables import OWNED_COLUMNS
from coordinator.config import ConfigError
from coordinator.storage.tables.shared_table import NONE, find_version
from coordinator.storage.tables.store_errors import check_url, unreachable_error
from coordinator.storage.tables.store_files import (
    ELSEWHERE,
    MEMORY,
    files_at,
    is_remote,
    root_of,
)
from coordinator.storage.tables.store_root import refuse_inside
from coordinator.storage.tables.table_io import TableRef, was_interrupted
from coordinator.storage.tables.urls import is_file_url, is_url, path_of

PARQUET = ".parquet"
BESIDE = "_muster.json"
"""The file that describes the run, in a folder of Parquet files that Spark wrote: older versions
made them. Readers of Parquet ignore names that begin with an underscore."""
OTHER_FORMATS = (
    ".avro", ".csv", ".db", ".feather", ".json", ".jsonl", ".ndjson", ".orc", ".tsv", ".txt",
    ".xlsx", ".yaml", ".yml",
)  # fmt: skip
"""Suffixes of other formats: a user who names one does not expect a Delta table."""


_OF_A_RUN = re.compile(r"(part-[0-9a-f]{32}\.parquet$|run-[0-9a-f]{32}/)")
"""What is ours in an object store: data files that no version names if their run was killed."""
_HELD = "delta.appendOnly"
_OF_A_WRITER = re.compile(r"(\.?part-|_delta_log$|_temporary$|\._)")
"""What delta-rs and Spark write on a disk before they commit."""


def is_delta_output(path: str) -> bool:
    """Whether an output is written as Delta: every name that does not end in .parquet."""
    return not path.endswith(PARQUET)


def check_table_output(output: str, inputs: Mapping[str, str], previous: str | None) -> None:
    """Check the output of a job on tables.

    Parameters
    ----------
    inputs
        Paths that the run only reads, by the option that names each.
    previous
        Path of the earlier assignment. It may be the output itself.

    Raises
    ------
    SpecError
        The output has another format, overlaps with an input, is a store's own, or holds something
        other than an assignment.
    """
    if output.lower().endswith(OTHER_FORMATS):
        raise SpecError(
            f"--output {output!r}: the output must be a Delta table or a {PARQUET} file; for "
            "JSON, omit --output and redirect what is printed"
        )
    for option, path in inputs.items():
        if _overlap(output, path):
            _refuse_input(output, option, path)
    if previous is not None and not is_same(output, previous) and _overlap(output, previous):
        _refuse_input(output, "--previous", previous)
    try:
        refuse_inside(_place(output), "--output")
    except ConfigError as error:
        raise SpecError(str(error)) from None
    if is_url(output):
        _refuse_other_objects(output)
    else:
        _refuse_other_content(Path(output))


def refuse_folder(output: str) -> None:
    """Refuse to replace a folder of Parquet files, which no rename does at once.

    Raises
    ------
    SpecError
        The output is one.
    """
    if Path(output).is_dir():
        raise SpecError(
            f"--output {output!r} is a folder of Parquet files, as older versions of Muster wrote "
            f"it on Spark: name another output, and continue it by --previous {output}"
        )


def find_output(output: str) -> str:
    """Return where an output is: a path as it is given, or a URL as tables are named by it.

    Raises
    ------
    SpecError
        It is one that no Delta table can be written to.
    """
    place = _find_place(output)
    if is_delta_output(place) and (odd := ELSEWHERE.search(place)):
        raise SpecError(
            f"--output {output!r} has {odd[0]!r} in its path, and Delta would take that for "
            "another path: name another"
        )
    return place


def _find_place(output: str) -> str:
    if not is_url(output):  # what a link names, and not the link, is written, locked and replaced
        linked = os.path.islink(os.path.normpath(output))
        return os.path.realpath(output) if linked else output
    if is_file_url(output):
        return path_of(output, "--output")
    check_url(output, "--output")
    try:
        root = root_of(output)
    except ConfigError as error:
        raise SpecError(f"--output {output!r}: {error}") from None
    if root.startswith(f"{MEMORY}:") or not is_delta_output(root):
        raise SpecError(f"--output {output!r}: on object storage an output is a Delta table")
    return root


def see_output(output: str) -> int:
    """Return the version that an output on object storage has, after trying to write there.

    Raises
    ------
    SpecError
        It cannot be reached, or the store has no conditional puts.
    """
    try:
        files_at(output).check_conditions(output)
        return find_version(output)
    except ConfigError as error:
        raise SpecError(f"--output {output!r}: {error}") from None
    except (DeltaError, OSError) as error:
        raise unreachable_error(output, "--output", error) from None


def check_spec_output(output: str, source: str, changes: str | None = None) -> None:
    """Check the output of a job on a spec: it must be a JSON file, and not an input.

    Raises
    ------
    SpecError
        The output is the spec, the file of changes, a folder, or named like a table.
    """
    if source != "-" and is_same(output, source):
        _refuse_input(output, "the spec", source)
    if changes is not None and is_same(output, changes):
        _refuse_input(output, "--changes", changes)
    if output.endswith(PARQUET):
        raise SpecError(f"--output {output!r}: the assignment of a spec is JSON, name it .json")
    if Path(output).is_dir():
        raise SpecError(f"--output {output!r} is a folder: the assignment of a spec is a JSON file")
    if not Path(output).absolute().parent.is_dir():
        raise SpecError(f"--output {output!r}: folder not found: create it first")


def refuse_inputs_at(output: str, place: str, inputs: Mapping[str, str]) -> None:
    """Refuse to replace a table of a catalog that a run only reads.

    Parameters
    ----------
    place
        Where its files are.
    inputs
        Paths that the run only reads, by the option that names each.

    Raises
    ------
    SpecError
        One of them is there.
    """
    for option, path in inputs.items():
        if _overlap(place, path):
            raise SpecError(
                f"--output {output!r} is also {option}, which it would replace: name another"
            )


def _refuse_input(output: str, option: str, path: str) -> None:
    if is_same(output, path):
        raise SpecError(
            f"--output {output!r} is also {option}, which it would replace: name another"
        )
    raise SpecError(f"--output {output!r} and {option} {path!r} overlap: name another output")


def _refuse_other_content(output: Path) -> None:
    """Refuse an output that has other content than an assignment."""
    if not output.exists():
        return
    if not is_delta_output(str(output)):
        if output.is_file() or (output / BESIDE).is_file():
            _refuse_other_rows(TableRef(str(output), None, delta=False))
            return
        raise SpecError(
            f"--output {str(output)!r} is a folder of Parquet files that Muster did not write: "
            "name another"
        )
    if output.is_file():
        raise SpecError(f"--output {str(output)!r} is a file: name a folder for a Delta table")
    if DeltaTable.is_deltatable(str(output)):
        _refuse_other_rows(TableRef(str(output), None, delta=True))
    elif any(output.iterdir()) and not _is_unfinished(output):
        raise SpecError(
            f"--output {str(output)!r} is a folder with other content: name a new or empty "
            "folder, or a Delta table"
        )


def _refuse_other_objects(output: str) -> None:
    """Refuse a place in an object store that has other content than an assignment."""
    try:
        there = find_version(output) != NONE
        found = [] if there else files_at(output).names_below(output)
    except (DeltaError, OSError) as error:
        raise unreachable_error(output, "--output", error) from None
    if not all(map(_OF_A_RUN.match, found)):
        raise SpecError(f"--output {output!r} has other content than a Delta table: name another")
    if there:
        _refuse_other_rows(TableRef(output, None, delta=True))


def _is_unfinished(output: Path) -> bool:
    """Whether a folder has only what a run left that did not come to its first commit."""
    return was_interrupted(str(output)) and all(map(_OF_A_WRITER.match, os.listdir(output)))


def _refuse_other_rows(table: TableRef) -> None:
    try:
        found = table.columns()
        properties = table.open().metadata().configuration if table.delta else {}
    except DeltaError:  # with features that only Spark knows
        return
    refuse_other_rows(table.path, found, properties)


def refuse_other_rows(output: str, columns: list[str], properties: Mapping[str, str]) -> None:
    """Refuse a table whose rows are not an assignment, or that may not be replaced.

    Raises
    ------
    SpecError
        The message says which.
    """
    missing = [name for name in OWNED_COLUMNS if name not in columns]
    if missing:
        raise SpecError(
            f"--output {output!r} is a table of something else, which would be lost: it has "
            f"no column {missing[0]!r}; name another"
        )
    if properties.get(_HELD, "").lower() == "true":
        raise SpecError(
            f"--output {output!r} only takes appends ({_HELD}), and a run replaces its rows: "
            "set it to false, or name another"
        )


def is_same(one: str, other: str) -> bool:
    """Tell whether two paths or URLs name the same place."""
    return _place(one) == _place(other)


def _place(name: str) -> str:
    """Return a name that is the same for the same place."""
    if not is_url(name):
        return os.path.realpath(name)
    try:
        return root_of(name)
    except ConfigError:  # of a scheme that only inputs may have
        return name.rstrip("/")


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are equal, or one is inside the other."""
    paths = [_place(one), _place(other)]
    if is_remote(paths[0]) != is_remote(paths[1]):
        return False
    return any(f"{inside}/".startswith(f"{above}/") for inside, above in (paths, paths[::-1]))
