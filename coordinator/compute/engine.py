"""The protocol of engines, which compute targets off the heartbeat path, and the local engine.

An engine comes from the entry point `muster.engines` or from an argument of `Coordinator.open`, so
the coordinator can run Spark without importing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from assignors import SpecError
from assignors.quality import find_problems
from coordinator.compute.group_columns import GroupColumns
from coordinator.core import target_builder
from coordinator.core.events import ComputedTarget
from coordinator.core.plans.approval import is_manual, move_nothing
from coordinator.core.target_builder import AssignorInput

GROUPS_KEPT = 4
"""For how many groups an engine keeps the columns it started from: about 50 MiB for a million
members."""


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A target to compute, by an engine or by a separate job.

    Attributes
    ----------
    computation_id
        The id of the computation, or the run id of a separate job. It marks the rows written.
    group_epoch, position
        The group epoch to compute for, and the log position that the group is read up to.
    assignor, settings
        How to assign: the assignor's name, and the group's settings.
    store
        Root path of the tables; None if everything is in memory.
    input
        The same group in memory; None in a separate job. Spark does not need it, because it reads
        the group from the log.
    classes
        The approximate number of distinct subscriptions.
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
    """Computes targets: one at a time per group, possibly several groups at once."""

    def submit(self, request: TargetRequest) -> Future[ComputedTarget]:
        """Start a computation. The future fails if the computation does.

        It fails with LostTarget if the group's last target is missing from the table `targets`.
        """

    def cancel(self, group_id: str) -> None:
        """Cancel the computation for a group, if possible."""

    def close(self) -> None:
        """Cancel everything, and release resources."""


class ComputationProgress(Protocol):
    """The progress of the computation of a group's target; `str` describes it."""

    @property
    def group_id(self) -> str:
        """The group."""


@runtime_checkable
class ReportsProgress(Protocol):
    """An engine that reports the progress of its computations."""

    def progress(self) -> Sequence[ComputationProgress]:
        """Return the progress of each running computation."""


class LocalEngine:
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

    def submit(self, request: TargetRequest) -> Future[ComputedTarget]:
        """Start a computation."""
        return self._pool.submit(self._compute, request)

    def _compute(self, request: TargetRequest) -> ComputedTarget:
        request = _leave_out(request)
        assert request.input is not None
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


def _leave_out(request: TargetRequest) -> TargetRequest:
    """Return a request without the topics that nobody may have: others do not wait for them."""
    assert request.input is not None
    return replace(request, input=request.input.without(request.input.find_bereft()))


def compute_target(request: TargetRequest, columns: GroupColumns | None = None) -> ComputedTarget:
    """Run the assignor in this process, and check its result.

    Parameters
    ----------
    columns
        The request's input, if it was put into columns already.

    Raises
    ------
    SpecError
        The assignor refuses the group, or its result is not a valid assignment.
    """
    request = request if columns else _leave_out(request)
    assert request.input is not None
    assignor, settings = request.assignor, request.settings
    if is_manual(settings):
        assignor, settings = move_nothing(assignor, settings)
    columns = columns or GroupColumns.of(request.input, assignor)
    spec = columns.spec
    ranges = target_builder.run_assignor(spec, assignor, settings)
    wrong = find_problems(spec, ranges)
    if wrong:
        raise SpecError(
            f"assignor {request.assignor} returned an invalid assignment: {wrong[0]}; "
            "correct the assignor or choose another"
        )
    owned = None if columns.mark is None else spec
    changes, moved = target_builder.diff_targets(request.group_id, request.input, ranges, owned)
    return ComputedTarget(
        request.group_id,
        request.computation_id,
        request.group_epoch,
        request.position,
        request.assignor,
        moved,
        ranges.partial and not is_manual(settings),
        changes,
    )
