-- The rows of the log up to the view's position. All other views read this one. `at` is renamed,
-- because it is a keyword in other dialects of SQL.
-- In SQL, too, since every view in SQL is made of it.
SELECT * EXCEPT (at), at AS recorded_at, $shard AS shard FROM $log_table WHERE position <= $position
