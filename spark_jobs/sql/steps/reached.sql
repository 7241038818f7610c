-- A step of `epochs`: when the members of a group had all reached a target, STABLE at its epoch. A
-- target that was replaced before is reached when the next one is. Records of one time are one
-- moment: what is between them never was.
WITH recorded AS (
    -- Members that reach an epoch without a change of their assignment share one row of the log.
    SELECT log.group_id, kind, tombstone, position, recorded_at, state, member_epoch,
        coalesce(log.member_id, one) AS member_id,
        IF(kind = 'target_assignment_metadata', struct(position, assignment_epoch), NULL) AS target
    FROM $log AS log LATERAL VIEW OUTER explode(member_ids) advanced_members AS one
    WHERE kind IN ('member_metadata', 'current_member_assignment', 'members_advanced',
        'target_assignment_metadata')
),
placed AS (
    SELECT *,
        max(target) OVER in_order AS newest,
        -- A group that ends has a tombstone of its target.
        count_if(target IS NOT NULL AND tombstone) OVER in_order AS life,
        lead(recorded_at) OVER in_order AS next_at
    FROM recorded
    WINDOW in_order AS (PARTITION BY group_id ORDER BY position)
),
stated AS (
    SELECT group_id, position, recorded_at, next_at, life, member_id,
        newest.assignment_epoch AS epoch,
        coalesce(max(IF(kind = 'member_metadata', struct(position, NOT tombstone AS alive), NULL))
            OVER of_member .alive, false) AS alive,
        max(IF(kind != 'member_metadata', struct(position, CASE
            WHEN kind = 'members_advanced' THEN member_epoch
            WHEN state = 'STABLE' AND NOT tombstone THEN member_epoch
        END AS member_epoch), NULL)) OVER of_member .member_epoch AS member_epoch
    FROM placed
    WHERE target IS NULL
    WINDOW of_member AS (PARTITION BY group_id, member_id ORDER BY position)
),
arrived AS (
    SELECT *,
        CAST(alive AS INT) AS here,
        CAST(alive AND coalesce(member_epoch = epoch, false) AS INT) AS there
    FROM stated
),
-- No member has reached a new target at first.
changed AS (
    SELECT *,
        here - lag(here, 1, 0) OVER (PARTITION BY group_id, member_id ORDER BY position) AS came,
        there - lag(there, 1, 0) OVER (
            PARTITION BY group_id, life, epoch, member_id ORDER BY position) AS went_there
    FROM arrived
),
counted AS (
    SELECT group_id, life, position, recorded_at, next_at,
        sum(came) OVER (PARTITION BY group_id ORDER BY position) AS members,
        sum(went_there) OVER (PARTITION BY group_id, life, epoch ORDER BY position) AS reached
    FROM changed
),
moments AS (
    SELECT group_id, life, position, recorded_at, NULL AS target_position
    FROM counted
    WHERE members = reached AND members > 0 AND NOT (next_at <=> recorded_at)
    UNION ALL
    SELECT group_id, life, position, NULL, position
    FROM placed
    WHERE target IS NOT NULL AND NOT tombstone
),
following AS (
    SELECT group_id, target_position,
        min(IF(target_position IS NULL, struct(position, recorded_at), NULL))
            OVER (PARTITION BY group_id, life ORDER BY position DESC) AS moment
    FROM moments
)
SELECT group_id, target_position, min(moment.recorded_at) AS reached_at
FROM following
WHERE target_position IS NOT NULL
GROUP BY group_id, target_position
