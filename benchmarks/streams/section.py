"""Spark's streams on a real Kafka: offsets in groups, and a topic that drivers share."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "Streams: Kafka topics in Spark"
TEXT = """\
A Kafka 4.4.0 on this machine; all times are elapsed.
*GroupOffsets* gets a batch of 1,000 partitions that have all moved: how long it holds up its caller
(Spark's listener bus, not the query), and when the offsets are committed.
*shared_source* reads the same offsets in as many batches as Spark's own batch reader, one after the
other in turns; both write to `noop`. *Hand-over* is from the end of a driver until another reads
the last of its partitions, and until it has written them to a Delta table, while records arrive,
with a session timeout of 6 s, and with Kafka's own of 45 s; Kafka wants a heartbeat every 5 s, and
the drivers send one each second, as `shared_source` has it. *format("muster")* reads the ownership
history of a store of 100,000 members into `noop`, and `muster.frame` reads it in turns. Spark asks
one Python process for the columns, another one for the parts, and an executor's for the rows, and
no step begins before the one before it has ended. What that takes is the time of a Python source
that only maps an Arrow file: of two rows, and of the same rows, which pass to the JVM. The rest is
the view, computed once, of which pieces pass while others are computed. *First read* is that of a
new session, when Spark starts these processes, and they import what they need. A planned leave
takes as long as both drivers need to end their batches, and one heartbeat.
"""
PARTITIONS, BATCHES = 1_000, 30
SESSIONS_S = 6, 45


def run(bench: Bench) -> Section:
    """Measure on a broker of this run's own; needs Java and Maven, as `make test-kafka`."""
    from tests.clients.kafka_broker import Kafka  # noqa: PLC0415 - confluent-kafka is for tests

    partitions = 50 if bench.smoke else PARTITIONS
    topics = {"wide": partitions, "clicks": 4}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Kafka(Path(folder), topics) as kafka,
    ):
        bench.say("streams: GroupOffsets")
        figures = list(_group_offsets(kafka.address, partitions, 3 if bench.smoke else BATCHES))
        bench.say("streams: shared_source against Spark's batch reader")
        figures += _shared_source(kafka.address, 4_000 if bench.smoke else 400_000)
    figures += _hand_overs(bench)
    bench.say('streams: format("muster") against history.frame')
    figures += _data_source(400 if bench.smoke else 100_000)
    return Section(TITLE, TEXT, figures)


def _group_offsets(address: str, partitions: int, batches: int) -> Iterator[Figure]:
    from spark_jobs import GroupOffsets  # noqa: PLC0415 - pyspark takes its time

    offsets = GroupOffsets(address, "wide")
    held_up, done = [], []
    for number in range(batches):
        ends = json.dumps({"wide": {str(one): number for one in range(partitions)}})
        source = SimpleNamespace(description="KafkaV2[Subscribe[wide]]", endOffset=ends)
        event: Any = SimpleNamespace(
            progress=SimpleNamespace(runId="run", name=None, sources=[source])
        )
        began = time.perf_counter()
        offsets.onQueryProgress(event)
        held_up.append((time.perf_counter() - began) * 1_000)
        assert offsets.flush(60), offsets.error
        done.append((time.perf_counter() - began) * 1_000)
    offsets.close()
    name = f"GroupOffsets, {partitions:,} partitions a batch"
    yield Figure.of(f"{name}: held up", held_up, "ms", 20.0)
    yield Figure.of(f"{name}: committed", done, "ms")


@contextmanager
def _session() -> Iterator[SparkSession]:
    from spark_jobs.session.session import spark_session  # noqa: PLC0415 - the same
    from tests.support.spark.kafka_jars import kafka_source_jars  # noqa: PLC0415 - the same

    jars = ",".join(map(str, kafka_source_jars()))
    spark = spark_session("streams", "local[2]", {"spark.jars": jars})
    try:
        yield spark
    finally:
        spark.stop()


def _shared_source(address: str, records: int) -> list[Figure]:
    """Read the same batches both ways, in turns."""
    from coordinator import Member  # noqa: PLC0415 - the same
    from spark_jobs import shared_source  # noqa: PLC0415 - the same
    from tests.streams.kafka import produce  # noqa: PLC0415 - the same

    produce(address, "clicks", dict.fromkeys(range(4), records))
    batches = 4
    step = records // batches
    with _session() as spark, Member(address, group_id="bench", topics="clicks") as member:
        while len(member.owned) < 4:
            time.sleep(0.1)

        def write(rows: DataFrame, _number: int = 0) -> None:
            rows.write.format("noop").mode("overwrite").save()

        def by_spark() -> None:
            for at in range(batches):
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
                begin = json.dumps({"clicks": {str(n): at * step for n in range(4)}})
                end = json.dumps({"clicks": {str(n): (at + 1) * step for n in range(4)}})
                reader = reader.option("assign", json.dumps({"clicks": [0, 1, 2, 3]}))
                write(reader.options(startingOffsets=begin, endingOffsets=end).load())

        def by_source() -> None:
            member.commit({("clicks", number): 0 for number in range(4)})
            source = shared_source(spark, member, kafka=address, max_records=4 * step)

            def work(rows: DataFrame, number: int) -> None:
                write(rows)
                if number == batches - 1:
                    source.stop()

            source.run(work)
            assert source.records == 4 * records, source.records

        own, ours = _in_turns(by_spark, by_source)
    what = f"{4 * records:,} records in {batches} batches"
    return [
        Figure.of(f"Spark's batch reader, {what}", own),
        Figure.of(f"shared_source, {what}", ours),
        Figure.of("shared_source against Spark's batch reader", _ratio(ours, own), "x", 1.1),
    ]


def _data_source(members: int) -> list[Figure]:
    """Read the ownership history of a large store in Spark, and without it."""
    from benchmarks.store import temporary_store  # noqa: PLC0415 - the same
    from benchmarks.streams.plain_source import PlainSource  # noqa: PLC0415 - the same
    from benchmarks.views import write_log  # noqa: PLC0415 - the same
    from coordinator.history import frame  # noqa: PLC0415 - the same

    view = "assignment_history"
    with temporary_store() as store, _session() as spark:
        write_log(store, members)
        files = {
            name: _written(frame(store, name), Path(store, f"{name}.arrow"))
            for name in (view, "topics")
        }

        def by_muster(asked: str = view) -> None:
            _drain(spark.read.format("muster").option("view", asked).load(str(store)))

        def by_plain(asked: str = view) -> None:
            _drain(spark.read.format("plain").load(files[asked]))

        spark.dataSource.register(PlainSource)
        firsts = []
        for read in (by_plain, by_muster):
            began = time.perf_counter()
            read("topics")
            firsts.append((time.perf_counter() - began) * 1_000)
        own, ours, handed = _in_turns(lambda: frame(store, view), by_muster, by_plain)
        floor, least = _in_turns(lambda: by_plain("topics"), lambda: by_muster("topics"))
    what = f"{view} of {members:,} members"
    return [
        Figure.of(f"muster.frame, {what}", own),
        Figure.of(f'format("muster"), {what}', ours),
        Figure.of("a Python source that has these rows in a file", handed),
        Figure.of("a Python source of two rows: what every read costs", floor),
        Figure.of('format("muster"), two topics', least),
        Figure.of("a Python source of two rows, first read of any", firsts[:1]),
        Figure.of('format("muster"), two topics, first read', firsts[1:]),
        Figure.of('format("muster") against muster.frame', _ratio(ours, own), "x", 1.5),
    ]


def _written(rows: pa.Table, path: Path) -> str:
    """Return the name of an Arrow file of rows."""
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows)
    return str(path)


def _drain(rows: DataFrame) -> None:
    """Read all rows, and keep none."""
    rows.write.format("noop").mode("overwrite").save()


def _in_turns(*ways: Callable[[], object], turns: int = 5) -> list[list[float]]:
    """Return how many ms each of some ways took, in turns after one that warms up."""
    taken: list[list[float]] = [[] for _ in ways]
    for turn in range(turns + 1):
        for way, samples in zip(ways, taken, strict=True):
            began = time.perf_counter()
            way()
            if turn:
                samples.append((time.perf_counter() - began) * 1_000)
    return taken


def _ratio(ours: list[float], own: list[float]) -> list[float]:
    """Return how many times as long it took, of pairs."""
    return [statistics.median(b / a for a, b in zip(own, ours, strict=True))]


def _hand_overs(bench: Bench) -> Iterator[Figure]:
    """Measure hand-overs, with a short session timeout, and with Kafka's own."""
    from tests.clients.kafka_broker import Kafka  # noqa: PLC0415 - confluent-kafka is for tests

    for session_s in SESSIONS_S[:1] if bench.smoke else SESSIONS_S:
        runs = 3 if session_s == SESSIONS_S[0] and not bench.smoke else 1
        settings = [
            f"group.consumer.session.timeout.ms={session_s * 1_000}",
            "group.consumer.heartbeat.interval.ms=5000",
        ]
        for how in ("kill -9", "planned leave"):
            goal = session_s + 3.0 if how == "kill -9" else 3.0
            name = f"hand-over after {how}, sessions of {session_s} s"
            found = []
            for number in range(runs):
                bench.say(f"streams: {name}, {number}")
                with (
                    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
                    Kafka(Path(folder), {"moves": 6}, settings) as kafka,
                ):
                    found.append(_hand_over(Path(folder), kafka.address, how))
            yield Figure.of(f"{name}: read", [one for one, _ in found], "s", goal)
            yield Figure.of(f"{name}: written", [one for _, one in found], "s")


def _hand_over(folder: Path, address: str, how: str) -> tuple[float, float]:
    """Return after how many seconds another driver reads a driver's partitions, and wrote them."""
    import signal  # noqa: PLC0415 - as the rest

    from tests.streams.drivers import Driver  # noqa: PLC0415 - the same
    from tests.streams.test_shared_kafka import Producer  # noqa: PLC0415 - the same

    words = (Path(__file__).with_name("driver.py"), address, "g", "moves", folder / "out")
    drivers = [Driver(folder, f"driver-{n}", *words) for n in (0, 1)]

    def wait(number: int, what: str, partitions: int, after: float) -> float:
        """Wait until a driver says so, and return when it did."""
        until = time.monotonic() + 240
        while True:
            for line in drivers[number].messages().splitlines():
                words = line.split()
                if words[:1] != ["diary"] or words[2] != what or float(words[1]) <= after:
                    continue
                if "".join(words[3:]).count(",") == partitions - 1:
                    return float(words[1])
            assert time.monotonic() < until, [one.messages()[-2_000:] for one in drivers]
            time.sleep(0.1)

    try:
        with Producer(address, "moves"):
            shared = max(wait(number, "wrote", 3, 0) for number in (0, 1))
            for number in (0, 1):
                wait(number, "wrote", 3, shared)
            if how == "planned leave":
                drivers[0].process.send_signal(signal.SIGTERM)
            else:
                drivers[0].signal(signal.SIGKILL)
            began = time.monotonic()
            read = wait(1, "reads", 6, began)
            return read - began, wait(1, "wrote", 6, read) - began
    finally:
        for one in drivers:
            one.kill()
