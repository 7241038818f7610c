"""The driver: a Structured Streaming job that embeds the group's coordinator.

Workers fill the output table; this job streams that table on, into a count a partition, and says at
each batch who owns what. Killed, it is replaced by another driver that was waiting for the store:
the coordinator goes on from its log, the stream from its checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from files import SCHEMA

import muster
from muster import Coordinator, FileCatalog, parse_config, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "ingest"
CONFIG = """
[lease]
ttl_ms = 4000
renew_ms = 500

[topics]
poll_ms = 500

[kafka]
"group.consumer.session.timeout.ms" = 6000
"group.consumer.min.session.timeout.ms" = 6000
"group.consumer.heartbeat.interval.ms" = 1000
"group.consumer.min.heartbeat.interval.ms" = 1000
"""
"""Shorter than the defaults, so that who dies is missed within seconds."""


def main(root: Path, listen: str, store: str) -> None:
    """Coordinate, and stream, until killed; the store may be a URL."""
    spark = spark_session("muster-streaming", "local[2]", {"spark.driver.memory": "1g"})
    output = root / "output"
    DeltaTable.create(str(output), SCHEMA, mode="ignore")
    config = parse_config(CONFIG, "driver.py")
    catalog = FileCatalog(root / "data" / "topics.json")
    print("driver: waits for the store", flush=True)
    with (
        muster.embed(spark, store, config, topics=catalog) as coordinator,
        coordinator.serve(listen) as serving,
    ):
        print(f"driver: coordinates at {serving.address}", flush=True)
        stream = spark.readStream.format("delta").load(str(output))
        query = (
            stream.writeStream.foreachBatch(
                lambda rows, number: count(coordinator, root, rows, number)
            )
            .option("checkpointLocation", str(root / "checkpoint"))
            .trigger(processingTime="2 seconds")
            .start()
        )
        query.awaitTermination()


def count(coordinator: Coordinator, root: Path, rows: DataFrame, number: int) -> None:
    """Keep what a batch brought a partition; done again, a batch writes nothing twice."""
    (
        rows.groupBy("partition")
        .count()
        .write.format("delta")
        .mode("append")
        .option("txnAppId", "counts")
        .option("txnVersion", number)
        .save(str(root / "counts"))
    )
    (group,) = coordinator.consumer_group_describe(GROUP)
    owned = {
        member["client_id"]: sum(
            len(topic["partitions"]) for topic in member["assignment"]["topic_partitions"]
        )
        for member in group.get("members", ())
    }
    print(f"driver: batch {number}, group {group.get('group_state')}, owned {owned}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
