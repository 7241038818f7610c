"""A group's target planned and applied by a Spark job of its own, which never writes the log."""

from __future__ import annotations

import json
import threading

import pytest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.core.state.records import TargetMetadata
from coordinator.storage.delta_log import read_log
from coordinator.storage.inbox import Inbox
from tests.support.members import WHILE_JOBS_RUN, Members

pytestmark = pytest.mark.spark
CONFIG = Config(kafka=WHILE_JOBS_RUN, engine=EngineConfig(engine="spark"))


@pytest.fixture
def engine(engine):
    """Whatever the coordinator wants to have computed does not come."""
    engine.let.clear()
    return engine


def installed(store):
    return [r for b in read_log(store) for r in b.records if isinstance(r, TargetMetadata)]


def test_live_coordinator_installs_a_jobs_target(spark, tmp_path, engine):
    from spark_jobs.jobs.assign_store import StoreJob, assign_store

    wanted = StoreJob(str(tmp_path), "g", run_id="monday")
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG, engine=engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        done = assign_store(wanted, CONFIG)
        assert (done["verdict"], done["members"], done["placed"]) == ("accepted", 2, 6)
        assert sorted(map(len, members.settle().values())) == [3, 3]
        again = assign_store(wanted, CONFIG)
        assert again == {"run_id": "monday", "already_judged": True, "verdict": "accepted"}
        idle = assign_store(StoreJob(str(tmp_path), "g"), CONFIG)
        assert (idle["verdict"], idle["group_epoch"]) == ("nothing to compute", done["group_epoch"])
    assert [r.plan_id for r in installed(tmp_path) if r.plan_id] == [done["plan_id"]]


def test_of_two_jobs_one_is_installed_and_one_refused(spark, tmp_path, engine):
    from spark_jobs.jobs.assign_store import StoreJob, assign_store

    outcomes = {}

    def job(name):
        try:
            outcomes[name] = assign_store(StoreJob(str(tmp_path), "g", run_id=name), CONFIG)[
                "verdict"
            ]
        except RuntimeError as error:
            outcomes[name] = str(error)

    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG, engine=engine) as coordinator:
        Members(coordinator).join("m1", "m2")
        both = [threading.Thread(target=job, args=(name,)) for name in ("one", "two")]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    accepted, refused = sorted(outcomes.values())
    assert accepted == "accepted"
    assert "is for another state of group g" in refused


def test_job_without_a_coordinator_opens_one(spark, tmp_path, engine, muster_here):
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG, engine=engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
    done = muster_here("assign", "--store", tmp_path, "--group", "g", "--assignor", "range")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "accepted"
    assert Inbox(tmp_path).waiting() == []
    assert not (tmp_path / "_lease.json").exists()
    assert installed(tmp_path)[-1].assignor == "range"
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG, engine=engine) as coordinator:
        members.coordinator = coordinator
        assert members.settle() == {"m1": [0, 1, 2], "m2": [3, 4, 5]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--group", "g"], "--store and --group require each other"),
        (["--store", "nowhere", "--group", "g"], "nowhere"),
        (["--store", "store", "--group", "nobody"], "group 'nobody' is not in"),
        (["--store", "store", "--group", "g", "--engine", "local"], "--engine local"),
        (["--store", "store", "--group", "g", "--topics", "t"], "read their input from the store"),
    ],
)
def test_bad_input_is_refused(tmp_path, muster_here, words, said):
    with Coordinator.open(tmp_path / "store", topics={"a": 6}) as coordinator:
        Members(coordinator).join("m1")
    done = muster_here("assign", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert not (tmp_path / "store" / "inbox").exists()
