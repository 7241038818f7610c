"""Check where an assignment may be written: an earlier assignment, or nothing, is there.

Everything here is refused before a lock is taken or an input read, so a refusal leaves no trace.
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
"""What a run says of itself in a folder of Parquet files that Spark wrote; readers of Parquet leave
out names that begin with an underscore."""
OTHER_FORMATS = (
    ".avro", ".csv", ".db", ".feather", ".json", ".jsonl", ".ndjson", ".orc", ".tsv", ".txt",
    ".xlsx", ".yaml", ".yml",
)  # fmt: skip
"""Endings by which users mean a file of that format, which a Delta table would not be."""


def is_delta_output(path: str) -> bool:
    """Tell whether an output is written as Delta: everything but a name that ends in .parquet."""
    return not path.endswith(PARQUET)


def check_table_output(output: str, inputs: Mapping[str, str], previous: str | None) -> None:
    """Check where the assignment of a job on tables goes.

    Parameters
    ----------
    inputs
        Paths that the run only reads, by the option that names each.
    previous
        Path of the earlier assignment: it may be the output itself.

    Raises
    ------
    SpecError
        The output is on object storage, of another format, one of the inputs or within one, or
        holds something that is no assignment's table.
    """
    if is_url(output):
        raise SpecError(
            f"--output {output!r} is a URL: an output is a local folder, as nothing would keep "
            "two runs apart there; write to a folder and copy it"
        )
    if output.lower().endswith(OTHER_FORMATS):
        raise SpecError(
            f"--output {output!r}: tables are assigned to a Delta table or a {PARQUET} file; for "
            "JSON leave --output out and redirect what is printed"
        )
    for option, path in inputs.items():
        if _overlap(output, path):
            _refuse_input(output, option, path)
    if previous is not None and not _same(output, previous) and _overlap(output, previous):
        _refuse_input(output, "--previous", previous)
    _refuse_other_content(Path(output))


def check_spec_output(output: str, source: str) -> None:
    """Check where the assignment of a spec goes: a JSON file, and not the spec itself.

    Raises
    ------
    SpecError
        It is the spec, a folder, or named as a table.
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
        raise SpecError(f"--output {output!r} is {option} too: it would be replaced, name another")
    raise SpecError(f"--output {output!r} and {option} {path!r} lie in one another: name another")


def _refuse_other_content(output: Path) -> None:
    """Refuse to write among files that are not a table's."""
    if not output.exists():
        return
    if not is_delta_output(str(output)):
        if output.is_file() or (output / BESIDE).is_file():
            return
        raise SpecError(f"--output {str(output)!r} is a folder of others' files: name another")
    if output.is_file():
        raise SpecError(f"--output {str(output)!r} is a file: name a folder for a Delta table")
    if any(output.iterdir()) and not DeltaTable.is_deltatable(str(output)):
        raise SpecError(
            f"--output {str(output)!r} is a folder with other content: name one that is empty, "
            "new, or a Delta table"
        )


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _overlap(one: str, other: str) -> bool:
    """Tell whether a path is the other, or one lies within the other."""
    if is_url(other):
        return False
    paths = [os.path.realpath(one), os.path.realpath(other)]
    return os.path.commonpath(paths) in paths
