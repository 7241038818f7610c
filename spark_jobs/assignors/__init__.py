"""The assignors as DataFrame operations: the same rows as `assignors`, however large the group.

Data of the size of members or partitions stays distributed; it must never be collected to the
driver. Classes and topics are small and on the driver. `weighted` has arrays of members there.
"""

WEIGHTED = "weighted"
TWINS = ("range", "uniform", "sticky")
"""The names of the assignors that always cut a group into tasks, a coordinator's groups too."""
