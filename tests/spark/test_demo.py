"""`muster demo`: what `make demo` shows, and that it would notice a wrong answer."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from coordinator.config import ConfigError
from spark_jobs.demo import demo, kafka, watched
from tests.conftest import GOLDEN

CASES = (GOLDEN / "assignments/cases.jsonl").read_text().splitlines()


@pytest.mark.spark
@pytest.mark.slow
def test_demo_succeeds_and_keeps_its_output(muster, muster_here, installed, tmp_path):
    """It runs from the wheel, in an empty folder."""
    size = ["--members", 300, "--partitions", 3_000]
    done = muster("demo", *size, cwd=tmp_path, env=installed, timeout=540)
    said, out = done.stdout.decode(), tmp_path / "demo-output"
    assert done.returncode == 0, said + done.stderr.decode()
    assert b"CodeCache" not in done.stderr  # full, the JVM interprets, or gives up
    assert said.count("✓") == len(demo.ACTS)
    assert "300 members share 3,000 partitions" in said
    assert "2 members left" in said
    assert "See both groups live in a browser: http://127.0.0.1:" in said
    assert f"muster web --store {Path('demo-output/store')}" in said
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    history = muster_here("history", "billing", "--store", out / "store", "--json")
    owned = [json.loads(line) for line in history.stdout.splitlines()]
    now = [(row["first_partition"], row["last_partition"]) for row in owned if not row["until"]]
    assert {p for first, last in now for p in range(first, last + 1)} == set(range(8))
    groups = muster_here("groups", "--store", out / "store", "--json")
    states = [json.loads(line) for line in groups.stdout.splitlines()]
    assert {g["group_id"]: g["members"] for g in states} == {"archive": 298, "billing": 2}


def test_comparison_detects_a_worse_answer_than_kafkas():
    right, fewer, fairer = (json.loads(CASES[40]) for _ in range(3))
    assert not kafka.compare_with_kafka("uniform", [right])["worse"]
    fewer["kafka"]["uniform"]["moved"] = -1
    fairer["kafka"]["uniform"]["loads"][0] += 1
    other = copy.deepcopy(right)
    other["kafka"]["range"] = {}
    for assignor, case in (("uniform", fewer), ("uniform", fairer), ("range", other)):
        assert kafka.compare_with_kafka(assignor, [right, case])["worse"] == 1, case


def test_a_store_that_spark_does_not_reach_is_refused_before_anything_is_in_it(
    monkeypatch, tmp_path
):
    def refuse(_spark, store):
        raise ConfigError(f"{store} cannot be read")

    ended = []
    spark = SimpleNamespace(stop=lambda: ended.append(True))
    monkeypatch.setattr("spark_jobs.session.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr("spark_jobs.session.object_store.reach_store", refuse)
    store = tmp_path / "store"
    with (
        pytest.raises(ConfigError, match="store cannot be read"),
        demo._stage(Console(), tmp_path, str(store), [], 1, 1),
    ):
        pass
    assert ended
    assert not store.exists()


def test_missing_cases_are_refused(muster, tmp_path):
    done = muster("demo", "--cases", "no.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert b"--cases 'no.jsonl' cannot be read" in done.stderr
    assert b"name a file of groups with Kafka's answers, or omit --cases" in done.stderr
    assert not (tmp_path / "demo-output").exists()


def test_a_recorded_topic_is_watched(tmp_path):
    for _ in range(2):  # its store is recreated
        found = watched.watch_recorded(tmp_path / "watched")
    assert "the Kafka cluster of-" in found.who
    assert (found.groups, len(found.reasons)) == (2, watched.SHOWN)
    assert found.epochs > 50
    assert all(reason for _, _, reason in found.reasons)
