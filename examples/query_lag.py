"""See a Spark query's lag in Kafka's tools: commit its offsets to a group, and start where it is.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \
  examples/query_lag.py KAFKA TOPIC GROUP
"""

import sys

import muster

kafka, topic, group = sys.argv[1:]
spark = muster.spark_session("query-lag")
spark.streams.addListener(muster.GroupOffsets(kafka, group_id=group))
reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
reader = reader.option("startingOffsets", muster.starting_offsets(kafka, group, topic))
rows = reader.option("subscribe", topic).load()
query = rows.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination()
print(f"read {sum(one.numInputRows for one in query.recentProgress)} records")
spark.stop()  # waits until the listener has heard of the last batch
