"""The assignors as DataFrame operations: the same rows as `assignors`, however large the group.

What has the size of members or partitions stays distributed; classes and topics come to the driver.
"""

TWINS = ("range", "uniform", "sticky")
"""The assignors that this room has."""
