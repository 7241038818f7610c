"""The classic group protocol, decided: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, timers.

Like the rest of the core it knows no clock, no randomness and no disk. Requests that wait are
numbers here, by which the runtime knows who asked.
"""
