"""Spark Connect: a client's listener on a real Kafka, and a client that has no Muster.

`make test-kafka`; the client's packages come from PyPI once, as for `make test-cluster`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from coordinator import Coordinator
from coordinator.history import frame
from tests.clients.foreign import python_packages
from tests.clients.kafka_broker import Kafka
from tests.cluster.test_connect import LOCK, Server
from tests.conftest import ROOT
from tests.streams.kafka import describe, produce
from tests.support.members import join
from tests.support.spark.cluster import bare_python
from tests.support.spark.kafka_jars import kafka_source_jars

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
READ = """
import importlib.util, sys
from pyspark.sql import SparkSession
assert importlib.util.find_spec("coordinator") is None
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = spark.read.format("muster").option("view", "epochs").load(sys.argv[2])
sys.stdout.write(str(sorted((row.group_id, row.group_epoch) for row in rows.collect())))
"""
LISTEN = """
import sys
import muster
from pyspark.sql import SparkSession
_, url, kafka, folder = sys.argv
spark = SparkSession.builder.remote(url).getOrCreate()
listener = muster.GroupOffsets(kafka, group_id="billing")
spark.streams.addListener(listener)
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
rows = rows.option("subscribe", "clicks").option("startingOffsets", "earliest").load()
query = rows.writeStream.format("noop").trigger(availableNow=True)
query.option("checkpointLocation", folder).start().awaitTermination()
spark.stop()
"""


@pytest.fixture(scope="module")
def packages():
    return python_packages("connect-py", LOCK)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server whose Python has Muster in a folder of its path, as where the wheel is installed.

    Spark looks through folders for sources: it finds nothing of a clone that an import hook adds.
    """
    jars = {"spark.jars": ",".join(map(str, kafka_source_jars()))}
    server = Server(tmp_path_factory.mktemp("server"), sys.executable, [ROOT], **jars)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def run(python, script, *words, path):
    done = subprocess.run(
        [python, "-P", "-c", script, *map(str, words)], capture_output=True, text=True, timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_a_client_that_has_no_muster_reads_views(server, packages, tmp_path):
    with Coordinator.open(tmp_path / "store", topics={"clicks": 6}) as coordinator:
        for member in ("ann", "bob"):
            join(coordinator, member, ["clicks"], "billing")
    python, site = bare_python(tmp_path / "python"), tmp_path / "site"
    site.mkdir()
    for package in (pyspark, py4j):
        (site / package.__name__).symlink_to(Path(package.__file__).parent)
    said = run(python, READ, server.url, tmp_path / "store", path=[site, packages])
    epochs = frame(tmp_path / "store", "epochs")
    names = zip(epochs["group_id"].to_pylist(), epochs["group_epoch"].to_pylist(), strict=True)
    assert said == str(sorted(names))
    assert "billing" in said


def test_the_listener_runs_in_the_client(server, packages, tmp_path):
    with Kafka(tmp_path / "kafka", {"clicks": 2}) as kafka:
        produce(kafka.address, "clicks", {0: 30, 1: 12})
        words = server.url, kafka.address, tmp_path / "checkpoint"
        run(sys.executable, LISTEN, *words, path=[packages, ROOT])
        assert describe(kafka.address, "billing") == {"clicks-0": (30, 0), "clicks-1": (12, 0)}
