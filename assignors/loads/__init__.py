"""What makes partitions and members unequal: weights, capacities, racks, states, constraints.

All of it is read and checked with the group (`GroupSpec.loads`), and all of it is optional.
"""
