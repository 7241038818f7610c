"""`Coordinator`: the event loop, its background tasks, timers, metrics, and the Python interface.

The one room that brings clock, log, engines and sockets to the core. It decides nothing itself.
"""
