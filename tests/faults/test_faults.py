"""One case of each fault of real processes and disks; `make faults` makes them again and again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from coordinator import Coordinator
from coordinator.cli.main import FAILURE, run_guarded
from coordinator.config import Config, EngineConfig, LeaseConfig
from coordinator.core.targets.compute_here import run_assignor
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.tables.table_io import BusyError
from coordinator.storage.target_table import targets_path
from spark_jobs.jobs import target_job
from spark_jobs.jobs.spark_engine import _failures_in_one_line
from tests.faults import (
    crash,
    damage,
    disk,
    drivers,
    drivers_here,
    plans,
    session,
    standby,
    weather,
    zombie,
)
from tests.faults.__main__ import SCENARIOS
from tests.faults.report import BEGIN, PAGE
from tests.faults.shards import nodes
from tests.support.longer import longer
from tests.support.members import WHILE_JOBS_RUN, Members, wait_for
from tests.support.table_engine import rows_of, write_rows


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def test_the_page_says_of_each_fault_what_is_done_and_promised():
    before_table, _ = PAGE.read_text(encoding="utf-8").split(BEGIN)
    for scenario in SCENARIOS.values():
        assert f"| {scenario.fault} |" in before_table


def test_faults_of_spark_jobs_replace_functions_that_are_there():
    missing = [name for name in session.REPLACED if not hasattr(target_job, name)]
    assert missing == []


def test_nothing_acknowledged_is_lost_when_coordinators_are_killed(store):
    crash.killed(store, seed=1, times=3)


def test_a_plan_is_applied_once_and_whole_when_coordinators_are_killed(store):
    plans.killed(store, seed=1, times=2)


def test_requests_to_s3_that_fail_lose_nothing(s3):
    weather.braved(s3, seed=1, times=12)


def test_a_woken_zombie_answers_not_coordinator_at_once(store):
    zombie.woken(store, seed=1, times=1)


def test_who_is_confirmed_by_the_one_before_loses_nothing_to_others(store):
    zombie.confirms(store, seed=1, times=1)


@longer("make faults")
def test_groups_of_nodes_that_fail_go_on_at_others_and_lose_nothing(store):
    nodes.broken_up(store, seed=1, times=3, more_s=60.0)  # of a machine that does much else


def test_one_of_two_stand_bys_takes_over(store):
    standby.two_wait(store, seed=1, times=1)


class SlowTopics(DictCatalog):
    """A catalog that takes longer than a lease lives; a load asks it."""

    def __init__(self):
        super().__init__({"a": 6})
        self.asked, self.answers = threading.Event(), threading.Event()

    def topics(self):
        self.asked.set()
        self.answers.wait(60)
        return super().topics()


def test_a_load_that_takes_long_keeps_the_store(store):
    config = Config(lease=LeaseConfig(ttl_ms=300, renew_ms=50))
    topics = SlowTopics()
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(Coordinator.open, store, config=config, topics=topics)
        assert topics.asked.wait(60)
        time.sleep(0.6)
        with pytest.raises(BusyError, match="is held by"):
            Coordinator.open(store, config=config, topics={}, takeover="refuse")
        topics.answers.set()
        opening.result().close()


@pytest.mark.parametrize("trouble", [disk.full, disk.read_only])
def test_a_disk_that_refuses_loses_nothing_and_service_goes_on(store, trouble):
    try:
        trouble(store, seed=1, times=1)
    except disk.NoDisk as error:
        pytest.skip(str(error))


def test_damage_is_named_or_costs_nothing(store):
    damage.damaged(store, seed=1, times=12)


OF_JAVA = (
    "An error occurred while calling o7.save.\n: a.b.SparkException: [WRITE] not written\n"
    "\tat a.b.c(D.scala:1)\nCaused by: java.io.IOException: No space left on device\n\tat e.f"
)
GIST = "a.b.SparkException: [WRITE] not written: java.io.IOException: No space left on device"


def test_a_spark_job_that_fails_says_so_in_one_line():
    with pytest.raises(RuntimeError) as error, _failures_in_one_line():
        raise Py4JError(OF_JAVA)
    assert str(error.value) == GIST


def test_a_command_that_spark_fails_says_so_in_one_line(capsys):
    def command():
        raise Py4JError(OF_JAVA)

    with pytest.raises(SystemExit) as end:
        run_guarded(command)
    assert end.value.code == FAILURE
    assert capsys.readouterr().err == f"muster: {GIST} (MUSTER_DEBUG=1 shows where)\n"


# Around the job, with an engine that delivers as Spark does -----------------------------------------


def opened(store, engine):
    spark = EngineConfig(engine="spark", driver_rows=0, max_failures=1_000, backoff_ms=10)
    config = Config(kafka=WHILE_JOBS_RUN, engine=spark)
    return Coordinator.open(store, topics={"a": 6}, config=config, engine=engine)


def test_of_two_jobs_for_one_group_one_is_installed(store, engine):
    with opened(store, engine) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        members.settle()
        engine.wrote.clear()
        engine.deliver.clear()
        members.join("m3")
        assert engine.wrote.wait(60)
        ((epoch, _),) = coordinator.group_epochs("g")
        job = engine.jobs[-1]
        ranges = run_assignor(job.input.spec(), job.options)
        write_rows(store, "g", epoch, "another", rows_of(ranges, job.input.topics))
        engine.deliver.set()
        owned = members.settle()
    assert sorted(map(len, owned.values())) == [2, 2, 2]
    with opened(store, engine) as coordinator:
        members.coordinator = coordinator
        assert members.settle() == owned


def test_a_full_disk_for_targets_takes_nothing_from_anybody(store, engine, caplog):
    store.mkdir()
    try:
        with (
            disk.small_disk(Path(targets_path(store)), mib=1) as small,
            opened(store, engine) as found,
        ):
            members = Members(found)
            members.join("m1", "m2")
            owned = members.settle()
            disk.fill(small, room=0)
            members.join("m3")
            wait_for(
                lambda: "target computation of group" in caplog.text and disk.FULL in caplog.text
            )
            members.beat()
            assert {m: members.owned[m]["a"] for m in owned} == owned
            disk.empty(small)
            assert sorted(map(len, members.settle().values())) == [2, 2, 2]
    except disk.NoDisk as error:
        pytest.skip(str(error))


@pytest.mark.spark
@pytest.mark.slow
@longer("make test-spark, make faults")
def test_a_driver_killed_between_the_two_commits_leaves_the_last_target(store):
    drivers.between(store, seed=1, times=1)


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_stopped_during_a_run_leaves_the_group_served(store):
    drivers.session_stopped(store, seed=2, times=1)  # at one stage: the rest is spared


@longer("make faults")
def test_a_driver_killed_while_it_assigns_a_group_leaves_the_last_target(store):
    drivers_here.killed(store, seed=1, times=3)


@longer("make faults")
def test_a_suspended_driver_holds_up_no_target_of_the_next_one(store):
    drivers_here.suspended(store, seed=1, times=1)
