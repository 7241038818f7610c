"""Requests about plans from other processes, and plans for groups that wait for approval."""

from __future__ import annotations

import logging

from assignors import SpecError
from coordinator.core.events import DecidePlan
from coordinator.core.plan_steps.decide import COORDINATOR
from coordinator.core.plan_steps.inputs import PlanBasis, take_basis
from coordinator.core.plan_steps.planner import PlanOptions, make_plan
from coordinator.core.plans.approval import is_manual, keeps_target, list_waiting
from coordinator.core.state import State
from coordinator.errors import GroupError
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.refusal_counts import RefusalCounts
from coordinator.status import Status
from coordinator.storage import plan_queue
from coordinator.storage.file_queue import MessageError

logger = logging.getLogger("muster.coordinator")


class PlanSubmitter:
    """Submits what is asked of plans to the event loop; one thread runs it.

    Parameters
    ----------
    loop
        What decides.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._planned: dict[str, int] = {}
        """The group epoch for which each group was planned last."""
        self._refusals = RefusalCounts(loop.processor)

    def run(self) -> None:
        """Submit the requests that wait, and plan for groups that wait for approval."""
        if self._loop.processor.status is not Status.ACTIVE:
            return
        try:
            if self._loop.processor.log.store is not None:
                self._submit_requests(self._loop.processor.log.store)
            self._end_expired()
            for basis in self._loop.call(self._find_waiting).result():
                self._plan(basis)
        except GroupError as error:
            logger.info("plans wait: %s", error.message)  # the coordinator closes, or is fenced

    def _submit_requests(self, store: str) -> None:
        for request_id in plan_queue.list_plan_requests(store):
            try:
                self._submit(store, request_id)
            except FileNotFoundError:
                continue  # whoever asked does not wait any more
            except MessageError as error:
                plan_queue.set_plan_request_aside(store, request_id, str(error))

    def _submit(self, store: str, request_id: str) -> None:
        asked = plan_queue.read_plan_request(store, request_id)
        event = DecidePlan(
            asked.action,
            asked.group_id,
            asked.plan_id,
            asked.plan,
            asked.by,
            asked.reason,
            request_id,
        )
        (answer,) = self._loop.submit([event]).result()
        if isinstance(answer, GroupError):  # not even the refusal was written
            if self._refusals.add(request_id):
                plan_queue.set_plan_request_aside(store, request_id, answer.message)
            return
        self._refusals.forget(request_id)
        if asked.action in {"apply", "approve"}:
            self._loop.target_jobs.supersede(asked.group_id)
        logger.info("plan %s of group %s: %s", asked.plan_id, asked.group_id, answer.response)
        plan_queue.remove_plan_request(store, request_id)

    def _end_expired(self) -> None:
        """Say in the log which plans wait no longer; a group that still waits is planned anew."""
        processor = self._loop.processor

        def find() -> list[str]:
            now = processor.steady()
            return [
                group.group_id
                for group in processor.state.groups.values()
                if group.plans
                and len(list_waiting(group, processor.config, now)) < len(group.plans)
            ]

        for group_id in self._loop.call(find).result():
            self._planned.pop(group_id, None)
            self._loop.submit([DecidePlan("expire", group_id, "")]).result()

    def _find_waiting(self) -> list[PlanBasis]:
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

    def _plan(self, basis: PlanBasis) -> None:
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
