-- A step of `assignment_history`: group epochs, targets, and the records that look them up, in
-- blocks of positions, so that a huge group is more than one task.
SELECT group_id, kind, position,
    position DIV 1000000 AS block,
    IF(kind = 'group_metadata', struct(position, epoch, reason, member_id), NULL) AS newest,
    IF(kind = 'target_assignment_metadata', struct(position, assignment_epoch), NULL) AS target,
    0 AS ended
FROM $log
WHERE kind IN ('group_metadata', 'target_assignment_metadata', 'current_member_assignment')
UNION ALL
SELECT group_id, 'end of the group', position, position DIV 1000000, NULL, NULL, 1
FROM $group_ends
