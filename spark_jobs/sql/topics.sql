-- The topics that exist: one row per topic.
-- In SQL, too, since `partition_owners` is made of it.
WITH last AS (
    SELECT topic, max(struct(position, tombstone, topic_id, partitions)) AS row
    FROM $log
    WHERE kind = 'topic'
    GROUP BY topic
)
SELECT topic, row.topic_id, row.partitions
FROM last
WHERE NOT row.tombstone
