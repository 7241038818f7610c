-- Plans that were proposed or applied, and what became of them: one row per plan.
-- In SQL, too, as a permanent view: for approvals and their auditors, without Muster.
WITH decided AS (
    SELECT group_id, plan_id,
        max_by(decision, position) AS decision,
        max_by(recorded_at, position) AS decided_at,
        max_by(owner, position) AS decided_by,
        max_by(reason, position) AS decision_reason,
        max_by(group_epoch, position) AS applied_epoch
    FROM $log
    WHERE kind = 'plan_decision' AND NOT tombstone
    GROUP BY group_id, plan_id
),
made AS (
    SELECT group_id, plan_id,
        max(position) AS position,
        max_by(recorded_at, position) AS recorded_at,
        max_by(group_epoch, position) AS group_epoch,
        max_by(assignor, position) AS assignor,
        max_by(owner, position) AS principal,
        max_by(reason, position) AS reason,
        max_by(expires_ms, position) AS expires_ms,
        max_by(summary, position) AS summary,
        max_by(planned_moves, position) AS planned_moves
    FROM $log
    WHERE kind = 'plan' AND NOT tombstone
    GROUP BY group_id, plan_id
)
SELECT
    made.group_id,
    incarnation,
    made.plan_id,
    coalesce(decision, 'waiting') AS status,
    group_epoch,
    made.position,
    recorded_at,
    assignor,
    principal,
    reason,
    timestamp_millis(expires_ms) AS expires_at,
    summary.moved AS moved,
    summary.placed AS placed,
    summary.moved_weight AS moved_weight,
    summary.makespan_before AS makespan_before,
    summary.makespan_after AS makespan_after,
    summary.lower_bound AS lower_bound,
    decided_at,
    decided_by,
    decision_reason,
    nullif(applied_epoch, 0) AS applied_epoch,
    planned_moves AS moves
FROM made
LEFT JOIN decided ON made.group_id = decided.group_id AND made.plan_id = decided.plan_id
LEFT JOIN $incarnations AS incarnations
    ON made.group_id = incarnations.group_id AND made.position = incarnations.position
