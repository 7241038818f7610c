-- The committed offsets: one row a partition.
WITH last AS (
    SELECT group_id, topic, partition,
        max(struct(
            position, tombstone, topic_id, offset, leader_epoch, metadata, commit_timestamp
        )) AS row
    FROM $log
    WHERE kind = 'offset_commit'
    GROUP BY group_id, topic, partition
)
SELECT
    group_id,
    topic,
    row.topic_id,
    partition,
    row.offset,
    row.leader_epoch,
    row.metadata,
    timestamp_millis(row.commit_timestamp) AS committed_at
FROM last
WHERE NOT row.tombstone
