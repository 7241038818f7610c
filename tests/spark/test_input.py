"""What DataFrames may be given, and what is refused: on Spark as in process."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from assignors import GroupSpec, SpecError, get_assignor
from spark_jobs.session.schemas import frame_of
from tests.support.spark.groups import COLUMNS, ORDER, mixed, tables
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

MEMBERS = pa.table(
    {"member_id": ["m1", "m2"], "instance_id": ["i", None], "subscribed": [["a"], ["a"]]}
)
TOPICS = pa.table({"topic": ["a"], "partitions": [4]})
OWNED = pa.table([["m1"], ["a"], [0], [2]], names=COLUMNS)


def with_column(table, name, *values, type_=None):
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, type_))


def owned(*row):
    return pa.table([[value] for value in row], names=COLUMNS)


def overlapping(*rows):
    return pa.concat_tables([owned(*row) for row in rows])


def draw():
    """Return a column of numbers below 1 that no seed fixes: a source that changes as it is read."""
    number = F.udf(lambda _: random.random(), "double").asNondeterministic()
    return number(F.lit(0))


MEMBERS_REFUSED = {
    "no column": (MEMBERS.drop(["subscribed"]), "members: column 'subscribed' is missing (found member_id, instance_id)"),
    "topics as numbers": (with_column(MEMBERS, "subscribed", [1], [2]), "members: column 'subscribed' is "),
    "ids as numbers": (with_column(MEMBERS, "member_id", 1, 2), "members: column 'member_id' is "),
    "instance ids as numbers": (with_column(MEMBERS, "instance_id", 1, 2), "members: column 'instance_id' is "),
    "racks as numbers": (MEMBERS.append_column("rack", pa.array([1, 2])), "members: column 'rack' is "),
    "unknown column": (MEMBERS.append_column("group_id", pa.array(["g", "h"])), "members: unknown column 'group_id': the columns are member_id, instance_id, rack, subscribed"),
    "null id": (with_column(MEMBERS, "member_id", "m", None), "column 'member_id' has a null: give every row a value"),
    "no text": (with_column(MEMBERS, "member_id", b"m", b"a\xff").cast(MEMBERS.schema, safe=False), "members: column 'member_id' has text that is not UTF-8"),
    "null subscription": (with_column(MEMBERS, "subscribed", ["a"], None), "column 'subscribed' has a null: give []"),
    "null topic": (with_column(MEMBERS, "subscribed", ["a"], ["a", None]), "column 'subscribed' lists a null topic"),
    "member twice": (pa.concat_tables([MEMBERS, MEMBERS]), "member 'm1' appears twice: give each member one row"),
    "unknown topic": (with_column(MEMBERS, "subscribed", ["a"], ["b", "a"]), "member 'm2' subscribes to topic 'b', which is not in topics: add it"),
}  # fmt: skip
TOPICS_REFUSED = {
    "no column": (TOPICS.drop(["partitions"]), "topics: column 'partitions' is missing (found topic)"),
    "unknown column": (TOPICS.append_column("weight", pa.array([2])), "topics: unknown column 'weight': the columns are topic, partitions, topic_id, racks; leave"),
    "topic twice": (pa.concat_tables([TOPICS, TOPICS]), "topic 'a' appears twice: give each topic one row"),
    "null name": (with_column(TOPICS, "topic", None, type_=pa.string()), "topics: column 'topic' has a null"),
    "fraction": (with_column(TOPICS, "partitions", 4.0), "topics: column 'partitions' is double, expected an integer type"),
    "text": (with_column(TOPICS, "partitions", "4"), "topics: column 'partitions' is string, expected an integer type"),
    "no text": (with_column(TOPICS, "topic", b"a\xff").cast(TOPICS.schema, safe=False), "topics: column 'topic' has text that is not UTF-8: write"),
    "null count": (with_column(TOPICS, "partitions", None, type_=pa.int32()), "topics: column 'partitions' has a null"),
    "negative": (with_column(TOPICS, "partitions", -4), "topic 'a' has partition count -4: give a whole number"),
    "too large": (with_column(TOPICS, "partitions", 2**31), f"partition count {2**31}: give a whole number"),
}  # fmt: skip
OWNED_REFUSED = {
    "no column": (OWNED.drop(["first_partition"]), "owned: column 'first_partition' is missing (found member_id, topic, partition_count)"),
    "unknown column": (OWNED.append_column("day", pa.array([2])), "owned: unknown column 'day': the columns are member_id, topic, first_partition, partition_count;"),
    "text": (owned("m1", "a", "0", 2), "owned: column 'first_partition' is string, expected an integer type"),
    "null": (with_column(OWNED, "topic", None, type_=pa.string()), "null"),
    "unknown topic": (owned("m1", "b", 0, 2), "member 'm1' owns partitions of topic 'b', which is not in topics: add it, or drop the claim"),
    "negative": (owned("m1", "a", -1, 2), "owned: member 'm1', topic 'a' has first_partition -1 and partition_count 2: give"),
    "nothing": (owned("m1", "a", 0, 0), "first_partition 0 and partition_count 0: give"),
    "too far": (owned("m1", "a", 2**33, 1), f"first_partition {2**33} and partition_count 1: give"),
    "outside": (owned("m1", "a", 1, 4), "member 'm1' owns partition 4 of topic 'a', which has 4"),
    "overlap": (overlapping(("m1", "a", 0, 3), ("m1", "a", 2, 2)), "member 'm1' owns partition 2 of topic 'a' twice"),
    "the same twice": (overlapping(("m2", "a", 1, 1), ("m2", "a", 1, 1)), "member 'm2' owns partition 1 of topic 'a' twice"),
}  # fmt: skip


def refused(spark, message, given):
    from spark_jobs.assignors.dispatch import assign_frames

    frames = [spark.createDataFrame(table) for table in given]
    with pytest.raises(SpecError) as numpy:
        GroupSpec.from_arrow(*given)
    with pytest.raises(SpecError) as found:
        assign_frames(spark, "range", *frames, driver_rows=0)
    with pytest.raises(SpecError) as small:
        assign_frames(spark, "range", *frames)
    for error in (numpy, found, small):
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", MEMBERS_REFUSED)
def test_bad_members_are_refused(spark, name):
    members, message = MEMBERS_REFUSED[name]
    refused(spark, message, (members, TOPICS, OWNED))


@pytest.mark.parametrize("name", TOPICS_REFUSED)
def test_bad_topics_are_refused(spark, name):
    topics, message = TOPICS_REFUSED[name]
    refused(spark, message, (MEMBERS, topics, OWNED))


@pytest.mark.parametrize("name", OWNED_REFUSED)
def test_bad_owned_is_refused(spark, name):
    claims, message = OWNED_REFUSED[name]
    refused(spark, message, (MEMBERS, TOPICS, claims))


@pytest.mark.parametrize(
    ("lists", "labels"),
    [
        ([["a", "b"], ["b", "a"], ["a", "b"], ["b"], []], 4),
        ([["a", "b"], ["b", "a"], ["a", "b", "a"], ["b"], []], 3),
        ([["b", "a"], ["a", "b"]], 1),
        ([], 0),
    ],
)
def test_lists_that_are_written_in_many_orders_are_sorted(spark, lists, labels):
    """As where each member writes its own: the driver reads no more than each set of topics."""
    from spark_jobs.assignors.labelled_members import read_members

    ids, kind = [f"m{at}" for at in range(len(lists))], pa.list_(pa.string())
    members = pa.table(
        {"member_id": pa.array(ids, pa.string()), "subscribed": pa.array(lists, kind)}
    )
    topics = pa.table({"topic": ["b", "a"], "partitions": pa.array([4, 3], pa.int64())})
    frames = [frame_of(spark, table) for table in (members, topics, OWNED)]
    known, labelled, rows = read_members(*frames)
    assert (known.names.to_pylist(), known.partitions.tolist(), rows) == (["a", "b"], [3, 4], 1)
    assert len(labelled.labels.label) == labels
    found = labelled.rows.toArrow()
    class_ = labelled.labels.find(np.asarray(found["label"]))
    bounds = pairwise(labelled.offsets.tolist())
    listed = [tuple(labelled.listed[first:end].tolist()) for first, end in bounds]
    of_member = dict(zip(found["member_id"].to_pylist(), class_.tolist(), strict=True))
    places = [tuple(sorted({"ab".index(name) for name in names})) for names in lists]
    assert [listed[of_member[name]] for name in ids] == places
    assert dict(zip(listed, labelled.sizes.tolist(), strict=True)) == Counter(places)


def test_a_group_too_large_is_refused(spark):
    members = with_column(MEMBERS, "subscribed", ["a", "b"], [])
    topics = pa.table({"topic": ["a", "b"], "partitions": [2**30, 1]})
    refused(spark, f"the group subscribes to {2**30 + 1} partitions", (members, topics, OWNED))


@pytest.mark.parametrize("options", [{"imbalance": "x"}, {"imbalance": -1}, {"max_moves": -1}])
def test_bad_options_are_refused_before_anything_runs(spark, options):
    from spark_jobs.assignors.sticky import assign

    with pytest.raises(SpecError) as numpy:
        get_assignor("sticky", **options)
    with watch(spark) as seen, pytest.raises(SpecError) as found:
        assign(spark, *map(spark.createDataFrame, (MEMBERS, TOPICS)), **options)
    assert str(found.value) == str(numpy.value)
    assert seen.plans == []


def test_frames_of_other_sessions_and_sources(spark, tmp_path):
    """Delta with all columns, a view with small numbers, Parquet with mixed ones."""
    from pyspark.sql import functions

    from spark_jobs.assignors.range import assign
    from spark_jobs.session.schemas import ASSIGNMENT

    given = tables(mixed(range(20)), seed=1)
    members, topics, claims = map(spark.createDataFrame, given)
    members = members.withColumn("rack", functions.lit("r1"))
    members.write.format("delta").save(str(tmp_path / "members"))
    topics.createOrReplaceTempView("every_topic")
    claims.withColumn("first_partition", functions.expr("int(first_partition)")).write.parquet(
        str(tmp_path / "owned")
    )
    rows = assign(
        spark,
        spark.read.format("delta").load(str(tmp_path / "members")),
        spark.sql("SELECT smallint(partitions) AS partitions, topic FROM every_topic"),
        spark.read.parquet(str(tmp_path / "owned")),
    )
    assert rows.schema == ASSIGNMENT
    expected = get_assignor("range").assign(GroupSpec.from_arrow(*given)).to_arrow()
    assert rows.toArrow().sort_by(ORDER).to_pylist() == expected.sort_by(ORDER).to_pylist()
    joined = rows.join(spark.table("every_topic"), "topic").where("first_partition < partitions")
    assert joined.count() == len(expected)  # a frame of the user's session like any other


def test_users_session_keeps_its_settings(spark):
    from spark_jobs.assignors.range import assign

    names = ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")
    before = [spark.conf.get(name) for name in names]
    no_instances = MEMBERS.drop(["instance_id"])
    rows = assign(spark, spark.createDataFrame(no_instances), spark.createDataFrame(TOPICS))
    assert {row["member_id"]: row["partition_count"] for row in rows.collect()} == {
        "m1": 2,
        "m2": 2,
    }
    assert [spark.conf.get(name) for name in names] == before


OTHER_ROWS = {
    "another number": lambda range_: range_.limit(1).select(
        F.explode(F.sequence(F.lit(0), (draw() * 20_000).cast("int"))).alias("id"),
        F.array(F.lit("t0")).alias("subscribed"),
    ),
    "other subscriptions": lambda range_: range_.select(
        "id", F.array(F.concat(F.lit("t"), (draw() * 20).cast("int"))).alias("subscribed")
    ),
}


@pytest.mark.parametrize(
    ("assignor", "driver_rows", "name"),
    [
        ("uniform", 0, "another number"),
        ("uniform", 2_500_000, "other subscriptions"),
        ("range", 0, "other subscriptions"),
        ("range", 2_500_000, "another number"),
    ],
)
def test_members_that_change_between_reads_are_refused(spark, assignor, driver_rows, name):
    """Some would be lost: those whose topics had no subscriber when subscriptions were read."""
    from spark_jobs.assignors.dispatch import assign_frames

    topics = spark.createDataFrame(
        [(f"t{at}", 3) for at in range(20)], "topic STRING, partitions INT"
    )
    members = OTHER_ROWS[name](spark.range(500)).withColumn("member_id", F.concat(F.lit("m"), "id"))
    members = members.drop("id")
    with pytest.raises(SpecError, match="members: the DataFrame gives other rows each time it is"):
        assign_frames(spark, assignor, members, topics, None, driver_rows=driver_rows)
    kept = members.cache()
    count = kept.count()
    done = assign_frames(spark, assignor, kept, topics, None, driver_rows=driver_rows)
    assert done.members == count
    kept.unpersist()
