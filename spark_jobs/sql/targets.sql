-- The targets that Spark jobs computed, installed or not. The view `target_assignments` has the
-- targets in force, including small ones.
SELECT group_id, assignment_epoch, run_id, member_id, topic_id, topic, first_partition, partition_count
FROM $targets_table
