"""`examples/shared_topic.py`, which says when it reads, and when it has written what it read.

`python driver.py KAFKA GROUP TOPIC OUTPUT`
"""

import signal
import sys
import time
from typing import TYPE_CHECKING

import muster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

kafka, group, topic, output = sys.argv[1:]
spark = muster.spark_session("shared-topic")


def note(what: str) -> None:
    """Say what happens now, on a clock that all processes share, to which partitions."""
    numbers = ",".join(str(place.partition) for place in sorted(member.owned))
    sys.stdout.write(f"diary {time.monotonic():.3f} {what} {numbers}\n")
    sys.stdout.flush()


def work(rows: "DataFrame", number: int) -> None:
    """Write a batch."""
    note("reads")
    write(rows, number)
    note("wrote")


with muster.Member(kafka, group_id=group, topics=topic) as member:
    write = muster.foreach_partition_owner(member, output)
    source = muster.shared_source(spark, member, kafka=kafka, max_records=100_000)
    signal.signal(signal.SIGTERM, lambda *_: source.stop())
    source.run(work)
