-- What each member may own now: one row a range, with the assignment epoch that gave it. A range
-- pending revocation is one that the member must give up, and owns until it has.
WITH ranges AS (
    SELECT group_id, member_id, instance_id, client_id, client_host, member_epoch, state, inline(assigned),
        false AS pending_revocation
    FROM $members
    UNION ALL
    SELECT group_id, member_id, instance_id, client_id, client_host, member_epoch, state, inline(pending), true
    FROM $members
)
SELECT
    group_id,
    member_id,
    instance_id,
    client_id,
    client_host,
    member_epoch,
    state,
    topic_id,
    topic,
    first_partition,
    partition_count,
    assignment_epoch,
    pending_revocation
FROM ranges
