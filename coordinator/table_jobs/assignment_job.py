"""A job on tables: what to read, how to assign, where to write, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from deltalake import DeltaTable

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.groups.assign_groups import GroupsAssignment
from assignors.quality import Report
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.shared_table import NONE
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_io import TableRef
from coordinator.table_jobs.inputs import ChangesFile, FoundOutput, Input, SparkName, name_of_table
from coordinator.table_jobs.outputs import (
    check_table_output,
    is_delta_output,
    is_same,
    refuse_inputs_at,
)
from coordinator.table_jobs.runs import Run, find_run, identify
from coordinator.table_jobs.safeguards import Safeguards


@dataclass(frozen=True, slots=True)
class AssignmentJob:
    """What to read, how to assign, where to write.

    Attributes
    ----------
    members, topics
        Tables.
    owned
        What members say they own. Its topics and partitions must exist. Excludes `previous`.
    previous
        An earlier assignment; None for the output's current content, if there is any. Its topics
        and partitions that no longer exist are dropped.
    output
        A Delta table's folder, or a Parquet file; None to write nothing. With `engine="spark"`
        also a Delta table's URL, or its name in Spark's catalog.
    engine
        "local", "spark", or "auto".
    run_id
        The Delta application id of the commit; None for a new one.
    safeguards
        What must be allowed to be done.
    partitions, constraints
        Tables of weights and racks, and of rules; read in process only.
    output_version
        The version of a Delta output that the run replaces, `NONE` for none: the commit fails if
        another run has replaced it meanwhile.
    changes
        What changed in the group since these tables; planned in process only.
    table
        The output, where Spark found it in its catalog.
    previous_name
        What messages call `previous`: the output, where that is its content.
    """

    members: Input
    topics: Input
    owned: Input | None
    previous: Input | None
    output: str | None
    options: AssignorOptions
    engine: str
    run_id: str | None = None
    safeguards: Safeguards = field(default_factory=Safeguards)
    partitions: Input | None = None
    constraints: Input | None = None
    output_version: int = NONE
    previous_name: str = "previous"
    table: FoundOutput | None = None
    changes: ChangesFile | None = None

    def inputs(self) -> dict[str, Any]:
        """Return the tables by the fields that name them."""
        fields = ("members", "topics", "owned", "previous", "partitions", "constraints")
        return {field: getattr(self, field) for field in fields}

    def option_of(self, field: str) -> str:
        """Return the option that names the table of a field."""
        name = self.previous_name if field == "previous" else field
        return f"--{name.removeprefix('--')}"

    def by_option(self) -> dict[str, Any]:
        """Return the tables by the options that name them."""
        return {self.option_of(field): table for field, table in self.inputs().items()}

    def needs_catalog(self) -> bool:
        """Whether an input must be looked up in Spark's catalog first."""
        if self.engine != "spark":
            return False
        names = any(isinstance(table, SparkName) for table in self.inputs().values())
        return names or (self.output is not None and name_of_table(self.output) is not None)

    def check_output(self) -> None:
        """Refuse an output that would overwrite an input or other files.

        Raises
        ------
        SpecError
            The message names the option and the remedy.
        """
        if self.output is None:
            return
        named = self.table is not None or name_of_table(self.output) is not None
        if named and self.engine != "spark":
            raise SpecError(
                f"--output {self.output!r} is named like a table of Spark's catalog: give a path "
                f"(./{self.output} for a folder of that name), or --engine spark"
            )
        paths = {f"--{field}": _path_of(table) for field, table in self.inputs().items()}
        paths["--changes"] = None if self.changes is None else self.changes.path
        previous = paths.pop("--previous")
        read = {option: path for option, path in paths.items() if path is not None}
        if not named:
            check_table_output(self.output, read, previous)
        elif self.table is not None and self.table.location is not None:
            refuse_inputs_at(self.output, self.table.location, read)

    def find_run(self, run_id: str) -> Run | None:
        """Find what a run wrote to the output."""
        if self.table is not None:
            return self.table.find_run(run_id)
        return find_run(self.output, run_id) if self.output is not None else None

    def pin_inputs(self) -> Self:
        """Pin the inputs to their versions. The output's own content is not an input."""
        tables: dict[str, Any] = self.inputs()
        previous = self.previous
        if isinstance(previous, TableRef) and previous.version is None and self.output is not None:
            tables["previous"] = None if is_same(previous.path, self.output) else previous
        for name, table in tables.items():
            tables[name] = table.pin() if isinstance(table, TableRef) else table
        return replace(self, **tables)

    def find_previous(self) -> Self:
        """Use the output's content as the previous assignment, if none is given."""
        if self.output is None or self.previous is not None or self.owned is not None:
            return self
        if self.table is not None or is_remote(self.output):
            if self.output_version == NONE:
                return self
            if self.table is not None:
                return self._continue(self.table.content(self.output_version))
            return self._continue(TableRef(self.output, self.output_version, delta=True))
        if not _has_content(self.output):
            return self
        return self._continue(TableRef.of(self.output, "--output").pin())

    def _continue(self, content: Input) -> Self:
        return replace(self, previous=content, previous_name="--output")

    def describe(self) -> dict[str, Any]:
        """Return the options and pinned inputs that identify a run's result."""
        options = self.options
        asked: dict[str, Any] = {
            "assignor": options.assignor, "imbalance": options.imbalance,
            "max_moves": options.max_moves,
        }  # fmt: skip
        tables = {"members": self.members, "topics": self.topics, "owned": self.owned}
        tables["previous"] = self.previous
        for name in ("partitions", "constraints"):  # a run of before had none
            if getattr(self, name) is not None:
                tables[name] = getattr(self, name)
        if self.changes is not None:
            asked["changes"] = self.changes.identity
        asked |= options.weighted
        return asked | {name: identify(table, f"--{name}") for name, table in tables.items()}


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """The result of a job.

    Attributes
    ----------
    engine, run_id
        Where it ran, and its id.
    version
        Version of the output's Delta table; None if the output is not a Delta table.
    already
        Whether an earlier run with this id had written the output. Then this run did nothing.
    forgotten
        How many partitions of the previous assignment no longer exist.
    ranges, report
        The assignment and its report; None if it is too large for the driver.
    totals
        The totals of the report, always.
    groups
        Instead of group, ranges and report, where tables have many groups.
    """

    engine: str
    run_id: str
    version: int | None = None
    already: bool = False
    forgotten: int = 0
    group: GroupSpec | None = None
    ranges: PartitionRanges | None = None
    report: Report | None = None
    totals: dict[str, Any] | None = None
    groups: GroupsAssignment | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the result that an earlier run with the same id recorded."""
        kept = run.summary
        return cls(
            kept.get("engine", ""), run.run_id, run.version, True, kept.get("forgotten", 0),
            totals=kept.get("totals"),
        )  # fmt: skip

    def record_in(self, run: Run) -> Run:
        """Return the run with this result recorded in it."""
        kept = {"engine": self.engine, "forgotten": self.forgotten, "totals": self.totals}
        return replace(run, summary=kept)


def _path_of(table: Input | None) -> str | None:
    """Return the path of a table, or None if it has none or Spark must find it."""
    return None if table is None or isinstance(table, SparkName) else table.path


def _has_content(output: str) -> bool:
    if is_delta_output(output):  # what a killed run left beside does not count
        return DeltaTable.is_deltatable(output)
    return Path(output).exists()
