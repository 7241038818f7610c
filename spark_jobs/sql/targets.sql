-- The whole targets that Spark jobs computed, whether they were installed or not. Read
-- `target_assignments`: it has those in force, and the small ones beside them.
SELECT group_id, assignment_epoch, run_id, member_id, topic_id, topic, first_partition, partition_count
FROM $targets_table
