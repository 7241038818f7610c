-- The committed offsets: one row per partition.
-- In SQL, too, since `groups` is made of it.
WITH last AS (
    SELECT group_id, topic, partition,
        max_by(tombstone, position) AS ended,
        max_by(topic_id, position) AS topic_id,
        max_by(`offset`, position) AS `offset`,
        max_by(leader_epoch, position) AS leader_epoch,
        max_by(metadata, position) AS metadata,
        max_by(commit_timestamp, position) AS commit_timestamp
    FROM $log
    WHERE kind = 'offset_commit'
    GROUP BY group_id, topic, partition
)
SELECT
    group_id,
    topic,
    topic_id,
    partition,
    `offset`,
    leader_epoch,
    metadata,
    timestamp_millis(commit_timestamp) AS committed_at
FROM last
WHERE NOT ended
