"""Share a Kafka topic between drivers: start as many as you like, each row is written once.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
  examples/shared_topic.py KAFKA GROUP TOPIC OUTPUT [HOST:PORT of muster serve]
"""

import signal
import sys

import muster

kafka, group, topic, output, *serving = sys.argv[1:]
spark = muster.spark_session("shared-topic")
with muster.Member(serving or kafka, group_id=group, topics=topic) as member:
    write = muster.foreach_partition_owner(member, output)
    source = muster.shared_source(spark, member, kafka=kafka, max_records=100_000)
    signal.signal(signal.SIGTERM, lambda *_: source.stop())
    source.run(write)
