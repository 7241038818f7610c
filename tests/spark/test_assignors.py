"""Spark = NumPy: the same rows, verdict, loads and totals, on many random groups put into one.

Every run is watched: no Python function for each row, no window over a whole frame, nothing but
tables of classes, types and blocks on the driver.
"""

from __future__ import annotations

import pytest

from assignors import GroupSpec, get_assignor
from assignors.blocks.deal_rows import SAMPLES
from tests.support.longer import EVERY
from tests.support.spark.groups import crowd, mixed, same_as_numpy, tables
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

MIXED = mixed(range(120 if EVERY else 60))
CROWD, EQUAL = crowd(1, members=600, classes=2), crowd(2, members=200, classes=1)


def static(spec):
    """Let two of three members be static."""
    count = len(spec["members"])
    return spec | {
        "members": {
            name: fields | {"instance_id": f"i{at * 7 % count}" if at % 3 else None}
            for at, (name, fields) in enumerate(spec["members"].items())
        }
    }


TWICE = {
    "topics": EQUAL["topics"],
    "members": {
        name: fields | {"owned": {"t03": list(range(at // 3, at // 3 + 4))}}
        if at % 9 == 0
        else fields
        for at, (name, fields) in enumerate(EQUAL["members"].items())
    },
}
NOT_LONG = {"long_ranges": 0}
"""Groups whose ranges are kept long are assigned on the driver."""

CUT = {
    "within a share, few moves": (
        MIXED,
        "sticky",
        {"imbalance": "30%", "max_moves": 9, **NOT_LONG},
    ),
    "range": (MIXED, "range", {}),
    "uniform": (MIXED, "uniform", NOT_LONG),
    "sticky per class": (MIXED, "sticky", {"imbalance": 1, "exact_edges": 0, **NOT_LONG}),
}
LONG = [("uniform", {"defragment": 60}), ("sticky", {"imbalance": "30%", "max_moves": 9})]


def compare(spark, given, assignor, options, parts=None, **how):
    from spark_jobs.assignors.dispatch import assign_frames

    frames = [None if table is None else spark.createDataFrame(table) for table in given]
    if parts is not None:
        frames = [frame.repartition(parts) for frame in frames]
    with watch(spark) as seen:
        assigned = assign_frames(spark, assignor, *frames, **{"driver_rows": 0} | how, **options)
        rows = assigned.rows.toArrow()
    ranges = same_as_numpy(assigned, rows, given, assignor, options)
    assert (seen.windows(), seen.python()) == ([], [])
    return ranges, seen


FEW_STAGES = {
    "equal subscriptions": (EQUAL, "uniform", NOT_LONG, 250_000),
    "many blocks": (EQUAL, "sticky", {"imbalance": 1, **NOT_LONG}, 60),
    "static members": (static(EQUAL), "uniform", NOT_LONG, 60),
    "subscriptions that compete": (CROWD, "uniform", NOT_LONG, 60),
    "the same, few moves": (CROWD, "sticky", {"max_moves": 20, **NOT_LONG}, 60),
    "the same, static, planned without types": (
        static(CROWD),
        "sticky",
        {"max_moves": 20, "exact_edges": 0, **NOT_LONG},
        60,
    ),
    "within a share": (CROWD, "sticky", {"imbalance": "30%", **NOT_LONG}, 60),
    "claimed twice": (TWICE, "uniform", NOT_LONG, 250_000),
    "range, subscriptions that compete": (CROWD, "range", {}, 250_000),
}


SOME = [
    "the same, static, planned without types",
    "claimed twice",
    "range, subscriptions that compete",
]


def find_most_totals(seen, blocks, *, static=False):
    """Return the most rows of classes or blocks that came to the driver.

    Ids are sampled, unless static members are put in order later.
    """
    classes, *others, _ = seen.collected
    if not static:
        assert others.pop(0) < 2.5 * SAMPLES * max(blocks, 2)  # a block for each of two cores
    return max(classes, *others)


@pytest.mark.parametrize("name", FEW_STAGES if EVERY else SOME)
def test_any_group_takes_few_stages(spark, name):
    """Members and claims are shuffled once, as rows; then blocks are. It was 40 stages."""
    spec, assignor, options, bucket_rows = FEW_STAGES[name]
    given = tables(spec, seed=4)
    ranges, seen = compare(spark, given, assignor, options, driver_rows=1, bucket_rows=bucket_rows)
    assert ranges.partial == ("max_moves" in options)
    assert seen.stages <= 15
    assert seen.blocks()
    blocks = -(-max(map(len, given)) // bucket_rows)
    assert find_most_totals(seen, blocks, static="static" in name) < 80
    assert seen.collected[-1] == len(ranges) > 200


@pytest.mark.parametrize("count", [1, 2, 7, 64] if EVERY else [7])
def test_each_block_has_a_task_of_its_own(spark, count):
    from pyspark.sql.functions import spark_partition_id

    from spark_jobs.assignors.blocks import find_seats

    seats = spark.createDataFrame([(seat,) for seat in find_seats(count).tolist()], "seat int")
    tasks = seats.repartition(count, "seat").select(spark_partition_id()).collect()
    assert len(set(tasks)) == count


def test_sampled_ids_are_the_same_in_every_run(spark):
    """Each row counts for itself: of a member with most of the claims there are most samples."""
    from spark_jobs.assignors.blocks import FrameEngine
    from spark_jobs.assignors.small_group import GivenTables
    from spark_jobs.session.work_session import WorkSession

    owned = {f"m{at}": {"t": [at]} for at in range(40)} | {"m7": {"t": list(range(41, 4041, 2))}}
    members = {name: {"subscribed": ["t"], "owned": own} for name, own in owned.items()}
    given = tables({"topics": {"t": 5000}, "members": members}, seed=1)

    def sample(parts):
        session = WorkSession(spark)
        frames = [spark.createDataFrame(table).repartition(parts) for table in given]
        engine = FrameEngine(session, GivenTables.of(session, *frames))
        return sorted(engine.sample(100).to_pylist())

    found = sample(1)
    assert found == sample(3)
    assert 50 < len(found) < 250
    assert 0.9 * len(found) < found.count("m7") < len(found)


@pytest.mark.parametrize("name", CUT if EVERY else ["sticky per class"])
def test_rows_do_not_depend_on_bucket_size(spark, name):
    """Cut into many blocks, as groups of millions of rows are; the input in other pieces."""
    spec, assignor, options = CUT[name]
    ranges, _ = compare(
        spark, tables(spec, seed=len(name)), assignor, options, parts=5, bucket_rows=100
    )
    assert ranges.verdict.exact == ("exact_edges" not in options)
    assert ranges.partial == ("max_moves" in options)


def test_small_groups_are_assigned_on_the_driver(spark):
    given, options = tables(CROWD, seed=3), {"max_moves": 20, **NOT_LONG}
    ranges, seen = compare(spark, given, "sticky", options, driver_rows=100_000)
    assert ranges.partial
    assert not seen.blocks()
    assert max(seen.collected[:-1]) == max(map(len, given))


@pytest.mark.parametrize("assignor", ["range", "uniform"][0 if EVERY else 1 :])
def test_groups_that_are_not_small_stay_on_executors(spark, assignor):
    """Range may return a row for each member and topic."""
    given = tables(CROWD, seed=1)
    rows = sum(map(len, given))
    product = len(given[0]) * len(given[1]) if assignor == "range" else 0
    options = {} if assignor == "range" else NOT_LONG
    _, seen = compare(spark, given, assignor, options, driver_rows=rows + product - 1)
    assert find_most_totals(seen, blocks=1) < 20
    _, seen = compare(spark, given, assignor, options, driver_rows=rows + product)
    assert max(seen.collected[:-1]) == max(map(len, given))


@pytest.mark.parametrize(("assignor", "options"), LONG if EVERY else LONG[:1])
def test_groups_whose_ranges_are_kept_long_are_collected(spark, assignor, options):
    """Members, and what they own once rows that touch or claim the same are resolved."""
    given = tables(MIXED, seed=3)
    ranges, seen = compare(spark, given, assignor, options)
    assert max(seen.collected[:-1]) < max(map(len, given))
    group = GroupSpec.from_arrow(*given)
    assert ranges != get_assignor(assignor, **options, **NOT_LONG).assign(group)


@pytest.mark.parametrize(("bucket_rows", "least", "most"), [(1_000, 1, 1), (100, 8, 10)])
def test_bucket_size_follows_the_session(spark, bucket_rows, least, most):
    from spark_jobs.assignors.ordered_ops import order_rows
    from spark_jobs.session.work_session import WorkSession

    work_session = WorkSession(spark, bucket_rows)
    try:
        rows = work_session.spark.range(1_000)
        assert least <= order_rows(work_session, rows, ["id"], 1_000).buckets <= most
    finally:
        work_session.release()


def test_kept_rows_are_gone_with_the_last_reference(spark):
    """A session that stops while they are being taken away prints stack traces."""
    from spark_jobs.session.work_session import WorkSession, release_with

    def persisted() -> set[int]:
        return set(spark.sparkContext._jsc.getPersistentRDDs())

    work_session, before = WorkSession(spark), persisted()
    kept = work_session.keep(work_session.spark.range(0, 100, 1, 50))
    [number] = persisted() - before
    blocks = [spark._jvm.org.apache.spark.storage.RDDBlockId(number, part) for part in range(50)]
    held = spark.sparkContext._jsc.sc().env().blockManager()
    rows = work_session.give_back(kept)
    release_with(rows, work_session)
    assert all(held.getStatus(block).isDefined() for block in blocks)
    del rows
    assert not any(held.getStatus(block).isDefined() for block in blocks)


def test_rows_that_cannot_be_computed_are_not_kept(spark):
    """As when a user cancels all jobs: the blocks that are there already would never go."""
    from pyspark.sql.functions import count, lit, raise_error

    from spark_jobs.session.work_session import WorkSession

    work_session, persisted = WorkSession(spark), spark.sparkContext._jsc.getPersistentRDDs
    before = set(persisted())
    rows = work_session.spark.range(0, 100, 1, 2)
    failing = rows.withColumn("wrong", raise_error(lit("not today")))
    with pytest.raises(Exception, match="not today"):
        work_session.keep(failing)
    with pytest.raises(Exception, match="not today"):
        work_session.keep_and_measure(failing, rows=count("*"))
    assert set(persisted()) == before


@pytest.mark.parametrize("assignor", ["sticky", "range"][: 1 + EVERY])
@pytest.mark.parametrize(
    "spec",
    [
        {"topics": {}, "members": {}},
        {"topics": {"a": 5}, "members": {}},
        {"topics": {"a": 0}, "members": {"m": {"subscribed": ["a"]}, "n": {"subscribed": []}}},
    ],
    ids=["nothing", "no members", "no partitions"],
)
def test_nothing_to_assign(spark, assignor, spec):
    members, topics, previous = tables(spec, seed=0)
    for claims in (previous, previous.slice(0, 0)):
        ranges, _ = compare(spark, (members, topics, claims), assignor, {})
        assert len(ranges) == 0


def test_new_group_without_previous_assignment(spark):
    members, topics, _ = tables(EQUAL, seed=0)
    ranges, _ = compare(spark, (members, topics, None), "uniform", {})
    assert ranges.loads().any()


def test_checks_detect_forbidden_operations(spark):
    """A window over everything, a Python function over rows, rows on the driver."""
    from pyspark.sql import Window, functions

    rows = spark.range(50).withColumn("half", functions.col("id") % 2)
    over_half = functions.sum("id").over(Window.partitionBy("half").orderBy("id")).alias("sum")
    over_all = functions.sum("id").over(Window.orderBy("id")).alias("sum")
    with watch(spark) as seen:
        rows.select(over_half).collect()
    assert seen.windows()
    assert (seen.whole_windows(), seen.python()) == ([], [])
    with watch(spark) as seen:
        rows.select(over_all, functions.udf(lambda at: at)("id")).toArrow()
    assert seen.whole_windows()
    assert seen.python()
    assert seen.collected == [50]
