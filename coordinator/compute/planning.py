"""Which engine computes a plan: this process, or one that is installed beside it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from assignors import PartitionRanges, SpecError
from coordinator.config import Config
from coordinator.core.plan_steps.planner import Assign, assign_here
from coordinator.core.target_builder import AssignorInput

ENTRY_POINTS = "muster.engines"
LOCAL = "local"


@runtime_checkable
class AssignsInputs(Protocol):
    """An engine that assigns a group which is in this process's memory."""

    def assign(
        self, found: AssignorInput, assignor: str, settings: Mapping[str, str]
    ) -> PartitionRanges:
        """Return what the assignor gives to whom; the rows that `assign_here` returns.

        Raises
        ------
        SpecError
            The engine has no such assignor, or the assignor refuses the group.
        """


def list_engines() -> dict[str, EntryPoint]:
    """Return the engines that are installed, by name; each is made with `config=`."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def find_assign(engine: str, config: Config) -> Assign:
    """Return what assigns on an engine, by its name.

    Raises
    ------
    SpecError
        There is no such engine, or it computes no plans.
    """
    if engine == LOCAL:
        return assign_here
    points = list_engines()
    if engine not in points:
        raise SpecError(f"engine {engine!r}: give one of {', '.join(sorted({LOCAL, *points}))}")
    found = points[engine].load()(config=config)
    if not isinstance(found, AssignsInputs):
        raise SpecError(f"engine {engine!r} computes no plans: leave --engine out")
    return found.assign
