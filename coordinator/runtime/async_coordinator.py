"""`AsyncCoordinator`: a coordinator's requests as coroutines, for asyncio programs.

Each has the signature of `Coordinator`'s method of the same name; a test keeps them equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coordinator.compute.engine import LOCAL
from coordinator.core.events import Heartbeat
from coordinator.core.plan_steps.planner import ShownPlan
from coordinator.core.records import PlanMade
from coordinator.runtime.plan_tasks.plan_requests import PROCESS
from coordinator.runtime.responses import Answers, GroupAnswer, HeartbeatAnswer

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.web.server import WebServer
    from coordinator.wire.listener import RunningServer


class AsyncCoordinator:
    """The requests of a `Coordinator` as coroutines; get it as `coordinator.aio`.

    A heartbeat waits without a thread; every other request waits in one of asyncio's threads.

    Parameters
    ----------
    coordinator
        What serves the requests. It may be used from threads at the same time.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that serves the requests."""
        return self._coordinator

    async def consumer_group_heartbeat(
        self,
        *,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: Sequence[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: Mapping[str, Sequence[int]] | None = None,
        client_id: str = "",
        client_host: str = "",
        version: int = 1,
    ) -> HeartbeatAnswer:
        """Join a group, stay in it, or leave it (ConsumerGroupHeartbeat of KIP-848).

        See `Coordinator.consumer_group_heartbeat`.
        """
        found = self._coordinator.submit_heartbeat(
            group_id=group_id,
            member_id=member_id,
            member_epoch=member_epoch,
            instance_id=instance_id,
            rack_id=rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=subscribed_topic_names,
            subscribed_topic_regex=subscribed_topic_regex,
            server_assignor=server_assignor,
            topic_partitions=topic_partitions,
            client_id=client_id,
            client_host=client_host,
            version=version,
        )
        return await asyncio.wrap_future(found)

    async def consumer_group_heartbeats(
        self, requests: Sequence[Heartbeat]
    ) -> Answers[HeartbeatAnswer]:
        """Answer many heartbeats, of any groups, as one batch with one commit.

        See `Coordinator.consumer_group_heartbeats`.
        """
        return await asyncio.to_thread(self._coordinator.consumer_group_heartbeats, requests)

    async def steady_heartbeats(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int]
    ) -> Answers[HeartbeatAnswer]:
        """Answer heartbeats of one group that change nothing, many at a time.

        See `Coordinator.steady_heartbeats`.
        """
        return await asyncio.to_thread(
            self._coordinator.steady_heartbeats, group_id, member_ids, member_epochs
        )

    async def consumer_group_describe(self, group_ids: Sequence[str] | str) -> Answers[GroupAnswer]:
        """Describe groups: their epochs, members and assignments (ConsumerGroupDescribe).

        See `Coordinator.consumer_group_describe`.
        """
        return await asyncio.to_thread(self._coordinator.consumer_group_describe, group_ids)

    async def group_epochs(self, group_ids: Sequence[str] | str) -> list[tuple[int, int]]:
        """Return the epochs of groups; cheap to ask again and again.

        See `Coordinator.group_epochs`.
        """
        return await asyncio.to_thread(self._coordinator.group_epochs, group_ids)

    async def list_groups(
        self, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> GroupAnswer:
        """List groups (ListGroups).

        See `Coordinator.list_groups`.
        """
        return await asyncio.to_thread(self._coordinator.list_groups, states_filter, types_filter)

    async def delete_groups(self, group_ids: Sequence[str] | str) -> Answers[GroupAnswer]:
        """Delete groups that have no members (DeleteGroups).

        See `Coordinator.delete_groups`.
        """
        return await asyncio.to_thread(self._coordinator.delete_groups, group_ids)

    async def alter_group_config(self, group_id: str, settings: Mapping[str, object]) -> None:
        """Set all settings of a group, before or after it exists.

        See `Coordinator.alter_group_config`.
        """
        await asyncio.to_thread(self._coordinator.alter_group_config, group_id, settings)

    async def describe_group_config(self, group_id: str) -> dict[str, str]:
        """Return the settings of a group that are not the defaults.

        See `Coordinator.describe_group_config`.
        """
        return await asyncio.to_thread(self._coordinator.describe_group_config, group_id)

    async def offset_commit(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Mapping[int, int | tuple[int, str]]],
        member_id: str = "",
        member_epoch: int = -1,
    ) -> None:
        """Commit offsets (OffsetCommit); when it returns, they are durable.

        See `Coordinator.offset_commit`.
        """
        await asyncio.to_thread(
            self._coordinator.offset_commit,
            group_id=group_id,
            topics=topics,
            member_id=member_id,
            member_epoch=member_epoch,
        )

    async def offset_fetch(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Sequence[int]] | None = None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> GroupAnswer:
        """Return committed offsets (OffsetFetch).

        See `Coordinator.offset_fetch`.
        """
        return await asyncio.to_thread(
            self._coordinator.offset_fetch,
            group_id=group_id,
            topics=topics,
            member_id=member_id,
            member_epoch=member_epoch,
        )

    async def offset_delete(self, *, group_id: str, topics: Mapping[str, Sequence[int]]) -> None:
        """Delete offsets of topics that the group does not subscribe to (OffsetDelete).

        See `Coordinator.offset_delete`.
        """
        await asyncio.to_thread(self._coordinator.offset_delete, group_id=group_id, topics=topics)

    async def consumer_group_prepare_assignment(self, group_id: str) -> GroupAnswer:
        """Begin to compute a group's target outside the coordinator.

        See `Coordinator.consumer_group_prepare_assignment`.
        """
        return await asyncio.to_thread(
            self._coordinator.consumer_group_prepare_assignment, group_id
        )

    async def consumer_group_install_assignment(
        self,
        *,
        group_id: str,
        computation_id: str,
        group_epoch: int,
        ranges: pa.Table,
        assignor: str = "external",
        partial: bool = False,
    ) -> GroupAnswer:
        """Install a target that was computed outside the coordinator.

        See `Coordinator.consumer_group_install_assignment`.
        """
        return await asyncio.to_thread(
            self._coordinator.consumer_group_install_assignment,
            group_id=group_id,
            computation_id=computation_id,
            group_epoch=group_epoch,
            ranges=ranges,
            assignor=assignor,
            partial=partial,
        )

    async def plan(
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

        See `Coordinator.plan`.
        """
        return await asyncio.to_thread(
            self._coordinator.plan,
            group_id,
            assignor=assignor,
            settings=settings,
            without=without,
            add=add,
            drain=drain,
            undrain=undrain,
            owner=owner,
            reason=reason,
            engine=engine,
        )

    async def plan_rollback(
        self, group_id: str, to_epoch: int, *, owner: str = PROCESS, reason: str = ""
    ) -> ShownPlan:
        """Plan to return to the target of an earlier epoch, without what no longer exists.

        See `Coordinator.plan_rollback`.
        """
        return await asyncio.to_thread(
            self._coordinator.plan_rollback, group_id, to_epoch, owner=owner, reason=reason
        )

    async def apply_plan(
        self, plan: ShownPlan | PlanMade, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Make a plan's target the group's; exactly what was shown, or nothing.

        See `Coordinator.apply_plan`.
        """
        return await asyncio.to_thread(self._coordinator.apply_plan, plan, by=by, reason=reason)

    async def propose_plan(
        self, plan: ShownPlan | PlanMade, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Let a plan wait for approval.

        See `Coordinator.propose_plan`.
        """
        return await asyncio.to_thread(self._coordinator.propose_plan, plan, by=by, reason=reason)

    async def approve_plan(
        self, group_id: str, plan_id: str, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Apply a plan that waits for approval.

        See `Coordinator.approve_plan`.
        """
        return await asyncio.to_thread(
            self._coordinator.approve_plan, group_id, plan_id, by=by, reason=reason
        )

    async def reject_plan(
        self, group_id: str, plan_id: str, *, by: str = PROCESS, reason: str = ""
    ) -> dict[str, Any]:
        """Reject a plan that waits for approval.

        See `Coordinator.reject_plan`.
        """
        return await asyncio.to_thread(
            self._coordinator.reject_plan, group_id, plan_id, by=by, reason=reason
        )

    async def waiting_plans(self, group_id: str) -> list[PlanMade]:
        """Return the plans of a group that wait for approval, the oldest first.

        See `Coordinator.waiting_plans`.
        """
        return await asyncio.to_thread(self._coordinator.waiting_plans, group_id)

    async def close(self) -> None:
        """Answer what is asked, hand the store over at once, and stop; twice is no fault.

        See `Coordinator.close`.
        """
        await asyncio.to_thread(self._coordinator.close)

    async def serve(self, listen: str | None = None, *, insecure: bool = False) -> RunningServer:
        """Let Kafka clients join over the wire, beside the callers in this process.

        See `Coordinator.serve`.
        """
        return await asyncio.to_thread(self._coordinator.serve, listen, insecure=insecure)

    async def serve_web(self, listen: str | None = None, *, insecure: bool = False) -> WebServer:
        """Show the groups to browsers.

        See `Coordinator.serve_web`.
        """
        return await asyncio.to_thread(self._coordinator.serve_web, listen, insecure=insecure)

    async def refresh_topics(self) -> None:
        """Ask the catalog for topics now, instead of at its next turn.

        See `Coordinator.refresh_topics`.
        """
        await asyncio.to_thread(self._coordinator.refresh_topics)

    async def tick(self) -> None:
        """Fire the timers that are due now: for a clock of your own, after you moved it.

        See `Coordinator.tick`.
        """
        await asyncio.to_thread(self._coordinator.tick)

    async def confirm_status(self, patience_s: float = 1.0) -> str:
        """Return the status as of now: "active" only if the log was just seen to be ours.

        See `Coordinator.confirm_status`.
        """
        return await asyncio.to_thread(self._coordinator.confirm_status, patience_s)

    async def progress(self) -> str:
        """Report on the targets that engines compute now.

        See `Coordinator.progress`.
        """
        return await asyncio.to_thread(self._coordinator.progress)

    async def cancel_computation(self, group_id: str) -> bool:
        """Cancel the target that is computed for a group; it is begun again later.

        See `Coordinator.cancel_computation`.
        """
        return await asyncio.to_thread(self._coordinator.cancel_computation, group_id)
