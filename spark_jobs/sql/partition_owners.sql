-- Who owns which partitions of existing topics: one row per range. Kafka's describe shows the same.
SELECT
    current.group_id,
    current.topic,
    current.topic_id,
    current.first_partition,
    current.first_partition + current.partition_count - 1 AS last_partition,
    current.partition_count,
    current.member_id,
    current.instance_id,
    current.client_id,
    current.client_host,
    current.assignment_epoch,
    current.pending_revocation
FROM $current_assignments AS current
JOIN $topics AS topics ON current.topic = topics.topic AND current.topic_id = topics.topic_id
