"""Compute targets outside the state machine: engines, and the choice between them.

An engine gets a group and returns its target. The core decides whether to install it; this room
must not.
"""
