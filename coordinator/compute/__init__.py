"""Targets computed outside the state machine: engines, which one is cheaper, proposals of jobs.

An engine gets a group and returns its target; whether the target is installed, the core decides.
"""
