-- All groups, and the ids that have offsets only: one row a group. Its state is Kafka's (G-2).
WITH last AS (
    SELECT group_id,
        max(position) FILTER (WHERE NOT tombstone) AS position,
        max(struct(position, tombstone, epoch)) FILTER (WHERE kind = 'group_metadata') AS metadata,
        max(struct(position, assignment_epoch, assignor, partial))
            FILTER (WHERE kind = 'target_assignment_metadata') AS target
    FROM $log
    WHERE kind IN (
        'group_metadata', 'target_assignment_metadata', 'member_metadata', 'regular_expression'
    )
    GROUP BY group_id
),
alive AS (
    SELECT group_id,
        coalesce(metadata.epoch, 1) AS group_epoch,
        target.assignment_epoch,
        nullif(target.assignor, '') AS assignor,
        coalesce(target.partial, false) AS partial
    FROM last
    WHERE NOT coalesce(metadata.tombstone, false) OR position > metadata.position
),
counted AS (
    SELECT alive.group_id, group_epoch, assignment_epoch, assignor, partial,
        count(member_id) AS members,
        count_if(state = 'STABLE' AND member_epoch = assignment_epoch) AS arrived
    FROM alive
    LEFT JOIN $members AS members ON alive.group_id = members.group_id
    GROUP BY alive.group_id, group_epoch, assignment_epoch, assignor, partial
)
SELECT
    group_id,
    'consumer' AS group_type,
    CASE
        WHEN members = 0 THEN 'Empty'
        WHEN group_epoch > coalesce(assignment_epoch, -1) THEN 'Assigning'
        WHEN arrived < members THEN 'Reconciling'
        ELSE 'Stable'
    END AS state,
    group_epoch,
    assignment_epoch,
    assignor,
    partial,
    members
FROM counted
UNION ALL
SELECT DISTINCT offsets.group_id, 'classic', 'Empty', NULL, NULL, NULL, NULL, 0
FROM $offsets AS offsets
LEFT ANTI JOIN alive ON offsets.group_id = alive.group_id
