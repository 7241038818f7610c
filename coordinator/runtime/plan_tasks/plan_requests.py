"""Requests about plans as methods, for callers in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from assignors import SpecError
from coordinator.config.kafka import group_settings
from coordinator.core.events import DecidePlan
from coordinator.core.plans.inputs import find_group, take_basis
from coordinator.core.plans.planner import PlanOptions, ShownPlan, make_plan, make_rollback
from coordinator.core.state.groups import State
from coordinator.core.state.records import PlanMade
from coordinator.core.targets.approval import list_waiting
from coordinator.core.targets.basis import Basis
from coordinator.engines.engine import LOCAL
from coordinator.errors import ConfigError, ErrorCode, GroupError
from coordinator.history.former_targets import read_former_targets
from coordinator.history.log_reader import LogReader
from coordinator.runtime.heartbeat_requests import HeartbeatRequests

T = TypeVar("T")
PROCESS = "process"


class PlanRequests(HeartbeatRequests):
    """What a `Coordinator` does with plans; any thread may ask. What is refused is raised."""

    def plan(
        self,
        group_id: str,
        *,
        assignor: str = "",
        settings: Mapping[str, object] | None = None,
        without: Sequence[str] = (),
        add: int = 0,
        drain: Sequence[str] = (),
        undrain: Sequence[str] = (),
        owner: str = PROCESS,
        reason: str = "",
        engine: str = LOCAL,
    ) -> ShownPlan:
        """Compute the target that a group would get, and leave the group alone.

        Parameters
        ----------
        group_id
            The group.
        assignor
            Instead of the group's.
        settings
            Instead of the group's, for this plan: {"consumer.assignor.max.moves": 100}.
        without, add
            Members to leave out, and how many to add; such a plan can only be shown.
        drain, undrain
            Members to empty, and to fill again, by instance id or member id.
        owner, reason
            Who asks, and why.
        engine
            Where to compute: "local" or "spark"; the plan is the same.

        Returns
        -------
        ShownPlan
            `plan` is what apply_plan takes; `report` has one row per member and one per move.

        Raises
        ------
        GroupError
            The group does not exist, or the assignor refuses it; the message says why.
        """
        checked = self._check_settings(settings)
        basis = self._take_basis(group_id)

        def compute() -> ShownPlan:
            options = PlanOptions(
                assignor,
                checked,
                *(without, add, drain, undrain, owner, reason),
            )
            config = self._processor.config
            chosen = self._loop.target_computations.engine(engine)
            return make_plan(basis, options, config, self._processor.steady(), chosen.compute)

        return _raise_as_group_error(compute)

    def plan_rollback(
        self, group_id: str, to_epoch: int, *, owner: str = PROCESS, reason: str = ""
    ) -> ShownPlan:
        """Plan to return to the target of an earlier epoch, without what no longer exists.

        Parameters
        ----------
        group_id
            The group.
        to_epoch
            The group epoch of that target; the view `epochs` lists them.
        owner, reason
            Who asks, and why.

        Returns
        -------
        ShownPlan
            As `plan` returns.

        Raises
        ------
        GroupError
            The group or epoch does not exist, or the coordinator has no store.
        """
        basis = self._take_basis(group_id)
        store = self._processor.log.store
        if store is None:
            raise GroupError(
                ErrorCode.INVALID_REQUEST,
                "Earlier epochs are not kept in memory: open the coordinator with a store.",
            )

        def roll_back() -> ShownPlan:
            options = PlanOptions(owner=owner, reason=reason)
            targets = read_former_targets(LogReader(store), basis, to_epoch)
            processor = self._processor
            now_ms = processor.steady()
            return make_rollback(basis, targets, to_epoch, options, processor.config, now_ms)

        return _raise_as_group_error(roll_back)

    def apply_plan(
        self, plan: ShownPlan | PlanMade, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Make a plan's target the group's; exactly what was shown, or nothing.

        Parameters
        ----------
        plan
            As `plan` returned it.
        by, reason
            Who applies it, and why.

        Returns
        -------
        dict
            `plan_id`, `decision`, `group_epoch` and `moved` partitions.

        Raises
        ------
        GroupError
            The plan was used, has expired, supposes members that are not there, or what it was made
            from has drifted; the message says what.
        """
        made = _take_made(plan)
        return self._decide("apply", made.group_id, made.plan_id, by, reason, made)

    def propose_plan(
        self, plan: ShownPlan | PlanMade, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Let a plan wait for approval.

        Parameters
        ----------
        plan
            As `plan` returned it.
        by, reason
            Who proposes it, and why.

        Returns
        -------
        dict
            `plan_id` and `decision`.

        Raises
        ------
        GroupError
            The plan was used or has expired, or too many wait.
        """
        made = _take_made(plan)
        return self._decide("propose", made.group_id, made.plan_id, by, reason, made)

    def approve_plan(
        self, group_id: str, plan_id: str, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Apply a plan that waits for approval.

        Parameters
        ----------
        group_id, plan_id
            As `waiting_plans` lists them.
        by, reason
            Who approves, and why.

        Returns
        -------
        dict
            As `apply_plan` returns.

        Raises
        ------
        GroupError
            As `apply_plan`; or no such plan waits.
        """
        return self._decide("approve", group_id, plan_id, by, reason)

    def reject_plan(
        self, group_id: str, plan_id: str, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Reject a plan that waits for approval.

        Parameters
        ----------
        group_id, plan_id
            As `waiting_plans` lists them.
        by, reason
            Who rejects it, and why.

        Returns
        -------
        dict
            `plan_id` and `decision`.

        Raises
        ------
        GroupError
            No such plan waits.
        """
        return self._decide("reject", group_id, plan_id, by, reason)

    def waiting_plans(self, group_id: str) -> list[PlanMade]:
        """Return the plans of a group that wait for approval, the oldest first.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        list of PlanMade
            Their moves and summaries are what approval applies.

        Raises
        ------
        GroupError
            The group does not exist.
        """

        def look(state: State) -> list[PlanMade]:
            processor = self._processor
            return list_waiting(find_group(state, group_id), processor.config, processor.steady())

        return self._read(look)

    def _check_settings(self, settings: Mapping[str, object] | None) -> dict[str, str]:
        try:
            return group_settings(self._processor.config.kafka, settings or {})
        except ConfigError as error:
            raise GroupError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def _take_basis(self, group_id: str) -> Basis:
        processor = self._processor
        return self._read(
            lambda state: take_basis(state, processor.config, group_id, processor.steady())
        )

    def _decide(
        self,
        action: Any,  # noqa: ANN401 - a literal of DecidePlan's
        group_id: str,
        plan_id: str,
        by: str,
        reason: str,
        plan: PlanMade | None = None,
    ) -> dict[str, Any]:
        event = DecidePlan(action, group_id, plan_id, plan, by, reason)
        answer = self._loop.decide_plan_here(event)
        if isinstance(answer, GroupError):
            raise GroupError(answer.code, answer.message)  # of this caller
        assert isinstance(answer.response, dict)
        return answer.response


def _take_made(plan: ShownPlan | PlanMade) -> PlanMade:
    made = plan.plan if isinstance(plan, ShownPlan) else plan
    if not isinstance(made, PlanMade):
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"{type(made).__name__} is not a plan: give the result of plan()",
        )
    return made


def _raise_as_group_error(work: Callable[[], T]) -> T:
    try:
        return work()
    except SpecError as error:
        raise GroupError(ErrorCode.INVALID_REQUEST, str(error)) from None
