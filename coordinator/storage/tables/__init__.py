"""Delta tables and their files, whatever their rows are: fenced writes, recovery, tables of jobs.

It knows the files of a table and who may write it; what a row means is known above.
"""
