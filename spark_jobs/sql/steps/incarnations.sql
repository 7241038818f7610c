-- A step: the incarnation of each group epoch, generation and plan: how often its group had ended
-- before, and one.
WITH recorded AS (
    SELECT group_id, position, false AS ended
    FROM $log
    WHERE kind IN ('group_metadata', 'classic_group', 'plan') AND NOT tombstone
    UNION ALL
    SELECT group_id, position, true
    FROM $group_ends
),
counted AS (
    SELECT group_id, position, ended,
        CAST(1 + count_if(ended) OVER (PARTITION BY group_id ORDER BY position) AS INT)
            AS incarnation
    FROM recorded
)
SELECT group_id, position, incarnation
FROM counted
WHERE NOT ended
