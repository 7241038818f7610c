"""Check that an output does not exist, or is an earlier assignment.

Refusals happen here before a lock is taken or an input is read, so they leave no trace.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable

from assignors import SpecError
from coordinator.storage.tables.object_store import is_url

PARQUET = ".parquet"
BESIDE = "_muster.json"
"""The file that describes the run, in a folder of Parquet files that Spark wrote. Readers of
Parquet ignore names that begin with an underscore."""
OTHER_FORMATS = (
    ".avro", ".csv", ".db", ".feather", ".json", ".jsonl", ".ndjson", ".orc", ".tsv", ".txt",
    ".xlsx", ".yaml", ".yml",
)  # fmt: skip
"""Suffixes of other formats: a user who names one does not expect a Delta table."""


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
        The output is on object storage, has another format, overlaps with an input, or holds
        something other than an assignment.
    """
    if is_url(output):
        raise SpecError(
            f"--output {output!r} is a URL: an output must be local, because object storage "
            "cannot lock it against a second run; write to a local folder and copy it"
        )
    if output.lower().endswith(OTHER_FORMATS):
        raise SpecError(
            f"--output {output!r}: the output must be a Delta table or a {PARQUET} file; for "
            "JSON, omit --output and redirect what is printed"
        )
    for option, path in inputs.items():
        if _overlap(output, path):
            _refuse_input(output, option, path)
    if previous is not None and not _same(output, previous) and _overlap(output, previous):
        _refuse_input(output, "--previous", previous)
    _refuse_other_content(Path(output))


def check_spec_output(output: str, source: str) -> None:
    """Check the output of a job on a spec: it must be a JSON file, and not the spec itself.

    Raises
    ------
    SpecError
        The output is the spec, a folder, or named like a table.
    """
    if source != "-" and _same(output, source):
        _refuse_input(output, "the spec", source)
    if output.endswith(PARQUET):
        raise SpecError(f"--output {output!r}: the assignment of a spec is JSON, name it .json")
    if Path(output).is_dir():
        raise SpecError(f"--output {output!r} is a folder: the assignment of a spec is a JSON file")
    if not Path(output).absolute().parent.is_dir():
        raise SpecError(f"--output {output!r}: folder not found: create it first")


def _refuse_input(output: str, option: str, path: str) -> None:
    if _same(output, path):
        raise SpecError(
            f"--output {output!r} is also {option}, which it would replace: name another"
        )
    raise SpecError(f"--output {output!r} and {option} {path!r} overlap: name another output")


def _refuse_other_content(output: Path) -> None:
    """Refuse an output that has other content than a table."""
    if not output.exists():
        return
    if not is_delta_output(str(output)):
        if output.is_file() or (output / BESIDE).is_file():
            return
        raise SpecError(
            f"--output {str(output)!r} is a folder of Parquet files that Muster did not write: "
            "name another"
        )
    if output.is_file():
        raise SpecError(f"--output {str(output)!r} is a file: name a folder for a Delta table")
    if any(output.iterdir()) and not DeltaTable.is_deltatable(str(output)):
        raise SpecError(
            f"--output {str(output)!r} is a folder with other content: name a new or empty "
            "folder, or a Delta table"
        )


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are equal, or one is inside the other."""
    if is_url(other):
        return False
    paths = [os.path.realpath(one), os.path.realpath(other)]
    return os.path.commonpath(paths) in paths
