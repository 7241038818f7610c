"""The gateway: a Kafka cluster's data through Muster, beside the same directly."""
