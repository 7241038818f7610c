"""The weighted assignor: loads by weight and capacity, racks, and rules on where partitions may be.

docs/design/algorithm.md#weights has the mathematics.
"""
