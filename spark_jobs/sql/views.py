"""SQL views over the log of a store: who owns what, who owned it, and why it moved.

Each file of `sql/` is a view, and each file of `sql/steps/` a query that views read. `$name` stands
for another view or step, or for a reason's text or code. A view without a file is read by a Python
worker on either engine. docs/guide/sql.md describes each view, with examples.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files
from string import Template

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from assignors import SpecError
from coordinator.core.reasons import OTHER, SEPARATOR, Reason
from coordinator.history import VIEWS
from coordinator.history.log_reader import AsOf, LogReader, open_logs
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.shards import places_of, read_shards, shard_number
from coordinator.storage.tables.store_files import is_remote, root_of
from coordinator.storage.tables.table_io import TableRef
from coordinator.storage.target_table import has_targets
from spark_jobs.session.cluster import check_seen
from spark_jobs.session.kinds import kind_of
from spark_jobs.session.object_store import reach_store, spark_path
from spark_jobs.sql.frame_views import NO_LOG, are_readable_here, frame_view, newest_positions

ENGINES = ("auto", "local", "spark")
NEWEST = 2**63 - 1
"""The position of views without a fixed position."""
NO_TARGETS = """(
SELECT group_id, assignment_epoch, computation_id AS run_id, member_id, topic_id, topic,
    partition AS first_partition, partition AS partition_count
FROM {log} WHERE false)"""
"""Replaces the table `targets` before a job has computed the first target."""
_STEP = re.compile(r"^(?:WITH )?(\w+) AS \(\n(.*?)^\),?\n", re.MULTILINE | re.DOTALL)
"""A common table expression, as the files of `sql/` write it."""
_READ = re.compile(r"\b(FROM|JOIN) (\w+)\b(?! AS)")
EXPLODE = """
CREATE OR REPLACE TEMPORARY FUNCTION explode_partitions(first_partition INT, partition_count INT)
RETURNS TABLE (partition INT)
RETURN SELECT explode(if(partition_count > 0,
    sequence(first_partition, first_partition + partition_count - 1), array()))
"""


def register(
    spark: SparkSession,
    store: str | os.PathLike[str],
    as_of: AsOf = None,
    catalog: str | None = None,
    only: Iterable[str] | None = None,
    engine: str = "auto",
) -> None:
    """Register the views of a store, all as of the same position.

    Parameters
    ----------
    store
        The folder that the coordinator was opened with.
    as_of
        A position of the log, or a time, which means the last record written by then. With None,
        each query sees the log as it is when the query first reads it.
    catalog
        Where to create permanent views: `schema` or `catalog.schema`, created if missing. Without
        it, they are temporary views of this session.
    only
        Only these views, and those that they read; by default all.
    engine
        What computes the rows of temporary views. "spark": Spark queries, for logs of any length.
        "local": a Python worker with `coordinator.history.frame`, faster for a log that fits into
        one process. "auto": local if the session runs on this machine with this Python, and the log
        has at most `LOG_ROWS_MAX` rows. The rows are the same.

    Raises
    ------
    SpecError
        The store does not exist, the position or time is outside its log, or the engine is unknown.
    ConfigError
        The store is on this machine's disk, and executors do not see it.
    """
    wanted = set(view_names() if only is None else only)
    if read_shards(store) is not None:
        _check_engine(engine)
        if engine == "spark" or catalog is not None:
            raise SpecError(
                f"{store} is a store of shards, whose views are temporary and read by Python "
                "workers: omit engine='spark' and catalog=, or name one of its shards"
            )
        _register_shards(spark, store, as_of, wanted & VIEWS.keys())
        spark.sql(EXPLODE)
        return
    reading = LogReader(store, as_of)
    position = None if as_of is None else reading.position
    positions = None if position is None else [position]
    if _choose_engine(spark, engine, catalog, wanted, reading.position) == "local":
        _register_frames(spark, [reading.store], positions, wanted & VIEWS.keys())
    else:
        framed = wanted - view_texts().keys()
        if catalog is None:
            _register_frames(spark, [reading.store], positions, framed)
        elif framed and only is not None:
            raise SpecError(
                f"view {min(framed)!r} is read by Python, so it can be no permanent view: register "
                f"it without catalog={catalog!r}"
            )
        reach_store(spark, store)
        log = TableRef(os.path.join(reading.store, "log"), None, delta=True)
        check_seen(spark, [] if is_remote(reading.store) else [log.some_file()])
        _register_queries(spark, store, position, catalog, wanted - framed)
    spark.sql(EXPLODE)


def _choose_engine(
    spark: SparkSession, engine: str, catalog: str | None, wanted: set[str], log_rows: int
) -> str:
    """Return the engine that computes the views."""
    _check_engine(engine)
    if engine == "local" and catalog is not None:
        raise SpecError(f"engine 'local' has no permanent views: omit catalog={catalog!r}")
    if engine != "auto":
        return engine
    # Steps of views are only computed by Spark.
    known = wanted <= VIEWS.keys() or wanted == set(view_names())
    local = catalog is None and known and are_readable_here(spark, log_rows)
    return "local" if local else "spark"


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise SpecError(f"unknown engine {engine!r}: give one of {', '.join(ENGINES)}")


def _register_shards(
    spark: SparkSession, store: str | os.PathLike[str], as_of: AsOf, names: Iterable[str]
) -> None:
    """Register views of all shards; a shard that has no log yet has one once a query finds it."""
    logs = open_logs(store, as_of)
    if not kind_of(spark).has_own_python():
        raise SpecError(
            f"{store} is a store of shards, whose views this session's workers cannot read: use "
            'spark.read.format("muster"), or name one of its shards'
        )
    reached = {one.store: one.position for one in logs}
    stores = places_of(store)
    positions = None if as_of is None else [reached.get(one, NO_LOG) for one in stores]
    _register_frames(spark, stores, positions, names)


def _register_frames(
    spark: SparkSession,
    stores: Sequence[str],
    positions: Sequence[int] | None,
    names: Iterable[str],
) -> None:
    """Register views of logs as of their positions, or as each query finds them."""
    if positions is None:
        found = newest_positions(spark, stores).scalar()
    else:
        found = F.array(*map(F.lit, positions)).cast("array<bigint>")
    for name in sorted(names):
        frame_view(spark, stores, name, found).createOrReplaceTempView(name)


def _register_queries(
    spark: SparkSession,
    store: str | os.PathLike[str],
    position: int | None,
    catalog: str | None,
    only: Iterable[str],
) -> None:
    prefix = "" if catalog is None else f"{catalog}."
    if catalog is not None:
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {catalog}")
    texts = view_texts()
    names = {name: prefix + name for name in texts}
    wanted = _read_by(texts, only)
    names["log_table"] = log = _log_of_today(spark, store)
    computed = has_targets(store)
    names["targets_table"] = _table(store, "targets") if computed else NO_TARGETS.format(log=log)
    names |= _reason_names()
    names["position"] = str(NEWEST if position is None else position)
    shard = shard_number(store)
    names["shard"] = f"CAST({'NULL' if shard is None else shard} AS INT)"
    for name in TopologicalSorter(wanted).static_order():
        text = texts[name].substitute(names)
        if catalog is not None:
            spark.sql(f"CREATE OR REPLACE VIEW {names[name]} AS {text}")
        else:  # a frame keeps its plan; Spark would analyse a text again at each use
            spark.sql(text).createOrReplaceTempView(name)


@cache
def _reason_names() -> dict[str, str]:
    """Return what the views write of reasons, as SQL: texts, codes, and how to split a text.

    `code_of_one` is the code of the reason `one`, as `coordinator.core.reasons.codes_of` finds it.
    """
    known = " ".join(f"WHEN one LIKE '{r.replace('{}', '%')}' THEN '{r.code}'" for r in Reason)
    names = {"code_of_one": f"CASE {known} ELSE '{OTHER}' END", "separator": f"'{SEPARATOR}'"}
    names |= {f"text_of_{reason.code}": f"'{reason}'" for reason in Reason}
    return names | {f"code_of_{reason.code}": f"'{reason.code}'" for reason in Reason}


def view_names() -> list[str]:
    """Return the names of all views, and of the steps of those in SQL."""
    return sorted(view_texts().keys() | VIEWS.keys())


def _table(store: str | os.PathLike[str], name: str) -> str:
    path = spark_path(os.path.join(root_of(store), name)).replace("`", "``")
    return f"delta.`{path}`"


def _log_of_today(spark: SparkSession, store: str | os.PathLike[str]) -> str:
    """Return the log, with nulls for columns that an older version did not write.

    The columns are named: a permanent view reads on when the next coordinator has added them.
    """
    table = _table(store, "log")
    there = spark.table(table).columns
    later = [field for field in from_arrow_schema(SCHEMA) if field.name not in there]
    if not later:
        return table
    nulls = [f"CAST(NULL AS {one.dataType.simpleString()}) AS {one.name}" for one in later]
    return f"(SELECT {', '.join([*there, *nulls])} FROM {table})"  # noqa: S608 - names of ours


def explode_partitions(ranges: DataFrame) -> DataFrame:
    """Expand ranges of partitions to one row per partition, in a column `partition`.

    In SQL: FROM partition_owners, LATERAL explode_partitions(first_partition, partition_count).
    """
    first, count = F.col("first_partition"), F.col("partition_count")
    # Without the condition a range of none would count down, from its first to the one before.
    numbers = F.when(count > 0, F.sequence(first, first + count - 1))
    return ranges.withColumn("partition", F.explode(numbers))


@cache
def view_texts() -> dict[str, Template]:
    """Return the text of each view and of each step."""
    return {
        file.name.removesuffix(".sql"): Template(inline_ctes(file.read_text(encoding="utf-8")))
        for folder in (files("spark_jobs.sql"), files("spark_jobs.sql") / "steps")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def inline_ctes(text: str) -> str:
    """Replace a view's common table expressions by subqueries.

    Otherwise views of views would nest WITH clauses, whose ids Spark confuses: with 4.1.4, queries
    of views in a new session fail (apache/spark, issue 55799). Spark inlines common table
    expressions itself, so the plan is the same.
    """
    steps: dict[str, str] = {}

    def inline(query: str) -> str:
        return _READ.sub(lambda read: _subquery(read, steps), query)

    for name, query in _STEP.findall(text):
        steps[name] = inline(query)
    return inline(_STEP.sub("", text))


def _subquery(read: re.Match[str], steps: Mapping[str, str]) -> str:
    word, name = read.groups()
    return f"{word} (\n{steps[name]}) AS {name}" if name in steps else read[0]


def _read_by(texts: dict[str, Template], names: Iterable[str]) -> dict[str, set[str]]:
    """Return some views and all that they read, each with the views that it reads directly."""
    found: dict[str, set[str]] = {}
    open_ = list(names)
    while open_:
        name = open_.pop()
        if name not in found:
            found[name] = texts.keys() & set(texts[name].get_identifiers())
            open_ += found[name]
    return found
