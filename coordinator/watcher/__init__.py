"""Watch a Kafka cluster: what its group coordinator writes to `__consumer_offsets`, as our records.

From bytes up: `record_batches` takes batches apart, `record_schemas` says what Kafka's records
hold, `kafka_records` makes our records of them.
"""
