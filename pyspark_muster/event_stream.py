"""Read the view `events` as a stream: a position of each log is the offset."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from assignors import SpecError
from coordinator.history.log_reader import BeforeLogError, LogReader
from coordinator.storage.shards import store_of, stores_of
from coordinator.storage.tables.store_root import find_root
from pyspark_muster.options import LATEST, ReadOptions
from pyspark_muster.view_reader import BATCH_ROWS

SAME_MOMENT_MS = 1000
"""Rows of one time are one moment, and may be several commits: it is over when this has passed."""
Part = dict[str, Any]
Offset = dict[str, Part]
"""Of each log, by the name of its shard: the position that was read last, and the table's id."""


class EventsBetween(InputPartition):
    """The events of a log after a position and up to another one."""

    def __init__(self, store: str, after: int, position: int) -> None:
        super().__init__(None)
        self.store, self.after, self.position = store, after, position


class EventStream(DataSourceStreamReader):
    """Reads the events of a store, from commit to commit of its logs."""

    def __init__(self, asked: ReadOptions) -> None:
        self._asked = asked
        self._logs: dict[str, LogReader] = {}
        self._read: dict[str, int] = {}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        begin = self._asked.begin
        if begin is None:
            return {}
        logs = self._open_logs()
        if isinstance(begin, int) and len(logs) > 1:
            raise SpecError(
                f"startingPosition is {begin}, and {self._asked.store} has {len(logs)} logs: give "
                "startingTimestamp or groupId"
            )
        self._read = {name: self._begin_of(log, begin) for name, log in logs.items()}
        return {name: _offset(log, self._read[name]) for name, log in logs.items()}

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: Offset | None = None,  # noqa: ARG002 - from Spark 4.2 on
        limit: object = None,  # noqa: ARG002
    ) -> Offset:
        """Return up to where there is something to read."""
        found = {}
        for name, log in self._open_logs().items():
            # A clock may be set back.
            self._read[name] = max(_last_of(log), self._read.get(name, 0))
            found[name] = _offset(log, self._read[name])
        return found

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return a part for each log that has something new."""
        parts: list[InputPartition] = []
        for name, last in end.items():
            log, before = self._begin(name, start, last)
            if last["position"] > before["position"]:
                parts.append(EventsBetween(log.store, before["position"], last["position"]))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part."""
        from coordinator.history.frames import read_view  # noqa: PLC0415 - executors alone need it

        assert isinstance(partition, EventsBetween)
        reading, schema = LogReader(partition.store, partition.position), self._asked.arrow_schema
        rows = read_view(reading, self._asked.view, self._asked.group_id)
        rows = rows.filter(pc.greater(rows["position"], partition.after))
        yield from rows.select(schema.names).cast(schema).to_batches(max_chunksize=BATCH_ROWS)

    def _begin(self, name: str, start: Offset, last: Part) -> tuple[LogReader, Part]:
        """Return the log of a shard, and where it was read to."""
        log = self._log_of(name, last["position"])
        # A query without a beginning begins where the log does.
        first = 0 if start else log.first_position - 1
        before = start.get(name, {"position": first, "log": last["log"]})
        self._check(log, before, last)
        return log, before

    def _open_logs(self) -> dict[str, LogReader]:
        """Return the logs of the store as they are now, by the names of their shards."""
        asked = self._asked
        if asked.group_id is None:
            stores = stores_of(asked.store)
        else:
            stores = [store_of(asked.store, asked.group_id)]
        found = {}
        for store in sorted(map(str, stores)):
            name = _name_of(asked.store, store)
            known = self._logs.get(name)
            found[name] = LogReader(store) if known is None else known.follow()
        self._logs = found
        return found

    def _log_of(self, name: str, position: int) -> LogReader:
        """Return a log that reaches a position, if it does: as it was asked for its end."""
        log = self._logs.get(name)
        if log is None or log.position < position:
            store = self._asked.store
            log = LogReader(store if name == _ALONE else os.path.join(find_root(store), name))
            self._logs[name] = log
        return log

    @staticmethod
    def _check(log: LogReader, before: Part, last: Part) -> None:
        """Refuse to go on where the log is not the one that was read, or lacks rows.

        Raises
        ------
        SpecError
            It is another one, or shorter, or its rows from there on are gone.
        """
        store = log.store
        remedy = "start the query with a new checkpoint"
        if {before["log"], last["log"]} != {log.table_id}:
            raise SpecError(
                f"the log of {store} is another one than the query has read, {before['log']}: "
                f"{remedy}"
            )
        position = max(last["position"], before["position"])
        if position > log.position:
            raise SpecError(
                f"position {position} is after the end of the log of {store}, {log.position}: it "
                f"was restored from an older copy; {remedy}"
            )
        if before["position"] > last["position"]:
            raise SpecError(
                f"position {before['position']} of the log of {store} was read already, and is in "
                "the future of this machine: start the query again when its clock is right"
            )
        first = log.first_position
        if before["position"] + 1 < first:
            raise SpecError(
                f"position {before['position'] + 1} is no longer in the log of {store}, which "
                f"begins at {first}: {remedy}"
            )

    @staticmethod
    def _begin_of(log: LogReader, begin: int | str | datetime) -> int:
        """Return the position before the first one to read."""
        if begin == LATEST:
            return _last_of(log)
        if isinstance(begin, datetime):
            try:  # the last one before that time
                return LogReader(log.store, begin - timedelta(milliseconds=1)).position
            except BeforeLogError:
                return log.first_position - 1
        assert isinstance(begin, int)
        if not log.first_position <= begin <= log.position + 1:
            raise SpecError(
                f"startingPosition {begin} is not in the log of {log.store}: it has positions "
                f"{log.first_position} to {log.position}; give one of them, or {LATEST!r}"
            )
        return begin - 1


_ALONE = "log"
"""The name of the log of a store without shards."""


def _name_of(root: str, store: str) -> str:
    return _ALONE if store == root else store.removeprefix(find_root(root)).strip("/")


def _last_of(log: LogReader) -> int:
    """Return the last position of a moment that is over."""
    if log.at_ms <= time.time_ns() // 1_000_000 - SAME_MOMENT_MS:
        return log.position
    return log.moment_of(log.position)[0] - 1


def _offset(log: LogReader, position: int) -> Part:
    return {"position": position, "log": log.table_id}
