"""A gateway to a Kafka cluster: Muster answers for groups, the cluster for everything else."""
