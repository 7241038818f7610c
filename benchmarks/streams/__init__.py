"""What Spark's streams cost that read Kafka through groups."""
