-- All groups, and ids that only have offsets: one row per group. The state is Kafka's (G-2).
-- In SQL, too, since one process needs 1.1 GiB to count the members of a group of 1,000,000.
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
sizes AS (
    SELECT group_id, state, member_epoch, count(*) AS size
    FROM $members
    GROUP BY group_id, state, member_epoch
),
counted AS (
    SELECT alive.group_id, group_epoch, assignment_epoch, assignor, partial,
        sum(size) AS members,
        coalesce(sum(size) FILTER (WHERE state = 'STABLE' AND member_epoch = assignment_epoch), 0)
            AS arrived
    FROM alive
    LEFT JOIN sizes ON alive.group_id = sizes.group_id
    GROUP BY alive.group_id, group_epoch, assignment_epoch, assignor, partial
),
known AS (
    SELECT group_id, true AS consumer, group_epoch, assignment_epoch, assignor, partial, members,
        arrived
    FROM counted
    UNION ALL
    SELECT group_id, false, generation, generation, assignor, false, size(members), size(members)
    FROM $classic_last
    UNION ALL
    SELECT DISTINCT group_id, false, NULL, NULL, NULL, NULL, NULL, NULL
    FROM $offsets
),
once AS (
    SELECT group_id,
        max(consumer) AS consumer,
        max(group_epoch) AS group_epoch,
        max(assignment_epoch) AS assignment_epoch,
        max(assignor) AS assignor,
        max(partial) AS partial,
        coalesce(max(members), 0) AS members,
        max(arrived) AS arrived
    FROM known
    GROUP BY group_id
),
ended AS (
    SELECT group_id, count(*) AS ends
    FROM $group_ends
    GROUP BY group_id
),
watched AS (
    SELECT max_by(observed, position) AS observed,
        timestamp_millis(max_by(timestamp, position)) AS observed_since
    FROM $log
    WHERE kind = 'kafka_watched'
)
SELECT
    once.group_id,
    -- An id that only has offsets is no group.
    IF(group_epoch IS NULL, NULL, CAST(1 + coalesce(ends, 0) AS INT)) AS incarnation,
    IF(consumer, 'consumer', 'classic') AS group_type,
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
    members,
    observed,
    observed_since,
    $shard AS shard
FROM once
LEFT JOIN ended ON once.group_id = ended.group_id
CROSS JOIN watched
