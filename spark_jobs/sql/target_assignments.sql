-- The target assignment of each member: one row per range. Small targets are records of the log. A
-- target that a Spark job computed is in the table `targets`, and one record names it: it replaces
-- all earlier records of members, and later records override it.
-- In SQL, too, since the rows of `targets` that it reads are as many as Spark computed.
WITH installed AS (
    SELECT group_id,
        max(struct(position, assignment_epoch, computation_id))
            FILTER (WHERE targets_version IS NOT NULL) AS whole,
        max(position) FILTER (WHERE tombstone) AS ended
    FROM $log
    WHERE kind = 'target_assignment_metadata'
    GROUP BY group_id
),
whole AS (
    SELECT group_id, whole.position, whole.assignment_epoch, whole.computation_id
    FROM installed
    WHERE whole.position > coalesce(ended, 0)
),
last AS (
    SELECT group_id, member_id, max(struct(position, target)) AS own
    FROM $log
    WHERE kind = 'target_assignment_member'
    GROUP BY group_id, member_id
),
alone AS (
    SELECT last.group_id, member_id, own.target
    FROM last
    LEFT JOIN whole ON last.group_id = whole.group_id
    WHERE own.position > coalesce(whole.position, 0)
),
together AS (
    SELECT whole.group_id, targets.member_id, topic, topic_id, first_partition, partition_count
    FROM $targets_table AS targets
    JOIN whole
        ON targets.group_id = whole.group_id
        AND targets.assignment_epoch = whole.assignment_epoch
        AND targets.run_id = whole.computation_id
    -- Such a target still has members that left while it was computed.
    JOIN $members AS members
        ON targets.group_id = members.group_id AND targets.member_id = members.member_id
    LEFT ANTI JOIN alone
        ON targets.group_id = alone.group_id AND targets.member_id = alone.member_id
),
ranges AS (
    SELECT group_id, member_id, inline(target) FROM alone
    UNION ALL
    SELECT * FROM together
    UNION ALL
    SELECT group_id, member_id, inline(transform(assigned, r -> struct(
        r.topic, r.topic_id, r.first_partition, r.partition_count)))
    FROM (SELECT group_id, inline(members) FROM $classic_last)
)
SELECT
    ranges.group_id,
    groups.assignment_epoch,
    ranges.member_id,
    ranges.topic_id,
    ranges.topic,
    ranges.first_partition,
    ranges.partition_count
FROM ranges
JOIN $groups AS groups ON ranges.group_id = groups.group_id
