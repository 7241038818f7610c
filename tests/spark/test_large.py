"""A million members: what the driver needs does not grow with members or ranges."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_million_members_in_two_gigabytes():
    """What is bounded: the JVM's heap, by -Xmx, with 2 million rows in and 1.1 million out.

    And Python's share. Of members and ranges only classes (10), topics (100), loads and samples
    (50 for each 250,000 rows) reach it; as Python objects a million rows would take hundreds of MB.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark.million", "2g"],
        cwd=ROOT,
        env=os.environ | {"SPARK_SUBMIT_OPTS": ""},  # a long run: optimising pays
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["members"], found["written"]) == (1_001_000, 100_000_000)
    assert (found["loads"]["min"], found["loads"]["max"]) == (99, 100)
    extras = 100_000_000 - 99 * 1_001_000
    assert found["moved"] == found["moved_minimum"] == 990_000 - extras  # owners of 100 that give 1
    assert found["rows_collected"] <= 1000
    assert found["python_mb"] < 60
    assert found["whole_windows"] == []
