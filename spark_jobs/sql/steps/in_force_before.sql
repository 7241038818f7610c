-- A step of `assignment_history`: the newest group epoch and target before each block.
SELECT group_id, block,
    max(max(newest)) OVER earlier AS newest,
    max(max(target)) OVER earlier AS target,
    sum(sum(ended)) OVER earlier AS ends
FROM $marks
GROUP BY group_id, block
WINDOW earlier AS (
    PARTITION BY group_id ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
)
