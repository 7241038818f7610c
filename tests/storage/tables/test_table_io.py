"""Tables that a user names: Parquet and Delta, read without Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.storage.tables.table_io import TableRef


def test_a_parquet_column_is_untyped_only_if_no_file_gives_it_a_type(tmp_path):
    nothing = pa.array([None], pa.null())
    first = pa.table({"member_id": ["a"], "instance_id": nothing, "rack": nothing})
    second = pa.table({"member_id": ["b"], "instance_id": nothing, "rack": ["r"]})
    pq.write_table(first, tmp_path / "1.parquet")
    pq.write_table(second, tmp_path / "2.parquet")
    assert TableRef.of(str(tmp_path), "--members").untyped_columns() == ["instance_id"]
    one = TableRef.of(str(tmp_path / "1.parquet"), "--members")
    assert one.untyped_columns() == ["instance_id", "rack"]
