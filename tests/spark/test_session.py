"""Sessions start whatever the state of the user's folders, and say in one line what is missing."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from hashlib import sha256
from importlib import metadata

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql.functions import col

from spark_jobs import jars
from spark_jobs.session.session import ERROR_LOGGERS, active_tasks
from tests.support.longer import longer

CLOSED = "127.0.0.1 -Dhttps.proxyPort=9"

SESSION = """
import sys
import tempfile
from spark_jobs import jars
from spark_jobs.session import spark_session
jars.in_spark = lambda: False  # as in an environment that `make setup` did not make
spark = spark_session("session", "local[1]", {"spark.driver.memory": "512m"})
spark.range(3).write.format("delta").save(sys.argv[1])
print(spark.read.format("delta").load(sys.argv[1]).count())
"""


def run(*words, **env):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def listing(folder):
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.fixture
def broken_home(tmp_path):
    """~/.m2 with a pom but no jar, ~/.ivy2 with unreadable settings."""
    home = tmp_path / "home"
    group, name, version = jars.fitting(jars.own_jars()).artifact
    module = home.joinpath(".m2", "repository", *group.split("."), name, version)
    module.mkdir(parents=True)
    (module / f"{name}-{version}.pom").write_text("<project>")
    for ivy in (".ivy2", ".ivy2.5.2"):
        (home / ivy).mkdir()
        (home / ivy / "ivysettings.xml").write_text("<ivysettings>")
        (home / ivy / "cache").write_text("a file where a folder should be")
    return home


@pytest.fixture
def filled_cache(tmp_path):
    """What Ivy fetched at set-up, but no jars yet: they are resolved again, without a network."""
    fetched = jars.cache_folder() / "ivy"
    if not fetched.is_dir():
        pytest.skip("Ivy's cache is not here: make setup fills it")
    cache = tmp_path / "cache"
    (cache / "ivy").mkdir(parents=True)
    for module in fetched.iterdir():
        if module.is_dir():
            (cache / "ivy" / module.name).symlink_to(module)
    return cache


@pytest.mark.spark
@longer("starts a JVM of its own: make test-spark")
def test_incomplete_maven_folder_does_no_harm(broken_home, filled_cache, tmp_path):
    before = listing(broken_home)
    options = f"-Duser.home={broken_home} -Dhttps.proxyHost={CLOSED}"
    env = {"HOME": str(broken_home), "MUSTER_CACHE": str(filled_cache)}
    done = run("-c", SESSION, tmp_path / "table", JAVA_TOOL_OPTIONS=options, **env)
    assert done.stdout == "3\n", done.stderr
    assert (tmp_path / "table" / "_delta_log").is_dir()
    assert listing(broken_home) == before
    found = {path.name for path in (filled_cache / "jars").rglob("*.jar")}
    assert found == set(jars.fitting(jars.own_jars()).digests)


@pytest.mark.spark
def test_offline_without_a_cache_is_an_error(tmp_path):
    env = {"MUSTER_CACHE": str(tmp_path), "JAVA_TOOL_OPTIONS": f"-Dhttps.proxyHost={CLOSED}"}
    done = run("-m", "spark_jobs.jars", "--print", **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"muster: Delta's jars are not cached in {tmp_path}")
    assert "Connection refused" in done.stderr
    assert "run once with a network" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.jar"))


@pytest.fixture
def central(tmp_path, monkeypatch):
    """A stand-in for Ivy and Maven Central: fetches files with the right names."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('-retrieve') + 1]).parent\n"
        f"for name in {sorted(jars.fitting(jars.own_jars()).digests)}:\n"
        "    (folder / name).write_bytes(name.encode())\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_jar_with_another_checksum_is_refused(central):
    with pytest.raises(
        jars.JarsMissingError, match=r"has sha256 .*, but the lock says .*: it is not used"
    ):
        jars.delta_jars()
    assert not list(central.rglob("*.jar"))


def test_jars_are_downloaded_once(central, monkeypatch):
    known = jars.fitting(jars.own_jars())
    digests = {name: sha256(name.encode()).hexdigest() for name in known.digests}
    monkeypatch.setattr(jars, "fitting", lambda _: replace(known, digests=digests))
    found = jars.delta_jars()
    assert [path.name for path in found] == list(digests)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert jars.delta_jars() == found  # neither Java nor a network now


def spark_of(folder, version):
    """A Spark of some version, as far as the names of its jars say."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder / "jars"


@pytest.mark.parametrize(
    ("spark", "delta", "jar"),
    [
        ("4.0.0", "4.0.0", "delta-spark_2.13-4.0.1.jar"),
        ("4.0.5", "4.4.1", "delta-spark_2.13-4.0.1.jar"),
        ("4.1.1", "4.3.1", "delta-spark_4.1_2.13-4.3.1.jar"),
        ("4.1.0", "4.1.0", "delta-spark_4.1_2.13-4.3.1.jar"),
        ("4.1.4", "4.4.1", "delta-spark_4.1_2.13-4.4.0.jar"),
        ("4.1.4", None, "delta-spark_4.1_2.13-4.4.0.jar"),
        ("4.2.0", "4.4.0", "delta-spark_4.2_2.13-4.4.0.jar"),
        ("4.2.1", "4.3.1", "delta-spark_4.2_2.13-4.4.0.jar"),
    ],
)
def test_delta_version_fits_the_spark_version(tmp_path, monkeypatch, spark, delta, jar):
    def installed(name):
        if delta is None:
            raise metadata.PackageNotFoundError(name)
        return delta

    monkeypatch.setattr(metadata, "version", installed)
    assert jar in jars.fitting(spark_of(tmp_path, spark)).digests


def test_unknown_spark_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    spark_of(tmp_path, "3.5.6")
    assert not jars.in_spark()
    with pytest.raises(
        jars.JarsMissingError, match=r"Spark 3\.5\.6 in .* for Spark 4\.0, 4\.1 and 4\.2: put"
    ):
        jars.delta_jars()
    (tmp_path / "jars" / "spark-core_2.13-3.5.6.jar").unlink()
    with pytest.raises(jars.JarsMissingError, match=f"no Spark found in {tmp_path}"):
        jars.delta_jars()


def test_delta_in_spark_is_used(tmp_path, monkeypatch):
    """Two versions of Delta in one JVM do not go together: whatever is there stays."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (spark_of(tmp_path, "4.1.3") / "delta-spark_4.1_2.13-4.2.0.jar").touch()
    assert jars.in_spark()


def test_install_removes_delta_of_another_spark(tmp_path, monkeypatch, central):
    """`pip install pyspark==...` leaves the jars of the last one where they are."""
    folder = spark_of(tmp_path / "pyspark", "4.0.1")
    for old in ("delta-spark_4.1_2.13-4.3.1.jar", "delta-spark_2.13-4.0.1.jar", "own.jar"):
        (folder / old).touch()
    (folder / "delta-storage-4.0.1.jar").touch()
    monkeypatch.setattr(jars, "own_jars", lambda: folder)
    known = jars.fitting(folder)
    empty = dict.fromkeys(known.digests, sha256(b"").hexdigest())  # as those here are
    monkeypatch.setattr(jars, "fitting", lambda _: replace(known, digests=empty))
    jars.install()
    assert {path.name for path in folder.iterdir()} == {
        "spark-core_2.13-4.0.1.jar", "delta-spark_2.13-4.0.1.jar", "delta-storage-4.0.1.jar",
        "own.jar",
    }  # fmt: skip
    assert not list(central.rglob("*.jar"))


def test_spark_connect_says_in_one_line_what_it_lacks(tmp_path, muster_here, monkeypatch):
    """It printed pages about JVM_ATTRIBUTE_NOT_SUPPORTED; its client would try for ten minutes."""
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"topics": {}, "members": {}}))
    words = ["assign", spec, "--engine", "spark"]

    def refused(url):
        with monkeypatch.context() as patch:
            patch.setenv("SPARK_REMOTE", url)
            done = muster_here(*words)
        assert (done.returncode, done.stdout) == (2, b"")
        return done.stderr.decode()

    said = refused("sc://127.0.0.1:9")
    assert said.startswith("muster: SPARK_REMOTE=sc://127.0.0.1:9: no Spark Connect server")
    assert said.endswith("start it, or unset SPARK_REMOTE\n")
    assert said.count("\n") == 1
    for url in ("sc://[x", "sc://h:port/;token=SECRET", "http://h/;token=SECRET"):
        said = refused(url)
        assert said.startswith("muster: SPARK_REMOTE is not an sc://HOST:PORT of a server")
        assert "SECRET" not in said
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"sc://127.0.0.1:{silent.getsockname()[1]}"
        done = run("-m", "coordinator", *words, SPARK_REMOTE=url)
    assert done.returncode == 2
    assert done.stderr.endswith(": pip install 'muster[connect]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.spark
def test_tasks_of_running_stages_are_counted(spark):
    """What a terminal shows of Spark's work while it runs."""
    seen, over = [], threading.Event()

    def look():
        while not over.wait(0.02):
            seen.append(active_tasks())

    looking = threading.Thread(target=look)
    looking.start()
    rows = spark.sparkContext.parallelize(range(4), 4)
    rows.map(lambda row: time.sleep(0.3) or row).count()
    over.set()
    looking.join()
    assert max(total for _, total in seen) == 4


@pytest.mark.parametrize("logger", ERROR_LOGGERS)
def test_errors_of_queries_are_not_logged_too(spark, monkeypatch, logger):
    """pyspark would print their stack traces before the one line of a command."""
    said = []
    monkeypatch.setattr(logging.getLogger(logger), "handle", said.append)
    for query in (spark.range(1).selectExpr("1 / id"), spark.range(1).select(1 / col("id"))):
        with pytest.raises(ArithmeticException):
            query.collect()
    assert said == []


def test_missing_java_is_an_error(tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"topics": {}, "members": {}}))
    done = run("-m", "coordinator", "assign", spec, "--engine", "spark", PATH="", JAVA_HOME="")
    assert done.returncode == 1
    assert done.stderr == (
        "muster: Java 17 or later is missing: sudo apt-get install openjdk-17-jre-headless\n"
    )


def test_commands_leave_no_spark_warehouse(monkeypatch):
    from spark_jobs.session.session import scratch_warehouse

    (folder,) = scratch_warehouse().values()
    assert os.path.commonpath([folder, tempfile.gettempdir()]) == tempfile.gettempdir()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert scratch_warehouse() == {}  # spark-submit's settings are the user's
