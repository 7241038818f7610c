"""A Python data source that does nothing: what Spark itself takes for a read of any."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


class PlainReader(DataSourceReader):
    """Reads two rows."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"partitions": pa.array([1, 2], pa.int32())})


class PlainSource(DataSource):
    """The source of two rows that imports nothing of Muster's."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return "partitions INT"

    def reader(self, schema: object) -> PlainReader:  # noqa: ARG002 - named by Spark
        return PlainReader()
