"""Weighted groups that are cut into tasks: the rows and the summary of the local engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from assignors import GroupSpec, SpecError, get_assignor
from assignors.groups.assign_groups import assign_groups
from assignors.groups.group_set import GroupSet
from assignors.weighted import levels
from tests.support.longer import EVERY, longer
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

ORDER = [(name, "ascending") for name in ("member_id", "topic", "first_partition")]
TOPICS = pa.table({"topic": ["b", "a", "unused"], "partitions": [700, 1300, 9]})


def members_of(count, capacities=(1.0,), draining=0, gone=0):
    kept = range(gone, count)
    return pa.table(
        {
            "member_id": [f"m{at:03}" for at in kept],
            "subscribed": [["a", "b"]] * len(kept),
            "capacity": [capacities[at % len(capacities)] for at in kept],
            "state": ["draining" if at < gone + draining else None for at in kept],
        }
    )


def weights_of(seed, sigma, drift=0.0, missing=0, idle=0.0):
    random = np.random.default_rng(seed)
    weight = random.lognormal(3, sigma, 2000)
    weight *= np.random.default_rng(seed).random(2000) >= idle
    weight *= np.where(random.random(2000) < drift, random.lognormal(0, 1, 2000), 1)
    at = random.permutation(2000)
    table = pa.table(
        {
            "topic": ["a" if place < 1300 else "b" for place in at],
            "partition": [place if place < 1300 else place - 1300 for place in at],
            "weight": [None if place < missing // 2 else weight[place] for place in at],
        }
    )
    return table.slice(missing - missing // 2)


def even(weight):
    """Return rows of all partitions with one weight."""
    return weights_of(1, 1).set_column(2, "weight", pa.array([weight] * 2000))


def on_spark(spark, tables, bucket_rows=1000, as_of_ms=None, **options):
    from spark_jobs.assignors.weighted import assign_group

    frames = {name: spark.createDataFrame(table) for name, table in tables.items() if table}
    return assign_group(
        spark, "weighted", frames, options, as_of_ms=as_of_ms, task_partitions=0,
        bucket_rows=bucket_rows,
    )  # fmt: skip


def compare(spark, tables, large=True, most=None, bucket_rows=1000, **options):
    """Assign on both engines; return the local rows.

    `most`: rows of a frame that may come to the driver.
    """
    named = {
        name: table.append_column("group_id", pa.array(["g"] * len(table), pa.string()))
        for name, table in tables.items()
    }
    groups = GroupSet.from_arrow(
        named.pop("members"), named.pop("topics"), named.pop("owned", None), **named
    )
    local = assign_groups(groups, get_assignor("weighted", **options))
    with watch(spark) as seen:
        found = on_spark(spark, tables, bucket_rows, **options)
    assert most is None or max(seen.collected) <= most
    rows = local.rows.drop_columns(["group_id"]).sort_by(ORDER)
    assert found.rows.toArrow().sort_by(ORDER).to_pylist() == rows.to_pylist()
    drop = ["group_id", "moved_minimum"]
    summarized, wanted = (it.summary.drop_columns(drop).to_pylist()[0] for it in (found, local))
    assert summarized == wanted
    assert (found.summary["group_id"][0].as_py() == "") is large
    return rows


def test_the_grid_is_that_of_the_local_engine(spark):
    from spark_jobs.assignors.weighted_units import round_to_grid

    powers = 2 ** np.arange(1, 43)
    exact = np.concatenate([[0], *(powers + more for more in (-1, 0, 1)), powers * 4097 >> 12])
    columns = dict.fromkeys(("place", "exact", "prev", "owner"), exact)
    rows = round_to_grid(spark.createDataFrame(pa.table(columns)), 5).sort("place").toArrow()
    wanted = levels.round_to_grid(levels.raise_to_floor(np.sort(exact), 5))
    assert rows["weight"].to_pylist() == wanted.tolist()


def test_weights_have_the_rows_of_the_local_engine(spark):
    tables = {"topics": TOPICS, "members": members_of(24, (3.0,))}
    compare(spark, {**tables, "partitions": weights_of(1, 1, missing=400)})


@pytest.mark.slow
@longer("searches four times on Spark: make test-spark")
def test_a_group_that_lives_has_the_rows_of_the_local_engine(spark):
    """From nothing; then weights drift, members leave and drain: shed, place, repair, again."""
    tables = {"topics": TOPICS, "members": members_of(24, (3.0,))}
    owned = compare(spark, {**tables, "partitions": weights_of(1, 1, missing=400)})
    tables["members"] = members_of(24, (3.0,), draining=2, gone=2)
    drifted = weights_of(1, 1, drift=0.3, missing=400)
    compare(spark, {**tables, "partitions": drifted, "owned": owned}, improvement="0%")


@longer("a search on Spark: make test-spark")
def test_what_weighs_nothing_has_the_rows_of_the_local_engine(spark):
    """Most of it stays where it is, what left with members is spread by number, and some drains."""
    tables = {"topics": TOPICS, "members": members_of(9, (3.0, 1.0))}
    group = GroupSpec.from_arrow(
        tables["members"], TOPICS, partitions=weights_of(1, 1, idle=0.7, missing=400)
    )
    owned = get_assignor("weighted").assign(group).to_arrow()
    tables["members"] = members_of(9, (3.0, 1.0), draining=1, gone=1)
    drifted = weights_of(1, 1, drift=0.3, missing=400, idle=0.7)
    compare(spark, {**tables, "partitions": drifted, "owned": owned}, improvement="0%")


def test_capacities_alone_and_drained_members_by_rule(spark):
    rules = pa.table({"kind": ["drain"], "selector": ["m001"], "reason": ["disk"]})
    tables = {"topics": TOPICS, "members": members_of(7, (1.0, 2.5)), "constraints": rules}
    contested = pa.table(
        {
            "member_id": ["m002", "m003", "gone"], "topic": ["a", "a", "b"],
            "first_partition": [0, 5, 0], "partition_count": [10, 10, 4],
        }
    )  # fmt: skip
    owned = compare(spark, {**tables, "owned": contested}, most=150)  # members, and a sample
    assert set(owned["member_id"].to_pylist()) == {f"m{at:03}" for at in range(7)} - {"m001"}


@pytest.mark.parametrize("budget", [{"max_moved_weight": 30.5}, {"max_moves": 90}][: 1 + EVERY])
def test_a_budget_undoes_the_same_moves(spark, budget):
    """One member drains, whose partitions move whatever the budget; capacities are others."""
    tables = {"topics": TOPICS, "members": members_of(7, (1.0, 2.5))}
    group = GroupSpec.from_arrow(tables["members"], TOPICS)
    owned = get_assignor("weighted").assign(group).to_arrow()
    tables["members"] = members_of(7, (2.5, 1.0, 1.0), draining=1)
    rows = compare(spark, {**tables, "owned": owned}, **budget)
    after = GroupSpec.from_arrow(tables["members"], TOPICS, owned)
    ranges = get_assignor("weighted", **budget).assign(after)
    assert ranges.partial
    assert len(rows) == len(ranges.member)


def test_what_is_not_plain_is_assigned_in_one_task(spark):
    members = members_of(5, (1.0, 2.0))
    rules = pa.table({"kind": ["exclude"], "selector": ["a/3"], "value": ["m001"]})
    tables = {"topics": TOPICS, "members": members, "constraints": rules}
    compare(spark, tables, large=False)
    equal = {"topics": TOPICS, "members": members_of(5)}
    compare(spark, equal, large=False)


def test_what_is_not_plain_and_too_large_for_one_task_is_refused(spark):
    from spark_jobs.assignors.weighted_large import assign_large
    from spark_jobs.session.work_session import WorkSession

    far = weights_of(1, 1).append_column("racks", pa.array([["r1"]] * 2000))
    rules = pa.table({"kind": ["exclude"], "selector": ["a/3"], "value": ["m001"]})
    least = {"least_share": "90%"}
    for more, options, said in (
        ({"partitions": far}, {}, "Spark cannot split a group with partitions.racks: one task"),
        ({"constraints": rules}, {}, "constraints other than drain"),
        ({}, least, "Spark cannot split a group with least_share"),
    ):
        tables = {"topics": TOPICS, "members": members_of(5), **more}
        frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
        with pytest.raises(SpecError, match=said):
            assign_large(WorkSession(spark), "weighted", frames, options, None, 0, most=2_000)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"topic": ["c"], "partition": [0], "weight": [1.0]}, "topic 'c' is not in topics"),
        ({"topic": ["a"], "partition": [1300], "weight": [1.0]}, "has no partition 1300"),
        ({"topic": ["a"], "partition": [-1], "weight": [1.0]}, "has no partition -1"),
        ({"topic": ["a", "a"], "partition": [7, 7], "weight": [1.0, 2.0]}, "appears twice"),
        ({"topic": ["a"], "partition": [7], "weight": [-1.0]}, "has weight -1.0"),
        ({"topic": ["a"], "partition": [7], "weight": [float("nan")]}, "has weight nan"),
        ({"topic": ["a"], "partition": [7], "weight": [float("inf")]}, "has weight inf"),
        ({"topic": ["a"], "partition": [7], "weight": [2.0**63]}, "has weight"),
        ({"topic": ["a", None], "partition": [7, 8], "weight": [1.0, 1.0]}, "'topic' has a null"),
    ],
)
def test_bad_weights_are_refused_as_by_the_local_engine(spark, columns, said):
    tables = {
        "topics": TOPICS,
        "members": members_of(3, (1.0, 2.0)),
        "partitions": pa.table(columns),
    }
    with pytest.raises(SpecError, match=said) as there:
        on_spark(spark, tables)
    with pytest.raises(SpecError) as here:
        GroupSpec.from_arrow(tables["members"], TOPICS, partitions=tables["partitions"])
    assert str(there.value) == str(here.value)


BLOCKS = {
    "weights of all kinds": (members_of(24, (3.0, 1.0)), weights_of(3, 1)),
    "most weigh nothing": (members_of(7, (3.0, 1.0)), weights_of(3, 1, idle=0.8)),
    "alike, in long ranges": (members_of(3, (3.0, 1.0)), even(5.0)),
    "all on one": (members_of(2, (3.0, 1.0), draining=1), even(0.5)),
    "nothing weighs": (members_of(7, (2.0, 1.0)), even(0.0)),
}


@pytest.mark.parametrize("name", list(BLOCKS)[: None if EVERY else 1])
def test_a_new_group_is_filled_by_blocks(spark, name, monkeypatch):
    """Ranges go on from block to block: blocks begin within topics, and where the second does."""
    monkeypatch.setattr("spark_jobs.assignors.weighted_large.weigh_units", pytest.fail)
    members, weights = BLOCKS[name]
    tables = {"topics": TOPICS, "members": members, "partitions": weights}
    rows = compare(spark, tables, bucket_rows=65)  # 260 partitions a block
    assert len(rows) > 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("a", 5, 1.0), "partition 5 of topic 'a' appears twice"),
        (("b", 700, 1.0), "partition 700"),
        (("none", 0, 1.0), "none"),
    ],
)
def test_weights_that_a_new_group_has_twice_or_not_at_all_are_refused(spark, more, said):
    last = pa.table([[value] for value in more], names=weights_of(1, 1).column_names)
    twice = pa.concat_tables([weights_of(1, 1).slice(1), last])
    with pytest.raises(SpecError, match=said):
        on_spark(spark, {"topics": TOPICS, "members": members_of(5), "partitions": twice})
