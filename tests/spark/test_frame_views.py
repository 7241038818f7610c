"""Views that a Python worker reads: the rows of the SQL views, reread by each query."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from assignors import SpecError
from coordinator.config import Config
from coordinator.history import VIEWS, frame
from coordinator.history.view_schemas import TABLE_SCHEMAS, VIEW_SCHEMAS
from coordinator.storage.shards import Shards, make_shards, store_of
from tests.conftest import ROOT
from tests.spark.test_views import computed_views, typed
from tests.support.longer import longer
from tests.support.stories import alerts, all_stories, billing, ledger, stored

pytestmark = pytest.mark.spark
SHARDS = 7
"""So many that each of three groups has one of its own."""
STORE = ROOT / "tests" / "golden" / "store-0.1" / "store"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(all_stories(), tmp_path_factory.mktemp("stories"))


@pytest.mark.slow
@longer("all views in Spark once more: make test-spark")
def test_both_engines_read_a_store_of_an_older_version(spark):
    """No coordinator has added the columns that came later."""
    from spark_jobs.sql.views import register

    views = sorted(VIEWS)
    computed_views(spark, STORE)
    queried = {view: typed(spark, view) for view in views}
    register(spark, STORE, only=views, engine="local")
    assert {view: typed(spark, view) for view in views} == queried


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_frames_have_the_documented_columns(view):
    found, wanted = frame(STORE, view).schema, (VIEW_SCHEMAS | TABLE_SCHEMAS)[view]
    assert found.names == wanted.names
    assert found.empty_table().cast(wanted).schema == wanted
    assert set(VIEWS) == {*VIEW_SCHEMAS, *TABLE_SCHEMAS}


def test_only_views_without_as_of_see_new_rows(spark, tmp_path):
    from spark_jobs.sql.views import register

    batches = billing().batches
    half = stored(batches[: len(batches) // 2], tmp_path / "half")
    register(spark, half, only=["epochs"])
    before = spark.table("epochs").count()
    register(spark, half, as_of=10, only=["groups"])
    fixed = spark.table("groups").collect()
    shutil.rmtree(half)
    stored(batches, half)
    assert spark.table("epochs").count() > before > 0
    assert spark.table("groups").collect() == fixed


@pytest.mark.parametrize("view", ["epochs", "assignment_history", "log"])
def test_all_views_of_a_query_have_one_position(spark, tmp_path, view):
    """The coordinator goes on between two reads of a query: the second sees what the first saw."""
    from spark_jobs.sql.views import register

    batches = billing().batches
    live = str(stored(batches[: len(batches) // 2], tmp_path / "live"))
    later = str(stored(batches, tmp_path / "later"))
    then = len(frame(live, view))
    register(spark, live)

    def go_on(rows):
        yield from rows
        shutil.rmtree(live)
        shutil.copytree(later, live)

    read = spark.table("epochs").select("position").mapInArrow(go_on, "position bigint")
    read.createOrReplaceTempView("read_before")
    # Spark computes a subquery before what is filtered by it.
    found = spark.sql(f"""
        SELECT count(*) AS rows FROM {view} AS late
        WHERE 0 < (SELECT count(*) FROM read_before)
    """).collect()
    assert found[0].rows == then
    assert spark.table(view).count() == len(frame(later, view)) > then


def test_choice_of_the_engine(spark, store):
    from spark_jobs.sql.frame_views import LOG_ROWS_MAX, are_readable_here
    from spark_jobs.sql.views import register

    assert are_readable_here(spark, LOG_ROWS_MAX)
    assert not are_readable_here(spark, LOG_ROWS_MAX + 1)
    for master, python in (("spark://a:7077", None), ("local-cluster[1,1,512]", None),
                           ("local[2]", "/usr/bin/another"), ("local[2]", "not-there")):  # fmt: skip
        context = SimpleNamespace(master=master, pythonExec=python or spark.sparkContext.pythonExec)
        assert not are_readable_here(SimpleNamespace(sparkContext=context), 1)
    for words, why in (({"engine": "numpy"}, "give one of auto, local, spark"),
                       ({"engine": "local", "catalog": "operations"}, "no permanent views")):  # fmt: skip
        with pytest.raises(SpecError, match=why):
            register(spark, store, **words)
    register(spark, store, only=["causes"])
    assert "MapInArrow" not in spark.table("causes")._jdf.queryExecution().toString()


def test_unreadable_store_is_an_error(spark, tmp_path):
    from pyspark.errors import PythonException

    from spark_jobs.sql.views import register

    store = stored(billing().batches, tmp_path / "store")
    register(spark, store, only=["groups"])
    shutil.rmtree(store)
    with pytest.raises(PythonException, match="SpecError"):
        spark.table("groups").collect()


def test_views_of_a_store_of_shards_are_those_of_all_its_logs(spark, tmp_path):
    from spark_jobs.sql.query import run_query
    from spark_jobs.sql.views import register

    root = str(tmp_path / "store")
    make_shards(root, SHARDS, Config())
    stories = [alerts(), ledger()]
    for story in stories:
        stored(story.batches, Path(store_of(root, story.group)))
    views = ["epochs", "groups", "topics", "log"]
    register(spark, root, only=views)
    for view in views:
        rows = frame(root, view).to_pylist()
        named = spark.table(view).toArrow().to_pylist()
        assert sorted(map(str, named)) == sorted(map(str, rows)), view
    late = billing()
    stored(late.batches, Path(store_of(root, late.group)))  # in a shard that had no log
    groups = spark.table("groups")
    assert {row.group_id for row in groups.collect()} == {"alerts", "ledger", "billing"}
    owned = spark.sql("SELECT count(*) FROM epochs a JOIN epochs b USING (group_id, group_epoch)")
    assert owned.collect()[0][0] == len(frame(root, "epochs"))

    columns, found = run_query(root, "2026-03-01T12:00:00Z", "SELECT group_id FROM groups")
    assert columns == ["group_id"]
    then = frame(root, "groups", as_of="2026-03-01T12:00:00Z")["group_id"].to_pylist()
    assert sorted(row["group_id"] for row in found) == sorted(then)
    for words in ({"engine": "spark"}, {"catalog": "muster_shards"}):
        with pytest.raises(SpecError, match="is a store of shards, whose views are temporary"):
            register(spark, root, **words)
    with pytest.raises(SpecError, match="is a position, and"):
        register(spark, root, 3)
    named = store_of(root, "ledger")  # one of its shards, as SQL reads it
    register(spark, named, engine="spark", only=["groups", "log"])
    for view in ("groups", "log"):
        rows = frame(named, view).to_pylist()
        assert {row["shard"] for row in rows} == {Shards(SHARDS).shard_of("ledger")}
        found = spark.table(view).toArrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, rows)), view
