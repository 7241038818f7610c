"""Metrics by group: a bounded number, each as long as its group exists.

A group's name may be long, and any client may invent another one: so groups beyond the limit, long
names, and names of unknown groups are counted together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import Counter, Histogram

OTHERS = "(others)"
NAME_MAX = 255
M = TypeVar("M", Counter, Histogram)


class GroupSeries:
    """The groups that have series of their own, and which these are.

    Parameters
    ----------
    groups_max
        How many groups may have them at a time.

    Attributes
    ----------
    there
        Tells whether a group is there now.
    """

    def __init__(self, groups_max: int) -> None:
        self.there: Callable[[str], bool] = lambda _: True
        self._max = groups_max
        self._series: dict[str, set[tuple[Counter | Histogram, tuple[str, ...]]]] = {}
        self._lock = threading.Lock()

    def label(self, group_id: str) -> str:
        """Return the name that a group is counted under."""
        with self._lock:
            return self._label(group_id)

    def of(self, metric: M, group_id: str, *more: str) -> M:
        """Return a group's series of a metric, by its other labels."""
        with self._lock:
            labels = (self._label(group_id), *more)
            if labels[0] != OTHERS:
                self._series[labels[0]].add((metric, labels))
            return metric.labels(*labels)

    def drop(self, group_id: str) -> None:
        """End a group's series: it is gone."""
        with self._lock:
            for metric, labels in self._series.pop(group_id, ()):
                metric.remove(*labels)

    def keep_those_there(self) -> None:
        """End the series of all groups that are gone."""
        for group_id in [name for name in list(self._series) if not self.there(name)]:
            self.drop(group_id)

    def _label(self, group_id: str) -> str:
        if group_id in self._series:
            return group_id
        full = len(self._series) >= self._max or len(group_id) > NAME_MAX
        if full or not self.there(group_id):
            return OTHERS
        self._series[group_id] = set()
        return group_id
