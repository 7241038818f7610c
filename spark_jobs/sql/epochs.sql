-- The group epochs of all groups: one row per epoch, with its cause and the target that covers it.
-- Deleted groups are included; a new group of the same name restarts with low epochs, in another
-- incarnation.
-- In SQL, too, since one process needs 1.2 GiB for a group of 1,000,000 epochs.
WITH behind AS (
    SELECT group_id, kind, position,
        max(IF(kind = 'member_metadata', struct(position, instance_id, client_id, client_host), NULL))
            OVER (PARTITION BY group_id, member_id ORDER BY position) AS client
    FROM $log
    WHERE kind IN ('group_metadata', 'member_metadata') AND member_id IS NOT NULL AND NOT tombstone
)
SELECT
    epochs.group_id,
    incarnation,
    group_epoch,
    epochs.position,
    recorded_at,
    reason,
    transform(split(nullif(reason, ''), $separator), one -> $code_of_one) AS reason_codes,
    member_id,
    client.instance_id,
    client.client_id,
    client.client_host,
    topics_changed,
    assignment_epoch,
    epochs.target_position,
    computed_at,
    assignor,
    moved,
    partial,
    reached_at
FROM $begun_epochs AS epochs
LEFT JOIN behind ON epochs.group_id = behind.group_id AND epochs.position = behind.position
LEFT JOIN $incarnations AS incarnations
    ON epochs.group_id = incarnations.group_id AND epochs.position = incarnations.position
LEFT JOIN $reached AS reached
    ON epochs.group_id = reached.group_id AND epochs.target_position = reached.target_position
UNION ALL
-- The generations of classic groups that were assigned.
SELECT group_id, incarnation, generation, position, recorded_at, reason,
    transform(split(nullif(reason, ''), $separator), one -> $code_of_one), member_id,
    cause.instance_id, cause.client_id, cause.client_host, NULL,
    generation, position, recorded_at, assignor, IF(assignor IS NULL, NULL, moved), false,
    recorded_at
FROM (
    SELECT *, coalesce(
        get(filter(members, one -> one.member_id = record.member_id), 0),
        get(filter(members_before, one -> one.member_id = record.member_id), 0)
    ) AS cause
    FROM $classic_records AS record
    WHERE begins
)
