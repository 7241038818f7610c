-- A step: where groups ended, or went on under the other protocol. An id that is deleted again has not
-- ended again.
WITH recorded AS (
    SELECT group_id, position, tombstone,
        lag(tombstone) OVER (PARTITION BY group_id ORDER BY position) AS ended_before
    FROM $log
    WHERE kind IN ('group_metadata', 'classic_group')
)
SELECT group_id, position
FROM recorded
WHERE tombstone AND NOT ended_before
