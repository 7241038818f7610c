"""Many groups in one run: tables with a column `group_id` in, rows of all groups out.

A group that is assigned with others gets the rows that it gets alone.
"""
