"""The views of a store: questions with their answers, and the same rows as without Spark."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise

import pytest
from chispa.dataframe_comparer import assert_df_equality

from coordinator.config import Config
from coordinator.history import VIEWS, frame
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import describe_with_offsets
from tests.conftest import ROOT
from tests.support.longer import longer
from tests.support.stories import many_groups

pytestmark = pytest.mark.spark

QUESTIONS = sorted((ROOT / "tests" / "sql").glob("*.txt"))
REWRITE = "MUSTER_REWRITE"
"""Set, the answers in tests/sql are rewritten; read the difference before you commit it."""

TRACES = ["batching", "commits", "configs-racks", "coordinator", "timers-regex-topics"]
IN_ORDER = (
    "log", "audit", "topics", "members", "epochs", "current_assignments", "partition_owners", "offsets",
    "offset_commits", "groups", "plans", "targets", "target_assignments", "assignment_history",
    "events", "rebalances", "waits", "unowned", "memberships",
)  # fmt: skip
"""Views, as they are compared."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One log of many groups."""
    return many_groups(range(1, 31, 3), TRACES, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def views(spark, store):
    """The views of that log; other tests ask the views as they are."""
    return computed_views(spark, store)


class OneByOne:
    """A session that computes each view, and each step of one, before others read it.

    In one plan, Spark thinks longer about them than they take, and of each step as often as it is
    read. Tests of views as of an earlier time read them in one plan, as users do.
    """

    def __init__(self, spark):
        self.spark = spark

    def sql(self, text):
        return self.spark.sql(text).localCheckpoint()

    def __getattr__(self, name):
        return getattr(self.spark, name)


def computed_views(spark, store, only=IN_ORDER):
    """Register the views of a log and return them, each computed once."""
    from spark_jobs.sql.views import register

    register(OneByOne(spark), store, only=only, engine="spark")
    return {name: spark.table(name) for name in IN_ORDER if name in only}


def rows_of(frame):
    """Return rows as `muster sql --json` prints them."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from spark_jobs.sql.query import AS_JSON

    return [
        json.loads(line) for (line,) in frame.select(F.to_json(F.struct("*"), AS_JSON)).collect()
    ]


def as_set(rows):
    texts = [json.dumps(row, sort_keys=True) for row in rows]
    assert len(set(texts)) == len(texts)
    return set(texts)


# Questions ---------------------------------------------------------------------------------------


def blocks_of(file):
    """Yield (remarks and query, rows) of a file: a query, ----, its answer, an empty line."""
    for block in file.read_text().strip().split("\n\n"):
        question, answer = block.split("\n----\n")
        yield question, [line.strip("|").split("|") for line in answer.splitlines()]


def as_texts(frame):
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return frame.select(
        [F.coalesce(F.col(c).cast("string"), F.lit("")).alias(c) for c in frame.columns]
    )


@pytest.mark.parametrize("file", QUESTIONS, ids=lambda file: file.stem)
def test_queries_give_the_recorded_results(spark, views, file):
    written = []
    for question, (head, *rows) in blocks_of(file):
        query = "\n".join(line for line in question.splitlines() if not line.startswith("#"))
        found = as_texts(spark.sql(query))
        if REWRITE in os.environ:
            table = [found.columns, *map(list, found.collect())]
            written.append(f"{question}\n----\n" + "\n".join(drawn(table)))
            continue
        wanted = [[cell.strip() for cell in row] for row in rows]
        schema = ", ".join(f"`{name.strip()}` string" for name in head)
        assert_df_equality(found, spark.createDataFrame(wanted, schema), ignore_nullable=True)
    if written:
        file.write_text("\n\n".join(written) + "\n")


def drawn(table):
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "|" + "|".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "|"
        for row in table
    ]


# The same without Spark --------------------------------------------------------------------------


def compared(views, store, as_of=None):
    """Compare each view in SQL with the frame of its name: columns, and rows in any order."""
    for name, view in views.items():
        found = frame(store, name, as_of=as_of)
        assert view.columns == found.column_names, name
        wanted = as_set(to_json_rows(found))
        assert as_set(rows_of(view)) == wanted, name
        yield name, len(wanted)


def test_views_have_no_common_table_expression():
    """Spark 4.1.4 fails on those of a view within those of another (make test-matrix)."""
    from spark_jobs.sql.views import view_texts

    for name, text in view_texts().items():
        assert "WITH" not in re.sub("--.*", "", text.template), name


def test_frames_equal_the_views(views, store):
    sizes = dict(compared(views, store))
    assert set(sizes) == set(VIEWS)
    assert sizes["epochs"] > 300
    assert sizes["assignment_history"] > 300
    assert min(size for name, size in sizes.items() if name != "targets") > 1


def typed(spark, view):
    """Return the columns of a view with their types, and its rows in any order."""
    table = spark.table(view)
    return table.dtypes, sorted(map(str, table.collect()))


def test_both_engines_have_the_same_columns_and_rows(spark, views, store):
    from spark_jobs.sql.views import register

    queried = {view: typed(spark, view) for view in views}
    register(spark, store, only=VIEWS, engine="local")
    try:
        assert {view: typed(spark, view) for view in views} == queried
        text = spark.table("assignment_history")._jdf.queryExecution().toString()
        assert "MapInArrow" in text
    finally:
        for name, view in views.items():  # as other tests ask them
            view.createOrReplaceTempView(name)


@longer("all views in Spark once more: make test-spark")
def test_frames_equal_the_views_as_of_an_earlier_time(spark, views, store):
    from spark_jobs.sql.views import register

    position = LogReader(store).position // 2
    register(spark, store, position, engine="spark")
    try:
        earlier = {name: spark.table(name) for name in VIEWS}
        assert dict(compared(earlier, store, position))["assignment_history"] > 80
    finally:
        for name, view in views.items():  # as other tests ask them
            view.createOrReplaceTempView(name)


def test_no_partition_has_two_owners_at_a_time(views):
    """In history, at any moment, in any group."""
    spans = {}
    for row in rows_of(views["assignment_history"]):
        key = (row["group_id"], row["topic_id"])
        end = row["until_position"] or 10**9
        for partition in range(row["first_partition"], row["last_partition"] + 1):
            spans.setdefault((*key, partition), []).append((row["since_position"], end))
    for owned in spans.values():
        owned.sort()
        assert all(end <= since for (_, end), (since, _) in pairwise(owned))


def partitions_of(assignment):
    return {
        (found["topic_name"], found["topic_id"], partition)
        for found in assignment["topic_partitions"]
        for partition in found["partitions"]
    }


def exploded(rows):
    return {
        (row["topic"], row["topic_id"], row["first_partition"] + at)
        for row in rows
        for at in range(row["partition_count"])
    }


def test_views_equal_muster_describe(views, store):
    state = LogReader(store).state()
    alive = {(topic.key.name, topic.key.topic_id) for topic in state.topics.values()}
    names = ("members", "partition_owners", "target_assignments", "current_assignments", "offsets")
    found = {name: rows_of(views[name]) for name in names}
    assert len(found["members"]) == sum(len(group.members) for group in state.groups.values()) > 30
    for group_id in state.groups.keys() | state.offsets.keys():
        described = describe_with_offsets(state, Config(), group_id)
        here = {
            name: [r for r in rows if r["group_id"] == group_id] for name, rows in found.items()
        }
        for member in described["members"]:
            mine = {
                name: [row for row in rows if row.get("member_id") == member["member_id"]]
                for name, rows in here.items()
            }
            (row,) = mine["members"]
            same = (
                "instance_id",
                "rack_id",
                "client_id",
                "member_epoch",
                "subscribed_topic_names",
                "subscribed_topic_regex",
            )
            assert {name: row[name] for name in same} == {name: member[name] for name in same}
            assert row["state"] == member["member_state"]
            assert exploded(mine["partition_owners"]) == partitions_of(member["assignment"])
            target = {p for p in exploded(mine["target_assignments"]) if p[:2] in alive}
            assert target == partitions_of(member["target_assignment"])
            pending = [row for row in mine["current_assignments"] if row["pending_revocation"]]
            assert exploded(pending) == partitions_of(member["pending_revocation"])
        offsets = {
            (r["topic"], r["partition"], r["offset"], r["committed_at"]) for r in here["offsets"]
        }
        assert offsets == {
            (o["topic_name"], o["partition"], o["offset"], o["committed_at"])
            for o in described["offsets"]
        }
