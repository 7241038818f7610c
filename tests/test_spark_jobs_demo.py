"""`muster demo`: what `make demo` shows, and that it would notice a wrong answer."""

from __future__ import annotations

import copy
import io
import json

import pytest
from conftest import GOLDEN
from deltalake import DeltaTable
from rich.console import Console

from spark_jobs.demo import Stage, against_kafka

CASES = (GOLDEN / "assignments/cases.jsonl").read_text().splitlines()


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_ends_well_and_leaves_what_it_names(muster, tmp_path):
    (tmp_path / "cases.jsonl").write_text("\n".join(CASES[::8]))
    done = muster("demo", "--cases", "cases.jsonl", cwd=tmp_path)
    said, out = done.stdout.decode(), tmp_path / "demo-output"
    assert done.returncode == 0, said + done.stderr.decode()
    assert said.count("✓") == 3
    assert said.count("identical │") == 3
    for assignor in ("range", "uniform", "sticky"):
        local, spark = (DeltaTable(out / f"{assignor}-{engine}") for engine in ("local", "spark"))
        assert local.count() == spark.count() > 0
    assert json.loads((out / "report.json").read_text())["valid"]
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    again = muster("assign", out / "group.json", "--report")
    assert (
        json.loads(again.stdout)["moved"] == json.loads((out / "report.json").read_text())["moved"]
    )


def test_it_notices_an_answer_worse_than_kafkas(tmp_path):
    right, fewer, fairer = (json.loads(CASES[40]) for _ in range(3))
    stage = Stage(Console(file=io.StringIO()), tmp_path, [right])
    assert against_kafka(stage).good
    fewer["kafka"]["uniform"]["moved"] = -1
    fairer["kafka"]["uniform"]["loads"][0] += 1
    other = copy.deepcopy(right)
    other["kafka"]["range"] = {}
    for case in (fewer, fairer, other):
        outcome = against_kafka(Stage(stage.console, tmp_path, [right, case]))
        assert not outcome.good, outcome


def test_cases_that_are_not_there(muster, tmp_path):
    done = muster("demo", "--cases", "no.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert b"--cases 'no.jsonl' cannot be read" in done.stderr
    assert b"run in a clone of the project" in done.stderr
    assert not (tmp_path / "demo-output").exists()
