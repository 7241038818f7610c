"""Spark Connect: a client without a JVM, and the server that comes with pyspark."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.jars import spark_jars
from tests.clients.foreign import python_packages
from tests.cluster.driver import MEMBERS, TOPICS
from tests.cluster.test_cluster import answers, drive, rows_in
from tests.conftest import ROOT
from tests.support.processes import running
from tests.support.spark.cluster import bare_python

LOCK = ROOT / "tests" / "cluster" / "connect.lock"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not os.environ.get("MUSTER_CLUSTER"), reason="needs grpcio: make test-cluster"
    ),
]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Server:
    """A Spark Connect server on a port of its own, whose Python finds modules in `path` too."""

    def __init__(self, folder, python, path=(), **confs):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.python, self._process = folder, python, ExitStack()
        self._confs, self._path = confs, path

    @property
    def url(self):
        return f"sc://127.0.0.1:{self.port}"

    def start(self):
        confs = {
            "spark.connect.grpc.binding.port": self.port,
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            **self._confs,
        }
        home = spark_jars().parent
        command = [home / "bin" / "spark-submit", "--master", "local[2]", "--properties-file"]
        command += [ROOT / "conf" / "spark-defaults.conf", "--class"]
        command += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [f"--conf={name}={value}" for name, value in confs.items()]
        env = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
        env |= {"PYSPARK_PYTHON": self.python, "SPARK_SUBMIT_OPTS": QUICK}
        env |= {"PYTHONPATH": os.pathsep.join(map(str, self._path))}
        with open(self.folder / "server.log", "ab") as log:
            command = running(
                [*command, "spark-internal"], cwd=self.folder, stdout=log, stderr=log,
                env=env, start_new_session=True,
            )  # fmt: skip
            self._process.enter_context(command)
        until = time.monotonic() + 200
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise TimeoutError((self.folder / "server.log").read_text()[-2000:])

    def kill(self):
        self._process.close()


@pytest.fixture(scope="module")
def packages():
    return python_packages("connect-py", LOCK)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder, bare_python(folder / "python"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def client(packages, server, tmp_path):
    """Run a driver, or Muster, as a client of the server."""
    env = {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}", "SPARK_REMOTE": server.url}

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "coordinator", *map(str, words)], cwd=tmp_path,
            env=os.environ | env, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip

    run.driver = lambda *stages: drive(
        server.url, tmp_path / "store", *stages, cwd=tmp_path, python="python3", **env
    )
    return run


def test_assignors_targets_views_and_cancelling(client):
    found = answers(client.driver("assign", "groups", "embed", "watch_cancel"))
    assert found["assign"] == dict.fromkeys(("range", "uniform", "sticky", "weighted"), True)
    assert found["groups"] == 18
    assert found["embed"] == {"owned": [3, 3], "rows": 2}
    assert (found["watch_cancel"]["ended"], found["watch_cancel"]["failed"]) == (True, True)


def test_nights_and_sql_through_a_server(client, tmp_path):
    write_deltalake(str(tmp_path / "members"), MEMBERS)
    write_deltalake(str(tmp_path / "topics"), TOPICS)
    words = ("--members", "members", "--topics", "topics", "--assignor", "sticky")
    for run_id in ("monday", "tuesday", "tuesday"):
        done = client("assign", *words, "--engine", "spark", "--output", "out", "--run-id", run_id)
        assert done.returncode == 0, done.stderr
    assert (json.loads(done.stdout)["version"], json.loads(done.stdout)["already_written"]) == (
        1, True,
    )  # fmt: skip
    assert (
        sum(row["partition_count"] for row in rows_in(tmp_path / "out"))
        == TOPICS["partitions"].to_pylist()[0]
    )
    write_deltalake(str(tmp_path / "many"), MEMBERS.append_column("group_id", pa.array([*"ggh"])))
    done = client("assign", "--members", "many", "--topics", "topics", "--engine", "spark")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["g", "h"]


def test_a_server_that_is_started_again(client, server):
    """The coordinator goes on; the computation that was lost is begun again in a new session."""
    process = client.driver("lasting")
    process.stdin.write("2\n")
    process.stdin.flush()
    for at in range(2):
        assert process.stdout.readline() == "joined\n"
        if at == 1:
            server.kill()
            time.sleep(1)
            server.start()
        assert process.stdout.readline() == "settled\n"
    assert answers(process)["lasting"] == {"owned": 60}
