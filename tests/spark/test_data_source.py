"""`spark.read.format("muster")`: the rows of the views, filters, streams, and what is refused."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import DataSourceReader

from coordinator import Coordinator
from coordinator.history import VIEWS, frame
from tests.support.longer import EVERY
from tests.support.members import join
from tests.support.stories import all_stories, stored

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(stored(all_stories(), tmp_path_factory.mktemp("stories") / "a store"))


def read(spark, store, view, **options):
    return spark.read.format("muster").options(view=view, **options).load(store)


def rows_of(spark, table, schema):
    """Return Arrow rows as Spark prints them."""
    return sorted(map(str, spark.createDataFrame(table, schema).collect()))


def refusal(call):
    with pytest.raises(Exception, match="SpecError") as caught:
        call()
    return next(line for line in str(caught.value).splitlines() if "SpecError: " in line)


@pytest.mark.slow
def test_rows_are_those_of_the_views(spark, store):
    views = VIEWS if EVERY else ("audit", "epochs", "log", "members")
    asked = {view: {} for view in views} | {
        "assignment_at": {"groupId": "billing", "epoch": 5},
        "compare_epochs": {"groupId": "billing", "epoch": 3, "otherEpoch": 6},
        "loads_at": {"groupId": "billing", "epoch": 5},
        "owners_if": {"groupId": "depot", "without": "d1"},
    }
    names = {"groupId": "group_id", "otherEpoch": "other_epoch"}
    for view, options in asked.items():
        found = read(spark, store, view, **options)
        ours = frame(store, view, **{names.get(name, name): one for name, one in options.items()})
        assert sorted(map(str, found.collect())) == rows_of(spark, ours, found.schema), view


def test_a_view_in_sql_as_of_a_time(spark, store):
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW then USING muster OPTIONS (path '{store}', "
        "view 'partition_owners', timestampAsOf '2026-03-01T12:00:30Z')"
    )
    found = spark.table("then")
    ours = frame(store, "partition_owners", as_of="2026-03-01T12:00:30Z")
    assert sorted(map(str, found.collect())) == rows_of(spark, ours, found.schema)
    spark.catalog.dropTempView("then")


@pytest.fixture
def pushing(spark):
    """Let the session push filters down to Python's sources."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.skipif(not hasattr(DataSourceReader, "pushFilters"), reason="from Spark 4.1 on")
def test_filters_are_pushed_down(spark, store, pushing):
    wanted = "group_id IN ('billing', 'depot') AND since <= TIMESTAMP'2026-03-01 12:00:00Z'"
    plain = read(spark, store, "assignment_history").where(wanted).collect()
    history = read(spark, store, "assignment_history", pushFilters=True)
    pushed = history.where(wanted)
    assert sorted(pushed.collect()) == sorted(plain)
    assert {row.group_id for row in plain} == {"billing", "depot"}
    assert pushed.rdd.getNumPartitions() == 2
    assert "Filter (" not in pushed._jdf.queryExecution().executedPlan().toString()
    assert history.where("group_id = 'billing' AND group_id = 'depot'").count() == 0
    assert history.where("until IS NULL").count() == frame(
        store, "assignment_history")["until"].null_count  # fmt: skip


def test_a_filter_of_one_query_is_not_that_of_another(spark, store, pushing):
    """Spark keeps what it has pushed down with the DataFrame, for its other queries too."""
    epochs, ours = read(spark, store, "epochs"), frame(store, "epochs")["group_id"].to_pylist()
    billing, depot = (epochs.where(f"group_id = '{name}'") for name in ("billing", "depot"))
    assert billing.count() == ours.count("billing")
    assert epochs.count() == len(ours)
    assert billing.union(depot).count() == ours.count("billing") + ours.count("depot")


def test_a_view_in_sql_shows_what_was_written_since_it_was_made(spark, tmp_path):
    def live(number):
        with Coordinator.open(tmp_path, topics={"t": 2}) as coordinator:
            join(coordinator, f"m{number}", ["t"], f"g{number}")
        return spark.table("live").count()

    with Coordinator.open(tmp_path, topics={"t": 2}):
        spark.sql(
            f"CREATE TEMPORARY VIEW live USING muster OPTIONS (path '{tmp_path}', view 'groups')"
        )
    assert [live(1), live(2)] == [1, 2]
    spark.catalog.dropTempView("live")


def test_bad_options_are_refused_by_name(spark, store):
    for options, why in (
        ({"view": "epoch"}, "has no view 'epoch': the views are assignment_history, "),
        ({"view": "epochs", "asOf": "1"}, "unknown option 'asof' of format 'muster': the options are path, "),
        ({"view": "epochs", "versionAsOf": "3"}, "unknown option 'versionasof' of format 'muster': give positionAsOf"),
        ({"view": "epochs", "positionAsOf": "noon"}, "positionAsOf 'noon' is neither a position nor a time"),
        ({"view": "epochs", "positionAsOf": "2026-03-01"}, "is a time: give it as timestampAsOf"),
        ({"view": "epochs", "positionAsOf": "123456"}, "position 123456 is not in the log"),
        ({"view": "epochs", "pushFilters": "yes"}, "pushFilters is 'yes': give true or false"),
        ({"view": "topics", "groupId": "billing"}, "view 'topics' has no group_id"),
        ({"view": "loads_at", "groupId": "billing"}, "loads_at needs an option epoch"),
        ({"view": "epochs", "maxPositionsPerTrigger": "3"}, "maxPositionsPerTrigger is for readStream"),
        ({"view": "loads_at", "groupId": "billing", "epoch": "9" * 5_000}, "is not a whole number of"),
        ({"view": "epochs", "epoch": "3"}, "view 'epochs' takes no epoch"),
    ):  # fmt: skip
        assert why in refusal(lambda asked=options: read(spark, store, **asked).count())
    assert "it reads one store: give load one path" in refusal(
        lambda: spark.read.format("muster").option("view", "epochs").load([store, store])
    )
    assert "Spark cannot read a table of it: CREATE TEMPORARY VIEW" in refusal(
        lambda: spark.sql(f"CREATE TABLE t USING muster OPTIONS (path '{store}', view 'epochs')")
    )
    assert "is not the store of a coordinator" in refusal(
        lambda: read(spark, f"{store}-not", "epochs").count()
    )


def test_writing_is_refused_with_a_remedy(spark, store, tmp_path):
    said = (
        "format 'muster' only reads: a store is written by its coordinator alone; write the rows in"
    )
    rows = spark.range(1)
    for mode in ("append", "overwrite"):
        assert said in refusal(
            lambda asked=mode: rows.write.format("muster").mode(asked).save(store)
        )
    stream = spark.readStream.format("rate").load().writeStream.format("muster")
    checkpoint = str(tmp_path / "checkpoint")
    assert said in refusal(
        lambda: stream.option("checkpointLocation", checkpoint).start(store).awaitTermination(60)
    )
