"""Commit offsets to a group in the background, for programs that must never wait for it.

At most one offset per partition waits: a newer one takes its place. So however long the group's
coordinator is away, nothing piles up, and what is committed then is where things are.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from coordinator.clock import monotonic_ms
from coordinator.errors import ErrorCode, GroupError
from coordinator.member import loop_thread
from coordinator.member.events import MemberSettings
from coordinator.member.kafka import Kafka
from coordinator.member.options import check_texts
from coordinator.member.transport import TopicPartition
from spark_jobs.streams.stream_metrics import stream_metrics

NO_MEMBER, NO_EPOCH = "", -1
"""A committer that is not a member of the group."""
ANSWER_S = 10.0
REFRESH_S = 3_600.0
"""How often unchanged offsets are committed again: Kafka deletes those that are old."""
PATIENCE_S = 10.0
"""How long what may pass is only tried again: a coordinator that moves, a broker that restarts."""
EXIT_S = 10.0
LOG_EVERY_MS = 60_000
PAUSE_MAX_MS = 30_000
REMEDIES = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members of its own: give a group without consumers",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "allow READ on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow READ on the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic no longer exists",
}
logger = logging.getLogger("muster.spark")


class BackgroundCommits:
    """Offsets of one group on their way to its coordinator.

    Attributes
    ----------
    group_id
        The group.
    committed, failures
        How many offsets were committed, and how many requests were refused, or failed and did not
        succeed within `patience_s` either.
    error
        Why the last of those failed; None after one that did not.

    Parameters
    ----------
    servers
        host:port of brokers, or of `muster serve`.
    tls, login
        As for `Member`.
    refresh_s
        How often unchanged offsets are committed again.
    patience_s
        For how long a failure that may pass is no failure yet.

    Raises
    ------
    ValueError
        An address, a group or a login is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        group_id: str,
        *,
        tls: ssl.SSLContext | None = None,
        login: tuple[str, str, str] | None = None,
        client_id: str = "muster",
        refresh_s: float = REFRESH_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        check_texts(group_id=group_id)
        self.group_id = group_id
        self.committed = self.failures = 0
        self.error: Exception | None = None
        self._settings = MemberSettings(
            group_id, NO_MEMBER, client_id=client_id, backoff_max_ms=PAUSE_MAX_MS
        )
        self._servers = servers if isinstance(servers, str) else ",".join(servers)
        self._transport = Kafka(servers, self._settings, tls, login)
        self._changed = threading.Condition()
        self._pending: dict[TopicPartition, int] = {}
        self._in_flight: dict[TopicPartition, int] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._followed: set[TopicPartition] = set()
        """The partitions of queries that run."""
        self._refresh_s, self._patience_s = refresh_s, patience_s
        self._delayed_by: Exception | None = None
        self._delayed_at_ms = 0
        self._is_closed = False
        self._log_at_ms = 0
        self._thread: loop_thread.LoopThread | None = None
        self._wake: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    # From any thread -----------------------------------------------------------------------------

    def put(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have offsets committed soon; those that are committed already are passed over."""
        with self._changed:
            if self._is_closed:
                return
            self._followed |= offsets.keys()
            for place, offset in offsets.items():
                if self._acknowledged.get(place) == offset and place not in self._in_flight:
                    self._pending.pop(place, None)
                else:
                    self._pending[place] = offset
            if not self._pending:
                return
            if self._thread is None:
                self._start()
            self._stir()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Do not commit unchanged offsets of these again: no query reads them any longer."""
        with self._changed:
            for place in partitions:
                self._followed.discard(place)
                self._acknowledged.pop(place, None)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what was put is committed or refused; whether it is."""
        with self._changed:
            if self._thread is None or self._thread.is_foreign:
                return not self._pending
            return self._changed.wait_for(
                lambda: not self._pending and not self._in_flight, timeout
            )

    def close(self, timeout: float = EXIT_S) -> bool:
        """Commit what waits, in so many seconds, and end; whether all of it is committed."""
        done = self.flush(timeout)
        with self._changed:
            if self._is_closed:
                return done
            self._is_closed = True
            waiting = self._pending.keys() | self._in_flight.keys()
            thread, left = self._thread, len(waiting)
        atexit.unregister(self.close)
        if thread is not None and not thread.is_foreign:
            thread.ask(self._end())
            loop_thread.release(thread)
        if left:
            self._log_at_ms = 0
            why = self._delayed_by or TimeoutError(f"{self._servers} has not answered yet")
            self._note_failure(why, f"closed while {left} wait")
        return done

    def _start(self) -> None:
        """Begin to commit, in the thread in which members of this process have theirs."""
        self._thread = loop_thread.acquire()
        self._thread.ask(self._open())
        atexit.register(self.close)

    def _stir(self) -> None:
        assert self._thread is not None
        assert self._wake is not None
        if not self._thread.is_foreign:
            self._thread.loop.call_soon_threadsafe(self._wake.set)

    # In that thread ------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._transport.close()

    async def _run(self) -> None:
        """Commit what waits, until cancelled."""
        assert self._wake is not None
        failures = 0
        refresh_at = asyncio.get_running_loop().time() + self._refresh_s
        while True:
            left_s = refresh_at - asyncio.get_running_loop().time()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(left_s, 0))
            self._wake.clear()
            if left_s <= 0:  # however busy other partitions are
                self._refresh()
                refresh_at += self._refresh_s - left_s
            while self._take():
                if await self._commit():
                    failures = 0
                    continue
                pause_ms = self._settings.pause_ms(failures, random.random())  # noqa: S311
                failures += 1
                await asyncio.sleep(pause_ms / 1_000)

    def _refresh(self) -> None:
        with self._changed:
            self._pending = self._acknowledged | self._pending

    def _take(self) -> bool:
        """Take what waits; whether there is anything."""
        with self._changed:
            self._in_flight, self._pending = self._pending, {}
            return bool(self._in_flight)

    async def _commit(self) -> bool:
        """Commit what was taken; False if some of it must be retried."""
        offsets, again = self._in_flight, dict[TopicPartition, int]()
        refused: dict[TopicPartition, GroupError] = {}
        try:
            async with asyncio.timeout(ANSWER_S):
                refused = await self._transport.commit_each(
                    self._settings, NO_EPOCH, {place: (at, "") for place, at in offsets.items()}
                )
        except (GroupError, OSError) as error:  # a timeout is an OSError
            again = dict(offsets)
            await self._transport.close()
            if isinstance(error, GroupError) and not error.retriable:
                remedy = REMEDIES.get(error.code)
                self._note_failure(error, f"{remedy}, trying again" if remedy else "trying again")
            else:
                self._note_delay(error)
        except Exception as error:
            logger.exception("offsets of group %s are passed over: a fault", self.group_id)
            refused = dict.fromkeys(offsets, GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        for place, why in refused.items():
            if why.retriable and why.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                again[place] = offsets[place]
        lasting = [why for place, why in refused.items() if place not in again]
        if lasting:
            self._note_failure(lasting[0], REMEDIES.get(lasting[0].code, "passed over"))
        elif refused:
            self._note_delay(next(iter(refused.values())))
        if not again:
            self._delayed_by = None
        done = {place: at for place, at in offsets.items() if place not in {*refused, *again}}
        if done and not refused:
            self.error = None
        self._note_done(done, again)
        return not again

    def _note_done(
        self, done: Mapping[TopicPartition, int], again: Mapping[TopicPartition, int]
    ) -> None:
        with self._changed:
            self._in_flight = {}
            followed = done.keys() & self._followed
            self._acknowledged |= {place: done[place] for place in followed}
            self._pending = {**again, **self._pending}
            self.committed += len(done)
            self._changed.notify_all()
        stream_metrics().committed(self.group_id, len(done), len(self._pending))

    def _note_delay(self, error: Exception) -> None:
        """Count what may pass as a failure once it has lasted."""
        if self._delayed_by is None:
            self._delayed_at_ms = monotonic_ms()
        self._delayed_by = error
        if monotonic_ms() - self._delayed_at_ms >= self._patience_s * 1_000:
            self._note_failure(error, "trying again")

    def _note_failure(self, error: Exception, then: str) -> None:
        """Count a failure, and say why, at most once a minute."""
        self.failures += 1
        self.error = error
        stream_metrics().failed(self.group_id)
        if monotonic_ms() >= self._log_at_ms:
            self._log_at_ms = monotonic_ms() + LOG_EVERY_MS
            why = str(error) or f"no answer within {ANSWER_S:.0f} s"
            logger.warning(
                "offsets of group %s are not committed: %s; %s", self.group_id, why, then
            )
