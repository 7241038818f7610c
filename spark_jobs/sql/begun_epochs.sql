-- A step of `epochs`: the group epochs, each with what began it and which target took it in.
WITH marks AS (
    SELECT group_id, kind, tombstone, position, recorded_at, epoch, reason, member_id,
        assignment_epoch, assignor, moved, partial,
        count_if(kind = 'group_metadata' AND tombstone)
            OVER (PARTITION BY group_id ORDER BY position) AS life,
        lag(position) OVER (PARTITION BY group_id, kind ORDER BY position) AS before
    FROM $log
    WHERE kind IN ('group_metadata', 'target_assignment_metadata')
),
numbered AS (
    -- What took an epoch in is the first target computed for it or for a later one.
    SELECT group_id, kind, position, recorded_at, epoch, reason, member_id, before,
        min(IF(kind = 'group_metadata', NULL, struct(
            assignment_epoch, position, recorded_at, nullif(assignor, '') AS assignor, moved, partial
        ))) OVER (
            PARTITION BY group_id, life ORDER BY coalesce(epoch, assignment_epoch) DESC
        ) AS target
    FROM marks
    WHERE NOT tombstone
),
begun AS (
    SELECT group_id, position, recorded_at, epoch, reason, member_id, target,
        IF(reason = 'topics changed', coalesce(before, 0), NULL) AS topics_seen
    FROM numbered
    WHERE kind = 'group_metadata'
),
told AS (
    SELECT begun.group_id, begun.position, recorded_at, epoch, reason, member_id, target,
        topics_seen,
        transform(
            sort_array(collect_set(struct(changes.position, changes.change))), one -> one.change
        ) AS topics_changed
    FROM begun
    LEFT JOIN $topic_changes AS changes
        -- A key only where it is asked: most epochs are not about topics.
        ON IF(begun.topics_seen IS NULL, NULL, begun.group_id) = changes.group_id
        AND changes.position BETWEEN begun.topics_seen AND begun.position
        AND changes.subscribed_at < begun.position
    GROUP BY begun.group_id, begun.position, recorded_at, epoch, reason, member_id, target,
        topics_seen
)
SELECT
    group_id,
    epoch AS group_epoch,
    position,
    recorded_at,
    reason,
    member_id,
    IF(topics_seen IS NULL, NULL, topics_changed) AS topics_changed,
    target.assignment_epoch,
    target.position AS target_position,
    -- Of a target that took in several epochs the rest stands with the one it was computed for.
    IF(epoch = target.assignment_epoch, target.recorded_at, NULL) AS computed_at,
    IF(epoch = target.assignment_epoch, target.assignor, NULL) AS assignor,
    IF(epoch = target.assignment_epoch, target.moved, NULL) AS moved,
    IF(epoch = target.assignment_epoch, target.partial, NULL) AS partial
FROM told
