-- A step of `assignment_history`: each record of what a member owns, of both kinds of groups.
SELECT group_id, member_id, position, recorded_at, incarnation, tombstone, instance_id, client_id, client_host,
    ranges, before, gives, takes
FROM $holdings
UNION ALL
SELECT group_id, member_id, position, recorded_at, incarnation, tombstone, instance_id, client_id, client_host,
    ranges, before, gives, takes
FROM $classic_holdings
