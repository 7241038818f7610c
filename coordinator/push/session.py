"""A member of a group for one registration of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from coordinator.core.events import Heartbeat, HeartbeatResponse
from coordinator.member.driver import Driver
from coordinator.member.events import MemberSettings, Subscribe
from coordinator.member.in_process import InProcess
from coordinator.member.states import BEATING
from coordinator.member.transport import TopicPartition
from coordinator.push.address import Address
from coordinator.push.application import PushApplication
from coordinator.push.channel import WorkerChannel
from coordinator.push.messages import Registration

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator

LEASES = 5
"""How many session timeouts of a worker fit into one of its member.

A member stops after four fifths of its own; the worker has the last one, to stop by itself.
"""


class WorkerConnection(InProcess):
    """A member's way to its coordinator; descriptions of the group show where its worker is."""

    def __init__(self, coordinator: Coordinator, host: str) -> None:
        super().__init__(coordinator)
        self._host = host

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        """Send a heartbeat, with the worker's host."""
        return await super().heartbeat(replace(request, client_host=self._host))


class WorkerSession:
    """The member.

    Parameters
    ----------
    coordinator
        Where it is a member.
    address, channel, registration
        The worker's.
    count_refused
        Called with how many offsets did not count.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        address: Address,
        channel: WorkerChannel,
        registration: Registration,
        count_refused: Callable[[int], None],
    ) -> None:
        self._serving: asyncio.Task[None] | None = None
        self._count_refused = count_refused
        self._session_ms = channel.find_session_ms()
        self._rebalance_ms = registration.rebalance_timeout_ms
        self._static = registration.instance_id is not None
        settings = MemberSettings(
            group_id=registration.group_id,
            # The same at each registration: a coordinator that takes over finds the member there.
            member_id=str(uuid5(NAMESPACE_URL, address.url)),
            instance_id=registration.instance_id,
            rack_id=registration.rack_id,
            client_id=registration.client_id or address.url,
            rebalance_timeout_ms=self._rebalance_ms,
        )
        connection = WorkerConnection(coordinator, f"/{address.host}")  # as Kafka writes hosts

        def make(
            is_over: Callable[[], bool], fail: Callable[[BaseException], None]
        ) -> PushApplication:
            self.application = PushApplication(
                channel,
                lambda places: connection.committed(settings.group_id, places),
                self._take_offsets,
                self._find_end_ms,
                is_over,
                fail,
            )
            return self.application

        self._driver = Driver(settings, connection, make)
        channel.find_session_ms = self._find_session_ms
        self._driver.subscribe(
            Subscribe(registration.topics, registration.pattern, registration.server_assignor)
        )

    def _find_session_ms(self) -> int:
        """Return after how long the worker has to stop by itself."""
        return min(self._session_ms, self._spare_ms())

    def _find_end_ms(self) -> int:
        """Return when the worker must have stopped, unless the member's coordinator answers it."""
        membership = self._driver.membership
        uses = membership.state in BEATING
        return self._spare_ms() + (membership.uses_until_ms if uses else membership.lost_at_ms)

    def _spare_ms(self) -> int:
        """Return for how long a member that stopped is still waited for."""
        return max(1, min(self._driver.membership.session_ms, self._rebalance_ms) // LEASES)

    async def run(self) -> None:
        """Be a member for as long as the worker answers.

        Raises
        ------
        LostError
            The worker is lost.
        GroupError
            The member was refused for good.
        """
        self._serving = asyncio.create_task(self.application.serve())
        member = asyncio.create_task(self._driver.run(_nothing, None))
        try:
            await asyncio.wait({self._serving, member}, return_when=asyncio.FIRST_COMPLETED)
            for task in (self._serving, member):
                if task.done():
                    await task
        finally:
            member.cancel()
            await asyncio.gather(member, return_exceptions=True)

    async def give_up(self) -> None:
        """Leave the group once the worker has stopped: by itself, or as it reported."""
        await self._stop_serving()
        expiring = asyncio.create_task(self.application.expire())
        try:
            await self._driver.close(for_a_while=False)
        finally:
            expiring.cancel()

    async def end(self) -> None:
        """Have the worker stop, commit how far it came, and leave the group."""
        closing = asyncio.create_task(self._driver.close(for_a_while=self._static))
        serving = {self._serving} if self._serving is not None else set()
        await asyncio.wait({*serving, closing}, return_when=asyncio.FIRST_COMPLETED)
        await self._stop_serving()
        if not closing.done():
            await self.application.expire()
        await closing

    async def _stop_serving(self) -> None:
        """Ask the worker nothing more."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    def _take_offsets(self, offsets: Mapping[TopicPartition, int], refused: int) -> None:
        """Have offsets committed soon; what of them is another's by now is left."""
        if refused:
            self._count_refused(refused)
        owned = self._driver.owned()
        found = {place: (offset, "") for place, offset in offsets.items() if place in owned}
        if found:
            self._driver.commit_later(found)


def _nothing() -> None:
    """Be the work of a driver whose application has its own."""
