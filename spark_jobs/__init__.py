"""Assignors as DataFrame operations, and the jobs around them.

The outermost room: it may import everything and is imported by nobody; the coordinator finds it by
entry points. Importing this package starts no JVM.
"""
