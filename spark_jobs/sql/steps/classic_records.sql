-- A step of `epochs` and `assignment_history`: the records of classic groups. One begins a
-- generation, or changes a member of it (a static one returned), or ends the group (tombstone).
WITH recorded AS (
    SELECT log.group_id, log.position, recorded_at, tombstone, generation,
        nullif(assignor, '') AS assignor, moved, reason, member_id, incarnation,
        transform(coalesce(classic_members, array()), one -> struct(
            one.member_id, one.instance_id, one.client_id, one.client_host,
            transform(one.assigned, r -> struct(
                r.topic, r.topic_id, r.first_partition, r.partition_count, false AS pending
            )) AS ranges
        )) AS members
    FROM $log AS log
    LEFT JOIN $incarnations AS incarnations
        ON log.group_id = incarnations.group_id AND log.position = incarnations.position
    WHERE kind = 'classic_group'
)
SELECT group_id, position, recorded_at, tombstone, generation, assignor, moved, reason, member_id,
    incarnation, members,
    lag(members, 1, array()) OVER in_order AS members_before,
    row_number() OVER in_order AS number,
    NOT tombstone AND generation != coalesce(lag(generation) OVER in_order, 0) AS begins
FROM recorded
WINDOW in_order AS (PARTITION BY group_id ORDER BY position)
