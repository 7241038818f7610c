"""What it costs to watch a Kafka cluster."""
