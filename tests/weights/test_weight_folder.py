"""A folder of weights: the same rows in each format, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from assignors import SpecError
from coordinator.runtime.plan_tasks.weight_source import open_weight_source, read_group_loads

ROWS = {
    "partitions": [{"topic": "clicks", "partition": at, "weight": at + 0.5} for at in range(3)],
    "members": [
        {"name": "7"}, {"name": "NA", "capacity": 2.0}, {"name": "w3", "state": "draining"},
    ],
    "constraints": [
        {"kind": "drain", "selector": "w2"},
        {"kind": "pin", "selector": "clicks/0", "value": "w1", "hard": False, "reason": "cache"},
        {"kind": "max_partitions", "selector": "*", "value": "7"},
    ],
}  # fmt: skip
"""Rows whose first ones lack what later ones have."""


def table_of(rows):
    names = sorted({name for row in rows for name in row})
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def write_json(path, rows):
    path.with_suffix(".json").write_text(json.dumps(rows))


def write_lines(path, rows):
    path.with_suffix(".json").write_text("\n".join(map(json.dumps, rows)))


def write_parquet(path, rows):
    pq.write_table(table_of(rows), path.with_suffix(".parquet"))


def write_csv(path, rows):
    pyarrow.csv.write_csv(table_of(rows), path.with_suffix(".csv"))


def write_delta(path, rows):
    write_deltalake(path, table_of(rows))


def read(folder):
    return read_group_loads(open_weight_source(folder)(), "g", {"clicks": 3})


@pytest.mark.parametrize("write", [write_json, write_lines, write_parquet, write_csv, write_delta])
def test_a_row_means_the_same_in_each_format(tmp_path, write):
    for name, rows in ROWS.items():
        write(tmp_path / name, rows)
    found = read(tmp_path)
    (weights,) = found.weights
    assert weights.topic == "clicks"
    assert [(one.name, one.capacity, one.state) for one in found.capacities] == [
        ("7", 1.0, "active"), ("NA", 2.0, "active"), ("w3", 1.0, "draining"),
    ]  # fmt: skip
    assert [(one.kind, one.value, one.hard, one.reason) for one in found.constraints] == [
        ("drain", None, True, None), ("pin", "w1", False, "cache"),
        ("max_partitions", "7", True, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("members", '[{"name": "w1"}, {"name": "w2", "capcity": 2}]', "capcity"),
        ("members", '[{"name": "w1", "name": "w2"}]', "name"),
        ("members", '[{"name": "w1", "capacity": NaN}]', "NaN"),
        ("members", '[{"name": "w1"}, 7]', "row 1: expected a JSON object, got"),
        ("members", '[{"name": "w1"}', "not JSON"),
        ("partitions", '[{"topic": "clicks", "partition": 0}]', "weight"),
        ("constraints", '[{"kind": "drain", "selector": "w1"}, {"kind": "pin"}]', "selector"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused(tmp_path, name, text, said):
    (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(SpecError, match=said):
        read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]"])
def test_an_empty_table_says_nothing(tmp_path, text):
    for name in ROWS:
        (tmp_path / f"{name}.json").write_text(text)
    found = read(tmp_path)
    assert (found.weights, found.capacities, found.constraints) == ((), (), ())


def test_a_table_in_two_formats_is_refused(tmp_path):
    write_json(tmp_path / "members", ROWS["members"])
    write_csv(tmp_path / "members", ROWS["members"])
    with pytest.raises(SpecError, match=r"members\.csv and .*members\.json are both there"):
        read(tmp_path)
