"""Groups in SQL: the views over a store, a file each, and queries on them.

Views only read: no claim, no lock, no lease.
"""
