"""The requests of one registration of a worker, one at a time, and until when it may work.

A worker stops by itself when its session timeout is over. It counts from when it sent the answer
before the newest request; the request shows that this answer came in. We count from when the last
answer came in, which is never earlier. So it has stopped when we think so, though requests are lost
or delayed: nothing is sent again, and after a failure nothing more is sent.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator.clock import monotonic_ms
from coordinator.config import PushConfig
from coordinator.member.transport import TopicPartition
from coordinator.push.address import Address
from coordinator.push.http_client import post
from coordinator.push.messages import Kind, LostError, encode_request

NOTHING: Mapping[TopicPartition, int | None] = {}


@dataclass(frozen=True, slots=True)
class Line:
    """How workers are reached.

    Attributes
    ----------
    count
        Told what each request was.
    """

    config: PushConfig
    token: str
    tls: ssl.SSLContext | None
    count: Callable[[Kind], None]


class Channel:
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
        self._answered_at_ms = monotonic_ms()
        self._longest_ms = 0

    @property
    def stops_by_ms(self) -> int:
        """When the worker has stopped by itself, unless it is asked again.

        It has nothing to stop before it was asked something else than to register.
        """
        return self._answered_at_ms + self._longest_ms

    async def ask(
        self, kind: Kind, partitions: Mapping[TopicPartition, int | None] = NOTHING
    ) -> bytes:
        """Return the answer to a request.

        Raises
        ------
        LostError
            There is none within the session timeout; ask no more then.
        """
        session_ms = self.find_session_ms()
        if kind == "register":
            self._answered_at_ms = monotonic_ms()
        else:
            self._longest_ms = max(self._longest_ms, session_ms)
        body = encode_request(self.session, session_ms, partitions)
        config = self._line.config
        patience_s = (self._answered_at_ms + session_ms - monotonic_ms()) / 1_000
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
                    bytes_max=config.answer_bytes_max,
                )
        except TimeoutError:
            raise LostError("silent", f"{kind} is not answered in {patience_s:.1f} s") from None
        self._answered_at_ms = monotonic_ms()
        return answer
