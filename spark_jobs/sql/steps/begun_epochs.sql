-- A step of `epochs`: the group epochs, each with its cause and the target that covers it.
WITH marks AS (
    SELECT group_id, kind, tombstone, position, recorded_at, epoch, reason, member_id,
        assignment_epoch, assignor, moved, partial,
        count_if(kind = 'group_metadata' AND tombstone)
            OVER (PARTITION BY group_id ORDER BY position) AS life
    FROM $log
    WHERE kind IN ('group_metadata', 'target_assignment_metadata')
),
numbered AS (
    -- An epoch is covered by the first target computed for it or for a later one.
    SELECT group_id, kind, tombstone, position, recorded_at, epoch, reason, member_id,
        min(IF(kind = 'group_metadata' OR tombstone, NULL, struct(
            assignment_epoch, position, recorded_at, nullif(assignor, '') AS assignor, moved, partial
        ))) OVER (
            PARTITION BY group_id, life ORDER BY coalesce(epoch, assignment_epoch) DESC
        ) AS target
    FROM marks
),
-- A union instead of a join, so that a predicate on the group reaches both.
events AS (
    SELECT group_id, position, position AS epoch_position,
        IF(tombstone, NULL, struct(recorded_at, epoch, reason, member_id, target)) AS begun,
        NULL AS subscribed_at, NULL AS change
    FROM numbered
    WHERE kind = 'group_metadata'
    UNION ALL
    SELECT group_id, position, NULL, NULL, subscribed_at, change
    FROM $topic_changes
),
placed AS (
    -- A topic change belongs to the next epoch of its group.
    SELECT group_id, position, begun, subscribed_at, change,
        min(epoch_position) OVER (PARTITION BY group_id ORDER BY position DESC) AS epoch_position
    FROM events
),
recorded AS (
    SELECT group_id, epoch_position AS position,
        max(begun) AS begun,
        sort_array(collect_set(struct(position, change))
            FILTER (WHERE subscribed_at < epoch_position)) AS changes
    FROM placed
    GROUP BY group_id, epoch_position
)
SELECT
    group_id,
    begun.epoch AS group_epoch,
    position,
    begun.recorded_at,
    begun.reason,
    begun.member_id,
    IF(begun.reason = $text_of_topics_changed, changes.change, NULL) AS topics_changed,
    begun.target.assignment_epoch,
    begun.target.position AS target_position,
    -- If a target covers several epochs, these columns are set only for the one it was computed for.
    IF(begun.epoch = begun.target.assignment_epoch, begun.target.recorded_at, NULL) AS computed_at,
    IF(begun.epoch = begun.target.assignment_epoch, begun.target.assignor, NULL) AS assignor,
    IF(begun.epoch = begun.target.assignment_epoch, begun.target.moved, NULL) AS moved,
    IF(begun.epoch = begun.target.assignment_epoch, begun.target.partial, NULL) AS partial
FROM recorded
WHERE begun IS NOT NULL
