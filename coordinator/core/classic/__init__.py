"""The state of a classic group: requests, members, bytes of the embedded protocol, votes.

The members of such a group divide the partitions themselves: one of them, the leader, assigns, and
the coordinator distributes the assignment. The transitions of a group are in `classic_steps`.
"""
