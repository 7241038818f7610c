"""Partition assignors: pure functions from a group to who owns what, on columnar ranges.

>>> from assignors import GroupSpec, get_assignor
>>> group = GroupSpec.from_dict({"topics": {"a": 3}, "members": {"m": {"subscribed": ["a"]}}})
>>> get_assignor("uniform").assign(group).to_dict()
{'m': {'a': [0, 1, 2]}}

This room knows no epoch, no record, no clock, no disk and no Spark. Its names are imported when
they are first asked for: code that only needs the error does not wait for a solver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignors.late_names import late_names

if TYPE_CHECKING:
    from assignors.errors import SpecError
    from assignors.group_spec import GroupSpec
    from assignors.partition_ranges import PartitionRanges, Verdict
    from assignors.registry import Assignor, assignor_names, get_assignor

__all__ = [
    "Assignor",
    "GroupSpec",
    "PartitionRanges",
    "SpecError",
    "Verdict",
    "assignor_names",
    "get_assignor",
]

_MODULES = {
    "Assignor": "assignors.registry",
    "GroupSpec": "assignors.group_spec",
    "PartitionRanges": "assignors.partition_ranges",
    "SpecError": "assignors.errors",
    "Verdict": "assignors.partition_ranges",
    "assignor_names": "assignors.registry",
    "get_assignor": "assignors.registry",
}

__getattr__ = late_names(__name__, _MODULES)
