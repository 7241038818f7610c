"""A million members: what the driver needs does not grow with members or ranges."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.longer import longer

pytestmark = [pytest.mark.spark, pytest.mark.slow]


SIZES = [(20_000, "1g"), (1_000_000, "2g")]


@longer("takes minutes: make test-spark")
@pytest.mark.parametrize(("owners", "heap"), SIZES)
def test_many_members_in_little_memory(owners, heap):
    """What is bounded: the JVM's heap, by -Xmx: of a million, 2 million rows come in and 1.1 million
    go out.

    And Python's share. Of members and ranges only classes (10), topics (100), loads and samples
    (100 for each 250,000 rows) reach it; as Python objects a million rows would take hundreds of MB.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark.million", str(owners), heap],
        cwd=ROOT,
        env=os.environ | {"SPARK_SUBMIT_OPTS": ""},  # a long run: optimising pays
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["members"], found["written"]) == (owners * 1001 // 1000, 100 * owners)
    assert (found["loads"]["min"], found["loads"]["max"]) == (99, 100)
    extras = 100 * owners - 99 * found["members"]
    assert (
        found["moved"] == found["moved_minimum"] == owners * 99 // 100 - extras
    )  # owners of 100 that give 1
    assert found["rows_collected"] <= 1500
    assert found["python_mb"] < 60
    assert found["whole_windows"] == []
