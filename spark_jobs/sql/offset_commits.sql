-- The offsets that were ever committed, or deleted: one row per record.
SELECT
    group_id,
    topic,
    topic_id,
    partition,
    position,
    recorded_at,
    `offset`,
    leader_epoch,
    metadata,
    timestamp_millis(commit_timestamp) AS committed_at,
    tombstone AS deleted
FROM $log
WHERE kind = 'offset_commit'
