"""Nightly outputs on object storage: replaced in one put, or left as they are."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from assignors import SpecError
from coordinator import Coordinator
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.storage.record_log import CommitFailed
from coordinator.storage.tables.shared_table import (
    append_files,
    find_data_files,
    replace_files,
    write_data_file,
)
from coordinator.storage.tables.store_files import files_at, open_delta
from coordinator.storage.tables.table_io import BusyError, TableRef, read_delta
from coordinator.table_jobs import local_engine
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.run_job import run_job

TOPICS = pa.table({"topic": ["a"], "partitions": [8]})
ROWS = pa.table({"member_id": ["m0"], "topic": ["a"], "first_partition": [0]})
ENTRY = "/_delta_log/0000"


def members(count):
    return pa.table({"member_id": [f"m{at}" for at in range(count)], "subscribed": [["a"]] * count})


@pytest.fixture
def night(tmp_path, s3):
    """Run a job on an output in a bucket; the members are of that night."""
    output = s3.new_store()
    write_deltalake(str(tmp_path / "topics"), TOPICS)

    def run(count, run_id=None, output=output, **more):
        write_deltalake(str(tmp_path / "members"), members(count), mode="overwrite")
        inputs = {
            name: find_input(str(tmp_path / name), f"--{name}", "auto")
            for name in ("members", "topics")
        }
        job = AssignmentJob(
            **inputs, owned=None, previous=None, output=output, options=AssignorOptions("sticky"),
            engine="local", run_id=run_id,
        )  # fmt: skip
        return run_job(replace(job, **more), Config())

    run.output, run.folder = output, tmp_path
    return run


def owners(output):
    rows = read_delta(open_delta(output)).to_pylist()
    assert sum(row["partition_count"] for row in rows) == 8
    return sorted({row["member_id"] for row in rows})


def named(output):
    return {uri.rpartition("/")[2] for uri in open_delta(output).file_uris()}


def there(output):
    return {name for name in files_at(output).names(output) if name.endswith(".parquet")}


def test_nights_replace_a_table_in_a_bucket_as_one_in_a_folder(night):
    here = str(night.folder / "here")
    for count in (2, 4, 3):
        done, local = night(count), night(count, output=here)
        assert (done.version, done.totals) == (local.version, local.totals)
        rows = read_delta(open_delta(night.output)).to_pylist()
        assert rows == read_delta(DeltaTable(here)).to_pylist()
    table = open_delta(night.output)
    assert table.metadata().id == open_delta(night.output, 0).metadata().id
    assert len(table.file_uris()) == 1
    assert owners(night.output) == ["m0", "m1", "m2"]
    assert {commit["userMetadata"] is not None for commit in table.history()} == {True}


def test_a_repeated_run_writes_nothing(night):
    first = night(2, "monday")
    again = night(2, "monday", members=find_input(f"{night.folder}/members@0", "--members", "auto"))
    assert (again.already, again.version, again.totals) == (True, first.version, first.totals)
    with pytest.raises(SpecError, match="give another --run-id"):
        night(3, "monday")
    assert owners(night.output) == ["m0", "m1"]
    assert there(night.output) == named(night.output)


def test_the_slower_of_two_runs_replaces_nothing(night, monkeypatch):
    night(2)
    put, slow = local_engine.replace_files, []

    def be_slow(*words):
        if not slow:
            slow.append("began")
            night(3)
        return put(*words)

    monkeypatch.setattr(local_engine, "replace_files", be_slow)
    with pytest.raises(BusyError, match="another run since this one began: nothing was replaced"):
        night(4)
    assert owners(night.output) == ["m0", "m1", "m2"]
    assert len(there(night.output)) == 2  # what the two nights wrote, nothing of the slow one
    assert night(4).version == 2


def test_of_two_drivers_with_one_run_id_after_a_restore_one_writes(night, monkeypatch):
    night(2)
    night(3, "monday")
    open_delta(night.output).restore(0)
    put, said, pinned = local_engine.replace_files, [], {}
    pinned["members"] = find_input(f"{night.folder}/members@1", "--members", "auto")

    def be_slow(*words):
        monkeypatch.setattr(local_engine, "replace_files", put)
        said.append(night(3, "monday", **pinned).already)
        return put(*words)

    monkeypatch.setattr(local_engine, "replace_files", be_slow)
    with pytest.raises(BusyError, match="nothing was replaced"):
        night(3, "monday", **pinned)
    assert (said, open_delta(night.output).version()) == ([False], 3)
    assert night(3, "monday", **pinned).already
    assert owners(night.output) == ["m0", "m1", "m2"]


def test_an_output_whose_layout_would_be_lost_is_refused(night, s3):
    rows = night_rows("m9")
    options = files_at(night.output).options()
    write_deltalake(night.output, rows, partition_by=["topic"], storage_options=options)
    with pytest.raises(SpecError, match="is partitioned by topic, which a run on object storage"):
        night(2)
    other = s3.new_store()
    held = {"delta.appendOnly": "true"}
    write_deltalake(other, rows, configuration=held, storage_options=options)
    with pytest.raises(SpecError, match=r"only takes appends \(delta.appendOnly\)"):
        night(2, output=other)
    for table in (night.output, other):
        assert (open_delta(table).version(), owners(table)) == (0, ["m9"])


def night_rows(member):
    return pa.table(
        {"member_id": [member], "topic": ["a"], "first_partition": pa.array([0], pa.int32()),
         "partition_count": pa.array([8], pa.int32())}
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["lost", "503"])
def test_a_lost_answer_is_no_second_commit(night, s3, kind):
    night(2)
    s3.fault(kind, ENTRY, "PUT")
    assert night(3).version == 1
    assert owners(night.output) == ["m0", "m1", "m2"]


def test_an_entry_that_never_lands_leaves_the_old_content(night, s3):
    night(2)
    s3.fault("never", ENTRY, "PUT", times=99)
    with pytest.raises(CommitFailed, match="run it again with the same run id"):
        night(3, "tuesday")
    assert owners(night.output) == ["m0", "m1"]
    s3.heal()
    assert night(3, "tuesday").version == 1
    assert owners(night.output) == ["m0", "m1", "m2"]


def test_an_entry_that_lands_late_is_found_by_the_next_run(night, s3):
    night(2)
    second = f"/_delta_log/{1:020}"
    s3.faults([("lost", second, "PUT", 1), ("503", second, "", 99)])
    with pytest.raises(CommitFailed):
        night(3, "tuesday")
    s3.heal()
    pinned = find_input(f"{night.folder}/members@1", "--members", "auto")
    assert night(3, "tuesday", members=pinned).already
    assert owners(night.output) == ["m0", "m1", "m2"]


def test_a_table_of_others_is_replaced_whole(s3):
    path = s3.new_store()
    rows = pa.table({"group": ["x y%", "ü", None], "n": [1, 2, 3]})
    options = files_at(path).options()
    write_deltalake(path, rows, partition_by=["group"], storage_options=options)
    assert replace_files(path, 0, [write_data_file(path, ROWS)], ROWS.schema, "run", "") == 1
    table = open_delta(path)
    assert read_delta(table).to_pylist() == ROWS.to_pylist()
    assert (len(table.file_uris()), table.metadata().partition_columns) == (1, [])
    assert len(open_delta(path, 0).file_uris()) == 3


def test_a_table_that_asks_for_more_is_refused_and_stays(night, s3):
    others = s3.new_store()
    options = files_at(others).options()
    asked = {"delta.enableChangeDataFeed": "true"}
    rows = ROWS.append_column("partition_count", pa.array([1]))
    write_deltalake(others, rows, configuration=asked, storage_options=options)
    with pytest.raises(SpecError, match="asks its writers for"):
        night(2, output=others)
    assert open_delta(others).version() == 0
    assert there(others) == named(others)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("{}.parquet", "on object storage an output is a Delta table"),
        ("memory://x", "on object storage an output is a Delta table"),
        ("{}.json", "for JSON, omit --output"),
        ("{}?sig=HIDDEN", "a query"),
        ("ftp://host/x", "has an unknown scheme: use s3://"),
        ("{}/inside", "overlap: name another output"),
        ("{}", "is also --topics"),
        ("s3a{2}", "is also --topics"),
        ("{1}", "has other content than a Delta table"),
        ("{}%41", "has '%41' in its path, and Delta would take that for another path"),
        ("file:///none/a%2520b", "has '%20' in its path"),
        ("s3://nowhere/x", "cannot be read: "),
    ],
)
def test_a_url_that_is_no_place_for_an_output_is_refused(night, s3, output, said):
    inputs, other = s3.new_store(), s3.new_store()
    options = files_at(inputs).options()
    write_deltalake(inputs, TOPICS, storage_options=options)
    files_at(other).create(f"{other}/file", b"mine")
    name = output.format(inputs, other, inputs.removeprefix("s3"))
    with pytest.raises(SpecError) as error:
        night(2, output=name, topics=find_input(inputs, "--topics", "auto"))
    assert said in str(error.value)
    assert "HIDDEN" not in str(error.value)
    assert files_at(other).names(other) == ["file"]


@pytest.mark.parametrize("place", ["log", "snapshots", "targets/inside", "requests"])
def test_a_table_of_a_store_is_never_replaced(night, s3, tmp_path, place):
    """Also where a good assignment is given as the one before."""
    night(2, run_id="one")
    before = TableRef.of(night.output, "--previous")
    for store in (s3.new_store(), str(tmp_path / "store")):
        with Coordinator.open(store, topics={"a": 1}):
            pass
        words = f"is in {place.split('/')[0]}, a folder of the store {store}"
        with pytest.raises(SpecError, match=words):
            night(3, output=f"{store}/{place}", previous=before)
        with Coordinator.open(store):
            pass


def test_what_a_run_left_before_its_first_commit_is_in_no_ones_way(night, s3, tmp_path):
    """A job that was killed in its first night is run again; what is not ours stays as it is."""
    there, here = s3.new_store(), tmp_path / "out"
    write_data_file(there, ROWS)
    files_at(there).write_rows(f"{there}/run-{'0' * 32}/part-0.parquet", ROWS)
    night(3, output=there)
    assert owners(there) == ["m0", "m1", "m2"]
    (here / "_delta_log").mkdir(parents=True)
    pq.write_table(ROWS, here / "part-00000-0-c000.snappy.parquet")
    with pytest.raises(SpecError, match="is a folder with other content"):
        night(3, output=str(here))
    (tmp_path / "_locks").mkdir(exist_ok=True)
    (tmp_path / "_locks" / "out").write_text("process 1")
    (here / "mine").touch()
    with pytest.raises(SpecError, match="is a folder with other content"):
        night(3, output=str(here))
    (here / "mine").unlink()
    night(3, output=str(here))
    assert owners(str(here)) == ["m0", "m1", "m2"]
    assert (tmp_path / "_locks" / "out").read_text() == ""


@pytest.mark.parametrize("name", ["delta", "file.parquet"])
def test_a_table_of_something_else_is_never_replaced(night, s3, tmp_path, name):
    night(2, run_id="one")
    before = TableRef.of(night.output, "--previous")
    rows = pa.table({"member_id": ["m0"], "topic": ["a"], "loss": [0]})
    pq.write_table(rows, tmp_path / "file.parquet")
    write_deltalake(tmp_path / "delta", rows)
    outputs = [str(tmp_path / name)]
    if name == "delta":
        outputs.append(s3.new_store())
        write_deltalake(outputs[1], rows, storage_options=files_at(outputs[1]).options())
    for output in outputs:
        with pytest.raises(SpecError, match="would be lost: it has no column 'first_partition'"):
            night(3, output=output, previous=before)
        assert TableRef.of(output, "it").read("it").to_pylist() == rows.to_pylist()


def test_runs_of_many_writers_are_appended_once_each(s3):
    path, at_once = s3.new_store(), threading.Barrier(6)
    replace_files(path, -1, [write_data_file(path, ROWS)], ROWS.schema, "first", "")

    def append(run):
        at_once.wait()
        for number in range(4):
            added = [write_data_file(path, ROWS)]
            append_files(path, added, f"run-{number if run < 2 else (run, number)}")

    threads = [threading.Thread(target=append, args=(run,)) for run in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = open_delta(path)
    assert table.version() == 4 + 4 * 4  # the runs that two writers had are there once
    assert table.count() == 1 + table.version()
    assert there(path) == named(path)


def test_what_a_job_left_in_a_folder_is_committed_and_nothing_else(s3):
    path = s3.new_store()
    replace_files(path, -1, [], ROWS.schema, "first", "")
    for name in ("part-0.parquet", "_temporary/0/part-1.parquet", "_SUCCESS", ".part-2.parquet"):
        files_at(path).write_rows(f"{path}/run a%20b/{name}", ROWS)
    added = find_data_files(path, "run a%20b")
    assert [action.path for action in added] == ["run a%20b/part-0.parquet"]
    assert append_files(path, added, "second") == 1
    assert read_delta(open_delta(path)).num_rows == 1
