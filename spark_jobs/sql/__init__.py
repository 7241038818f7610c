"""The SQL views over a store, one file each, and queries on them.

Views only read: they must not claim, lock or take the lease.
"""
