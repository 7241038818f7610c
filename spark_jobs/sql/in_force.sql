-- A step of `assignment_history`: the newest group epoch and the target in force at each record of
-- what a member owns. In blocks of positions, so that a huge group is not one task; what is in force
-- where a block begins comes from the blocks before it.
WITH marks AS (
    SELECT group_id, kind, position,
        position DIV 1000000 AS block,
        IF(kind = 'group_metadata', struct(position, epoch, reason, member_id), NULL) AS newest,
        IF(kind = 'target_assignment_metadata', struct(position, assignment_epoch), NULL) AS target
    FROM $log
    WHERE kind IN ('group_metadata', 'target_assignment_metadata', 'current_member_assignment')
),
here AS (
    SELECT group_id, kind, position, block,
        max(newest) OVER until_here AS newest,
        max(target) OVER until_here AS target
    FROM marks
    WINDOW until_here AS (PARTITION BY group_id, block ORDER BY position)
),
before AS (
    SELECT group_id, block,
        max(max(newest)) OVER earlier AS newest,
        max(max(target)) OVER earlier AS target
    FROM marks
    GROUP BY group_id, block
    WINDOW earlier AS (
        PARTITION BY group_id ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT
    here.group_id,
    here.position,
    coalesce(here.newest, before.newest) AS newest,
    coalesce(here.target, before.target) AS target
FROM here
JOIN before ON here.group_id = before.group_id AND here.block = before.block
WHERE here.kind = 'current_member_assignment'
