"""Partition assignors: pure functions from a group to who owns what, on columnar ranges.

>>> from assignors import GroupSpec, get_assignor
>>> group = GroupSpec.from_dict({"topics": {"a": 3}, "members": {"m": {"subscribed": ["a"]}}})
>>> get_assignor("uniform").assign(group).to_dict()
{'m': {'a': [0, 1, 2]}}

This room knows no epoch, no record, no clock, no disk and no Spark.
"""

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
