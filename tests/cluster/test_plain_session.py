"""`format("muster")` where Spark is not ours: no Delta, no settings, a store on a disk or in S3.

`make test-matrix` runs this on a Spark for which there is no Delta yet, with the wheel alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.history import frame
from tests.support.longer import longer
from tests.support.members import join

pytestmark = pytest.mark.spark
LONG = longer("a JVM more, in test_s3.py too: make test-spark")
SCRIPT = Path(__file__).with_name("plain_session.py")


def filled(store):
    """Return a store's address once a group has lived in it."""
    with Coordinator.open(store, topics={"clicks": 6}) as coordinator:
        for member in ("ann", "bob"):
            join(coordinator, member, ["clicks"], "billing")
    return str(store)


def read(store, installed, folder):
    """Run the program away from the sources; return what it printed."""
    hidden = (
        "PYSPARK_SUBMIT_ARGS",
        "PYTHONPATH",
    )  # SPARK_SUBMIT_OPTS only make the JVM start sooner
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), store], capture_output=True, text=True, timeout=180,
        cwd=folder, env=env | installed | {"PYSPARK_PYTHON": sys.executable}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


def expected(store):
    """Return the same rows without Spark."""
    epochs = frame(store, "epochs").select(["group_id", "group_epoch"]).to_pylist()
    audit = frame(store, "audit").num_rows
    return {"epochs": sorted(list(row.values()) for row in epochs), "audit": audit}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=LONG, id="s3")])
def test_a_store_in_a_session_that_is_not_ours(where, tmp_path, installed, request):
    store = tmp_path / "a störe" if where == "disk" else request.getfixturevalue("s3").new_store()
    address = filled(store)
    found = read(address, installed, tmp_path)
    assert found == expected(address)
    assert found["epochs"]
