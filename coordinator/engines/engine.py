"""Engines: what runs an assignor on a group, for a plan or for a target off the heartbeat path.

An engine comes from the entry point `muster.engines` or from an argument of `Coordinator.open`, so
the coordinator can run Spark without importing it.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from assignors import PartitionRanges, SpecError
from assignors.registry import assignor_names
from coordinator.config import Config
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets import compute_here
from coordinator.core.targets.basis import Basis
from coordinator.engines.group_columns import GroupColumns
from coordinator.engines.kept_plan import KeptPlan

ENTRY_POINTS = "muster.engines"
LOCAL = "local"
GROUPS_KEPT = 4
"""For how many groups an engine keeps its last plan, 120 to 200 MiB for a million members, or the
columns that it started from. Groups that are planned within a step have none."""


class ComputationProgress(Protocol):
    """The progress of the computation of a group's target; `str` describes it."""

    @property
    def group_id(self) -> str:
        """The group."""


class Engine(Protocol):
    """Computes targets. Of a group one at a time, of several groups `at_once`."""

    at_once: int = 1
    """How many targets it computes at the same time."""

    @property
    def assignors(self) -> Container[str]:
        """The assignors that the engine has."""
        return assignor_names()

    def compute(self, basis: Basis) -> TargetCandidate:
        """Compute a target; on every engine the same one. Several threads may ask at a time.

        Returns
        -------
        TargetCandidate
            `ranges` if the log has no computation of it, as for a plan; else what is to be
            installed: `changes` of the last target, or rows that were `stored`.

        Raises
        ------
        SpecError
            The engine has no such assignor, or the assignor refuses the group.
        GroupError
            INVALID_ASSIGNMENT: what it returned is not a valid assignment of the group.
        """

    def compute_now(self, basis: Basis) -> TargetCandidate | None:  # noqa: ARG002 - others do
        """Compute the same target if few members changed, and that takes a few ms; else None."""
        return None

    def leaves(self, basis: Basis) -> bool:  # noqa: ARG002 - others do
        """Tell whether the target is known to stay as it is: at the cost of what changed."""
        return False

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
        The engine does not exist.
    """
    points = list_engines()
    if name in points:
        engine: Engine = points[name].load()(config=config)
        return engine
    if name != LOCAL:
        raise SpecError(f"engine {name!r}: give one of {', '.join(sorted({LOCAL, *points}))}")
    return LocalEngine()


class LocalEngine(Engine):
    """Computes with NumPy, in this process.

    Parameters
    ----------
    groups_kept
        For how many groups the last plan is kept, or else the columns it was made from.
    """

    def __init__(self, groups_kept: int = GROUPS_KEPT) -> None:
        self._groups_kept = groups_kept
        self._before: dict[str, KeptPlan | GroupColumns] = {}
        """What the last computations planned, or started from. The next ones are mostly equal."""
        self._lock = threading.Lock()

    def compute(self, basis: Basis) -> TargetCandidate:
        """Compute a target, from the one before where the log has a computation."""
        if not basis.computation_id:
            return compute_here.compute_ranges(basis)
        with self._lock:
            before = self._before.pop(basis.group_id, None)
        target, kept = _compute_next(basis, before)
        with self._lock:
            if kept is not None:
                self._before[basis.group_id] = kept
            if len(self._before) > self._groups_kept:
                del self._before[next(iter(self._before))]
        return target

    def compute_now(self, basis: Basis) -> TargetCandidate | None:
        """Compute a target from the last plan, if few members changed and no topics did."""
        with self._lock:
            before = self._before.get(basis.group_id)
        if not isinstance(before, KeptPlan) or not before.is_brief(basis):
            return None
        found = before.follow(basis)
        if found is None:
            return None
        target, kept = found
        with self._lock:
            if self._before.get(basis.group_id) is before:
                self._before[basis.group_id] = kept
        return target

    def leaves(self, basis: Basis) -> bool:
        """Tell whether the last plan goes on, and changes no target."""
        with self._lock:
            before = self._before.get(basis.group_id)
        found = before.follow(basis) if isinstance(before, KeptPlan) else None
        return found is not None and not found[0].changes

    def cancel(self, group_id: str) -> None:
        """Do nothing: a computation in NumPy cannot be interrupted. Its result will be refused."""

    def close(self) -> None:
        """Do nothing: nothing is held."""


def compute_target(basis: Basis) -> TargetCandidate:
    """Run the assignor in this process, check its result, and compare it with the last target.

    Raises
    ------
    SpecError
        The assignor refuses the group.
    GroupError
        INVALID_ASSIGNMENT: what it returned is not a valid assignment of the group.
    """
    return _compute_from(basis, GroupColumns.of(basis.input, basis.options.assignor))[0]


def _compute_from(basis: Basis, columns: GroupColumns) -> tuple[TargetCandidate, PartitionRanges]:
    """Return a target that is computed from nothing, and what the assignor returned."""
    ranges = compute_here.assign_checked(columns.spec, basis.options)
    owned = None if columns.mark is None else columns.spec
    changes, moved = compute_here.diff_targets(basis.group_id, basis.input, ranges, owned)
    return basis.candidate(moved, partial=ranges.partial, changes=changes), ranges


def _compute_next(
    basis: Basis, before: KeptPlan | GroupColumns | None
) -> tuple[TargetCandidate, KeptPlan | GroupColumns | None]:
    """Return a target, and what the next one can start from."""
    found = before.follow(basis) if isinstance(before, KeptPlan) else None
    if found is not None:
        return found
    known = before if isinstance(before, GroupColumns) else None
    columns = GroupColumns.of(basis.input, basis.options.assignor, known)
    target, ranges = _compute_from(basis, columns)
    kept = KeptPlan.of(basis, columns.spec, ranges, target.changes)
    return target, kept or (None if columns.mark is None else columns)
