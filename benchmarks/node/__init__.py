"""A node of a Kafka cluster, beside the brokers."""
