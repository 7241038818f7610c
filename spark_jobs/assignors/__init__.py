"""The assignors on DataFrames: the same rows as `assignors`, however large the group.

Data of the size of members or partitions stays distributed; it must never be collected to the
driver. Classes and topics are small and on the driver. `weighted` has arrays of members there.
An assignor declares where its twin is (`assignors.registry`); `dispatch.load_twin` imports it.
"""
