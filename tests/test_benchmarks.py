"""The benchmarks run, keep what they measured, and measure what they say."""

import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from assignors import GroupSpec, get_assignor, quality
from benchmarks import __main__ as command
from benchmarks import classic, costs, groups, one_join, report, views, wire
from benchmarks.measure import REFERENCE_SORT_MS, Figure, Sort
from benchmarks.shape import EPOCH, GROUP, Shape
from benchmarks.store import write_group
from coordinator import Coordinator
from coordinator.history import frame
from spark_jobs.demo.crowd import Crowd
from tests.conftest import ROOT

SORT = Sort(default_ms=4 * REFERENCE_SORT_MS, plain_ms=2 * REFERENCE_SORT_MS)
SHAPES = {
    "equal": groups.equal(4_000, 10),
    "fifths": groups.fifths(4_000, 10),
    "halves": groups.halves(4_000, 10),
    "classes": groups.classes(4_000, 20, 4, more=5),
}
QUICK = """
[kafka]
"group.consumer.min.heartbeat.interval.ms" = 200
"group.consumer.heartbeat.interval.ms" = 200
"""
"""Consumers of librdkafka join within two heartbeats."""


def invoke(*words):
    app = typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, words)


def test_a_smoke_run_of_sections_without_servers_writes_the_document(tmp_path):
    names = [
        "grid",
        "large",
        "next-plan",
        "billion",
        "groups",
        "soak",
        "build",
        "memory",
        "simulated",
        "costs",
    ]
    words = ["--smoke", "--only", ",".join(names), "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    found = json.loads((tmp_path / "benchmarks.json").read_text(encoding="utf-8"))
    assert list(found) == names
    for measured in found.values():
        assert f"## {measured['section']['title']}\n" in document
        assert measured["section"]["title"] in done.stdout
        assert all(figure["median"] > 0 for figure in measured["section"]["figures"])


@pytest.mark.parametrize("work", [wire._paced, wire._describe, wire._join])
def test_what_the_wire_measures_is_served_and_answered(work, tmp_path, monkeypatch):
    settings = tmp_path / "muster.toml"
    settings.write_text(QUICK)
    monkeypatch.setenv("MUSTER_CONFIG", str(settings))
    monkeypatch.chdir(ROOT)  # its clients are `python -m benchmarks.wire_clients`
    figures = list(work(tmp_path / "store", wire.SMOKE))
    assert len(figures) > 1
    # The CPU of a server with little to do may be less than a tick.
    assert all(one.median > 0 for one in figures if not one.name.endswith("CPU"))


def test_what_classic_members_measure_is_served_and_answered(monkeypatch):
    monkeypatch.chdir(ROOT)  # its clients are `python -m benchmarks.classic_clients`
    commits, *took = classic._sync(classic.SMOKE)
    assert commits.median == 1, "one commit is in the path of a sync"
    assert all(one.median > 0 for one in took)


def test_members_that_were_there_before_the_crowd_confirm_what_they_lose(tmp_path):
    """One that does not is fenced once its rebalance time-out ends: in mid-measurement."""
    shape = Shape(4, 25, topic_count=1)
    write_group(tmp_path / "store", shape)
    topics = shape.topics()
    with Coordinator.open(tmp_path / "store", topics=topics, takeover="force") as coordinator:
        crowd = Crowd(coordinator, GROUP, shape.names(0))
        crowd.epochs = dict.fromkeys(shape.ids(), EPOCH)
        crowd.join(["one"], lambda _: None)
        crowd.settle(lambda _: None)
        assert set(crowd.epochs.values()) == {coordinator.group_epochs(GROUP)[0][0]} != {EPOCH}


def test_a_smoke_run_does_not_touch_the_document_in_docs(tmp_path, monkeypatch):
    before = {file: file.stat().st_mtime_ns for file in command.DOCS.iterdir()}
    monkeypatch.setattr(command, "measure_sort", lambda _: SORT)
    assert invoke("--smoke", "--only", "build").exit_code == 0
    assert {file: file.stat().st_mtime_ns for file in command.DOCS.iterdir()} == before
    assert invoke("--smoke", "--only", "build", "--output", str(tmp_path)).exit_code == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--only", "grit"), "the known ones are grid, large"), (("--spark-ranges", "3"), "1,10,100")],
)
def test_wrong_words_are_refused_with_what_is_right(words, said):
    done = invoke(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def measured(title, *figures):
    return report.Measured(report.Section(title, "Text.", figures), SORT, {"on": title})


def test_a_partial_run_leaves_the_other_sections_as_they_were(tmp_path):
    first, second = (Figure.of(name, [1.0, 2.0, 4.0]) for name in ("first", "second"))
    report.write(tmp_path, {"a": measured("A", first), "b": measured("B", first)})
    sections = report.load(tmp_path / "benchmarks.json")
    report.write(tmp_path, sections | {"b": measured("B", second)})
    again = report.load(tmp_path / "benchmarks.json")
    assert again["a"] == measured("A", first)
    assert again["b"] == measured("B", second)
    document = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "| first | 2.00 ms | 1.00 … 4.00 | 3 |" in document
    assert "| second |" in document


def test_goals_in_ms_scale_with_the_faster_sort_and_others_do_not():
    section = measured(
        "A",
        Figure.of("quick", [199.0], goal=100.0),
        Figure.of("slow", [201.0], goal=100.0),
        Figure.of("large", [101.0], "MiB", goal=100.0),
        Figure.of("no goal", [1.0]),
    )
    assert [(row[0], row[2], row[4]) for row in section.goals()] == [
        ("quick", "200 ms", "yes"),
        ("slow", "200 ms", "**no**"),
        ("large", "100 MiB", "**no**"),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_churned_group_built_by_columns_is_what_its_tables_say(shape):
    topics = SHAPES[shape]
    members = groups.spread_over(100, len(topics.subscriptions))
    fresh = groups.group_of(topics, members)
    target = get_assignor("uniform").assign(fresh)
    now = members.churned(10, 12, np.random.default_rng(0))
    group = groups.group_of(topics, now, groups.Past(members, target))
    read = GroupSpec.from_arrow(*group.to_arrow())
    for column in ("member", "topic", "first", "count", "member_ranges", "line_order"):
        assert np.array_equal(getattr(group, column), getattr(read, column)), column
    assert group.member_ids.equals(read.member_ids)
    assert len(group.member)
    assert group.orphan_count() > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_scattering_gives_everybody_many_ranges_and_changes_nothing_else(shape):
    topics = SHAPES[shape]
    members = groups.spread_over(100, len(topics.subscriptions))
    group = groups.group_of(topics, members)
    target = get_assignor("uniform").assign(group)
    scattered = groups.scattered(group, target, 10)
    assert quality.report(group, scattered).valid
    assert np.array_equal(scattered.loads(), target.loads())
    ranges = np.bincount(scattered.member, minlength=100)
    assert 8 <= ranges.mean() <= 13


def test_each_constant_of_the_costs_has_its_place_in_every_file():
    rows, ones = np.eye(4), np.ones(4)
    fits = [costs._fitted(engine, rows, ones) for engine in ("local", "spark")]
    fits += [costs._fitted_memory(what, rows, ones) for what in ("local", "table")]
    found = {name for fit in fits for name in fit.constants}
    assert costs.LEAST.keys() <= found
    for path, form in costs.FILES.items():
        text = costs._replaced(path.read_text(encoding="utf-8"), form, dict.fromkeys(found, 1_234))
        assert text.count("1234") + text.count("1_234") == len(found)


MEASURED = np.array(
    [[1, 2_000, 1, 2_000], [1, 200_000, 1, 200_000], [1, 200_000, 1, 10**6], [1, 10**5, 10**3, 10**5]]
)  # fmt: skip


def test_costs_are_fitted_to_what_was_measured():
    fit = costs._fitted("spark", MEASURED, MEASURED @ [1.5, 8e-6, 5e-4, 3e-6])
    constants = {"ms": 1500, "ns_member": 8000, "us_class": 500, "ns_range": 3000}
    assert fit.constants == {f"spark_{name}": value for name, value in constants.items()}
    assert fit.doubts() == []
    fit = costs._fitted_memory("local", MEASURED, MEASURED @ [0, 300, 0, 200] / costs.MIB)
    assert fit.constants == {"local_bytes_member": 300, "local_bytes_range": 200}
    assert fit.doubts() == []


@pytest.mark.parametrize(
    ("factors", "doubt"),
    [([0, 8e-6, 0, 3e-6], "spark_ms is 0"), ([1, 0, 0, 3e-6], "spark_ns_member is 0")],
)
def test_costs_that_cannot_be_are_no_fit(factors, doubt):
    (found,) = costs._fitted("spark", MEASURED, MEASURED @ factors).doubts()
    assert found.startswith(doubt)


def test_costs_far_from_what_was_measured_are_no_fit():
    """As beside other work: memory that is seen once and hidden the next time."""
    seen = MEASURED @ [0, 300, 0, 200] / costs.MIB
    fit = costs._fitted_memory("local", MEASURED, seen * [1, 1, 1, 9])
    assert any("from their fit" in doubt for doubt in fit.doubts())


def test_the_log_that_views_are_asked_about_says_who_got_what(tmp_path):
    views.write_log(tmp_path / "store", 40)
    history = frame(tmp_path / "store", "assignment_history")
    reasons = history["reason"].to_pylist()
    assert reasons.count("member joined") == 40
    assert len(reasons) == 60
    assert frame(tmp_path / "store", "groups")["state"].to_pylist() == ["Stable"]


def test_where_the_time_of_a_join_goes_is_known_by_parts(tmp_path):
    """The parts are in the whole, and nothing is timed any longer after it."""
    before = one_join.EventProcessor.run
    lines = [*one_join.profile(tmp_path / "store", 2_000, 2)]
    rows = [line.strip("| ").split(" | ") for line in lines if line.count(" | ") == 2]
    cpu = {name: float(ms) for name, ms, _ in rows if ms.replace(".", "").isdigit()}
    whole = cpu["the batch of the join"]
    decided, written = cpu["decide: steps, records replayed"], cpu["write: all of the commit"]
    assert 0 < decided < whole
    assert 0 < cpu["of that the data file"] < written < whole
    assert cpu["the assignor"] > 0
    assert one_join.EventProcessor.run is before
