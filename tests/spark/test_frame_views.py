"""Views that a Python worker reads: the rows of the SQL views, read anew by each query."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from assignors import SpecError
from coordinator.history import VIEWS, frame
from coordinator.history.view_schemas import VIEW_SCHEMAS
from tests.conftest import ROOT
from tests.spark.test_views import computed_views
from tests.support.stories import all_stories, billing, stored

pytestmark = pytest.mark.spark
STORE = ROOT / "tests" / "golden" / "store-0.1" / "store"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(all_stories(), tmp_path_factory.mktemp("stories"))


def typed(spark, view):
    table = spark.table(view)
    return [(name, kind) for name, kind in table.dtypes], sorted(map(str, table.collect()))


@pytest.mark.slow
def test_both_engines_have_the_same_columns_and_rows(spark, store):
    from spark_jobs.sql.views import register

    views = sorted(VIEW_SCHEMAS)
    computed_views(spark, store)
    queried = {view: typed(spark, view) for view in views}
    register(spark, store, only=views, engine="local")
    read = {view: typed(spark, view) for view in views}
    assert read == queried
    told = {view for view, (_, rows) in read.items() if rows}
    assert told == set(views)
    text = spark.table("assignment_history")._jdf.queryExecution().toString()
    assert "MapInArrow" in text


@pytest.mark.parametrize("view", sorted(VIEW_SCHEMAS))
def test_frames_have_the_documented_columns(view):
    found = frame(STORE, view).schema
    assert found.names == VIEW_SCHEMAS[view].names
    assert found.empty_table().cast(VIEW_SCHEMAS[view]).schema == VIEW_SCHEMAS[view]
    assert set(VIEWS) == {*VIEW_SCHEMAS, "log", "targets"}


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
