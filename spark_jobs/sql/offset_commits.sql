-- The offsets that were ever committed, or deleted: one row per record.
-- In SQL, too, as a permanent view: for dashboards of consumption, without Muster.
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
