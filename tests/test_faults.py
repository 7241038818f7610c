"""One case of each fault of real processes and disks; `make faults` makes them again and again."""

from __future__ import annotations

import sys

import pytest
from conftest import ROOT
from py4j.protocol import Py4JError

from spark_jobs.engine import _failures_in_one_line

sys.path.insert(0, str(ROOT))
from tests.faults import crash, damage, disk, drivers, standby, zombie


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def test_nothing_acknowledged_is_lost_when_coordinators_are_killed(store):
    crash.killed(store, seed=1, times=3)


def test_a_woken_zombie_answers_not_coordinator_at_once(store):
    zombie.woken(store, seed=1, times=1)


def test_who_is_confirmed_by_the_one_before_loses_nothing_to_others(store):
    zombie.confirms(store, seed=4, times=1)


def test_one_of_two_stand_bys_takes_over(store):
    standby.two_wait(store, seed=1, times=1)


@pytest.mark.parametrize("trouble", [disk.full, disk.read_only])
def test_a_disk_that_refuses_loses_nothing_and_service_goes_on(store, trouble):
    try:
        trouble(store, seed=1, times=1)
    except disk.NoDisk as error:
        pytest.skip(str(error))


def test_damage_is_named_or_costs_nothing(store):
    damage.damaged(store, seed=1, times=12)


def test_a_spark_job_that_fails_says_so_in_one_line():
    text = (
        "An error occurred while calling o7.save.\n: a.b.SparkException: [WRITE] not written\n"
        "\tat a.b.c(D.scala:1)\nCaused by: java.io.IOException: No space left on device\n\tat e.f"
    )
    with pytest.raises(RuntimeError) as error, _failures_in_one_line():
        raise Py4JError(text)
    assert str(error.value) == (
        "a.b.SparkException: [WRITE] not written: java.io.IOException: No space left on device"
    )


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_killed_between_the_two_commits_leaves_the_last_target(store):
    drivers.between(store, seed=1, times=1)
