"""Run a query on the views of a store, for `muster sql`; errors in one line."""

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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from assignors import SpecError
from spark_jobs.session.session import scratch_warehouse, spark_session
from spark_jobs.sql.views import register, view_names

REFUSAL = re.compile(r"(\[[A-Z0-9_.]+\] .+?) SQLSTATE: (?!XX)\w{5}", re.DOTALL)
"""How Spark says what is wrong with a query; XX is what is wrong with Spark."""
AS_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSX", "ignoreNullFields": "false"}


def run_query(store: Path, position: int, query: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Return the columns of a query's answer and its rows, as of a position of the log.

    However many rows there are, this process holds a part of them at a time.

    Raises
    ------
    SpecError
        Spark refuses the query; here, or while the rows are read.
    """
    ours = SparkSession.getActiveSession() is None
    spark = spark_session("muster-sql", conf=scratch_warehouse())
    if ours:  # what is wrong with a query is said in one line, not in pages
        spark.sparkContext.setLogLevel("OFF")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # Each view costs Spark a while, whether it is asked or not.
    register(spark, store, position, only=[name for name in view_names() if name in query])
    with _refusals():
        # A view can only be a query: nobody but the coordinator writes to its tables.
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW answer AS {query}")
        frame = spark.table("answer")
    lines = frame.select(F.to_json(F.struct("*"), AS_JSON))

    def rows() -> Iterator[dict[str, Any]]:
        with _refusals():
            for (line,) in lines.toLocalIterator():
                yield json.loads(line)

    return frame.columns, rows()


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what Spark says about a query into bad input; its own failures stay failures."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = REFUSAL.search(str(error))
        if found is None:
            raise
        raise SpecError(found[1].splitlines()[0]) from None
