"""Many tables divided over drivers by last night's durations: the example, without Spark."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from coordinator.config import WeightsConfig
from tests.conftest import ROOT
from tests.member.runs import QUICK

TABLES = [f"table{number:02}" for number in range(40)]
SLOW = TABLES[:4]
CONFIG = replace(QUICK, weights=WeightsConfig(poll_ms=100, half_life_ms=0, interval_ms=100))


def example(name):
    place = ROOT / "examples/many_tables" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"many_tables_{name}", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_scripts_hide_no_package():
    """A script's folder is the first that Python looks in: one named as a package would be it."""
    ours = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()}
    assert "coordinator" in ours
    assert [one for one in ROOT.glob("examples/**/*.py") if one.stem in ours] == []


def run_night(store, night, drivers, ingest):
    """Let drivers divide the tables; return what each did."""
    driver, done = example("driver"), {}
    with example("coordinate").coordinate(str(store), len(TABLES), CONFIG) as coordinator:
        threads = [
            threading.Thread(
                target=lambda n=number: done.update(
                    {n: driver.drive(coordinator, TABLES, night, ingest, look_s=0.1)}
                )
            )
            for number in range(drivers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    return done


def test_each_table_is_done_once_a_night_and_slow_ones_are_apart(tmp_path):
    times = Counter()

    def ingest(table):
        times[table] += 1
        time.sleep(0.4 if table in SLOW else 0.01)

    first = run_night(tmp_path / "store", 1, 4, ingest)
    assert sorted(table for done in first.values() for table in done) == TABLES
    weights = example("coordinate").last_durations(str(tmp_path / "store")).partitions
    seconds = dict(
        zip(weights["partition"].to_pylist(), weights["weight"].to_pylist(), strict=True)
    )
    assert min(seconds[number] for number in range(4)) >= 0.4
    second = run_night(tmp_path / "store", 2, 4, ingest)
    assert sorted(table for done in second.values() for table in done) == TABLES
    assert set(times.values()) == {2}


def test_the_weights_of_last_night_divide_the_tables(tmp_path):
    """All drivers are there before the first begins: each of the slow tables has another owner."""
    owners = {}
    run_night(tmp_path / "store", 1, 1, lambda t: time.sleep(0.3 if t in SLOW else 0.001))
    driver = example("driver")
    with example("coordinate").coordinate(str(tmp_path / "store"), len(TABLES), CONFIG) as opened:
        members = [
            driver.Member(opened, group_id="nightly", topics="tables", server_assignor="weighted")
            for _ in range(4)
        ]
        for member in members:
            member.open()
        try:
            until = time.monotonic() + 20
            while time.monotonic() < until:
                owners = {
                    number: sum(place.partition < 4 for place in member.owned)
                    for number, member in enumerate(members)
                }
                if set(owners.values()) == {1}:
                    break
                time.sleep(0.05)
        finally:
            for member in members:
                member.leave()
    assert set(owners.values()) == {1}


def test_a_table_that_fails_ends_its_driver_and_another_does_it(tmp_path):
    failed = []

    def ingest(table):
        if table == TABLES[7] and not failed:
            failed.append(table)
            raise OSError("disk full")

    driver, done = example("driver"), []
    with example("coordinate").coordinate(str(tmp_path / "store"), len(TABLES), CONFIG) as opened:
        with pytest.raises(OSError, match="disk full"):
            driver.drive(opened, TABLES, 1, ingest, look_s=0.1)
        done += driver.drive(opened, TABLES, 1, ingest, look_s=0.1)
    assert TABLES[7] in done
