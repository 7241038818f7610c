"""Data through the gateway, and directly: elapsed time in turns, and the gateway's CPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.measure import Bench, Figure, cpu_s
from benchmarks.report import Section

if TYPE_CHECKING:
    from confluent_kafka import Producer

TITLE = "The gateway"
TEXT = """\
`muster gateway` and a Kafka 4.4.0 on this machine, and one client of librdkafka in this process: it
writes records of 10,000 bytes in batches of up to a megabyte, reads them all again, and then writes
single records, each once the one before is acknowledged. *Directly* and *through the gateway* take
turns. CPU is that of the gateway's process, all threads; most of it copies bytes from socket to
socket, here with uvloop. What elapses depends on the client and on Kafka, which have the same two
cores.
"""
TOPIC, PARTITIONS, SIZE, MB = "data", 4, 10_000, 1_000_000
WORDS = {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.kbytes": 100_000}
PATIENCE_S = 120.0


def run(bench: Bench) -> Section:
    """Measure on a broker of this run's own; needs Java and Maven, as `make test-kafka`."""
    from tests.clients.kafka_broker import Kafka  # noqa: PLC0415 - confluent-kafka is for tests

    size, turns, records = (10, 1, 20) if bench.smoke else (200, 5, 500)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Kafka(Path(folder), {TOPIC: PARTITIONS}) as kafka,
        _gateway(kafka.address) as (process, address),
    ):
        places = {"directly": kafka.address, "through the gateway": address}
        figures = list(_data(bench, process, places, size, turns))
        figures += _single(bench, places, records)
    return Section(TITLE, TEXT, figures)


def _data(
    bench: Bench, process: subprocess.Popen[str], places: dict[str, str], size: int, turns: int
) -> Iterator[Figure]:
    """Write and read, in turns."""
    took: dict[tuple[str, str], list[float]] = {}
    used: dict[str, list[float]] = {}
    for turn in range(turns):
        for place, address in places.items():
            bench.say(f"gateway: {size} MB {place}, turn {turn + 1}")
            begins = _ends(address)
            for what, work in (("written", _write), ("read", _read)):
                before = cpu_s(process.pid)
                took.setdefault((what, place), []).append(work(address, size, begins) * 1000)
                if address != places["directly"]:
                    cpu_ms = (cpu_s(process.pid) - before) * 1000
                    used.setdefault(what, []).append(cpu_ms * 100 / size)
    for what in ("written", "read"):
        for place in places:
            yield Figure.of(f"{size} MB {what} {place}: elapsed", took[what, place])
        ratio = statistics.median(took[what, "through the gateway"]) / statistics.median(
            took[what, "directly"]
        )
        yield Figure.of(f"{size} MB {what}: elapsed, ratio", [ratio], "x")
        yield Figure.of(f"100 MB {what}: CPU of the gateway", used[what], goal=400.0)


def _single(bench: Bench, places: dict[str, str], records: int) -> Iterator[Figure]:
    """Write single records, each after the acknowledgement of the one before."""
    bench.say("gateway: single records")
    writers = {place: _producer(address, **{"linger.ms": 0}) for place, address in places.items()}
    took: dict[str, list[float]] = {place: [] for place in places}
    for _ in range(records):
        for place, writer in writers.items():
            began = time.perf_counter()
            writer.produce(TOPIC, b"x", partition=0)
            assert writer.flush(PATIENCE_S) == 0
            took[place].append((time.perf_counter() - began) * 1000)
    for place, samples in took.items():
        yield Figure.of(f"a single record is acknowledged {place}", samples)


def _producer(address: str, **words: object) -> Producer:
    from confluent_kafka import Producer  # noqa: PLC0415 - as above

    return Producer({"bootstrap.servers": address, **WORDS, **words})


def _ends(address: str) -> list[int]:
    """Return where the partitions end."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - as above

    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found = [consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places]
    consumer.close()
    return found


def _write(address: str, size: int, _begins: list[int]) -> float:
    """Write records; return the seconds until the last is acknowledged."""
    producer, value = _producer(address), Random(1).randbytes(SIZE)
    producer.list_topics(timeout=PATIENCE_S)
    began = time.perf_counter()
    for _ in range(size * MB // SIZE):
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(PATIENCE_S) == 0
    return time.perf_counter() - began


def _read(address: str, size: int, begins: list[int]) -> float:
    """Read them; return the seconds from the first to the last."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - as above

    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, *place) for place in enumerate(begins)])
    left, began = size * MB // SIZE, 0.0
    until = time.perf_counter() + PATIENCE_S
    while left > 0 and time.perf_counter() < until:
        found = consumer.consume(100, 1.0)
        began = began or (time.perf_counter() if found else 0.0)
        left -= sum(one.error() is None for one in found)
    assert left <= 0, f"{left} records are missing"
    took = time.perf_counter() - began
    consumer.close()
    return took


@contextmanager
def _gateway(kafka: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a cluster on free ports until the end."""
    command = [sys.executable, "-m", "coordinator", "gateway", "--kafka", kafka]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("muster serves Kafka at "), line
        yield process, line.split()[6]
        process.terminate()
