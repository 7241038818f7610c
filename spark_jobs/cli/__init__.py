"""The commands that may start Spark: assign, sql, conf."""
