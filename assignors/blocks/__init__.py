"""A large group cut into blocks: what an engine's tasks do with them, and what its driver adds up.

A block is a run of neighbouring members with all that they own, or a stretch of the line of
partitions, packed into arrays. An engine moves blocks, never rows. What a block needs to know of
the blocks before it are a few totals, which the driver adds up.
"""
