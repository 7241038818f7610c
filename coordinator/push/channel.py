"""The requests of one registration of a worker, one at a time, up to the first one that fails."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator.clock import monotonic_ms
from coordinator.config import PushConfig
from coordinator.member.membership import NEVER_MS
from coordinator.member.transport import TopicPartition
from coordinator.push.address import Address
from coordinator.push.http_client import post
from coordinator.push.lease import WorkerLease
from coordinator.push.messages import Kind, LostError, encode_request

NOTHING: Mapping[TopicPartition, int | None] = {}
BYTES_LEAST, BYTES_MOST = 4 << 20, 100 << 20
"""What an answer may have, however few and however many partitions its worker works on."""
BYTES_A_PARTITION = 512
"""More than a row of an answer has, with the longest name of a topic and each field in a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """How workers are reached.

    Attributes
    ----------
    count
        Called with the kind of each request.
    """

    config: PushConfig
    token: str
    tls: ssl.SSLContext | None
    count: Callable[[Kind], None]


class WorkerChannel:
    """One registration, from its first request to the first one that fails.

    Attributes
    ----------
    session
        Its id, in every request.
    find_session_ms
        Returns after how long the worker stops by itself; requests say it.
    """

    def __init__(self, line: Line, address: Address) -> None:
        self.session = str(uuid.uuid4())
        self.find_session_ms: Callable[[], int] = lambda: line.config.session_timeout_ms
        self._line = line
        self._address = address
        self._lease = WorkerLease(monotonic_ms())

    @property
    def stops_by_ms(self) -> int:
        """When the worker has stopped by itself, unless it is asked again."""
        return self._lease.stops_by_ms

    async def ask(
        self,
        kind: Kind,
        partitions: Mapping[TopicPartition, int | None] = NOTHING,
        end_ms: int = NEVER_MS,
        working: int = 0,
    ) -> bytes:
        """Return the answer to a request, after which the worker stops by `end_ms`, unasked.

        Parameters
        ----------
        kind, partitions
            The request.
        end_ms
            When the worker must have stopped.
        working
            How many partitions it may report an offset of.

        Raises
        ------
        LostError
            None came within the session timeout; ask no more then.
        """
        now_ms, session_ms = monotonic_ms(), self.find_session_ms()
        if kind == "register":
            by_ms = now_ms + session_ms
        else:
            session_ms = self._lease.session_ms(session_ms, end_ms)
            by_ms = self._lease.ask(session_ms) if session_ms > 0 else now_ms
        if by_ms <= now_ms:
            raise LostError("silent", "it got no request in time: its session is over")
        body = encode_request(self.session, session_ms, partitions)
        config, patience_s = self._line.config, (by_ms - now_ms) / 1_000
        self._line.count(kind)
        try:
            async with asyncio.timeout(patience_s):
                answer = await post(
                    self._address,
                    kind,
                    body,
                    token=self._line.token,
                    tls=self._line.tls,
                    connect_s=config.connect_ms / 1_000,
                    bytes_max=config.answer_bytes_max or _find_room(working),
                )
        except TimeoutError:
            raise LostError("silent", f"{kind} is not answered in {patience_s:.1f} s") from None
        self._lease.answered(monotonic_ms())
        return answer


def _find_room(working: int) -> int:
    """Return how long an answer may be: less than a report of all that it works on ends it."""
    return min(BYTES_MOST, max(BYTES_LEAST, working * BYTES_A_PARTITION))
