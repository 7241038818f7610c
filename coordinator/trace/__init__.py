"""Play recorded operations, and write groups and records as Kafka's JSON has them."""
