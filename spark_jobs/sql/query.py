"""Run a query on the views of a store, for `muster sql`, with one-line errors."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from coordinator.history.log_reader import AsOf
from coordinator.history.view_schemas import VIEW_SCHEMAS
from spark_jobs.session.connect import is_connect
from spark_jobs.session.session import scratch_warehouse, spark_session
from spark_jobs.sql.views import register, view_names

REFUSAL = re.compile(r"(\[[A-Z0-9_.]+\] .+?) SQLSTATE: (?!XX)\w{5}", re.DOTALL)
"""The form of Spark's errors about a query. SQLSTATE XX is an error of Spark itself."""
_SHOWN = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:DESC|DESCRIBE|SHOW\s+(VIEWS|TABLES)|SHOW\s+COLUMNS)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements beside queries that only look."""
_PUBLIC = sorted({*VIEW_SCHEMAS, "log", "targets"})
_DOUBLED = "COLUMN_ALREADY_EXISTS"
AS_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSX", "ignoreNullFields": "false"}


def run_query(
    store: str | Path, as_of: AsOf, query: str
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Return the columns and rows of a query's result, as of a position or a time.

    This process only holds a part of the rows at a time.

    Raises
    ------
    SpecError
        Spark refuses the query. The iterator of rows may raise it too.
    """
    ours = SparkSession.getActiveSession() is None
    spark = spark_session("muster-sql", conf=scratch_warehouse())
    if ours and not is_connect(spark):  # print errors of a query on one line, not on pages
        spark.sparkContext.setLogLevel("OFF")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    shown = _SHOWN.match(query)
    # Registering a view takes Spark a while, so only those that are used are registered.
    named = [name for name in view_names() if name in query.lower()]
    register(spark, store, as_of, only=_PUBLIC if shown and shown[1] else named)
    with _refusals():
        frame = _rename_doubled(spark.sql(query) if shown else _ask(spark, query))
    lines = frame.select(F.to_json(F.struct("*"), AS_JSON))

    def rows() -> Iterator[dict[str, Any]]:
        with _refusals():
            for (line,) in lines.toLocalIterator():
                yield json.loads(line)

    return frame.columns, rows()


def _ask(spark: SparkSession, query: str) -> DataFrame:
    """Return the rows of a query, and refuse other statements: they could write."""
    try:  # a view can only be a query
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW answer AS {query}")
    except PySparkException as error:
        if error.getCondition() != _DOUBLED:
            raise
        return spark.sql(query)  # a query, of which no view can be made
    frame = spark.table("answer")
    _ = frame.schema  # Spark Connect looks at the view only now
    spark.catalog.dropTempView("answer")
    return frame


def _rename_doubled(frame: DataFrame) -> DataFrame:
    """Number columns whose names others have, as of a join: group_id, group_id_2."""
    taken, seen, names = {name.lower() for name in frame.columns}, set[str](), list[str]()
    for name in frame.columns:
        new, number = name, 1
        while name.lower() in seen and new.lower() in taken:
            number += 1
            new = f"{name}_{number}"
        seen.add(name.lower())
        taken.add(new.lower())
        names.append(new)
    return frame if names == frame.columns else frame.toDF(*names)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn Spark's errors about a query into SpecError; errors of Spark itself pass through."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = REFUSAL.search(str(error))
        if found is None:
            raise
        raise SpecError(found[1].splitlines()[0]) from None
