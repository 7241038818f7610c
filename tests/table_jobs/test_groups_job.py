"""Jobs on tables of many groups: what is refused, written, and forgotten."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.table_io import read_delta
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.local_engine import forget, forget_in_groups
from coordinator.table_jobs.run_job import run_job
from coordinator.table_jobs.safeguards import Safeguards
from tests.assignors.group_tables import alone, tables_of_groups
from tests.support import twins

SPECS = {f"g{seed}": twins.random_spec(seed, members=4) for seed in range(12)}


@pytest.fixture
def run(tmp_path):
    def run(tables, *, run_id=None, allow_empty=False, **options):
        inputs = {"owned": None, "previous": None}
        for name, table in zip(("members", "topics", "owned"), tables, strict=False):
            if table is not None:
                write_deltalake(
                    str(tmp_path / name), table, mode="overwrite", schema_mode="overwrite"
                )
                inputs[name] = find_input(str(tmp_path / name), f"--{name}", "auto")
        job = AssignmentJob(
            **inputs, output=str(tmp_path / "out"), options=AssignorOptions("sticky", **options),
            engine="local", run_id=run_id, safeguards=Safeguards(allow_empty=allow_empty),
        )  # fmt: skip
        return run_job(job, Config())

    return run


def written(tmp_path):
    return read_delta(DeltaTable(str(tmp_path / "out")))


def test_the_next_night_keeps_what_every_group_has(run, tmp_path):
    members, topics, owned, *_ = tables_of_groups(SPECS)
    first = run((members, topics, owned), run_id="monday")
    assert first.totals["groups"] == len(SPECS)
    rows = written(tmp_path)
    again = run((members, topics), run_id="tuesday")
    assert (again.totals["moved"], again.totals["orphans"]) == (0, 0)
    assert written(tmp_path).to_pylist() == rows.to_pylist()
    assert json.dumps(again.totals)  # it is kept with the rows


def test_what_no_longer_exists_is_forgotten_group_by_group():
    _, topics, owned, *_ = tables = tables_of_groups(SPECS)
    smaller = [dict(row, partitions=row["partitions"] // 2) for row in topics.to_pylist()[::2]]
    smaller = pa.Table.from_pylist(smaller, topics.schema)
    kept, forgotten = forget_in_groups(owned, smaller)
    expected, dropped = [], 0
    for group_id, (_, own_topics, own, *_) in alone((tables[0], smaller, owned)).items():
        rows, count = forget(own, own_topics)
        expected += [{"group_id": group_id} | row for row in rows.to_pylist()]
        dropped += count
    names = ["group_id", "member_id", "topic", "first_partition", "partition_count"]
    key = [(name, "ascending") for name in names]
    assert kept.select(names).sort_by(key).to_pylist() == sorted(
        expected, key=lambda row: [row[name] for name in names]
    )
    assert forgotten == dropped > 0


def test_a_bad_group_leaves_the_output_alone(run, tmp_path):
    members, topics, owned, *_ = tables_of_groups(SPECS)
    run((members, topics, owned))
    before = DeltaTable(str(tmp_path / "out")).version()
    twice = pa.concat_tables([members, members.slice(5, 1)])
    name = members["group_id"][5].as_py()
    with pytest.raises(SpecError, match=f"group '{name}': member .* appears twice"):
        run((twice, topics))
    one_less = members.filter(pa.array([row != "g3" for row in members["group_id"].to_pylist()]))
    with pytest.raises(SpecError, match="group 'g3' has no members, so its partitions would"):
        run((one_less, topics))
    assert DeltaTable(str(tmp_path / "out")).version() == before
    run((one_less, topics), allow_empty=True)
    assert "g3" not in written(tmp_path)["group_id"].to_pylist()


def test_rules_may_be_json(tmp_path):
    path = tmp_path / "rules.json"
    rules = [
        {"kind": "pin", "selector": "a/0", "value": "m", "until": 4102444800000},
        {"kind": "max_partitions", "selector": "*", "value": 3, "group_id": "g"},
    ]
    path.write_text(json.dumps(rules[:1]))
    found = find_input(str(path), "--constraints", "local")
    assert found.rows.to_pylist()[0]["until"].year == 2100
    path.write_text("\n".join(json.dumps(rule) for rule in rules[1:]))
    assert find_input(str(path), "--constraints", "local").rows.to_pylist()[0]["value"] == "3"
    assert "group_id" in find_input(str(path), "--constraints", "local").columns()
    refused = {
        json.dumps(rules): "give every rule a group_id of text, or none",
        "[1]": "row 0: expected a JSON object, got a number: 1",
        '[{"kind": "pin", "selector": 3}]': "constraints, row 0: selector is 3",
        "[": "not JSON",
    }
    for text, says in refused.items():
        path.write_text(text)
        with pytest.raises(SpecError, match=f"--constraints .*rules.json': .*{says}"):
            find_input(str(path), "--constraints", "local")


def test_an_output_of_one_group_is_not_of_many(run):
    members, topics, *_ = tables_of_groups({"g": SPECS["g1"]})
    plain = (members.drop_columns(["group_id"]), topics.drop_columns(["group_id"]))
    run(plain)
    with pytest.raises(SpecError, match="--output: column 'group_id' is missing"):
        run((members, topics))
