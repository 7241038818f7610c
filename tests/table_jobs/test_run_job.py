"""Jobs on tables without a JVM, and what they ask of Spark when they are given one."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import GroupSpec, SpecError, get_assignor
from assignors.registry import ENTRY_POINTS
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.table_io import BusyError, TableRef, read_delta, table_lock
from coordinator.table_jobs import local_engine
from coordinator.table_jobs import run_job as run_module
from coordinator.table_jobs.assignment_job import AssignmentJob, AssignmentResult
from coordinator.table_jobs.inputs import SparkName, find_input
from coordinator.table_jobs.run_job import run_job
from coordinator.table_jobs.runs import identify
from tests.conftest import ROOT
from tests.support.installed import ALONE, install

MEMBERS = pa.table({"member_id": ["m1", "m2"], "subscribed": [["a"], ["a"]]})
TOPICS = pa.table({"topic": ["a"], "partitions": [5]})

BLOCK_SPARK = """
import sys
class NoSpark:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("pyspark", "py4j", "delta"):
            raise ImportError(f"{name} is imported")
sys.meta_path.insert(0, NoSpark())
"""
IMPORT_ALL = """
import importlib, pkgutil, coordinator.table_jobs
found = [module.name for module in pkgutil.iter_modules(coordinator.table_jobs.__path__)]
for name in found:
    importlib.import_module(f"coordinator.table_jobs.{name}")
print(len(found))
"""
ASSIGN = """
from coordinator.cli.main import main
sys.argv = ["muster", "assign", *sys.argv[1:]]
main()
"""


@pytest.fixture
def tables(tmp_path):
    write_deltalake(str(tmp_path / "members"), MEMBERS)
    write_deltalake(str(tmp_path / "topics"), TOPICS)
    return tmp_path


@pytest.mark.parametrize("name", ["out{a,b}", "out*", "out#1", "out 'q'"])
def test_an_output_of_an_odd_name_is_replaced_night_by_night(tables, monkeypatch, name):
    monkeypatch.chdir(tables)
    for assignor in ("uniform", "sticky"):
        run_job(replace(job_on(tables, "local", assignor), output=name), Config())
    rows = read_delta(DeltaTable(str(tables / name))).to_pylist()
    assert sum(row["partition_count"] for row in rows) == 5
    with pytest.raises(SpecError, match="has a bracket in its path, where only Spark writes"):
        run_job(replace(job_on(tables, "local"), output="out[1]"), Config())


@pytest.mark.parametrize("engine", ["local", "auto"])
@pytest.mark.parametrize("name", ["main.default.out", "schema.out", "`my db`.out", "`out`"])
def test_an_output_named_like_a_table_of_the_catalog_is_no_folder(
    tables, monkeypatch, engine, name
):
    monkeypatch.chdir(tables)
    before = sorted(tables.rglob("*"))
    job = job_on(tables, engine)
    with pytest.raises(SpecError) as refused:
        run_job(replace(job, output=name), Config())
    assert str(refused.value) == (
        f"--output {name!r} is named like a table of Spark's catalog: give a path "
        f"(./{name} for a folder of that name), or --engine spark"
    )
    assert sorted(tables.rglob("*")) == before
    run_job(replace(job, output=f"./{name}"), Config())
    run_job(replace(job, output=name), Config())  # now it is there, so it is a path
    assert DeltaTable(name).version() == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-lake.default.out", "need backquotes, as in '`my-lake`.default.out'"),
        ("main.größe.`a b`.tag", "need backquotes, as in 'main.`größe`.`a b`.tag'"),
        ("main.default.out@3", "an output has no version: omit @, or give ./main.default.out@3"),
    ],
)
def test_names_of_the_catalog_are_written_as_spark_reads_them(tables, monkeypatch, name, said):
    monkeypatch.chdir(tables)
    for engine in ("local", "spark"):
        with pytest.raises(SpecError) as refused:
            run_job(replace(job_on(tables, engine), output=name), Config(), FakeSpark())
        assert said in str(refused.value)
        if "@" not in name:
            with pytest.raises(SpecError, match=r"^--members .* need backquotes, as in"):
                find_input(f"{name}@4", "--members", engine)
    write_deltalake("my-lake.v-1", MEMBERS)
    assert find_input("my-lake.v-1@0", "--members", "spark").version == 0


@pytest.mark.parametrize("name", ["a..b", "s.", "s.``", "`s`.`t", "s.`t`u"])
def test_a_broken_name_of_the_catalog_is_no_folder(tables, monkeypatch, name):
    monkeypatch.chdir(tables)
    for engine in ("local", "spark"):
        with pytest.raises(SpecError, match="is not a table name") as refused:
            run_job(replace(job_on(tables, engine), output=name), Config(), FakeSpark())
        assert f"./{name} for a folder" in str(refused.value)
    assert not (tables / name).exists()


@pytest.mark.parametrize("name", ["out", "out.delta", "out.parquet", "./a.b", "a.b/out", ".out"])
def test_paths_are_written_on_either_engine(tables, monkeypatch, name):
    monkeypatch.chdir(tables)
    (tables / "a.b").mkdir()
    spark = FakeSpark()
    for engine in ("local", "spark"):
        run_job(replace(job_on(tables, engine), output=name), Config(), spark)
    assert (spark.found, len(spark.done)) == ([], 1)


def job_on(tables, engine="auto", assignor="uniform", **more):
    inputs = {
        name: find_input(str(tables / name), f"--{name}", "auto") for name in ("members", "topics")
    }
    options = AssignorOptions(assignor, **more)
    return AssignmentJob(
        **inputs, owned=None, previous=None, output=str(tables / "out"), options=options,
        engine=engine,
    )  # fmt: skip


class FakeSpark:
    """An engine that writes down what it is asked."""

    def __init__(self):
        self.found, self.done = [], []

    @contextmanager
    def find_tables(self, job):
        self.found.append(job)
        yield job

    def assign(self, job, _config, run):
        self.done.append(job)
        return AssignmentResult("spark", run.run_id)


def run_without_spark(code, *words):
    return subprocess.run(
        [sys.executable, "-c", BLOCK_SPARK + code, *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_no_module_of_the_room_imports_spark():
    done = run_without_spark(IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


def test_job_without_spark_replaces_a_table(tables):
    words = [f"--{name}={tables / name}" for name in ("members", "topics")]
    done = run_without_spark(ASSIGN, *words, "--output", tables / "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "local"
    expected = get_assignor("uniform").assign(GroupSpec.from_arrow(MEMBERS, TOPICS))
    written = read_delta(DeltaTable(str(tables / "out")))
    assert written.to_pylist() == expected.to_arrow().to_pylist()


def test_job_for_spark_is_refused_without_spark(tables):
    with pytest.raises(SpecError, match="Spark is not available here: use --engine local"):
        run_job(job_on(tables, "spark"), Config())
    assert not (tables / "out").exists()


def test_spark_gets_pinned_inputs_and_the_output_as_previous(tables):
    spark = FakeSpark()
    first = run_job(job_on(tables, "local"), Config(), spark)
    assert (first.engine, spark.done) == ("local", [])
    assert run_job(job_on(tables, "spark"), Config(), spark).engine == "spark"
    (asked,) = spark.done
    assert (asked.members.version, asked.topics.version, asked.previous.version) == (0, 0, 0)
    assert asked.previous.path == asked.output
    assert spark.found == []  # every table has a path: no session is needed to find it


def test_catalog_tables_are_found_before_the_output_is_locked(tables):
    locked = []

    class Finding(FakeSpark):
        @contextmanager
        def find_tables(self, job):
            locked.append((tables / "_locks").exists())
            yield replace(job, members=job_on(tables).members)

    job = replace(job_on(tables, "spark"), members=SparkName("--members", "db.members", None))
    spark = Finding()
    run_job(job, Config(), spark)
    assert locked == [False]
    assert spark.done[0].members.path == str(tables / "members")


def test_bad_options_are_refused_before_anything_is_found_or_locked(tables):
    spark = FakeSpark()
    job = replace(
        job_on(tables, "spark", "uniform", imbalance="5%"),
        members=SparkName("--members", "db.members", None),
    )
    with pytest.raises(SpecError, match="imbalance"):
        run_job(job, Config(), spark)
    assert spark.found == []
    assert not (tables / "_locks").exists()


def test_assignor_without_spark_runs_locally_unless_spark_is_requested(
    tables, tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch, ENTRY_POINTS, "alone", ALONE)
    spark = FakeSpark()
    assert run_job(job_on(tables, "auto", "alone"), Config(), spark).engine == "local"
    with pytest.raises(SpecError, match="'alone' does not run on Spark: use --engine local"):
        run_job(job_on(tables, "spark", "alone"), Config(), spark)
    assert spark.done == []


def test_weights_and_constraints_are_tables_of_a_job(tables):
    weights = {"topic": ["a"] * 5, "partition": range(5), "weight": [0.0, 1.0, 2.0, 3.0, 4.0]}
    write_deltalake(str(tables / "partitions"), pa.table(weights))
    member = MEMBERS["member_id"][0].as_py()
    long_ago = pa.array([None, 0], pa.timestamp("ms", tz="UTC"))
    rules = pa.table(
        {"kind": ["drain"] * 2, "selector": [member, "nobody"], "value": pa.nulls(2, pa.string()),
         "until": long_ago}
    )  # fmt: skip
    write_deltalake(str(tables / "constraints"), rules)
    more = {
        name: find_input(str(tables / name), f"--{name}", "auto")
        for name in ("partitions", "constraints")
    }
    work = replace(job_on(tables, "auto", "weighted"), **more)
    spark = FakeSpark()
    done = run_job(work, Config(), spark)
    assert (done.engine, spark.done) == ("local", [])
    assert done.report.valid
    assert done.ranges.of_member(member).count.sum() == 0
    assert done.totals["weights"]["idle_constraints"] == [
        "drain nobody: expired at 1970-01-01T00:00:00Z"
    ]
    assert run_job(replace(work, engine="spark", run_id="other"), Config(), spark).engine == "spark"


def test_a_run_id_knows_its_members_by_their_rows(tables):
    """Two members exchange their topics: counts, sizes and bounds in the file stay as they are."""
    file = tables / "members.parquet"
    pq.write_table(pa.table({"member_id": ["m1", "m2"], "subscribed": [["a"], []]}), file)
    job = replace(job_on(tables), members=TableRef.of(str(file), "--members"), run_id="monday")
    first = run_job(job, Config())
    assert run_job(job, Config()) == AssignmentResult(
        "local", "monday", first.version, True, totals=first.totals
    )
    pq.write_table(pa.table({"member_id": ["m1", "m2"], "subscribed": [[], ["a"]]}), file)
    with pytest.raises(SpecError, match=r"run 'monday' wrote .* with members .*: give another"):
        run_job(job, Config())


def test_a_run_id_knows_the_folders_that_are_columns(tables):
    folder = tables / "sizes"
    for topic, count in (("a", 3), ("b", 4)):
        (folder / f"topic={topic}").mkdir(parents=True)
        pq.write_table(pa.table({"partitions": [count]}), folder / f"topic={topic}" / "it.parquet")
    table = TableRef.of(str(folder), "--topics")
    before = identify(table, "--topics")
    (folder / "topic=a" / "it.parquet").rename(folder / "topic=a" / "other.parquet")
    assert identify(table, "--topics") == before
    (folder / "topic=a").rename(folder / "topic=c")
    assert identify(table, "--topics") != before


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_damaged_file_of_members_is_refused_by_its_name(tables, engine):
    file = tables / "members.parquet"
    pq.write_table(MEMBERS, file)
    file.write_bytes(file.read_bytes()[:-20])
    job = replace(job_on(tables, engine), members=TableRef.of(str(file), "--members"))
    with pytest.raises(SpecError, match=r"--members '.*/members\.parquet' cannot be read as Parq"):
        run_job(job, Config(), FakeSpark())


def test_an_output_of_something_else_is_called_the_output(tables):
    """Nobody gave --previous."""
    nobody = {"member_id": pa.nulls(1, pa.string()), "topic": ["a"], "first_partition": [0]}
    write_deltalake(str(tables / "out"), pa.table(nobody | {"partition_count": [1]}))
    with pytest.raises(SpecError, match=r"^--output: column 'member_id' has a null"):
        run_job(job_on(tables), Config())
    given = TableRef.of(str(tables / "topics"), "--previous")
    with pytest.raises(SpecError, match=r"^previous: column 'member_id' is missing"):
        run_job(replace(job_on(tables), previous=given), Config())
    for file in (tables / "out").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SpecError, match=r"^--output .*out@0: cannot be read"):
        run_job(job_on(tables), Config())


MORE = pa.table(
    {"member_id": ["m1"], "topic": ["b"], "first_partition": [0], "partition_count": [1]},
    pa.schema(
        [("member_id", pa.string()), ("topic", pa.string())]
        + [(name, pa.int32()) for name in ("first_partition", "partition_count")]
    ),
)


def rows_of(path):
    rows = read_delta(DeltaTable(str(path))).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.restore(0),
        lambda table: table.delete("topic = 'a'"),
        lambda table: write_deltalake(table, MORE, mode="append"),
        lambda table: (table.restore(0), table.restore(0)),
    ],
    ids=["restore", "delete", "append", "restored twice"],
)
def test_a_run_whose_rows_are_gone_is_done_again(tables, change):
    run_job(replace(job_on(tables), run_id="sunday"), Config())
    job = replace(job_on(tables, assignor="range"), run_id="monday")
    assert not run_job(job, Config()).already
    monday = rows_of(tables / "out")
    assert run_job(job, Config()).already
    change(DeltaTable(str(tables / "out")))
    again = run_job(job, Config())
    assert not again.already
    assert rows_of(tables / "out") == monday
    assert run_job(job, Config()) == replace(
        again, already=True, group=None, ranges=None, report=None
    )


def test_a_run_that_is_there_still_is_not_done_again(tables):
    """Rows that were restored to it, compacted, or replaced by later runs, are no other rows."""
    first = replace(job_on(tables, assignor="range"), run_id="monday")
    second = replace(job_on(tables), run_id="tuesday")
    for job in (first, second):
        run_job(job, Config())
    assert run_job(first, Config()).already  # tuesday's rows are the newer ones
    table = DeltaTable(str(tables / "out"))
    table.restore(0)
    assert (run_job(first, Config()).already, run_job(second, Config()).already) == (True, False)
    DeltaTable(str(tables / "out")).optimize.compact()
    DeltaTable(str(tables / "out")).alter.set_table_description("ours")
    assert run_job(second, Config()).already


def test_a_run_whose_story_is_no_longer_in_the_log_is_done_again(tables):
    """Nobody can say whether a RESTORE undid it, when clean-up has removed that entry."""
    monday = replace(job_on(tables, assignor="range"), run_id="monday")
    run_job(replace(job_on(tables), run_id="sunday"), Config())
    run_job(monday, Config())
    DeltaTable(str(tables / "out")).restore(0)
    forget_log(tables / "out")
    assert not run_job(monday, Config()).already
    forget_log(tables / "out")
    run_job(replace(job_on(tables), run_id="tuesday"), Config())
    before = rows_of(tables / "out")
    assert run_job(monday, Config()).already  # it would replace what came later
    assert rows_of(tables / "out") == before


def forget_log(table):
    """Do what Delta does with entries that are older than the retention."""
    found = DeltaTable(str(table))
    found.alter.set_table_description("ours")
    found.create_checkpoint()
    for entry in sorted((table / "_delta_log").glob("0*.json"))[:-1]:
        entry.unlink()


def test_a_run_is_there_after_its_files_were_compacted_and_vacuumed(tables):
    job = replace(job_on(tables, assignor="range"), run_id="monday")
    run_job(replace(job_on(tables), run_id="sunday"), Config())
    run_job(job, Config())
    before = rows_of(tables / "out")
    table = DeltaTable(str(tables / "out"))
    table.optimize.z_order(["topic"])
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert run_job(job, Config()).already
    assert rows_of(tables / "out") == before


@pytest.mark.parametrize("second", ["monday", "other"])
def test_of_two_drivers_after_a_restore_one_writes(tables, second, monkeypatch):
    """Both see that the run was undone; the slower one learns that it no longer is."""
    job = replace(job_on(tables, assignor="range"), run_id="monday")
    run_job(replace(job_on(tables), run_id="sunday"), Config())
    run_job(job, Config())
    DeltaTable(str(tables / "out")).restore(0)
    write, said = local_engine.replace_delta, []

    def write_late(*arguments):
        """As of a driver on another machine, whose locks this one does not see."""
        monkeypatch.setattr(local_engine, "replace_delta", write)
        monkeypatch.setattr(run_module, "table_lock", lambda _: nullcontext())
        said.append(run_job(replace(job, run_id=second), Config()).already)
        return write(*arguments)

    monkeypatch.setattr(local_engine, "replace_delta", write_late)
    with pytest.raises(BusyError, match="nothing was replaced; try again"):
        run_job(job, Config())
    assert said == [False]
    assert DeltaTable(str(tables / "out")).version() == 3
    assert run_job(job, Config()).already == (second == "monday")


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_an_output_is_one_by_whatever_links_it_is_named(tables, name):
    (tables / "other").mkdir()
    link, real = tables / "other" / f"link{name}", tables / name
    link.symlink_to(real)
    for output in (link, real):
        job = replace(job_on(tables), output=str(output), run_id="monday")
        assert run_job(job, Config()).already == (output == real)
        assert link.is_symlink()
    with (
        table_lock(str(real)),
        pytest.raises(BusyError, match="is being written by process"),
    ):
        run_job(replace(job_on(tables), output=str(link)), Config())
    with table_lock(str(link)), pytest.raises(BusyError), table_lock(str(real)):
        pass


OLD = MORE.set_column(1, "topic", pa.array(["a"]))


def test_a_partitioned_output_stays_partitioned(tables):
    write_deltalake(str(tables / "out"), OLD, partition_by=["topic"])
    assert run_job(job_on(tables), Config()).version == 1
    table = DeltaTable(str(tables / "out"))
    assert table.metadata().partition_columns == ["topic"]
    assert sum(row[-1] for row in rows_of(tables / "out")) == 5


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("append", "only takes appends (delta.appendOnly), and a run replaces its rows: set it to"),
        ("check", "nothing was replaced: the table's CHECK (partition_count < 3) refuses rows of"),
        ("cluster", "uses clustering, domainMetadata, which only Spark writes: use --engine spark"),
        ("rowTracking", "uses rowTracking, which only Spark writes: use --engine spark"),
    ],
)
def test_an_output_that_cannot_be_replaced_as_it_is_is_refused(tables, layout, said):
    out = tables / "out"
    held = {"delta.appendOnly": "true"} if layout == "append" else None
    write_deltalake(str(out), OLD, configuration=held)
    if layout == "check":
        DeltaTable(str(out)).alter.add_constraint({"few": "partition_count < 3"})
    if layout in {"cluster", "rowTracking"}:  # delta-rs makes no such table
        features = ["clustering", "domainMetadata"] if layout == "cluster" else [layout]
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        write_entry(out, 1, {"protocol": protocol})
    before = rows_of(out), sorted((out / "_delta_log").iterdir())
    with pytest.raises(SpecError) as refused:
        run_job(job_on(tables), Config())
    assert str(refused.value).startswith(f"--output {str(out)!r}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (rows_of(out), sorted((out / "_delta_log").iterdir())) == before


def write_entry(table, version, *actions):
    entry = table / "_delta_log" / f"{version:020}.json"
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
