-- The members of all groups: one row a member, with what it subscribes to and what it owns.
WITH steps AS (
    -- Members that reach an epoch which changes nothing for them share one row of the log.
    SELECT group_id, explode(member_ids) AS member_id, position, member_epoch
    FROM $log
    WHERE kind = 'members_advanced'
),
advanced AS (
    SELECT group_id, member_id, max(struct(position, member_epoch)) AS step
    FROM steps
    GROUP BY group_id, member_id
),
last AS (
    SELECT group_id, member_id,
        max(struct(
            position, tombstone, instance_id, rack_id, client_id, client_host, subscribed_topic_names,
            subscribed_topic_regex, rebalance_timeout_ms, server_assignor
        )) FILTER (WHERE kind = 'member_metadata') AS metadata,
        max(struct(position, tombstone, member_epoch, state, assigned, pending))
            FILTER (WHERE kind = 'current_member_assignment') AS current
    FROM $log
    WHERE kind IN ('member_metadata', 'current_member_assignment')
    GROUP BY group_id, member_id
)
SELECT
    last.group_id,
    last.member_id,
    metadata.instance_id,
    metadata.rack_id,
    metadata.client_id,
    metadata.client_host,
    from_json(metadata.subscribed_topic_names, 'array<string>') AS subscribed_topic_names,
    metadata.subscribed_topic_regex,
    metadata.rebalance_timeout_ms,
    metadata.server_assignor,
    IF(step IS NULL, coalesce(current.state, 'STABLE'), 'STABLE') AS state,
    coalesce(step.member_epoch, current.member_epoch, 0) AS member_epoch,
    coalesce(current.assigned, array()) AS assigned,
    IF(step IS NULL, coalesce(current.pending, array()), array()) AS pending
FROM last
LEFT JOIN advanced
    ON last.group_id = advanced.group_id
    AND last.member_id = advanced.member_id
    AND step.position > coalesce(current.position, 0)
WHERE NOT metadata.tombstone
