"""`spark.readStream.format("muster")`: each event once, over restarts; another log is refused."""

from __future__ import annotations

import os
import shutil

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from assignors import SpecError
from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from coordinator.storage.data_files import write_part
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.filesystem import Filesystem
from pyspark_muster import limited_stream
from tests.support.stories import all_stories, billing, stored

pytestmark = pytest.mark.spark


def stream(spark, store, **options):
    return spark.readStream.format("muster").options(view="events", **options).load(str(store))


def run(frame_, out, checkpoint):
    """Write what there is to read, and stop; return how many batches that took."""
    query = (
        frame_.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(300)
        return query.lastProgress.batchId + 1
    finally:
        query.stop()


def rows_of(frame_):
    return sorted(map(str, frame_.collect()))


def test_a_stream_goes_on_where_it_ended_and_refuses_another_log(spark, tmp_path):
    batches = billing().batches
    store, out, checkpoint = (tmp_path / name for name in ("a störe", "out", "checkpoint"))
    stored(batches[: len(batches) // 2], store)
    limits = limited_stream.LIMITS is not None
    limited = stream(spark, store, **{"maxPositionsPerTrigger": "9"} if limits else {})
    assert (run(limited, out, checkpoint) > 2) == limits
    first = spark.read.parquet(str(out))
    wanted = frame(store, "events")
    assert len(wanted) > 10
    assert rows_of(first) == sorted(map(str, spark.createDataFrame(wanted, first.schema).collect()))
    shutil.rmtree(store)
    stored(batches, store)
    with pytest.raises(Exception, match="is another one than the query has read"):
        run(stream(spark, store), out, checkpoint)


def read_on(reader, start):
    """Read what is new, as Spark does, and return where the batch ended."""
    end = reader.latestOffset()
    return end, [
        row
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def event_stream(store, **options):
    from pyspark_muster import DefaultSource

    source = DefaultSource({"path": str(store), "view": "events", **options})
    return source.streamReader(source.schema())


def test_a_running_store_is_read_without_gap_or_repetition(tmp_path):
    """The reader alone, a new one for each batch, as after a restart."""
    from coordinator.config import LogConfig
    from coordinator.storage.delta_log import DeltaLog
    from tests.support.stories import Story

    store, read = tmp_path / "store", []
    story = Story('o"live-ü', log=DeltaLog(store, LogConfig(fsync=False))).topics(orders=6)
    offset = event_stream(store).initialOffset()
    for turn, member in enumerate(("m1", "m2", "m3")):
        story.at(turn).join(member, "orders")
        offset, rows = read_on(event_stream(store), offset)
        read += rows
    story.at(3).leave("m2").fall_silent("m3").at(10)
    read += read_on(event_stream(store), offset)[1]
    story.trace.close()
    wanted = frame(store, "events").to_pylist()
    assert len(read) > 20
    assert read == wanted
    begin = wanted[20]["position"]
    reader = event_stream(store, startingPosition=str(begin))
    later = read_on(reader, reader.initialOffset())[1]
    assert later == [row for row in wanted if row["position"] >= begin]


FIRST = 42
"""The first position of a log that was trimmed."""


@pytest.fixture
def trimmed(tmp_path):
    """A store whose log has no rows before a position."""

    whole = stored(billing().batches, tmp_path / "whole")
    (file,) = (whole / "log").glob("*.parquet")
    rows = pq.read_table(file)
    rows = rows.filter(pc.greater_equal(rows["position"], FIRST)).combine_chunks()
    table = FencedTable(str(tmp_path / "trimmed" / "log"), Filesystem(), sync=False)
    os.makedirs(table.path)
    table.open(SCHEMA)
    table.commit([write_part(Filesystem(), table.path, rows, sync=False)], 1)
    return tmp_path / "trimmed"


def test_a_stream_begins_where_a_trimmed_log_does(trimmed):
    wanted = frame(trimmed, "events").to_pylist()
    assert len(wanted) > 5
    for options in ({}, {"startingTimestamp": "2026-01-01"}, {"startingPosition": str(FIRST)}):
        reader = event_stream(trimmed, **options)
        end, rows = read_on(reader, reader.initialOffset())
        assert rows == wanted
        assert read_on(reader, end)[1] == []
    with pytest.raises(SpecError, match=f"startingPosition 1 .*has positions {FIRST} to"):
        event_stream(trimmed, startingPosition="1").initialOffset()
    old = {name: one | {"position": FIRST - 2} for name, one in end.items()}
    with pytest.raises(SpecError, match=f"position {FIRST - 1} is no longer in the log"):
        read_on(event_stream(trimmed), old)


def test_a_log_that_lacks_what_was_read_is_refused(trimmed):
    reader = event_stream(trimmed)
    end = reader.latestOffset()
    later = {name: one | {"position": one["position"] + 1} for name, one in end.items()}
    with pytest.raises(SpecError, match="it was restored from an older copy"):
        reader.partitions(later, end)
    earlier = {name: one | {"position": one["position"] - 1} for name, one in end.items()}
    with pytest.raises(SpecError, match="start the query again when its clock is right"):
        reader.partitions(end, earlier)


def test_batches_are_limited_where_spark_has_limits(tmp_path):
    limits = pytest.importorskip(
        "pyspark.sql.streaming.datasource", reason="Spark 4.2: test-matrix"
    )
    store = stored(all_stories(), tmp_path / "store")
    reader = event_stream(store, maxPositionsPerTrigger="7")
    assert reader.getDefaultReadLimit() == limits.ReadMaxRows(7)
    reader.prepareForTriggerAvailableNow()
    whole = reader.latestOffset({}, limits.ReadAllAvailable())
    at, rows, sizes = reader.initialOffset(), [], []
    while at != whole:
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        parts = reader.partitions(at, end)
        sizes += [part.position - part.after for part in parts]
        at, batch = end, [found for part in parts for found in reader.read(part)]
        rows += [row for one in batch for row in one.to_pylist()]
    assert rows == frame(store, "events").to_pylist()
    assert len(sizes) > 10
    assert sorted(sizes)[len(sizes) // 2] < 14
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at


def test_a_limit_is_refused_where_spark_has_none(tmp_path):
    if limited_stream.LIMITS is not None:
        pytest.skip("this Spark has limits")
    store = stored(all_stories(), tmp_path / "store")
    with pytest.raises(SpecError, match="maxPositionsPerTrigger needs Spark 4"):
        event_stream(store, maxPositionsPerTrigger="7")


def test_a_batch_opens_its_log_once(tmp_path, monkeypatch):
    """Spark asks for the end and then for the parts: of the same log."""
    from pyspark_muster import event_stream as module

    opened = []

    class Counted(LogReader):
        def __init__(self, store, *more, **options):
            opened.append(store)
            super().__init__(store, *more, **options)

    store = stored(billing().batches, tmp_path / "store")
    monkeypatch.setattr(module, "LogReader", Counted)
    reader = event_stream(store)
    end = reader.latestOffset()
    parts = reader.partitions({}, end)
    assert len(opened) == len(parts) == 1
    reader = event_stream(store)  # a new one goes on from a checkpoint
    assert [vars(one) for one in reader.partitions({}, end)] == [vars(one) for one in parts]
    assert len(opened) == 2


def test_bad_options_of_streams_are_refused_by_name(tmp_path):
    store = stored(all_stories(), tmp_path / "store")
    for options, why in (
        ({"view": "epochs"}, "view 'epochs' is not a stream: its rows change"),
        ({"positionAsOf": "3"}, "a stream has no end: omit positionAsOf"),
        ({"maxRecordsPerTrigger": "9"}, "unknown option 'maxRecordsPerTrigger'.*maxPositionsPerTr"),
        ({"maxPositionsPerTrigger": "0"}, "maxPositionsPerTrigger is '0': give a number"),
        ({"maxPositionsPerTrigger": "9" * 5_000}, "maxPositionsPerTrigger is '9*': give a number"),
        ({"startingPosition": "999999"}, "startingPosition 999999 is not in the log"),
        ({"startingPosition": "1", "startingTimestamp": "2026-03-01"}, "exclude each other"),
        ({"startingPosition": "soon"}, "startingPosition 'soon' is neither a position nor a time"),
    ):
        with pytest.raises(SpecError, match=why):
            event_stream(store, **options).initialOffset()
