"""Run a member in an event loop: time, transport and application around its state machine.

Everything here happens in one loop; the state machine decides, the driver performs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from coordinator.clock import monotonic_ms
from coordinator.core.state.partition_spans import Spans
from coordinator.errors import ErrorCode, Fenced, GroupError, UnavailableError
from coordinator.member.application import Application, Held
from coordinator.member.events import (
    Action,
    AssignPartitions,
    CommitOffsets,
    CoordinatorMoved,
    Event,
    Hasten,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatUnanswered,
    Leave,
    LosePartitions,
    MemberSettings,
    Resume,
    RevokePartitions,
    SendHeartbeat,
    Stall,
    StepDone,
    Subscribe,
    Wake,
)
from coordinator.member.membership import Membership
from coordinator.member.states import BEATING, ENDED, ClientState
from coordinator.member.transport import (
    CoordinatorGoneError,
    Offsets,
    TopicPartition,
    Transport,
)

T = TypeVar("T")
logger = logging.getLogger("muster.member")
REQUEST_TIMEOUT_S = 10.0
LOG_EVERY_MS = 60_000
PASSES = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
PASSES_MS = 5_000
"""For how long such answers are part of a start or of a move, and nothing is wrong."""
COMMIT_EVERY_S = 5.0
_log_at_ms: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
"""When the members of a loop may say again that heartbeats fail."""


class Change(NamedTuple):
    """How the partitions of a member differ from those at the change before."""

    owned: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    removed: frozenset[TopicPartition]


class Driver:
    """One member at work.

    Parameters
    ----------
    settings
        The member's.
    transport
        How it reaches its coordinator; the driver closes it.
    make_application
        Makes the application's side, given what says that time is over, and whom to tell of a
        failure.
    max_poll_interval_ms
        How long work may show no sign of life; None: without a limit.
    """

    def __init__(
        self,
        settings: MemberSettings,
        transport: Transport,
        make_application: Callable[
            [Callable[[], bool], Callable[[BaseException], None]], Application
        ],
        max_poll_interval_ms: int | None = None,
    ) -> None:
        self.membership = Membership(settings)
        self.failure: BaseException | None = None
        self._settings = settings
        self._transport = transport
        self._application = make_application(self.is_over, self._fail)
        self._max_poll_interval_ms = max_poll_interval_ms
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._seen: frozenset[TopicPartition] = frozenset()
        self._shown: tuple[Spans, frozenset[TopicPartition]] = ((), frozenset())
        self._sending: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._steps: deque[Action] = deque()
        self._stepping: asyncio.Task[None] | None = None
        self._stored: dict[TopicPartition, tuple[int, str]] = {}
        self._committing: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._failing_ms: int | None = None
        """Since when heartbeats fail; None while they are answered."""
        self._runs = False
        if max_poll_interval_ms is not None:
            self._loop.call_later(max_poll_interval_ms / 4_000, self._look_for_life)

    # What members show ---------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether it must have stopped, by the clock; from any thread."""
        membership = self.membership
        return membership.state in BEATING and monotonic_ms() >= membership.uses_until_ms

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that it may use now; from any thread."""
        owned = self.membership.owned
        if not owned or self.is_over():
            return frozenset()
        spans, shown = self._shown
        if spans is not owned:
            shown = frozenset(expand(owned))
            self._shown = owned, shown
        return shown

    def subscribe(self, event: Subscribe) -> None:
        """Join, or subscribe to something else."""
        self._raise_failure()
        self._tell(event)

    def hasten(self, interval_ms: int) -> None:
        """Send heartbeats this often, unless the member's settings say how often."""
        self._tell(Hasten(interval_ms))

    async def find_coordinator(self) -> None:
        """Ask again who the coordinator is, and send it a heartbeat at once."""
        self._closing = self._loop.create_task(self._transport.close())  # it begins before we send
        self._tell(CoordinatorMoved())

    async def run(self, work: Callable[..., object], timeout_s: float | None) -> None:
        """Have work done on every partition, until the member has left; raise why it had to."""
        if not callable(work):
            raise TypeError(f"work is {work!r}: give a function of (partition, stop)")
        self._raise_failure()
        if self._runs:
            raise RuntimeError(
                "the member is already running work: wait until that call has returned"
            )
        self._runs = True
        try:
            self._application.work_on(work)
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            await self._application.work_no_more()
        finally:
            self._runs = False
            self._application.halt()  # cancelled
        self._raise_failure()

    async def wait_for_change(self, timeout_s: float | None) -> Change | None:
        """Wait until it owns something else than at the last change; None when it does not."""
        try:
            change = await asyncio.wait_for(self._next_change(), timeout_s)
        except TimeoutError:
            return None
        if change is None:
            self._raise_failure()
        return change

    async def _next_change(self) -> Change | None:
        """Wait for a change, which only one of those who wait for it gets; None: it has left."""
        while (owned := self.owned()) == self._seen:
            if self._ended.is_set():
                return None
            await self._changed.wait()
        seen, self._seen = self._seen, owned
        return Change(owned, owned - seen, seen - owned)

    def is_within(self) -> bool:
        """Whether this is a callback or the work, which cannot wait for its own end."""
        return self._application.is_within()

    def begin_to_leave(self, *, for_a_while: bool) -> None:
        """Leave, and wait for nothing."""
        self._tell(Leave(for_a_while))

    async def close(self, *, for_a_while: bool) -> None:
        """Leave, wait until nothing runs, and close what was opened."""
        self._tell(Leave(for_a_while))
        try:
            patience_s = self._settings.rebalance_timeout_ms / 1_000 + REQUEST_TIMEOUT_S
            await asyncio.wait_for(self._ended.wait(), patience_s)
        except TimeoutError:
            logger.warning("%s: left although its work did not stop", self._name)
        for task in (self._sending, self._stepping, self._committing):
            if task is not None:
                task.cancel()
        if self._wake is not None:
            self._wake.cancel()
        await self._transport.close()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop the work on partitions, which stay its own; on all, if none is named."""
        found = list(partitions) or self.owned()
        self._refuse_foreign(found)
        self._application.pause(found)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Work on partitions again; on all that are paused, if none is named."""
        self._application.resume(list(partitions) or list(self._application.paused))

    def has_left(self) -> bool:
        """Whether it has left, for good; from any thread."""
        return self._ended.is_set()

    async def hold(self) -> Held:
        """Keep what it owns from being given up until it is released."""
        self._raise_failure()
        held = self._application.hold()
        return held._replace(partitions=held.partitions & self.owned())

    def release(self, held: Held) -> None:
        """Let go of what was held."""
        self._application.let_go(held)

    def within(self) -> AbstractContextManager[None]:
        """Let a block count as the application's work: leaving does not wait for its end there."""
        return self._application.within()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused; from any thread."""
        return self.owned().intersection(tuple(self._application.paused))

    # Offsets -------------------------------------------------------------------------------------

    def commit_later(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit within a few seconds, and before a partition is revoked."""
        self._refuse_foreign(offsets)
        self._store(offsets)

    def _store(self, offsets: Offsets) -> None:
        self._stored.update(offsets)
        if self._committing is None or self._committing.done():
            self._committing = self._loop.create_task(self._commit_soon())

    async def _commit_soon(self) -> None:
        await asyncio.sleep(COMMIT_EVERY_S)
        await self._commit_stored(self._stored)

    async def _commit_stored(self, partitions: Iterable[TopicPartition]) -> None:
        found = {p: self._stored.pop(p) for p in list(partitions) if p in self._stored}
        if found:
            try:
                await self.commit(found, self._settings.rebalance_timeout_ms / 2_000)
            except Exception as error:  # noqa: BLE001 - the member goes on, or leaves, without them
                logger.warning("%s: could not commit offsets: %s", self._name, error)

    async def commit(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit offsets, as often as it takes; raise GroupError when that does not help."""
        epoch = self.membership.epoch
        older = {place: self._stored.pop(place) for place in offsets if place in self._stored}

        def ask() -> Awaitable[None]:
            nonlocal epoch
            self._refuse_foreign(offsets)
            epoch = self.membership.epoch
            return self._transport.commit(self._settings, epoch, offsets)

        def was_late(error: GroupError) -> bool:
            return isinstance(error, Fenced) and epoch != self.membership.epoch

        try:
            await self._retry(ask, timeout_s, was_late)
        except UnavailableError:
            older = {p: older[p] for p in older if p in self.owned() and p not in self._stored}
            self._store(older)
            raise

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return committed offsets."""
        return await self._retry(
            lambda: self._transport.committed(self._settings.group_id, partitions), timeout_s
        )

    async def _retry(
        self,
        ask: Callable[[], Awaitable[T]],
        timeout_s: float,
        helps: Callable[[GroupError], bool] = lambda _: False,
    ) -> T:
        """Ask until it is answered; raise what is refused for good, or refused until the end.

        Besides errors that are retriable, those are asked again of which `helps` says that another
        attempt may be answered otherwise.
        """
        deadline = self._loop.time() + timeout_s
        failures = 0
        while True:
            left_s = max(0.0, min(REQUEST_TIMEOUT_S, deadline - self._loop.time()))
            try:
                return await asyncio.wait_for(ask(), left_s)
            except GroupError as error:
                if not error.retriable and not helps(error):
                    raise
                why: Exception = error
            except OSError as error:
                why = error
            pause_s = self._settings.pause_ms(failures, random.random()) / 1_000  # noqa: S311
            failures += 1
            if self._loop.time() + pause_s > deadline:
                if isinstance(why, GroupError):
                    raise why
                raise GroupError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"no answer in time: {str(why) or 'silence'}",
                ) from why
            await asyncio.sleep(pause_s)

    def _refuse_foreign(self, offsets: Iterable[TopicPartition]) -> None:
        """Refuse to commit for partitions that another member may own by now."""
        foreign = sorted(set(offsets) - self.owned())
        if foreign:
            self._raise_failure()  # which is why it owns nothing
            raise GroupError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"{', '.join(map(str, foreign))}: not, or no longer, owned by this member: stop "
                "its work; its owner continues from the last commit",
            )

    # The loop ------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"member {self._settings.member_id} of group {self._settings.group_id}"

    def _tell(self, event: Event) -> None:
        """Let the state machine decide, and do what it says."""
        before = self.membership.owned
        for action in self.membership.handle(event, monotonic_ms()):
            self._perform(action)
        state = self.membership.state
        if state is ClientState.FATAL and self.failure is None:
            self.failure = self.membership.fatal
        if state in ENDED and not self._steps and self._stepping is None:
            self._ended.set()
        if before is not self.membership.owned or self._ended.is_set():
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        self._schedule()

    def _perform(self, action: Action) -> None:
        if isinstance(action, SendHeartbeat):
            if self._sending is not None and self._sending is not asyncio.current_task():
                self._sending.cancel()  # its answer is no longer waited for
            self._sending = self._loop.create_task(self._send(action))
            return
        if isinstance(action, CommitOffsets):
            self._application.stop(expand(action.partitions))
        elif isinstance(action, LosePartitions):
            self._application.stop_all()
        self._steps.append(action)
        if self._stepping is None:
            self._stepping = self._loop.create_task(self._step())

    async def _send(self, action: SendHeartbeat) -> None:
        """Send a heartbeat and take in what came of it."""
        number, jitter = action.number, random.random()  # noqa: S311 - spreads retries
        event: Event
        patience_s = min(REQUEST_TIMEOUT_S, self.membership.session_ms / 3_000)
        try:
            sent = self._transport.heartbeat(action.request)
            response = await asyncio.wait_for(sent, patience_s)
            event = HeartbeatAnswered(number, response, self._transport.session_ms)
            self._failing_ms = None
        except GroupError as error:
            self._log(f"refused: {error.code.name}: {error}", passes=error.code in PASSES)
            event = HeartbeatRefused(number, error, jitter, isinstance(error, CoordinatorGoneError))
        except OSError as error:
            why = str(error) or type(error).__name__
            if isinstance(error, TimeoutError):
                why = f"silence for {patience_s:.0f} s"
            self._log(f"not answered: {why}")
            event = HeartbeatUnanswered(number, jitter)
        except Exception as error:  # of ours, or what no coordinator could read
            logger.exception("%s: cannot send a heartbeat, leaving", self._name)
            self._fail(error)
            event = HeartbeatUnanswered(number, jitter)
        self._tell(event)

    def _log(self, what: str, *, passes: bool = False) -> None:
        """Say what is wrong, once a minute for all members here: it may be so for hours."""
        now_ms = monotonic_ms()
        if self._failing_ms is None:
            self._failing_ms = now_ms
        if passes and now_ms - self._failing_ms < PASSES_MS:
            logger.debug("%s: a heartbeat is %s", self._name, what)
            return
        if now_ms >= _log_at_ms.get(self._loop, 0):
            _log_at_ms[self._loop] = now_ms + LOG_EVERY_MS
            logger.warning("%s: a heartbeat is %s", self._name, what)

    async def _step(self) -> None:
        """Do the steps that are asked for, one after the other."""
        while self._steps:
            action = self._steps[0]
            assert not isinstance(action, SendHeartbeat)
            await self._do(action, list(expand(action.partitions)))
            self._steps.popleft()
            if not self._steps:
                self._stepping = None
            self._tell(StepDone(action.number))
            if self._stepping is not None and self._stepping is not asyncio.current_task():
                return  # the next step has a task of its own

    async def _do(self, action: Action, partitions: list[TopicPartition]) -> None:
        application = self._application
        if isinstance(action, CommitOffsets):
            await application.stopped(partitions)
            await self._commit_stored(partitions)
        elif isinstance(action, RevokePartitions):
            await application.tell("revoked", partitions)
        elif isinstance(action, AssignPartitions):
            await application.tell("assigned", partitions)
            if self.membership.state is ClientState.RECONCILING:  # else it was cancelled meanwhile
                application.begin(partitions)
        else:
            await application.stopped(application.working())
            self._stored.clear()
            await application.tell("lost", partitions)

    def _schedule(self) -> None:
        """Wake the state machine when it wants to be."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if not self._ended.is_set():
            after_ms = min(self.membership.wake_at_ms - monotonic_ms(), 3_600_000)
            self._wake = self._loop.call_later(max(after_ms, 0) / 1_000, self._tell, Wake())

    def _look_for_life(self) -> None:
        """Leave the group while work shows no sign of life; come back when all of it has ended."""
        assert self._max_poll_interval_ms is not None
        if self._ended.is_set():
            return
        if self._application.silent_ms() > self._max_poll_interval_ms:
            if self.membership.state is not ClientState.STALE:
                logger.warning("%s: leaving, its work shows no sign of life", self._name)
            self._tell(Stall())
            self._tell(Resume())  # joins once the work has ended
        self._loop.call_later(self._max_poll_interval_ms / 4_000, self._look_for_life)

    # Failures ------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Leave the group: a callback or the work failed."""
        self.failure = self.failure or error
        self._tell(Leave())

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


async def called(function: Callable[[T], None], given: T) -> None:
    """Call a function in the driver's loop, as programs with threads have to."""
    function(given)


def expand(spans: Spans) -> Iterable[TopicPartition]:
    """Yield the partitions of spans, in order."""
    for topic, first, end in spans:
        for number in range(first, end):
            yield TopicPartition(topic.name, number)
