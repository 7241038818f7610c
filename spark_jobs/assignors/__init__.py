"""The assignors as DataFrame operations: the same rows as `assignors`, however large the group.

Data of the size of members or partitions stays distributed; it must never be collected to the
driver. Classes and topics are small and on the driver. `weighted` has arrays of members there.
"""

WEIGHTED = "weighted"
TWINS = ("range", "uniform", "sticky")
"""The assignors with a twin on DataFrames: `TWIN`, in the file here of the assignor's name."""
