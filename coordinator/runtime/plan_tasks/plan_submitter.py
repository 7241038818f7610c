"""Plans for groups that wait for approval."""

from __future__ import annotations

import logging

from assignors import SpecError
from coordinator.core.events import DecidePlan
from coordinator.core.plans.decide import COORDINATOR
from coordinator.core.plans.inputs import take_basis
from coordinator.core.plans.planner import PlanOptions, make_plan
from coordinator.core.state.groups import State
from coordinator.core.targets.approval import is_manual, keeps_target, list_waiting
from coordinator.core.targets.basis import Basis
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.runtime.event_loop import EventLoop

logger = logging.getLogger("muster.coordinator")


class PlanSubmitter:
    """Plans for groups that wait for approval, and ends what expired; one thread runs it.

    Parameters
    ----------
    loop
        What decides.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._planned: dict[str, int] = {}
        """The group epoch for which each group was planned last."""

    def run(self) -> None:
        """End plans that expired, and plan for groups that wait for approval."""
        state = self._loop.processor.state  # an idle loop is not woken for nothing
        if self._loop.processor.status is not Status.ACTIVE or state.watched is not None:
            return  # who coordinates groups that are watched plans for them
        try:
            if state.planned:
                self._end_expired()
            if state.settings:
                for basis in self._loop.call(self._find_waiting).result():
                    self._plan(basis)
        except GroupError as error:
            logger.info("plans wait: %s", error.message)  # the coordinator closes, or is fenced

    def _end_expired(self) -> None:
        """Note in the log which plans have expired; plan again for a group that still waits."""
        processor = self._loop.processor

        def find() -> list[str]:
            now, groups = processor.steady(), processor.state.groups
            return [
                group_id
                for group_id in sorted(processor.state.planned & groups.keys())
                if len(list_waiting(groups[group_id], processor.config, now))
                < len(groups[group_id].plans)
            ]

        for group_id in self._loop.call(find).result():
            self._planned.pop(group_id, None)
            self._loop.submit([DecidePlan("expire", group_id, "")]).result()

    def _find_waiting(self) -> list[Basis]:
        """Return the groups that wait for approval, and for which nothing is planned yet."""
        processor = self._loop.processor
        if processor.status is not Status.ACTIVE:
            return []
        state: State = processor.state
        found = []
        for group_id, settings in state.settings.items():
            group = state.groups.get(group_id) if is_manual(settings) else None
            if (
                group is not None
                and group.members
                and group.epoch > group.assignment_epoch
                and keeps_target(settings, group)
                and self._planned.get(group_id) != group.epoch
                and all(plan.group_epoch != group.epoch for plan in group.plans.values())
            ):
                self._planned[group_id] = group.epoch
                found.append(take_basis(state, processor.config, group_id, processor.steady()))
        return found

    def _plan(self, basis: Basis) -> None:
        """Propose a plan; one that moves nothing needs no approval."""
        processor = self._loop.processor
        options = PlanOptions(owner=COORDINATOR, reason=f"group epoch {basis.group_epoch}")
        try:
            plan = make_plan(basis, options, processor.config, processor.steady()).plan
        except SpecError as error:
            logger.warning("group %s cannot be planned: %s", basis.group_id, error)
            return
        event = DecidePlan(
            "propose" if plan.moves else "apply",
            basis.group_id,
            plan.plan_id,
            plan,
            COORDINATOR,
            options.reason,
        )
        (answer,) = self._loop.submit([event]).result()
        if isinstance(answer, GroupError):
            self._planned.pop(basis.group_id, None)  # the group moved on meanwhile
            logger.info("planning again for group %s: %s", basis.group_id, answer.message)
        elif plan.moves:
            logger.warning(
                "plan %s of group %s waits for approval: %d partitions move, %d are placed",
                plan.plan_id,
                basis.group_id,
                plan.summary.moved,
                plan.summary.placed,
            )
