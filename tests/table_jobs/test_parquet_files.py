"""Which files a Parquet table is, and what is refused of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assignors import SpecError
from coordinator.storage.tables.table_io import TableRef
from coordinator.table_jobs.parquet_files import list_files, read_schemas


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"member_id": ["m"], **columns}), path)
    return TableRef(str(path.parent), None, delta=False)


def test_files_are_those_that_pyarrow_reads(tmp_path):
    names = ["a.parquet", "b/c.PARQUET", "_d.parquet", ".e/f.parquet", "g"]
    for name in names:
        write(tmp_path / name, file=pa.array([name]))
    table = TableRef(str(tmp_path), None, delta=False)
    seen = ["a.parquet", "b/c.PARQUET", "g"]
    assert list_files(table) == [f"{tmp_path}/{name}" for name in seen]
    assert table.read("members")["file"].to_pylist() == seen
    hidden = f"{tmp_path}/_d.parquet"
    assert list_files(TableRef(hidden, None, delta=False)) == [hidden]  # it was named


@pytest.mark.parametrize("damage", [lambda it: it[:-20], lambda _: b"PAR1junk", lambda _: b""])
def test_a_damaged_file_is_named(tmp_path, damage):
    write(tmp_path / "a.parquet")
    table = write(tmp_path / "b.parquet")
    (tmp_path / "b.parquet").write_bytes(damage((tmp_path / "b.parquet").read_bytes()))
    with pytest.raises(SpecError, match=r"--members '.*b\.parquet' cannot be read as Parquet: .*:"):
        read_schemas(table, "--members")


def test_a_file_with_a_column_twice_is_named(tmp_path):
    table = write(tmp_path / "a.parquet")
    rows = pa.table({"member_id": ["m"], "rack": ["r"]}).rename_columns(["member_id", "member_id"])
    pq.write_table(rows, tmp_path / "b.parquet")
    what = r"--members '.*b\.parquet' has a column 'member_id' twice: leave one of them out"
    with pytest.raises(SpecError, match=what):
        read_schemas(table, "--members")


@pytest.mark.parametrize("first", [{}, {"rack": pa.nulls(1)}, {"rack": [[]]}])
def test_a_column_that_the_first_file_lacks_is_refused(tmp_path, first):
    """Pyarrow reads all files by the schema of the first: their racks would be lost."""
    write(tmp_path / "a.parquet", **first)
    table = write(tmp_path / "b.parquet", rack=["r"])
    with pytest.raises(SpecError, match=r"'.*b\.parquet' has a column 'rack' that (is|has) .*a\.p"):
        read_schemas(table, "--members")


def test_a_column_that_a_later_file_lacks_is_null_there(tmp_path):
    write(tmp_path / "a.parquet", rack=["r"])
    table = write(tmp_path / "b.parquet", also=pa.nulls(1))
    assert len(read_schemas(table, "--members")) == 2
    assert table.read("members")["rack"].to_pylist() == ["r", None]
