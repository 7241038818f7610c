"""Play recorded operations, and write groups and records as Kafka's JSON.

This room decides nothing: steps, replay and timers are those of the runtime.
"""
