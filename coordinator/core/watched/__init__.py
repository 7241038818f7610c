"""Groups that another coordinator, Kafka's, decides about: what it wrote, and why."""
