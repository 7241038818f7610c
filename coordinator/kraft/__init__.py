"""A node of a Kafka cluster: registered with its KRaft controllers, as one of its brokers.

From the inside out, what is pure first: `metadata_records` reads the records of the cluster's
metadata, `metadata_image` is their replay; `partition_log` is what a partition's log holds, and
`following` what a follower does with an answer of its leader; `record_writer` makes Kafka's records
of ours, with `kafka_hash` of a group's topics, and `batch_writer` the batches that a leader has its
followers fetch. Around them: files (`log_files`, `node_files`), connections (`controllers`,
`observer`, `replicas`) and the node itself (`node`).

Where a node leads, `leading` decides, without I/O, what of a partition counts; `led_partition` is
that with its file and its waiters; `partition_records` makes it a coordinator's log. `leader` has a
coordinator for each; `replica_apis` answers followers, and `served` has the sockets. Offsets in
transactions are in `transactions`, and `requests` answers about them.
"""
