"""What is asked of a Kafka cluster, through confluent-kafka (the extra `kafka`)."""
