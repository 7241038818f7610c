"""Replace a Delta table of Spark's catalog by its name: the same run protocol as at a path.

Where tables are governed, as by Unity Catalog, their files may only be written by their names.
Then no lock is seen by all, and no commit is ours: Spark's own commit fails if others have written
while it was made, and the version that it made shows whether others had before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from coordinator.errors.texts import gist
from coordinator.storage.tables.shared_table import NONE
from coordinator.storage.tables.table_history import Made, UnknownRestoreError
from coordinator.storage.tables.table_io import BusyError, table_lock
from coordinator.storage.tables.urls import is_url, path_of
from coordinator.table_jobs.inputs import Input, SparkName
from coordinator.table_jobs.outputs import refuse_other_rows
from coordinator.table_jobs.runs import Run, find_in_history
from spark_jobs.jobs.spark_tables import SparkTable, describe
from spark_jobs.jobs.write_tables import check_made_by, delta_refusals

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_SAME_ROWS = (
    "ADD CONSTRAINT", "ADD FEATURE", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY",
    "COMPUTE STATS", "CREATE TABLE", "DROP CONSTRAINT", "DROP FEATURE", "OPTIMIZE", "REORG",
    "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "VACUUM END", "VACUUM START",
)  # fmt: skip
"""Operations after which a table has the rows that it had."""

_OF_THE_NAME = ("0A", "42")
"""Classes of SQLSTATE: what a catalog does not support, or what may not be written so."""


@dataclass(frozen=True, slots=True, eq=False)
class CatalogOutput:
    """A table that a run replaces, or makes.

    Attributes
    ----------
    name
        Its whole name, as a session with another current schema finds it.
    location
        Where its files are; None if it is not there yet.
    """

    spark: SparkSession
    name: str
    location: str | None

    @contextmanager
    def hold(self) -> Iterator[int]:
        """Keep other runs of this machine from it; yield its version, `NONE` if it is not there."""
        if self.location is None:
            yield NONE
        elif is_url(self.location):
            yield self._newest()
        else:
            with table_lock(self.location):
                yield self._newest()

    def find_run(self, run_id: str) -> Run | None:
        """Find what a run wrote to it, as far back as its log goes."""
        return None if self.location is None else find_in_history(self, run_id)

    def content(self, version: int) -> SparkTable:
        """Return its rows as of a version."""
        frame = self.spark.read.option("versionAsOf", version).table(self.name)
        identity = {"path": self.name, "version": version}
        return SparkTable(self.location, version, identity, frame)

    def replace_rows(self, frame: DataFrame, order: Sequence[str], seen: int, run: Run) -> int:
        """Replace its rows in one commit, and return its version. Its layout stays.

        Raises
        ------
        SpecError
            Delta does not replace it, or not by these rows.
        BusyError
            Another run has written it since.
        """
        with delta_refusals(self.name):
            if seen == NONE:
                columns = ", ".join(
                    f"`{at.name}` {at.dataType.simpleString()}" for at in frame.schema.fields
                )
                self._make(columns)
                seen = 0
            if self._newest() != seen:
                raise BusyError(
                    f"{self.name} was written by another program since this run began: nothing "
                    "was replaced; try again"
                )
            options = {
                "txnAppId": run.run_id,
                "txnVersion": str(seen + 1),  # grows also where RESTORE has undone the run
                "userMetadata": run.to_json(),
            }
            writer = frame.sortWithinPartitions(*order).writeTo(self.name).options(**options)
            # a condition that holds for all rows: where it is `true`, Delta forgets CLUSTER BY
            writer.overwrite(F.expr("partition_count >= 0 OR partition_count IS NULL"))
        made = next((made for made in self.read(None) if made.version == seen + 1), None)
        check_made_by(made, run, self.name)
        return seen + 1

    def _make(self, columns: str) -> None:
        try:
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING delta")
        except PySparkException as error:
            if not (error.getSqlState() or "").startswith(_OF_THE_NAME):
                raise
            raise SpecError(
                f"--output {self.name!r}: its catalog makes no Delta table of this name: "
                f"{gist(error)}"
            ) from None

    def read(self, version: int | None) -> Iterator[Made]:
        """Yield what made its versions up to one, newest first, as far as the log has them."""
        for row in self.spark.sql(f"DESCRIBE HISTORY {self.name}").collect():
            if version is None or row["version"] <= version:
                operation = str(row["operation"] or "")
                yield Made(
                    int(row["version"]), operation, dict(row["operationParameters"] or {}),
                    row["userMetadata"], operation not in _SAME_ROWS,
                )  # fmt: skip

    def restored(self, made: Made) -> int:
        """Return the version whose rows a RESTORE brought back, if it was given by number."""
        number = str(made.parameters.get("version"))
        if not number.isdigit():
            raise UnknownRestoreError(f"version {made.version} restored the table to a time")
        return int(number)

    def has_run(self, run_id: str, version: int | None) -> bool:  # noqa: ARG002 - a protocol's
        """Whether a version knows a run's transaction, which no statement of Spark shows."""
        return False

    def _newest(self) -> int:
        (row,) = self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").collect()
        return int(row["version"])


def find_output(spark: SparkSession, name: str, *, session_ends: bool = False) -> CatalogOutput:
    """Find the table that an output names, or the schema in which to make it.

    Parameters
    ----------
    session_ends
        Whether the session ends with the command, and its own catalog with it.

    Raises
    ------
    SpecError
        It is not a Delta table with an assignment's columns, its schema does not exist, or it
        would be gone once the session ends.
    """
    parts = _PART.findall(name)
    if any("`" in part[1:-1] for part in parts):
        raise SpecError(f"--output {name!r} has a backquote within a part: name another")
    here = [spark.catalog.currentCatalog(), *_PART.findall(spark.catalog.currentDatabase())]
    whole = ".".join(_quote(part) for part in [*here[: max(0, 3 - len(parts))], *parts])
    if session_ends and _is_forgotten(spark, _PART.findall(whole)[0]):
        raise SpecError(
            f"--output {name!r} would be gone with this command: its session has a catalog of its "
            "own (spark.sql.catalogImplementation is in-memory): run it with spark-submit and "
            "settings of a catalog that lasts, or give a path"
        )
    asked = SparkName("--output", name, None)
    there, detail = describe(spark, asked, whole)
    if not there:
        schema = ".".join(_quote(part) for part in _PART.findall(whole)[:-1])
        if not _has_schema(spark, schema):
            raise SpecError(
                f"--output {name!r} is named like a table of Spark's catalog, which has no schema "
                f"{schema}: create it, or give ./{name} for a folder of that name"
            )
        return CatalogOutput(spark, whole, None)
    if detail is None or detail["format"] != "delta":
        raise SpecError(f"--output {name!r} is not a Delta table: name another")
    refuse_other_rows(name, spark.table(whole).columns, detail["properties"] or {})
    return CatalogOutput(spark, whole, path_of(detail["location"]))


def _is_forgotten(spark: SparkSession, catalog: str) -> bool:
    """Whether a catalog ends with the session: Spark's own, unless a metastore has its tables."""
    kind = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    return catalog.strip("`") == "spark_catalog" and kind == "in-memory"


def is_content(asked: Input | None, found: Any, output: CatalogOutput) -> bool:  # noqa: ANN401
    """Whether the previous assignment is what the output has, which is not an input of a run."""
    newest = isinstance(asked, SparkName) and asked.version is None
    return newest and output.location is not None and found.path == output.location


def _quote(part: str) -> str:
    return part if part.startswith("`") else f"`{part}`"


def _has_schema(spark: SparkSession, schema: str) -> bool:
    try:
        return bool(spark.catalog.databaseExists(schema))
    except Exception:  # noqa: BLE001 - of a catalog that is not there
        return False
