"""Many groups in one Spark job: the rows and the figures of the local engine."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import GroupSpec, SpecError, get_assignor
from assignors.groups.assign_groups import assign_groups
from assignors.groups.group_set import GroupSet
from assignors.groups.task_rows import list_columns
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.table_io import read_delta
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.run_job import run_job
from tests.assignors import weighted_twins
from tests.assignors.group_tables import mixed_tables, tables_of_groups
from tests.support import twins
from tests.support.spark.watch import watch

pytestmark = pytest.mark.spark

NAMES = ("members", "topics", "owned", "partitions", "constraints")
ORDER = [(name, "ascending") for name in
         ("group_id", "member_id", "topic", "first_partition")]  # fmt: skip
PLAIN = tables_of_groups(
    {f"g{seed:02}": twins.random_spec(seed) for seed in range(30)}, shared=True
)
WEIGHTED = mixed_tables(12)
RULES = pa.table(
    {
        "group_id": ["g03", "g03"],
        "kind": ["drain", "drain"],
        "selector": ["nobody", "gone"],
        "value": pa.nulls(2, pa.string()),
        "reason": ["repair", None],
        "until": pa.array([None, 1], pa.timestamp("ms")),
    }
)


def on_spark(spark, tables, assignor, options):
    from spark_jobs.assignors.groups import assign_groups as assign_frames

    frames = {
        name: spark.createDataFrame(table).repartition(3)
        for name, table in zip(NAMES, tables, strict=True)
        if table is not None
    }
    return assign_frames(spark, assignor, frames, options, as_of_ms=5)


@pytest.mark.parametrize(
    ("assignor", "options", "tables"),
    [
        ("sticky", {"imbalance": 1, "max_moves": 3}, PLAIN),
        ("weighted", {"tolerance": "2%"}, (*WEIGHTED[:4], RULES)),
    ],
)
def test_groups_on_spark_are_those_of_the_local_engine(spark, assignor, options, tables):
    members, topics, owned, partitions, constraints = tables
    groups = GroupSet.from_arrow(
        members, topics, owned, partitions=partitions, constraints=constraints, as_of_ms=5
    )
    local = assign_groups(groups, get_assignor(assignor, **options))
    found = on_spark(spark, tables, assignor, options)
    assert found.summary.equals(local.summary)
    rows = found.rows.toArrow().sort_by(ORDER)
    assert rows.to_pylist() == local.rows.sort_by(ORDER).to_pylist()
    assert found.partitions == local.totals()["partitions"]


def test_weighted_on_spark_is_weighted_in_process(spark):
    import spark_jobs

    spec = weighted_twins.random_spec(8, rules=False, members=9, partitions=20)
    members, topics, owned, partitions = (
        it.drop_columns(["group_id"]) for it in tables_of_groups({"g": spec})[:4]
    )
    rules = RULES.drop_columns(["group_id"])
    group = GroupSpec.from_arrow(
        members, topics, owned, partitions=partitions, constraints=rules, as_of_ms=5
    )
    options = {"tolerance": "2%", "rack": "ignore"}
    local = get_assignor("weighted", **options).assign(group).to_arrow()
    frames = [spark.createDataFrame(it) for it in (members, topics, owned, partitions, rules)]
    with watch(spark) as seen:
        rows = spark_jobs.weighted.assign(
            spark, *frames[:3], partitions=frames[3], constraints=frames[4], as_of_ms=5, **options
        )
    assert max(seen.collected) == 1  # a summary, and no row of the group
    assert rows.toArrow().sort_by(ORDER[1:]).to_pylist() == local.sort_by(ORDER[1:]).to_pylist()
    with pytest.raises(SpecError, match=r"^members: unknown column 'group_id'"):
        spark_jobs.weighted.assign(spark, frames[0].selectExpr("*", "'g' AS group_id"), frames[1])


NOW = 1_800_000_000_000
UNTIL = {
    "text": pa.array([None, "2026-12-31T18:00:00Z", "2030-01-01"]),
    "milliseconds": pa.array([None, NOW - 1, NOW + 1], pa.int64()),
    "times": pa.array([None, NOW - 1, NOW + 1], pa.timestamp("ms", "UTC")),
    "local times": pa.array([None, NOW - 1, NOW + 1], pa.timestamp("ms")),
    "nothing": pa.nulls(3, pa.string()),
}


@pytest.mark.parametrize(("kind", "many"), [*((kind, True) for kind in UNTIL), ("times", False)])
def test_an_end_of_a_rule_is_read_as_in_process(spark, kind, many):
    """As text, as a number and as a time; of one group, and of many."""
    from spark_jobs.assignors.groups import assign_groups as assign_frames

    rules = pa.table(
        {"kind": ["exclude"] * 3, "selector": ["a/0", "a/1", "a/2"], "value": ["m1"] * 3,
         "until": UNTIL[kind]}
    )  # fmt: skip
    tables = {
        "members": pa.table({"group_id": ["g"] * 2, "member_id": ["m1", "m2"],
                             "subscribed": [["a"]] * 2, "capacity": [9.0, 1.0]}),
        "topics": pa.table({"topic": ["a"], "partitions": [9]}),
        "constraints": rules.append_column("group_id", pa.array(["g"] * 3)) if many else rules,
    }  # fmt: skip
    groups = GroupSet.from_arrow(
        tables["members"], tables["topics"], constraints=tables["constraints"], as_of_ms=NOW
    )
    local = assign_groups(groups, get_assignor("weighted")).rows.sort_by(ORDER).to_pylist()
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    found = assign_frames(spark, "weighted", frames, {}, as_of_ms=NOW)
    assert found.rows.toArrow().sort_by(ORDER).to_pylist() == local
    bad = frames["constraints"].selectExpr("kind", "selector", "value", "1793000000 AS until")
    with pytest.raises(SpecError, match="until is 1793000000, which may be seconds"):
        assign_frames(spark, "weighted", frames | {"constraints": bad}, {}, as_of_ms=NOW)


def test_rows_for_tasks_have_empty_lists_and_no_null_ones(spark):
    from spark_jobs.assignors.groups import widen

    own = pa.schema({"group_id": pa.string(), "racks": pa.list_(pa.string())})
    given = {
        "partitions": pa.table({"group_id": ["g"] * 2, "racks": [["r"], None]}, own),
        "topics": pa.table({"group_id": ["g"], "topic": ["t"]}),
    }
    columns = list_columns(
        {"members": ["subscribed"], "topics": ["topic"], "partitions": ["racks"]}
    )
    lists = [
        (row.table_name, row.subscribed, row.racks)
        for name, table in given.items()
        for row in widen(spark.createDataFrame(table), name, columns).collect()
    ]
    assert lists == [("partitions", [], ["r"]), ("partitions", [], []), ("topics", [], [])]


def test_a_bad_group_is_named_and_nothing_is_written(spark, tmp_path):
    members, topics, *_ = PLAIN
    unknown = members.filter(pa.array([row != "g20" for row in members["group_id"].to_pylist()]))
    more = pa.table({"group_id": ["g20"], "member_id": ["m"], "subscribed": [["none"]]})
    bad = pa.concat_tables([unknown, more], promote_options="permissive")
    with pytest.raises(SpecError, match=r"^group 'g20': member 'm' subscribes to topic 'none'"):
        on_spark(spark, (bad, topics, None, None, None), "uniform", {})
    with pytest.raises(SpecError, match=r"partitions: unknown column 'wieght'"):
        on_spark(spark, (members, topics, None, pa.table({"wieght": [1.0]}), None), "uniform", {})
    text = pa.table({"topic": ["a"], "partitions": ["3"]})
    with pytest.raises(SpecError, match=r"topics: column 'partitions' is string"):
        on_spark(spark, (members, text, None, None, None), "uniform", {})


def test_a_job_writes_all_groups_on_either_engine(spark, tmp_path):
    from spark_jobs.jobs.spark_assignment import SparkAssignment

    members, topics, *_ = PLAIN
    for name, table in (("members", members), ("topics", topics)):
        write_deltalake(str(tmp_path / name), table)
    results = {}
    for engine in ("spark", "local"):
        inputs = {
            name: find_input(str(tmp_path / name), f"--{name}", engine)
            for name in ("members", "topics")
        }
        job = AssignmentJob(
            **inputs, owned=None, previous=None, output=str(tmp_path / "out"),
            options=AssignorOptions("uniform"), engine=engine, run_id=engine,
        )  # fmt: skip
        results[engine] = run_job(job, Config(), SparkAssignment())
        rows = read_delta(DeltaTable(str(tmp_path / "out"))).sort_by(ORDER).to_pylist()
        results[engine, "rows"] = rows
    # the second run starts from what the first one wrote
    assert results["spark"].engine == "spark"
    assert results["spark", "rows"] == results["local", "rows"]
    assert results["local"].totals["moved"] == 0
    assert results["spark"].totals["partitions"] == results["local"].totals["partitions"]
