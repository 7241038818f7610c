"""What a coordinator has inside: for tests that compare states, or break its log.

Tests ask a coordinator through its methods wherever those answer; this file alone knows where the
rest is.
"""

from __future__ import annotations


def processor_of(coordinator):
    """Return what decides and replays events."""
    return coordinator._processor


def state_of(coordinator):
    """Return the state of all groups, which the loop alone may change."""
    return processor_of(coordinator).state


def log_of(coordinator):
    """Return the record log."""
    return processor_of(coordinator).log


def position_of(coordinator):
    """Return how many records the log has."""
    return processor_of(coordinator).position
