"""Tables as Spark's users leave them: both engines read the same rows, or one says why it does not."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.tables.table_io import TableRef, check_replaceable, replace_delta
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.run_job import run_job
from spark_jobs.jobs.read_tables import read_frame
from spark_jobs.jobs.spark_assignment import SparkAssignment
from tests.support.longer import EVERY

pytestmark = pytest.mark.spark

MAPPED = (
    "'delta.columnMapping.mode' = '{}', 'delta.minReaderVersion' = 2, 'delta.minWriterVersion' = 5"
)
VECTORS = "'delta.enableDeletionVectors' = true"
BEFORE = "member_id STRING, label STRING, subscribed ARRAY<STRING>, junk INT"
RENAMED = ["RENAME COLUMN label TO instance_id", "DROP COLUMN junk"]
LATER = "INSERT INTO {} VALUES ('later', 'i', array('b'))"
DELETED = "DELETE FROM {} WHERE member_id = 'm3'"

ODD = {
    "mapped_by_name": (MAPPED.format("name"), "", [*RENAMED, LATER]),
    "mapped_by_id": (MAPPED.format("id"), "PARTITIONED BY (label)", [*RENAMED, LATER]),
    "mapped_later": ("", "", [f"SET TBLPROPERTIES ({MAPPED.format('name')})", *RENAMED, LATER]),
    "deleted": (VECTORS, "", [DELETED]),
    "mapped_and_deleted": (
        f"{MAPPED.format('name')}, {VECTORS}", "PARTITIONED BY (label)", [*RENAMED, DELETED],
    ),
}  # fmt: skip
"""Properties, partitioning, and what then happens to each table of members."""


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """A folder with topics."""
    folder = tmp_path_factory.mktemp("odd")
    topics = pa.table({"topic": ["a", "b"], "partitions": [40, 9]})
    write_deltalake(folder / "topics", topics)
    return folder


def made(spark, path, columns, properties, partitioning, steps, rows):
    """Make a Delta table by Spark."""
    table = f"delta.`{path}`"
    options = f"TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {partitioning} {options}")
    spark.sql(f"INSERT INTO {table} {rows}")
    for step in steps:
        spark.sql(step.format(table) if "{}" in step else f"ALTER TABLE {table} {step}")
    return str(path)


def on(engine, members, topics):
    tables = [TableRef.of(str(path), "table") for path in (members, topics)]
    work = AssignmentJob(*tables, None, None, None, AssignorOptions("sticky"), engine)
    return run_job(work, Config(), SparkAssignment()).ranges.to_arrow().to_pylist()


@pytest.mark.parametrize(
    "name", ODD if EVERY else ["mapped_by_id", "deleted", "mapped_and_deleted"]
)
def test_both_engines_read_the_same_rows(spark, folder, name):
    properties, partitioning, steps = ODD[name]
    rows = "SELECT concat('m', id), concat('i', id), array('a', 'b'), 7 FROM range(0, 5, 1, 1)"
    path = made(spark, folder / name, BEFORE, properties, partitioning, steps, rows)
    read = TableRef.of(path, "members").read("members")
    frame = spark.read.format("delta").load(path)
    assert read.column_names == frame.columns
    assert sorted(map(str, read.to_pylist())) == sorted(map(str, frame.toArrow().to_pylist()))
    assert read["member_id"].null_count == 0
    if name == "mapped_and_deleted":  # a run on Spark takes seconds: one for all
        assert on("local", path, folder / "topics") == on("spark", path, folder / "topics")
    if "mapped" in name:
        with pytest.raises(
            SpecError, match=r"uses columnMapping, which only Spark writes: use --en"
        ):
            check_replaceable(path)
    else:
        check_replaceable(path)
        replace_delta(path, DeltaTable(path).version(), read.slice(0, 1), "run", "")
        assert TableRef.of(path, "members").read("members").num_rows == 1


def test_local_engine_names_features_that_only_spark_reads(spark, folder):
    columns, properties = "topic STRING, partitions SMALLINT", "'delta.enableTypeWidening' = true"
    topics = made(
        spark, folder / "widened", columns, properties, "", ["ALTER COLUMN partitions TYPE BIGINT"],
        "VALUES ('a', 40), ('b', 9)",
    )  # fmt: skip
    members = pa.table({"member_id": ["m", "n"], "subscribed": [["a", "b"]] * 2})
    write_deltalake(folder / "members", members)
    with pytest.raises(
        SpecError, match=r"topics .*widened.*: uses typeWidening.*: use --engine spark"
    ):
        on("local", folder / "members", topics)
    frame = spark.read.format("delta").load(topics)
    assert sorted(map(tuple, frame.collect())) == [("a", 40), ("b", 9)]


ODD_NAMES = ["m[1]", "m{a,b}", "m*", "m?x", "m\\x", "m%20x", "m x", "m#x", "m\nx", "mé"]


def write_members(path, *members, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.table({"member_id": members, "subscribed": [["a"]] * len(members), **more})
    pq.write_table(rows, path)
    return path


def ids(spark, path):
    rows = read_frame(spark, TableRef.of(str(path), "--members"), "--members").toArrow()
    return sorted(rows["member_id"].to_pylist())


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_file_that_was_named_is_read(spark, tmp_path, name):
    """Not those that its name, taken for a pattern, would match."""
    for other in ("m1", "ma", "mb", "mxx", "mx"):
        write_members(tmp_path / f"{other}.parquet", "other")
    assert ids(spark, write_members(tmp_path / f"{name}.parquet", "named")) == ["named"]


def test_outputs_and_delta_tables_with_such_names(spark, tmp_path):
    write_deltalake(tmp_path / "t1", pa.table({"topic": ["b"], "partitions": [9]}))
    write_deltalake(tmp_path / "t{1,2}", pa.table({"topic": ["a"], "partitions": [3]}))
    (tmp_path / "o1.parquet").mkdir()
    write_members(tmp_path / "o1.parquet" / "part.parquet", "other")
    members, topics = write_members(tmp_path / "m*.parquet", "named"), tmp_path / "t{1,2}"
    tables = [TableRef.of(str(path), "table") for path in (members, topics)]
    for output in ("o[1].parquet", "d[1]{1,2}", "d[1]{1,2}"):  # the last one is replaced
        at = str(tmp_path / output)
        job = AssignmentJob(*tables, None, None, at, AssignorOptions("uniform"), "spark")
        assert run_job(job, Config(), SparkAssignment()).totals["partitions"] == 3
        assert TableRef.of(at, "table").read("output")["member_id"].to_pylist() == ["named"]


def test_spark_reads_the_files_of_a_folder_that_pyarrow_reads(spark, tmp_path):
    names = [
        "a.parquet", "sub/b.parquet", "c.PARQUET", "d.parq", "e", "_f.parquet", ".g.parquet",
        "_h/i.parquet", ".j/k.parquet", "sub/deep[1]/l.parquet",
    ]  # fmt: skip
    for name in names:
        write_members(tmp_path / name, name)
    (tmp_path / "_SUCCESS").touch()
    read = TableRef.of(str(tmp_path), "members").read("members")["member_id"].to_pylist()
    seen = ["a.parquet", "c.PARQUET", "d.parq", "e", "sub/b.parquet", "sub/deep[1]/l.parquet"]
    assert ids(spark, tmp_path) == sorted(read) == sorted(seen)


def test_folders_that_are_columns(spark, tmp_path):
    for topic, count in (("a", 3), ("b c", 4)):
        file = tmp_path / f"topic={topic}" / "part.parquet"
        file.parent.mkdir()
        pq.write_table(pa.table({"partitions": [count]}), file)
    rows = read_frame(spark, TableRef.of(str(tmp_path), "--topics"), "--topics").toArrow()
    assert sorted(zip(*rows.to_pydict().values(), strict=True)) == [(3, "a"), (4, "b c")]


@pytest.mark.parametrize("first", [pa.int8(), pa.int32(), pa.int64()])
def test_integers_of_several_widths(spark, tmp_path, first):
    """A folder that several programs wrote, each with the integers of its own."""
    for at, kind in enumerate([first, pa.int32(), pa.int64()]):
        rows = pa.table({"topic": [f"t{at}"], "partitions": pa.array([at], kind)})
        pq.write_table(rows, tmp_path / f"{at}.parquet")
    table = TableRef.of(str(tmp_path), "--topics")
    rows = read_frame(spark, table, "--topics").toArrow().sort_by("topic")
    assert rows["partitions"].to_pylist() == [0, 1, 2]
    assert rows.to_pylist() == table.read("topics").sort_by("topic").to_pylist()


@pytest.mark.parametrize("name", ["a:b.parquet", "_m.parquet", ".m.parquet"])
def test_names_that_spark_cannot_read_are_refused(spark, tmp_path, name):
    with pytest.raises(
        SpecError, match=r"--members .*: Spark reads no file whose name has a colon"
    ):
        ids(spark, write_members(tmp_path / name, "named"))


def test_an_output_of_something_else_is_called_the_output(folder):
    """On Spark, too, and without --previous."""
    write_deltalake(folder / "some", pa.table({"member_id": ["m"], "subscribed": [["a"]]}))
    nobody = {"member_id": pa.nulls(1, pa.string()), "topic": ["a"], "first_partition": [0]}
    write_deltalake(folder / "foreign", pa.table(nobody | {"partition_count": [1]}))
    tables = [TableRef.of(str(folder / name), "table") for name in ("some", "topics")]
    at = str(folder / "foreign")
    job = AssignmentJob(*tables, None, None, at, AssignorOptions("uniform"), "spark")
    with pytest.raises(SpecError, match=r"^--output: a row has a null"):
        run_job(job, Config(), SparkAssignment())


def test_tables_that_lack_files_are_refused_by_their_option(spark, folder):
    """Vacuumed, removed by hand, or gone from the log."""
    write_deltalake(folder / "here", pa.table({"member_id": ["m"], "subscribed": [["a"]]}))
    names = ["member_id", "topic", "first_partition", "partition_count"]
    gone = pa.table([["m"], ["a"], [0], [1]], names=names)
    for version in range(2):
        write_deltalake(folder / "gone one", gone, mode="overwrite")
        if not version:
            for file in (folder / "gone one").glob("*.parquet"):
                file.unlink()
    tables = [TableRef.of(str(folder / name), "table") for name in ("here", "topics")]

    def refused(**more):
        job = AssignmentJob(*tables, None, None, None, AssignorOptions("uniform"), "spark")
        with pytest.raises(SpecError) as found:
            run_job(replace(job, **more), Config(), SparkAssignment())
        assert "\n" not in str(found.value)
        return str(found.value)

    old = TableRef.of(f"{folder}/gone one@0", "--previous")
    said = refused(previous=old)
    assert said.startswith(f"--previous {folder}/gone one@0: cannot be read: file:")
    assert "File does not exist" in said
    for file in (folder / "gone one").glob("*.parquet"):
        file.unlink()
    assert refused(output=old.path).startswith(f"--output {old.path}@1: cannot be read: file:")
    (folder / "gone one" / "_delta_log" / f"{0:020d}.json").unlink()
    newest = TableRef(old.path, 1, delta=True)
    with pytest.raises(
        SpecError, match=r"^--owned .*gone one@1: cannot be read: No recreatable com"
    ):
        read_frame(spark, newest, "--owned")


def test_columns_that_are_there_twice_are_refused_by_the_option(spark, tmp_path):
    file = tmp_path / "members.parquet"
    pq.write_table(
        pa.table([["m"], [["a"]], ["m"]], ["member_id", "subscribed", "Member_Id"]), file
    )
    with pytest.raises(
        SpecError, match=r"^--members .*: cannot be read: The column `member_id` alr"
    ):
        read_frame(spark, TableRef.of(str(file), "--members"), "--members")


LISTS = pa.list_(pa.string())
MEMBERS = {"member_id": ["m", "n"], "subscribed": pa.array([["a"], ["a", "b"]], LISTS)}
TOPICS = {"topic": ["a", "b"], "partitions": [3, 2]}
UNUSUAL = {
    "uint64": ({}, {"partitions": pa.array([3, 2], pa.uint64())}),
    "uint8": ({}, {"partitions": pa.array([3, 2], pa.uint8())}),
    "too many": ({}, {"partitions": pa.array([3, 2**63 - 1], pa.uint64())}),
    "no topics": ({"subscribed": pa.array([[], []], pa.list_(pa.null()))}, {}),
    "null topics": ({"subscribed": pa.array([[None], []], pa.list_(pa.null()))}, {}),
    "fixed size": ({"subscribed": pa.array([["a"], ["b"]], pa.list_(pa.string(), 1))}, {}),
    "capacities": ({"capacity": [1.0, 2.0]}, {}),
    "bad capacities": ({"capacity": [1.0, -2.0]}, {}),
    "states": ({"state": ["active", "draining"]}, {}),
    "unknown of members": ({"color": ["x", "y"]}, {}),
    "unknown of topics": ({}, {"color": ["x", "y"]}),
    "processes": ({"process": ["p", "q"]}, {}),
}


@pytest.mark.parametrize("name", list(UNUSUAL)[:: 1 if EVERY else 4])
def test_both_engines_take_or_refuse_unusual_columns(spark, tmp_path, name):
    members, topics = UNUSUAL[name]
    pq.write_table(pa.table(MEMBERS | members), tmp_path / "members.parquet")
    pq.write_table(pa.table(TOPICS | topics), tmp_path / "topics.parquet")
    tables = [TableRef.of(f"{tmp_path}/{at}.parquet", f"--{at}") for at in ("members", "topics")]

    def on_engine(engine, assignor):
        job = AssignmentJob(*tables, None, None, None, AssignorOptions(assignor), engine)
        try:
            done = run_job(job, Config(), SparkAssignment())
        except SpecError as error:
            return str(error)
        return done.totals, done.ranges.to_arrow().to_pylist()

    # What is read is read alike for each; the other one is what `make test-spark` adds.
    for assignor in ("uniform", "range")[: 1 + EVERY]:
        assert on_engine("spark", assignor) == on_engine("local", assignor)


ILLEGAL = {
    "float32 for halffloat": [pa.float16()],
    "microseconds for nanoseconds": [
        pa.timestamp("ns"), pa.timestamp("ns", "Europe/Berlin"), pa.list_(pa.timestamp("ns")),
    ],
    "text for time": [pa.time64("us"), pa.time64("ns"), pa.struct([("x", pa.time32("ms"))])],
    "at most 38 digits": [pa.decimal256(50, 2), pa.map_(pa.string(), pa.decimal256(50, 2))],
    "text for UUIDs": [pa.uuid(), pa.list_(pa.uuid())],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "instead"), [(kind, instead) for instead in ILLEGAL for kind in ILLEGAL[instead]]
)
def test_types_that_spark_cannot_read_are_refused(spark, tmp_path, kind, instead):
    file = write_members(tmp_path / "members.parquet", "m", odd=pa.nulls(1, kind))
    with pytest.raises(SpecError) as found:
        ids(spark, file)
    reason = f"column 'odd' is {pq.read_schema(file).field('odd').type}, which Spark cannot read: "
    assert f"{reason}write it with {instead}" in str(found.value)
