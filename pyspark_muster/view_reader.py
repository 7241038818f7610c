"""Read a view in Spark's Python workers, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from coordinator.history.log_reader import open_logs
from coordinator.history.view_schemas import OF_EACH_SHARD
from coordinator.storage.shards import places_of, store_of, stores_of
from coordinator.storage.tables.store_root import find_root
from pyspark_muster.filters import PushedFilters
from pyspark_muster.options import ReadOptions

BATCH_ROWS = 10_000


class ViewPart(InputPartition):
    """The rows of one group, or of all, up to a position of a log, or as it is when it is read."""

    def __init__(self, store: str, group_id: str | None, position: int | None) -> None:
        super().__init__(None)
        self.store, self.group_id, self.position = store, group_id, position


class ViewReader(DataSourceReader):
    """Reads a view as each log is when a task reads it, unless a moment is given.

    Spark asks for the parts once for a DataFrame, or a view in SQL, and reads these for all of its
    queries. So a part has no end, and each shard has one, also one without a log yet.
    """

    def __init__(self, asked: ReadOptions) -> None:
        self._asked = asked
        self._filters = PushedFilters(asked.arrow_schema)

    def partitions(self) -> list[InputPartition]:
        """Return a part for each group that is asked for by name, else for each log."""
        asked, groups = self._asked, self._filters.groups
        one_log = asked.view in OF_EACH_SHARD or asked.group_id is not None
        if groups is None and asked.as_of is None and not one_log:
            places = map(find_root, places_of(asked.store))
            return [ViewPart(one, asked.group_id, None) for one in places]
        logs = open_logs(asked.store, asked.as_of, asked.group_id)
        if groups is None:
            return [
                ViewPart(one.store, asked.group_id, None if asked.as_of is None else one.position)
                for one in (logs[:1] if one_log else logs)
            ]
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
        if partition.store not in map(find_root, stores_of(asked.store)):
            return  # a shard that has no groups yet
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


class PushedReader(ViewReader):
    """Reads what filters let through that Spark pushes down, if its session allows that.

    Spark 4.1 to 4.3 keep the parts and the filters of the last query with the DataFrame: a query of
    it without a filter then reads these, and so does each side of a join or a union of two of its
    filters. So only who asks for it, by an option, gets it.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Take filters, and return those that Spark must apply."""
        return [one for one in filters if not self._filters.take(one)]
