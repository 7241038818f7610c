"""Decide the classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, timers.

Like the rest of the core, this room must not know a clock, randomness or a disk. A waiting request
is a number here, which identifies it for the runtime.
"""
