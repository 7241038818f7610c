"""One worker that listens: registered for as long as it answers, and then again, endlessly."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from coordinator.clock import monotonic_ms
from coordinator.errors import GroupError
from coordinator.push.address import Address
from coordinator.push.channel import Line, WorkerChannel
from coordinator.push.messages import LostError, Registration, read_registration
from coordinator.push.session import WorkerSession

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator

BACKOFF_MAX = 8
"""How many times `push.retry_ms` is waited at most, between two tries to register."""
LOG_EVERY_MS = 60_000
logger = logging.getLogger("muster.push")


class PushedWorker:
    """A worker, from the first try to reach it to the end of this process.

    Parameters
    ----------
    coordinator
        Where it becomes a member.
    line, address
        How it is reached.
    is_active
        Whether the coordinator has its store: else another one registers the worker.
    count_lost, count_refused
        Called with why the worker was lost; with how many offsets did not count.

    Attributes
    ----------
    is_registered
        Whether it is.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        line: Line,
        address: Address,
        is_active: Callable[[], Awaitable[bool]],
        count_lost: Callable[[str], None],
        count_refused: Callable[[int], None],
    ) -> None:
        self.is_registered = False
        self._coordinator = coordinator
        self._line = line
        self._address = address
        self._is_active = is_active
        self._count_lost = count_lost
        self._count_refused = count_refused
        self._failures = 0
        self._log_at_ms = 0
        self._session: WorkerSession | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Register it, be a member for it, and give up its partitions when it is lost."""
        try:
            while True:
                try:
                    await self._serve()
                except Exception:  # of ours: the others' workers, and this one, are served on
                    logger.exception(
                        "worker %s: a bug in Muster; the worker is registered again",
                        self._address.url,
                    )
                self.is_registered = False
                await self._pause()
        except asyncio.CancelledError:
            await self._end()
            raise

    async def _serve(self) -> None:
        """Register it, and be a member for it until it is lost."""
        channel, registration = await self._register()
        await self._finish_last()
        began_ms = monotonic_ms()
        self._session = WorkerSession(
            self._coordinator, self._address, channel, registration, self._count_refused
        )
        self.is_registered = True
        try:
            await self._session.run()
        except (LostError, GroupError) as error:
            self._report(error)
        if monotonic_ms() - began_ms > channel.find_session_ms():
            self._failures = 0
        self._leaving = asyncio.create_task(self._session.give_up())

    async def _register(self) -> tuple[WorkerChannel, Registration]:
        """Return the worker, registered, however many tries that takes."""
        while True:
            if await self._is_active():
                channel = WorkerChannel(self._line, self._address)
                try:
                    registration = read_registration(await channel.ask("register"))
                    self._check_group(registration)
                except LostError as error:
                    self._report(error)
                else:
                    return channel, registration
            await self._pause()

    def _check_group(self, registration: Registration) -> None:
        allowed = self._line.config.groups
        if allowed and registration.group_id not in allowed:
            raise LostError(
                "refused",
                f"it wants to join {registration.group_id!r}; push.groups allows "
                f"{', '.join(allowed)}",
            )

    async def _finish_last(self) -> None:
        """Have left with the registration before this one: at this one, the worker has stopped."""
        if self._session is None:
            return
        self._session.application.release()
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._session.give_up())
        await asyncio.wait({self._leaving})
        leaving, self._session, self._leaving = self._leaving, None, None
        leaving.result()

    async def _end(self) -> None:
        """Have the worker stop, and leave."""
        self.is_registered = False
        if self._leaving is not None:
            await self._leaving
        elif self._session is not None:
            await self._session.end()

    async def _pause(self) -> None:
        """Wait a little longer each time, and not as long as for other workers."""
        times = min(BACKOFF_MAX, 2 ** min(self._failures, 30))
        self._failures += 1
        jitter = random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries
        await asyncio.sleep(self._line.config.retry_ms * times * jitter / 1_000)

    def _report(self, error: LostError | GroupError) -> None:
        """Count why the worker is lost, and say it once a minute."""
        reason = error.reason if isinstance(error, LostError) else "refused"
        self._count_lost(reason)
        now_ms = monotonic_ms()
        if self.is_registered or now_ms >= self._log_at_ms:
            self._log_at_ms = now_ms + LOG_EVERY_MS
            logger.warning("worker %s: %s: %s", self._address.url, reason, error)
