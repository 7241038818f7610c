"""Targets computed on Spark for a coordinator: the same rows as the local engine's; faults."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from assignors import SpecError
from assignors.registry import ENTRY_POINTS
from coordinator import Coordinator
from coordinator.config import Config, EngineConfig, PlanConfig
from coordinator.core.events import ReportLoads
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import LoadsNoted, TargetMetadata
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.compute_here import run_assignor
from coordinator.engines.engine import LocalEngine
from coordinator.storage.state_loader import write_snapshot
from coordinator.storage.target_digest import digest_rows
from coordinator.storage.target_table import DIGEST, targets_path
from spark_jobs.jobs.spark_engine import SparkEngine
from tests.engines.test_assignor_options import TOPICS, subscriptions
from tests.engines.test_stored_targets import records
from tests.storage.test_store_modes import wrong
from tests.support.installed import install
from tests.support.longer import EVERY, longer
from tests.support.members import WHILE_JOBS_RUN, Members, join, log_of, wait_for
from tests.support.table_engine import TableEngine, target_basis

pytestmark = pytest.mark.spark
LONG = longer("the other assignor, as slow: make test-spark")
SPARK = Config(
    kafka=replace(WHILE_JOBS_RUN, assignors=("uniform", "range", "sticky", "weighted")),
    plan=PlanConfig(long_ranges=0),
    engine=EngineConfig(engine="spark", backoff_ms=10, driver_rows=0),
)
SMALL = replace(SPARK, engine=replace(SPARK.engine, driver_rows=EngineConfig().driver_rows))


def test_digest_equals_sparks(spark):
    """Text of every length, in any script; no number is too large."""
    from spark_jobs.jobs.target_job import count_and_digest

    rows = [("é☃x" * (n // 3) + "y" * (n % 3), "t" * n, n, 2**31 - 1 - n) for n in range(110)]
    schema = "member_id string, topic_id string, first_partition int, partition_count int"
    frame = spark.createDataFrame(rows, schema)
    assert count_and_digest(frame) == (110, digest_rows(frame.toArrow()))
    assert count_and_digest(frame.where("false")) == (0, 0)


class Compared(SparkEngine):
    """Also computes with NumPy, and keeps what both came to."""

    def __init__(self, spark, config):
        super().__init__(spark, config)
        self.pairs = []

    def compute(self, basis):
        ranges = run_assignor(basis.input.spec(basis.options.assignor), basis.options)
        found = super().compute(basis)
        whole = found.whole
        members = ranges.member_ids.to_pylist()
        ours = {m: {} for m in members} | {
            m: by_topic(whole.spans(m)) for m in members if whole.spans(m)
        }
        self.pairs.append((ours, ranges.to_dict(), found))
        return found


def by_topic(spans):
    found = {}
    for key, first, end in spans:
        found.setdefault(key.name, []).extend(range(first, end))
    return found


@pytest.fixture(params=[SPARK, SMALL], ids=["executors", "driver"])
def engine(spark, request):
    engine = Compared(spark, request.param)
    yield engine
    engine.close()


def opened(store, engine, topics, **fields):
    return Coordinator.open(store, topics=topics, config=SPARK, engine=engine, **fields)


def test_group_lifecycle_on_spark(tmp_path, engine):
    """Mixed subscriptions, regexes, static members, growing and dying topics, a snapshot between:
    whatever Spark reads from the store is what the coordinator has in memory."""
    from coordinator.runtime.topic_catalog import DictCatalog

    catalog = DictCatalog({"a": 7, "b": 12, "c": 5})
    store = tmp_path / "store"
    with opened(store, engine, catalog) as coordinator:
        members = Members(coordinator, 0.1)
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "local"})
        members.join("m1", topics=["a", "b"])
        members.join("m2", topics=["b", "gone"])
        members.settle()
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        members.join("s1", topics=["a"], instance_id="s")
        members.settle()
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "local"})
        members.join("m3", topics=["c"], server_assignor="sticky")  # a small one on top
        members.settle()
        write_snapshot(log_of(coordinator), 0)
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        catalog.set("b", 15)
        catalog.set("gone", 2)
        coordinator.refresh_topics()
        members.leave("m1")
        catalog.delete("a")
        coordinator.refresh_topics()
        members.join("m4", topics=["b", "c"])
        members.settle()
    assert len(engine.pairs) >= 2
    for ours, numpys, _ in engine.pairs:
        assert ours == numpys
    last = records(store, TargetMetadata)[-1]
    assert last.members == 4
    table = DeltaTable(store / "targets")
    digests = {commit.get(DIGEST) for commit in table.history() if commit["operation"] == "WRITE"}
    assert {
        str(record.stored.digest) for record in records(store, TargetMetadata) if record.stored
    } <= digests
    there = {
        path.relative_to(store / "targets").as_posix()
        for path in (store / "targets").glob("run-*/*")
    }
    assert there == {path.partition("/targets/")[2] for path in table.file_uris()}
    assert wrong(store, 0o700) == {}


def test_repeated_run_writes_nothing(tmp_path, spark):
    from spark_jobs.jobs.target_job import compute_on_spark

    with opened(tmp_path, LocalEngine(), {"a": 6}) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        members.settle()
    asked = target_basis(tmp_path, "my-run")
    first = compute_on_spark(spark, asked, SPARK)
    version = DeltaTable(targets_path(tmp_path)).version()
    assert compute_on_spark(spark, asked, SPARK) == first
    assert DeltaTable(targets_path(tmp_path)).version() == version == first.stored.version


def test_target_lost_while_the_coordinator_runs(tmp_path, engine):
    """The coordinator still knows it: the next one is made from what it has in memory."""
    other = TableEngine()
    with opened(tmp_path, other, {"a": 6}) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        owned = members.settle()
    other.close()
    with opened(tmp_path, engine, {"a": 6}) as coordinator:
        members = Members(coordinator, 0.1)
        members.epochs, members.owned = (
            dict.fromkeys(owned, 3),
            {m: {"a": had} for m, had in owned.items()},
        )
        shutil.rmtree(targets_path(tmp_path))
        members.join("m3")
        found = members.settle()
        assert all(set(found[m]) < set(owned[m]) for m in owned)


def test_cancelled_job_is_restarted(tmp_path, spark, monkeypatch):
    """Spark's jobs of the computation end at once; those of others go on."""
    from spark_jobs.jobs import target_job

    engine, began, let = SparkEngine(spark, SPARK), threading.Event(), threading.Event()
    counted = target_job.count_and_digest

    def slow(rows):
        if not let.is_set():
            began.set()
            spark.range(4).selectExpr("java_method('java.lang.Thread', 'sleep', 60000L)").collect()
        return counted(rows)

    monkeypatch.setattr(target_job, "count_and_digest", slow)
    with opened(tmp_path, engine, {"a": 6}) as coordinator:
        members = Members(coordinator, 0.1)
        members.join("m1")
        assert began.wait(120), "the job did not begin"
        wait_for(lambda: any(p.tasks for p in engine.progress()))
        (progress,) = engine.progress()
        assert str(progress).startswith("g: sorting 1 rows, 0 of ")
        let.set()
        assert coordinator.cancel_computation("g")
        assert members.settle() == {"m1": [0, 1, 2, 3, 4, 5]}
    engine.close()


@pytest.mark.parametrize("assignor", ["uniform", pytest.param("sticky", marks=LONG, id="sticky")])
def test_exact_edges_mean_the_same_on_spark(spark, assignor):
    """Whatever `plan.exact_edges` says, a group has the same rows on every engine."""
    config = replace(SPARK, plan=PlanConfig(exact_edges=0, long_ranges=0))
    engine, here, differs = SparkEngine(spark, config), LocalEngine(), 0
    seeds = (10, 18, 37) if EVERY else (10,)
    for seed in seeds:
        with Coordinator.open(None, topics=TOPICS, config=Config(kafka=WHILE_JOBS_RUN)) as group:
            for member, topics in subscriptions(seed).items():
                join(group, member, topics=topics, server_assignor="range")
            found = group._take_basis("g")
        asked = replace(found, options=AssignorOptions.of_target(assignor, {}, config))
        rows = engine.compute(asked).ranges.to_dict()
        assert rows == here.compute(asked).ranges.to_dict()
        by_default = replace(found, options=AssignorOptions.of_target(assignor, {}, SPARK))
        differs += rows != here.compute(by_default).ranges.to_dict()
    engine.close()
    assert differs == len(seeds), "groups to which the setting makes no difference show nothing"


def test_a_weighted_group_goes_to_spark(tmp_path, spark):
    """Where the engine is Spark it has weights too, and gives what NumPy gives."""
    engine = Compared(spark, SPARK)
    with opened(tmp_path, engine, {"a": 6}) as coordinator:
        members = Members(coordinator, 0.1)
        coordinator.alter_group_config("g", {"consumer.assignor.engine": "spark"})
        members.join("m1", server_assignor="weighted")
        members.settle()
        loads = LoadsNoted("g", weights=(TopicWeights("a", (9.0, 1, 1, 1, 1, 1)),))
        coordinator._loop.submit([ReportLoads(loads)]).result()
        members.join("m2", server_assignor="weighted")
        owned = members.settle()
    assert sorted(map(len, owned.values())) == [1, 5]
    ours, numpys, found = engine.pairs[-1]
    assert ours == numpys
    assert (found.assignor, found.stored.members) == ("weighted", 2)
    assert records(tmp_path, TargetMetadata)[-1].assignor == "weighted"


class SparkAskedError(Exception):
    """The session was used."""


class NoSession:
    """Stands for a session that has no work to do."""

    def __getattr__(self, name):
        raise SparkAskedError(name)


HERE = replace(SMALL.engine, local_mib_max=1)
ELSEWHERE = {
    "driver_rows is 0": ("uniform", replace(HERE, driver_rows=0)),
    "it does not fit": ("uniform", replace(HERE, local_mib_max=0)),
    "each member may have each topic": ("range", replace(HERE, driver_rows=2 * len(TOPICS) - 1)),
    "it has weights": ("weighted", HERE),
}


@pytest.mark.parametrize(
    ("assignor", "engine", "here"),
    [
        pytest.param("uniform", HERE, True, id="uniform"),
        pytest.param("range", replace(HERE, driver_rows=2 * len(TOPICS)), True, id="range"),
        *[pytest.param(*which, False, id=name) for name, which in ELSEWHERE.items()],
    ],
)
def test_a_group_that_fits_is_assigned_without_spark(assignor, engine, here):
    """To send it there and back takes several times as long."""
    config = replace(SPARK, engine=engine)
    with Coordinator.open(None, topics=TOPICS, config=Config(kafka=WHILE_JOBS_RUN)) as group:
        for member in ("m1", "m2"):
            join(group, member, topics=list(TOPICS))
        found = group._take_basis("g")
    asked = replace(found, options=AssignorOptions.of_target(assignor, {}, config))
    computes = SparkEngine(NoSession(), config)
    if here:
        assert computes.compute(asked).ranges == LocalEngine().compute(asked).ranges
    else:
        with pytest.raises(SparkAskedError):
            computes.compute(asked)


DECLARED = """
from assignors.uniform import UniformAssignor

class Made(UniformAssignor):
    spark_twin = "{twin}"
"""


@pytest.mark.parametrize(("name", "twin"), [("framed", "TWIN"), ("lost", "NONE")])
def test_spark_runs_the_twin_that_an_assignor_declares(tmp_path, monkeypatch, spark, name, twin):
    """A path that leads nowhere is refused, with what to do."""
    source = DECLARED.format(twin=f"spark_jobs.assignors.uniform:{twin}")
    install(tmp_path, monkeypatch, ENTRY_POINTS, name, source)
    engine = SparkEngine(spark, SPARK)
    assert name in engine.assignors
    with Coordinator.open(None, topics={"a": 3}, config=Config(kafka=WHILE_JOBS_RUN)) as group:
        join(group, "m1", topics=["a"])
        found = group._take_basis("g")
    asked = replace(found, options=AssignorOptions.of_target(name, {}, SPARK))
    if name == "lost":
        with pytest.raises(SpecError, match=r"'lost': its twin on Spark, .*NONE.* --engine local"):
            engine.compute(asked)
    else:
        assert engine.compute(asked).ranges.to_dict() == {"m1": {"a": [0, 1, 2]}}
    engine.close()
