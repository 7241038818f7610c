"""A driver of a shared topic without a JVM: `python -m tests.streams.plain_driver GROUP KAFKA OUT`.

Its frames are the places that Spark would read, and it writes them with `ExactlyOnceTable`.
"""

from __future__ import annotations

import signal
import sys
import time
from itertools import groupby

import pyarrow as pa

import spark_jobs
from coordinator import ExactlyOnceTable, Member
from tests.streams.test_shared_source import Reader

SCHEMA = pa.schema([("partition", pa.int64()), ("offset", pa.int64())])


def main(address, kafka, output):
    """Share a topic until SIGTERM."""
    with Member(address, group_id="g", topics="clicks") as member:
        table = ExactlyOnceTable(member, output)
        source = spark_jobs.shared_source(
            Reader(), member, kafka=kafka, interval_s=0.1, max_records=200
        )
        signal.signal(signal.SIGTERM, lambda *_: source.stop())

        def work(frame, _number):
            for place, rows in groupby(frame, key=lambda row: row[0]):
                offsets = [offset for _, offset in rows]
                time.sleep(0.02)  # in which it may be frozen
                numbers = [place.partition] * len(offsets)
                table.write(place, offsets[0], pa.table([numbers, offsets], schema=SCHEMA))

        source.run(work)
        sys.stdout.write(f"batches {source.batches} fenced {source.fenced}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
