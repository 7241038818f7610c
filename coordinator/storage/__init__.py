"""Records to files and back: the log as a Delta table, snapshots, targets, the lease, maintenance.

It knows what a record is, never why it was written: no decision about a group is made here.
"""
