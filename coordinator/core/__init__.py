"""The state machine: decides about events (`step`), and changes state by records (`replay`).

Pure: the same state and event give the same records, live and in recovery. It knows no clock, no
randomness, no disk, no threads and no Spark; time comes in with the event.
"""
