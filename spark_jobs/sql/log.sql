-- The rows of the log up to the view's position. All other views read this one. `at` is renamed,
-- because it is a keyword in other dialects of SQL.
SELECT * EXCEPT (at), at AS recorded_at FROM $log_table WHERE position <= $position
