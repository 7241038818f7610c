"""What a classic group is: requests, members, bytes of the embedded protocol, votes.

The members of such a group divide the partitions themselves: one of them, the leader, assigns, and
the coordinator hands its answer out. How a group moves on is in `classic_steps`.
"""
