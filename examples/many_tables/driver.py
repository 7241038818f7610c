"""One of several drivers that divide many tables: submit as many as you like.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
  examples/many_tables/driver.py HOST:PORT TABLES NIGHT KAFKA LAKE

HOST:PORT is the coordinator's (coordinate.py). NIGHT is a number that grows, as 20260301. Each
table is a Kafka topic of its name, which goes into the folder LAKE/TABLE/night=NIGHT.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from muster import (
    Coordinator,
    Member,
    Stop,
    TopicPartition,
    UnavailableError,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP, TOPIC = "nightly", "tables"
AT_ONCE = 4
"""How many tables a driver ingests at a time."""
LONGEST_MS = 3_600_000
"""How long a table may take: another driver waits that long for one that is to move."""
LOOK_S = 2.0


def drive(
    coordinator: str | Coordinator,
    tables: list[str],
    night: int,
    ingest: Callable[[str], object],
    look_s: float = LOOK_S,
) -> list[str]:
    """Ingest the tables that this driver owns, until all are done; return which it did."""
    slots, done = threading.Semaphore(AT_ONCE), []
    every = [TopicPartition(TOPIC, number) for number in range(len(tables))]

    def work(partition: TopicPartition, stop: Stop) -> None:
        if (member.committed(partition) or 0) >= night:
            return
        with slots:
            if stop.is_set():  # it went to another driver while it waited
                return
            table, began = tables[partition.partition], time.monotonic()
            ingest(table)
            took_s = time.monotonic() - began
            member.commit({partition: (night, f"{took_s:.3f}")})
            done.append(table)

    def leave_when_all_are_done() -> None:
        while not member.has_left:
            with suppress(UnavailableError, RuntimeError):  # asked again, or it has left
                committed = member.committed_offsets(every)
                if sum(at >= night for at in committed.values()) == len(tables):
                    member.leave()
            time.sleep(look_s)

    with Member(
        coordinator,
        group_id=GROUP,
        topics=TOPIC,
        server_assignor="weighted",
        rebalance_timeout_ms=LONGEST_MS,
    ) as member:
        threading.Thread(target=leave_when_all_are_done, daemon=True).start()
        member.run(work)
    return done


def ingest_topic(spark: SparkSession, kafka: str, topic: str, folder: Path) -> None:
    """Write what a topic has; a table that is ingested again is written once."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
    rows = reader.option("subscribe", topic).load()
    rows.selectExpr("CAST(value AS STRING) AS value").write.mode("overwrite").parquet(str(folder))


def main(coordinator: str, tables: str, night: str, kafka: str, lake: str) -> None:
    """Take part in a night."""
    spark = spark_session("many-tables")
    names = Path(tables).read_text(encoding="utf-8").split()

    def ingest(table: str) -> None:
        ingest_topic(spark, kafka, table, Path(lake, table, f"night={night}"))

    done = drive(coordinator, names, int(night), ingest)
    print(f"ingested {len(done)} of {len(names)} tables", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
