-- A step of `assignment_history`: each record of what a member owns, and why it changed.
WITH recorded AS (
    SELECT group_id, member_id, kind, tombstone, position, recorded_at, member_epoch, assigned, pending,
        max(IF(kind = 'member_metadata' AND NOT tombstone, struct(
            position, instance_id, client_id, client_host
        ), NULL))
            OVER in_order AS metadata,
        lead(IF(tombstone, NULL, struct(kind, epoch, reason, member_id)))
            IGNORE NULLS OVER in_order AS next
    FROM $log
    WHERE kind IN ('member_metadata', 'current_member_assignment', 'group_metadata')
        AND member_id IS NOT NULL
    WINDOW in_order AS (PARTITION BY group_id, member_id ORDER BY position)
),
held AS (
    SELECT group_id, member_id, position, recorded_at, tombstone, next,
        metadata.instance_id, metadata.client_id, metadata.client_host,
        -- Only a returning static member owns partitions before its first answer.
        coalesce(member_epoch, -1) = 0 AS returned,
        concat(
            transform(coalesce(assigned, array()), r -> struct(
                r.topic, r.topic_id, r.first_partition, r.partition_count, false AS pending)),
            transform(coalesce(pending, array()), r -> struct(
                r.topic, r.topic_id, r.first_partition, r.partition_count, true AS pending))
        ) AS ranges
    FROM recorded
    WHERE kind = 'current_member_assignment'
),
-- Every join uses the group id of the same side, so that a predicate on it reaches all scans.
placed AS (
    SELECT held.*,
        coalesce(here.newest, before.newest) AS newest,
        coalesce(here.target, before.target) AS in_force,
        CAST(1 + here.ends + coalesce(before.ends, 0) AS INT) AS incarnation
    FROM held
    JOIN $in_force AS here ON held.group_id = here.group_id AND held.position = here.position
    JOIN $in_force_before AS before
        ON held.group_id = before.group_id AND here.block = before.block
),
explained AS (
    SELECT placed.*,
        struct(in_force.assignment_epoch AS epoch, causes.reason, causes.codes, causes.member_id)
            AS target
    FROM placed
    LEFT JOIN $causes AS causes
        ON placed.group_id = causes.group_id AND in_force.position = causes.target_position
)
SELECT
    group_id,
    member_id,
    position,
    recorded_at,
    incarnation,
    tombstone,
    instance_id,
    client_id,
    client_host,
    ranges,
    lag(ranges, 1, array()) OVER (PARTITION BY group_id, member_id ORDER BY position) AS before,
    IF(returned, struct(target.epoch, $text_of_static_member_returned AS reason,
        array($code_of_static_member_returned) AS codes, member_id), target) AS gives,
    CASE
        WHEN NOT tombstone AND newest.member_id = member_id
            AND newest.reason = $text_of_subscription_changed
            THEN struct(newest.epoch, newest.reason, array($code_of_subscription_changed) AS codes,
                newest.member_id)
        WHEN NOT tombstone THEN target
        -- A member that left or timed out began a group epoch; a replaced one did not.
        WHEN next.kind = 'group_metadata' THEN struct(next.epoch, next.reason,
            transform(split(nullif(next.reason, ''), $separator), one -> $code_of_one) AS codes,
            next.member_id)
        WHEN instance_id IS NOT NULL
            THEN struct(NULL AS epoch, $text_of_static_member_returned AS reason,
                array($code_of_static_member_returned) AS codes, NULL AS member_id)
    END AS takes
FROM explained
