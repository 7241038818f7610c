"""What a node of a Kafka cluster is asked beside groups and records, as every broker is."""
