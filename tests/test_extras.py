"""What `pip install muster` alone does, and what is said where an extra is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import version

import pytest
from confluent_kafka import Consumer

import muster as public
from coordinator.config import Config, ConfigError, EngineConfig
from coordinator.extras import EXTRAS, MissingExtraError, explain, require
from tests.conftest import ROOT
from tests.support.members import AT_ONCE, Members
from tests.support.processes import running

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LEFT_OUT = {
    "confluent_kafka", "delta", "grpc", "jinja2", "matplotlib", "opentelemetry", "pandas", "py4j", "pyspark", "starlette",
    "uvicorn", "uvloop",
}  # fmt: skip
WITHOUT = f"""
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, *words):
        return None if name in {sorted(LEFT_OUT)!r} else PathFinder.find_spec(name, *words)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
"""A sitecustomize.py that hides what the extras install."""
SPEC = json.dumps({"topics": {"a": 3}, "members": {"m": {"subscribed": ["a"]}}})
SPARK = "pyspark, not installed: pip install 'muster[spark]'"
PAGES = "starlette and uvicorn and jinja2, not installed: pip install 'muster[web]'"
REFUSED = {
    "sql SELECT --store store": f"muster sql needs {SPARK}",
    "assign --engine spark": f"muster assign needs {SPARK}",
    "assign --store store --group g": f"muster assign needs {SPARK}",
    "assign --members m.parquet --topics t.parquet --output out --engine spark": f"assigning on Spark needs {SPARK}",
    "assign --plot x.png": "--plot needs matplotlib, not installed: pip install 'muster[plot]'",
    "plan g --store store --engine spark": f"the engine spark needs {SPARK}",
    "setup": f"muster setup needs {SPARK}",
    "demo": "muster demo needs pyspark and matplotlib, not installed: pip install 'muster[plot,spark]'",
    "web --store store": f"muster web needs {PAGES}",
    "serve --store store --web 127.0.0.1:0": f"--web (web.listen) needs {PAGES}",
    "serve --store store --config telemetry.toml": "telemetry.send needs opentelemetry.sdk and "
    "opentelemetry.exporter.otlp.proto.http, not installed: pip install 'muster[otel]'",
    "serve --topics kafka://127.0.0.1:1": "reading topics from a Kafka cluster needs confluent_kafka, "
    "not installed: pip install 'muster[kafka]'",
}


ALLOWED = ("--help", "assign", "groups --store store", "conf")
RUN_ALL = """
import json, sys
from tests.support.processes import run_here
for words in json.loads(sys.argv[1]):
    done = run_here(*words.split(), stdin=sys.argv[2])
    print(json.dumps([done.returncode, done.stderr.decode()]))
"""
"""All commands in one process: what they import of Muster is the same, and the extras are hidden."""
NEED_SPARK = {
    f"muster.{name}": f"muster.{name}" for name in ("embed", "foreach_partition_owner", "views")
} | {"muster.spark_session()": "a Spark session", "spark_jobs.embed": "spark_jobs.embed"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The environment of a process in which no extra is installed."""
    hidden = tmp_path_factory.mktemp("hidden")
    (hidden / "sitecustomize.py").write_text(WITHOUT)
    return os.environ | {"PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store and with tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.storage.test_store_by_url import join

    folder = tmp_path_factory.mktemp("folder")
    members = pa.table({"member_id": ["m"], "subscribed": [["a"]]})
    pq.write_table(members, folder / "m.parquet")
    pq.write_table(pa.table({"topic": ["a"], "partitions": [3]}), folder / "t.parquet")
    (folder / "telemetry.toml").write_text('[telemetry]\nsend = ["traces"]\n')
    with public.Coordinator.open(folder / "store", topics={"clicks": 3}) as coordinator:
        join(coordinator, "m1")
    return folder


@pytest.fixture(scope="module")
def said(bare, folder):
    """What each command comes to, by its words."""
    words = [*REFUSED, *ALLOWED]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(words), SPEC], env=bare, cwd=folder,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(zip(words, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("words", REFUSED)
def test_a_command_names_the_extra_that_it_needs(words, said, folder):
    assert said[words] == [2, f"muster: {REFUSED[words]}\n"]
    assert not (folder / "out").exists()


@pytest.mark.parametrize("words", ALLOWED)
def test_other_commands_need_no_extra(words, said):
    assert said[words] == [0, ""]


def test_the_program_itself_names_the_extra_that_it_needs(bare, folder, muster):
    done = muster("demo", cwd=folder, env=bare)
    assert (done.returncode, done.stderr.decode()) == (2, f"muster: {REFUSED['demo']}\n")


def test_a_name_that_needs_spark_says_so(bare):
    code = "import muster, spark_jobs"
    for get in NEED_SPARK:
        code += f"\ntry:\n    {get}\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare, cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = [f"{what} needs {SPARK}" for what in NEED_SPARK.values()]
    assert done.stdout.splitlines() == expected


def test_a_coordinator_without_spark_computes_large_targets_itself(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    config = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark", backoff_ms=10))
    with public.Coordinator.open(None, topics={"a": 6}, config=config) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        assert sorted(map(len, members.settle().values())) == [3, 3]
    said = f"the engine spark needs {SPARK}; using the local engine"
    assert [one for one in caplog.messages if "engine" in one] == [said]


def test_the_error_is_both_of_imports_and_of_settings(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for kind in (ImportError, ConfigError, public.MissingExtraError):
        with pytest.raises(kind, match=r"^this needs jinja2, not installed"):
            require("this", "web")


def test_another_import_error_stays_what_it_is():
    for error in (
        ModuleNotFoundError("No module named 'other'", name="other"),
        ImportError("cannot import name 'x' from 'pyspark'", name="pyspark"),
        MissingExtraError("said"),
    ):
        assert explain(error, "this") is error


def test_extras_are_those_of_the_project():
    declared = PROJECT["optional-dependencies"]
    assert set(EXTRAS) <= set(declared)
    (everything,) = declared["all"]
    assert everything == f"muster[{','.join(sorted(set(declared) - {'all'}))}]"
    named = {re.split(r"[\[>=<;]", one)[0] for one in PROJECT["dependencies"]}
    assert named & {"confluent-kafka", "delta-spark", "matplotlib", "pandas", "pyspark"} == set()


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("from muster.__main__ import main; sys.argv[1:] = ['--version']; main()",
         {"numpy", "pyarrow", "deltalake", "scipy", "typer", "rich", "msgspec", "coordinator.cli"}),
        ("from muster.__main__ import main; sys.argv[1:] = ['conf', '-h']; main()",
         {"pyspark", "pandas", "coordinator.cli.serve", "spark_jobs.cli.assign", "kio"}),
        ("from muster.__main__ import main; sys.argv[1:] = ['assign']; main()",
         {"pandas", "scipy", "pyspark"}),
        ("import muster; muster.__version__", {"numpy", "pyarrow", "coordinator", "assignors"}),
        ("import muster; muster.Coordinator",
         {"pyspark", "matplotlib", "typer", "rich", "starlette", "opentelemetry", "requests"}),
        ("import muster; muster.Member", {"pyspark", "matplotlib", "typer", "rich", "starlette"}),
        ("import pyspark_muster.view_reader, pyspark_muster.limited_stream",
         {"coordinator.history.frames", "kio", "pandas", "pyarrow.dataset", "scipy"}),
        ("import coordinator.history.frames", {"asyncio", "kio", "re2", "scipy", "pyspark"}),
    ],
    ids=["version", "help", "assign", "import", "coordinator", "member", "data source", "views"],
)  # fmt: skip
def test_what_is_not_needed_is_not_imported(statement, left_out):
    """How long it takes depends on the machine; what is imported does not."""
    code = f"import atexit, sys\natexit.register(lambda: print(*sys.modules))\n{statement}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input='{"topics": {"clicks": 3}, "members": {"m": {"subscribed": ["clicks"]}}}',
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert left_out & set(done.stdout.splitlines()[-1].split()) == set()


def test_a_command_can_still_make_a_frame():
    code = """
from coordinator.__main__ import spare_pandas
spare_pandas()
import pyarrow as pa, pandas as pd
print(pa.table({"a": [1, 2]}).to_pandas()["a"].sum(), pa.array(pd.Series([1.0, float("nan")])).null_count)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3 1\n"


@pytest.mark.skipif(
    not os.environ.get("MUSTER_INSTALL"), reason="installs what is locked: make test-install"
)
def test_the_wheel_alone_serves_kafka_clients(wheel, tmp_path, monkeypatch):
    """In an environment of its own, with nothing but what the wheel asks for."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup

    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    cache = setup.wheels()[0].parent
    options = ("--quiet", "--no-index", "--find-links", cache, wheel)
    subprocess.run([python, "-m", "pip", "install", *options], check=True)
    listed = [python, "-m", "pip", "list", "--format=json"]
    found = {one["name"].lower() for one in json.loads(subprocess.check_output(listed, text=True))}
    assert (
        found & {"confluent-kafka", "matplotlib", "pandas", "py4j", "pyspark", "starlette"} == set()
    )
    muster = tmp_path / "venv/bin/muster"
    expected = subprocess.check_output([muster, "--version"], text=True, cwd=tmp_path)
    assert expected == f"muster {version('muster')}\n"
    (tmp_path / "topics.json").write_text('{"clicks": 4}')
    command = [
        muster,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        "store",
        "--topics",
        "topics.json",
    ]
    with running(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        address = process.stdout.readline().split()[4]
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "g", "group.protocol": "consumer"}
        )
        consumer.subscribe(["clicks"])
        for _ in range(600):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 4:
                break
        assert len(consumer.assignment()) == 4
        consumer.close()
        process.terminate()
        assert process.wait(60) == 0
    done = subprocess.run(
        [muster, "groups", "--store", "store", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[0])["group_id"] == "g"
