"""Engines: what runs an assignor on a group, for a plan or for a target off the heartbeat path.

An engine comes from the entry point `muster.engines` or from an argument of `Coordinator.open`, so
the coordinator can run Spark without importing it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from assignors import PartitionRanges, SpecError
from assignors.registry import assignor_names
from coordinator.compute.group_columns import GroupColumns
from coordinator.config import Config
from coordinator.core.plans.planner import assign_here
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets import compute_here
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput

ENTRY_POINTS = "muster.engines"
LOCAL = "local"
GROUPS_KEPT = 4
"""For how many groups an engine keeps the columns it started from: about 50 MiB for a million
members."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A target to compute.

    Attributes
    ----------
    computation_id
        The id of the computation. It marks the rows written.
    group_epoch, position
        The group epoch to compute for, and the log position that the group is as of.
    assignor, settings
        The assignor's name, and the group's settings.
    options
        How to assign, by these settings.
    input
        The group.
    store
        Root path of the tables; None if everything is in memory.
    classes
        The approximate number of distinct subscriptions.
    """

    group_id: str
    computation_id: str
    group_epoch: int
    position: int
    assignor: str
    settings: Mapping[str, str]
    options: AssignorOptions
    input: AssignorInput
    store: str | None = None
    classes: int = 1


class ComputationProgress(Protocol):
    """The progress of the computation of a group's target; `str` describes it."""

    @property
    def group_id(self) -> str:
        """The group."""


class Engine(Protocol):
    """Runs assignors. Of targets it computes one at a time per group, several groups at once."""

    @property
    def assignors(self) -> Container[str]:
        """The assignors that the engine has."""
        return assignor_names()

    def assign(self, found: AssignorInput, options: AssignorOptions) -> PartitionRanges:
        """Return what the assignor gives to whom; on every engine the same rows.

        Raises
        ------
        SpecError
            The engine has no such assignor, or the assignor refuses the group.
        """
        return assign_here(found, options)

    def submit(self, request: TargetRequest) -> Future[TargetCandidate]:
        """Start the computation of a target. The future fails if the computation does."""

    def cancel(self, group_id: str) -> None:
        """Cancel the computation for a group, if possible."""

    def progress(self) -> Sequence[ComputationProgress]:
        """Return the progress of each running computation, if the engine knows it."""
        return ()

    def close(self) -> None:
        """Cancel everything, and release resources."""


def list_engines() -> dict[str, EntryPoint]:
    """Return the engines that are installed beside the local one, by name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def open_engine(name: str, config: Config) -> Engine:
    """Return an engine with the user's settings.

    Raises
    ------
    SpecError
        There is no such engine.
    """
    points = list_engines()
    if name in points:
        engine: Engine = points[name].load()(config=config)
        return engine
    if name != LOCAL:
        raise SpecError(f"engine {name!r}: give one of {', '.join(sorted({LOCAL, *points}))}")
    return LocalEngine()


class LocalEngine(Engine):
    """Computes with NumPy, in one thread of this process.

    Parameters
    ----------
    groups_kept
        For how many groups the columns are kept, to start the next computation from.
    """

    def __init__(self, groups_kept: int = GROUPS_KEPT) -> None:
        self._groups_kept = groups_kept
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="muster-engine")
        self._before: dict[str, GroupColumns] = {}
        """What the last computations started from. The next ones are mostly equal."""

    def submit(self, request: TargetRequest) -> Future[TargetCandidate]:
        """Start a computation."""
        return self._pool.submit(self._compute, request)

    def _compute(self, request: TargetRequest) -> TargetCandidate:
        columns = GroupColumns.of(
            request.input, request.assignor, self._before.pop(request.group_id, None)
        )
        if columns.mark is not None:
            self._before[request.group_id] = columns
        if len(self._before) > self._groups_kept:
            del self._before[next(iter(self._before))]
        return compute_target(request, columns)

    def cancel(self, group_id: str) -> None:
        """Do nothing: a computation in NumPy cannot be interrupted. Its result will be refused."""

    def close(self) -> None:
        """Wait for the running computation, and drop those that wait."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def compute_target(request: TargetRequest, columns: GroupColumns | None = None) -> TargetCandidate:
    """Run the assignor in this process, and check its result.

    Parameters
    ----------
    columns
        The request's input, if it was put into columns already.

    Raises
    ------
    SpecError
        The assignor refuses the group.
    GroupError
        INVALID_ASSIGNMENT: what it returned is no valid assignment of the group.
    """
    columns = columns or GroupColumns.of(request.input, request.options.assignor)
    spec = columns.spec
    ranges = compute_here.assign_checked(spec, request.options)
    owned = None if columns.mark is None else spec
    changes, moved = compute_here.diff_targets(request.group_id, request.input, ranges, owned)
    return TargetCandidate(
        request.group_id,
        request.group_epoch,
        request.assignor,
        moved,
        ranges.partial,
        changes,
        computation_id=request.computation_id,
        position=request.position,
    )
