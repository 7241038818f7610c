"""Delta tables and their files, for any rows: fenced writes, recovery, tables of jobs.

It knows the files of a table and who may write it; what a row means is known above.
"""
