-- A step of views of the current state: the last record of each existing classic group.
WITH last AS (
    SELECT group_id,
        max_by(struct(tombstone, generation, assignor, classic_members), position) AS record
    FROM $log
    WHERE kind = 'classic_group'
    GROUP BY group_id
)
SELECT group_id, record.generation, nullif(record.assignor, '') AS assignor,
    coalesce(record.classic_members, array()) AS members
FROM last
WHERE NOT record.tombstone
