"""Compute targets outside the state machine: engines, the choice between them, external proposals.

An engine gets a group and returns its target. The core decides whether to install it; this room
must not.
"""
