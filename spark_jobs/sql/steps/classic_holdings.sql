-- A step of `assignment_history`: what members of classic groups own by each record of their group,
-- and why it changed. A member that is missing in a record has ended.
WITH records AS (
    SELECT group_id, number, members,
        struct(position, recorded_at, tombstone, generation, reason, member_id, begins, incarnation)
            AS record,
        lead(struct(
            position, recorded_at, tombstone, generation, reason, member_id, begins, incarnation
        )) OVER (PARTITION BY group_id ORDER BY number) AS after
    FROM $classic_records
),
entries AS (
    SELECT group_id, number, record, after, inline(members)
    FROM records
),
placed AS (
    SELECT *,
        lag(number) OVER in_order AS last_number,
        lag(ranges) OVER in_order AS last_ranges,
        lead(number) OVER in_order AS next_number
    FROM entries
    WINDOW in_order AS (PARTITION BY group_id, member_id ORDER BY number)
),
held AS (
    SELECT group_id, member_id, instance_id, client_id, client_host, record, false AS gone, ranges,
        IF(last_number = number - 1, last_ranges, array()) AS before
    FROM placed
    UNION ALL
    SELECT group_id, member_id, instance_id, client_id, client_host, after, true, array(), ranges
    FROM placed
    WHERE after IS NOT NULL AND coalesce(next_number, 0) != number + 1
),
explained AS (
    SELECT *,
        CASE
            WHEN record.begins OR record.tombstone
                THEN struct(record.generation AS epoch, record.reason,
                    transform(split(nullif(record.reason, ''), $separator), one -> $code_of_one) AS codes,
                    record.member_id)
            WHEN gone THEN struct(NULL AS epoch, $text_of_static_member_returned AS reason,
                array($code_of_static_member_returned) AS codes, NULL AS member_id)
            ELSE struct(record.generation AS epoch, $text_of_static_member_returned AS reason,
                array($code_of_static_member_returned) AS codes, member_id)
        END AS cause
    FROM held
)
SELECT
    group_id,
    member_id,
    record.position,
    record.recorded_at,
    record.incarnation,
    gone AS tombstone,
    instance_id,
    client_id,
    client_host,
    ranges,
    before,
    cause AS gives,
    cause AS takes
FROM explained
