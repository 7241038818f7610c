"""Read a view in Spark's Python workers, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from coordinator.history.log_reader import open_logs
from coordinator.history.view_schemas import OF_EACH_SHARD
from coordinator.storage.delta_log import find_root
from coordinator.storage.shards import store_of
from pyspark_muster.filters import PushedFilters
from pyspark_muster.options import ReadOptions

BATCH_ROWS = 10_000


class ViewPart(InputPartition):
    """The rows of one group, or of all, up to a position of a log."""

    def __init__(self, store: str, group_id: str | None, position: int) -> None:
        super().__init__(None)
        self.store, self.group_id, self.position = store, group_id, position


class ViewReader(DataSourceReader):
    """Reads a view as of one position of each log, which is found when a query is planned."""

    def __init__(self, asked: ReadOptions) -> None:
        self._asked = asked
        self._filters = PushedFilters(asked.arrow_schema)
        # As an attribute it may be there where the session pushes no filters down.
        self.__dict__["pushFilters"] = _Push(self._filters)

    def partitions(self) -> list[InputPartition]:
        """Return a part for each group that is asked for by name, else for each log."""
        asked, groups = self._asked, self._filters.groups
        logs = open_logs(asked.store, asked.as_of, asked.group_id)
        if groups is None:
            logs = logs[:1] if asked.view in OF_EACH_SHARD else logs
            return [ViewPart(one.store, asked.group_id, one.position) for one in logs]
        if asked.group_id is not None:
            groups = groups & {asked.group_id}
        ends = {one.store: one.position for one in logs}
        found = {group_id: find_root(store_of(asked.store, group_id)) for group_id in groups}
        return [
            ViewPart(store, group_id, ends[store])
            for group_id, store in sorted(found.items())
            if store in ends  # else its shard has no groups yet
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; Spark makes None of no parts."""
        from coordinator.history.frames import frame_pieces  # noqa: PLC0415 - executors alone need it

        if partition is None:
            return
        assert isinstance(partition, ViewPart)
        asked = self._asked
        schema = asked.arrow_schema
        pieces = frame_pieces(
            partition.store,
            asked.view,
            group_id=partition.group_id,
            as_of=partition.position,
            **asked.arguments,
        )
        for piece in pieces:
            rows = self._filters.apply(piece.select(schema.names).cast(schema))
            yield from rows.to_batches(max_chunksize=BATCH_ROWS)


class _Push:
    """Takes filters, and looks like a method that was not overridden.

    Spark refuses a reader that has a `pushFilters` of its own while its setting
    spark.sql.python.filterPushdown.enabled is false, as it is by default, and asks every reader
    where it is true.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", None) or (lambda: None))

    def __init__(self, filters: PushedFilters) -> None:
        self._filters = filters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        """Take filters, and return those that Spark must apply."""
        return [one for one in filters if not self._filters.take(one)]
