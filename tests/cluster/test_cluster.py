"""Clusters: executors in processes of their own, whose Python knows nothing of Muster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from assignors import GroupSpec, get_assignor
from coordinator import Coordinator
from coordinator.storage.tables.table_io import read_delta
from spark_jobs.jars import spark_jars
from spark_jobs.session.package_files import PACKAGE
from tests.cluster.driver import SMALL
from tests.conftest import ROOT
from tests.spark.test_target_job import SPARK
from tests.support.members import Members
from tests.support.processes import start
from tests.support.spark.cluster import Cluster, bare_python, can_hide, spark_home
from tests.support.spark.groups import ORDER, crowd, tables
from tests.support.table_engine import TableEngine

LONG = pytest.mark.skipif(
    not os.environ.get("MUSTER_CLUSTER"), reason="starts a cluster: make test-cluster"
)
pytestmark = [pytest.mark.spark, pytest.mark.slow]
CONFS = [f"{name}={value}" for name, value in SMALL.items()]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return bare_python(tmp_path_factory.mktemp("python") / "bare")


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster.start(tmp_path / "cluster")
    yield cluster
    cluster.stop()


@pytest.fixture
def given(tmp_path):
    made = tables(crowd(4, members=300, classes=2), seed=4)
    for name, table in zip(("members", "topics", "owned"), made, strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return made


def drive(*words, cwd, python, timeout=400, **kwargs):
    command = [sys.executable, "-m", "tests.cluster.driver", *map(str, words)]
    env = os.environ | {"PYSPARK_PYTHON": python, "PYTHONPATH": str(ROOT)}
    return start(
        command, cwd=cwd, env=env | kwargs, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answers(process, timeout=400):
    said, failed = process.communicate(timeout=timeout)
    assert process.returncode == 0, failed[-3000:]
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {name: value for answer in found for name, value in answer.items()}


def submit(cluster, python, cwd, *words, confs=(), **env):
    """README's command, from a folder that no worker has."""
    settings = [f"--conf={conf}" for conf in (*CONFS, f"spark.pyspark.python={python}", *confs)]
    settings += [f"--conf=spark.pyspark.driver.python={sys.executable}", "--master", cluster.url]
    settings += ["--properties-file", str(ROOT / "conf" / "spark-defaults.conf")]
    command = [spark_jars().parent / "bin" / "spark-submit", *settings, PACKAGE / "assign.py"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return start(
        [*command, *words], cwd=cwd, env=plain | env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process, timeout=900):
    """Return the exit code, and all that was said: spark-submit passes errors on as output."""
    said, failed = process.communicate(timeout=timeout)
    return process.returncode, said + failed


def answer(said):
    (line,) = (line for line in said.splitlines() if line.startswith("{"))
    return json.loads(line)


def night(output, *more):
    words = ["--members", "members.parquet", "--topics", "topics.parquet", "--owned"]
    return [*words, "owned.parquet", "--output", output, "--assignor", "sticky", *more]


def rows_in(folder):
    return read_delta(DeltaTable(folder)).sort_by(ORDER).to_pylist()


def expected(given):
    assigned = get_assignor("sticky").assign(GroupSpec.from_arrow(*given))
    return assigned.to_arrow().sort_by(ORDER).to_pylist()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("groups", 18),
        pytest.param("embed", {"owned": [3, 3], "rows": 2}, marks=LONG, id="embed"),
    ],
)
def test_executors_need_no_muster(does, said, tmp_path, python):
    """The short form: two executors, their Python without Muster, targets and views by URL."""
    home = spark_home(tmp_path / "spark")
    words = ("local-cluster[2,1,1024]", tmp_path / "store", does)
    assert answers(drive(*words, cwd=tmp_path, python=python, SPARK_HOME=str(home))) == {does: said}
    assert len(list((home / "work").glob("app-*/*"))) == 2  # both had an executor


@LONG
def test_nights_on_a_cluster(cluster, python, given, tmp_path):
    for run_id in ("monday", "monday"):
        code, said = result(submit(cluster, python, tmp_path, *night("out", "--run-id", run_id)))
        assert code == 0, said
    assert (answer(said)["version"], answer(said)["already_written"]) == (0, True)
    assert rows_in(tmp_path / "out") == expected(given)
    both = [
        submit(cluster, python, tmp_path, *night("out"), confs=["spark.cores.max=1"])
        for _ in range(2)
    ]
    ends = [result(process) for process in both]
    assert sorted(code for code, _ in ends) in ([0, 0], [0, 3])  # one after the other, or locked
    assert all("is being written by" in said for code, said in ends if code), ends
    assert rows_in(tmp_path / "out") == expected(given)


@LONG
def test_a_night_outlives_its_executors(cluster, python, given, tmp_path):
    """Kill -9 of an executor, then of a worker with its executor, in the middle."""
    settings = tmp_path / "muster.toml"
    settings.write_text(
        "[engine]\ndriver_rows = 0\n[plan]\nlong_ranges = 0\n"
    )  # else executors only read
    process = submit(cluster, python, tmp_path, *night("out", "--config", settings))
    for kill in (cluster.kill_executors, cluster.kill_worker):
        while process.poll() is None and not cluster.executors(1):
            time.sleep(0.05)
        time.sleep(8)
        assert process.poll() is None, "it was too quick to be hurt"
        kill(1)
    code, said = result(process)
    assert code == 0, said
    assert rows_in(tmp_path / "out") == expected(given)


@LONG
def test_a_job_proposes_a_target(cluster, python, tmp_path):
    idle = TableEngine()
    idle.let.clear()
    with Coordinator.open(tmp_path / "store", topics={"a": 7}, config=SPARK, engine=idle) as opened:
        members = Members(opened)
        members.join("m1", "m2")
        code, said = result(submit(cluster, python, tmp_path, "--store", "store", "--group", "g"))
        assert code == 0, said
        assert answer(said)["verdict"] == "accepted"
        assert sorted(map(len, members.settle().values())) == [3, 4]
    idle.close()


@LONG
def test_a_cluster_without_free_cores_is_reported(cluster, python, tmp_path):
    """Another application had all cores, and the job waited in silence until its timeout."""
    words = (cluster.url, tmp_path / "other", "hold_cores")
    with drive(*words, cwd=tmp_path, python=python) as greedy:
        assert greedy.stdout.readline() == "holds\n"
        with Coordinator.open(tmp_path / "store", topics={"a": 7}, config=SPARK) as opened:
            Members(opened).join("m1")
        settings = tmp_path / "muster.toml"
        settings.write_text("[engine]\ntimeout_ms = 20000\n")
        words = ("--store", "store", "--group", "g", "--config", settings)
        code, said = result(submit(cluster, python, tmp_path, *words))
        greedy.kill()
    assert code == 3, said
    lines = [line for line in said.splitlines() if "no executor of" in line]
    assert len(lines) == 2, said  # once after 15 s, and in the end
    assert f"muster: no executor of {cluster.url} runs a task" in lines[-1]
    assert lines[-1].endswith("given up after 20 s")


@LONG
@pytest.mark.skipif(not can_hide(), reason="needs the right to mount: run it as root")
def test_a_folder_that_executors_do_not_see_is_refused(python, given, tmp_path):
    driver = tmp_path / "driver"
    driver.mkdir()
    for name in ("members", "topics", "owned"):
        (tmp_path / f"{name}.parquet").rename(driver / f"{name}.parquet")
    cluster = Cluster.start(tmp_path / "cluster", hidden=driver)
    try:
        code, said = result(submit(cluster, python, driver, *night("out")))
        assert code == 2, said
        assert "muster: members.parquet is on this machine's disk, and executors of" in said
        for name in ("members", "topics", "owned"):
            (driver / f"{name}.parquet").rename(tmp_path / f"{name}.parquet")
        words = [
            str(tmp_path / word) if word.endswith(".parquet") else word for word in night("out")
        ]
        code, said = result(submit(cluster, python, driver, *words))
        assert code == 2, said
        assert f"muster: {driver}/muster-" in said
        assert sorted(os.listdir(driver)) == ["_locks"]  # nothing is half written
    finally:
        cluster.stop()


@LONG
def test_executors_whose_python_lacks_something(cluster, tmp_path, given):
    groups = given[0].append_column("group_id", given[0]["member_id"])
    pq.write_table(groups, tmp_path / "members.parquet")
    words = ["--members", "members.parquet", "--topics", "topics.parquet", "--output", "out"]
    pythons = {
        "has no pyarrow": bare_python(tmp_path / "bare", "pyarrow"),
        "have no Python at /nowhere/python3": "/nowhere/python3",
    }
    for lacking, other in pythons.items():
        code, said = result(submit(cluster, other, tmp_path, *words))
        assert code == 2, said
        (lines,) = (line for line in said.splitlines() if line.startswith("muster: "))
        assert lacking in lines
        assert not (tmp_path / "out").exists()


@LONG
def test_targets_outlive_executors(cluster, python, tmp_path):
    process = drive(cluster.url, tmp_path / "store", "lasting", cwd=tmp_path, python=python)
    process.stdin.write("3\n")
    process.stdin.flush()
    for at in range(3):
        assert process.stdout.readline() == "joined\n"
        time.sleep(2)
        (cluster.kill_worker if at == 2 else cluster.kill_executors)(1)
        assert process.stdout.readline() == "settled\n"
    assert answers(process)["lasting"] == {"owned": 60}
