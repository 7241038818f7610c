-- What each member may own now: one row per range, with the assignment epoch that gave it. A range
-- with pending revocation must be given up; the member owns it until then.
-- In SQL, too, since `partition_owners` is made of it.
WITH ranges AS (
    SELECT group_id, member_id, instance_id, client_id, client_host, member_epoch, state,
        inline(concat(
            transform(assigned, range -> struct(range, false AS pending_revocation)),
            transform(pending, range -> struct(range, true AS pending_revocation))
        ))
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
    range.topic_id,
    range.topic,
    range.first_partition,
    range.partition_count,
    range.assignment_epoch,
    pending_revocation
FROM ranges
