-- A step of `assignment_history`: the newest group epoch and target at each record of what a member
-- owns, if they are in the same block.
WITH here AS (
    SELECT group_id, kind, position, block,
        max(newest) OVER until_here AS newest,
        max(target) OVER until_here AS target,
        sum(ended) OVER until_here AS ends
    FROM $marks
    WINDOW until_here AS (PARTITION BY group_id, block ORDER BY position)
)
SELECT group_id, position, block, newest, target, ends
FROM here
WHERE kind = 'current_member_assignment'
