-- The rows of the log up to the position asked for. All other views read this one. `at` is a keyword
-- in other dialects of SQL.
SELECT * EXCEPT (at), at AS recorded_at FROM $log_table WHERE position <= $position
