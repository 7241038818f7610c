"""The local engine, and the protocol of engines: targets computed off the heartbeat path.

An engine is found by the entry point `muster.engines`, or given to `Coordinator.open`; so the
coordinator runs Spark without importing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from assignors import SpecError
from assignors.quality import find_problems
from coordinator.core import target_builder
from coordinator.core.events import ComputedTarget
from coordinator.core.target_assignment import Targets
from coordinator.core.target_builder import AssignorInput

GROUPS_KEPT = 4
"""Whose last targets an engine keeps in columns; those of a million members take some 50 MiB."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A target to compute: what an engine, or a job of its own, is asked for.

    Attributes
    ----------
    computation_id
        Of the computation, or the run id of a job: marks what it writes.
    group_epoch, position
        What it is for: the group as the log has it up to this position.
    assignor, settings
        How to assign: the assignor's name, and the group's settings.
    store
        Root path of the tables; None when all is in memory.
    input
        The same group in memory; None in a job of its own. Only the engine that needs it makes a
        spec of it: Spark reads the group from the log.
    classes
        How many distinct subscriptions there are, about.
    """

    group_id: str
    computation_id: str
    group_epoch: int
    position: int
    assignor: str
    settings: Mapping[str, str]
    store: str | None = None
    input: AssignorInput | None = None
    classes: int = 1


class Engine(Protocol):
    """Computes targets; one at a time a group, several groups at once if it can."""

    def submit(self, request: TargetRequest) -> Future[ComputedTarget]:
        """Begin a computation; its future fails when the computation does.

        With LostTarget when the group's last target is gone from the table of targets.
        """

    def cancel(self, group_id: str) -> None:
        """Give up what runs for a group, if that is possible."""

    def close(self) -> None:
        """Give up everything."""


class ComputationProgress(Protocol):
    """Where the computation of a group's target is; as text, it says so to people."""

    @property
    def group_id(self) -> str:
        """The group."""


@runtime_checkable
class ReportsProgress(Protocol):
    """An engine that can tell where its computations are."""

    def progress(self) -> Sequence[ComputationProgress]:
        """Return where each computation is now."""


class LocalEngine:
    """Computes with NumPy, in one thread of this process.

    Parameters
    ----------
    groups_kept
        Of how many groups the last target is kept in columns, for the next one.
    """

    def __init__(self, groups_kept: int = GROUPS_KEPT) -> None:
        self._groups_kept = groups_kept
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="muster-engine")
        self._before: dict[str, Targets] = {}
        """The targets that the last computations began with: the next ones are mostly the same."""

    def submit(self, request: TargetRequest) -> Future[ComputedTarget]:
        """Begin a computation."""
        return self._pool.submit(self._compute, request)

    def _compute(self, request: TargetRequest) -> ComputedTarget:
        assert request.input is not None
        targets = request.input.targets
        before = self._before.pop(request.group_id, None)
        if before is not None:
            targets.ranges_from(before)
        self._before[request.group_id] = targets
        if len(self._before) > self._groups_kept:
            del self._before[next(iter(self._before))]
        return compute_target(request)

    def cancel(self, group_id: str) -> None:
        """Do nothing: a computation in NumPy cannot be interrupted; its outcome is refused."""

    def close(self) -> None:
        """Wait for what runs, drop what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def compute_target(request: TargetRequest) -> ComputedTarget:
    """Run the assignor in this process, and check what it made.

    Raises
    ------
    SpecError
        The assignor refuses the group, or what it made is no assignment of it.
    """
    assert request.input is not None
    spec = request.input.spec()
    ranges = target_builder.run_assignor(spec, request.assignor, request.settings)
    wrong = find_problems(spec, ranges)
    if wrong:
        raise SpecError(f"assignor {request.assignor} made no assignment: {wrong[0]}")
    changes, moved = target_builder.diff_targets(request.group_id, request.input, ranges)
    return ComputedTarget(
        request.group_id,
        request.computation_id,
        request.group_epoch,
        request.position,
        request.assignor,
        moved,
        ranges.partial,
        changes,
    )
