-- The rows of the log up to the position asked for. All other views read this one.
SELECT * FROM $log_table WHERE position <= $position
