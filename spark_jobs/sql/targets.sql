-- The targets that Spark jobs computed, installed or not: those that the log names up to the view's
-- position. The view `target_assignments` has the targets in force, including small ones.
-- In SQL, too, since a target of Spark's has more rows than one process may have to read.
SELECT targets.group_id, assignment_epoch, run_id, member_id, topic_id, topic, first_partition,
    partition_count
FROM $targets_table AS targets
LEFT SEMI JOIN (
    SELECT group_id, computation_id
    FROM $log
    WHERE kind IN ('computation', 'target_assignment_metadata', 'proposal')
) AS named ON targets.group_id = named.group_id AND targets.run_id = named.computation_id
