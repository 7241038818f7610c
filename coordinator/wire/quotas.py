"""Quotas of requests and bytes a second for each client, and of connections, as Kafka has them.

A client beyond its quota gets its answer with the time to wait (the throttle time), and is not read
from for that long, on any connection. Pure: the time is an argument, or a clock is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from coordinator.config import QuotasConfig
from coordinator.wire.codec import Request
from coordinator.wire.connection import Connection, PendingRequest
from coordinator.wire.session import ANONYMOUS

BURST_S = 10.0
"""A client may be behind its quota by so much and catch up at once; Kafka's window is 11 s."""
THROTTLE_S_MAX = 10.0
"""No client waits longer than that: members have to send heartbeats."""
CLIENTS_MAX = 10_000
"""Of so many clients it is known what they used; of more, those that asked last."""
NAME_MAX = 255
"""Clients whose names begin with the same so many characters count as one."""


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: what a client may still use, refilled over time.

    Attributes
    ----------
    left
        Below 0, the client is throttled.
    rate
        What is added a second.
    """

    rate: float
    left: float
    at_s: float

    def take(self, amount: float, now_s: float) -> float:
        """Take tokens, and return the seconds until the bucket is above zero again."""
        grown = self.left + (now_s - self.at_s) * self.rate
        self.left = max(min(grown, self.rate * BURST_S) - amount, -self.rate * THROTTLE_S_MAX)
        self.at_s = now_s
        return max(-self.left / self.rate, 0.0)


class Quotas:
    """The quotas of requests and bytes, by client.

    Attributes
    ----------
    is_limited
        Whether any client is limited.
    """

    def __init__(self, config: QuotasConfig) -> None:
        self._requests = Quota(config.requests_per_s_max, config.requests_per_s)
        self._bytes = Quota(config.bytes_per_s_max, config.bytes_per_s)
        self.is_limited = self._requests.is_limited or self._bytes.is_limited

    def charge(self, client: str, requests: int, size: int, now_s: float) -> int:
        """Charge a client, and return its throttle time in ms.

        Parameters
        ----------
        client
            Its principal, or its client id without a login.
        requests, size
            With 0 and 0, only the time is returned.
        """
        waits = (
            self._requests.charge(client, requests, now_s),
            self._bytes.charge(client, size, now_s),
        )
        return round(max(waits) * 1000)


class Quota:
    """One quota: a default, and others by client; 0 is unlimited.

    Attributes
    ----------
    is_limited
        Whether any client is limited.
    """

    def __init__(self, of_all: int, of_one: Mapping[str, int]) -> None:
        self._of_all = of_all
        self._of_one = of_one
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self.is_limited = of_all > 0 or any(of_one.values())

    def take_one(self, client: str, now_s: float) -> bool:
        """Whether a client has something left, of which one is taken; what is refused is free."""
        if self.charge(client, 0, now_s) > 0:
            return False
        self.charge(client, 1, now_s)
        return True

    def charge(self, client: str, amount: int, now_s: float) -> float:
        """Charge a client, and return the seconds until it is within its quota again."""
        rate = self._of_one.get(client, self._of_all)
        if not rate:
            return 0.0
        client = client[:NAME_MAX]
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(rate, rate * BURST_S, now_s)
            if len(self._buckets) > CLIENTS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(client)
        return bucket.take(amount, now_s)


class Timers(Protocol):
    """What a throttle needs of an event loop."""

    def time(self) -> float:
        """Return the time in seconds, from any beginning."""

    def call_later(self, delay: float, callback: Callable[[str], object], client: str, /) -> object:
        """Call something in so many seconds."""


class MutedLink(Protocol):
    """What a throttle needs of a socket."""

    connection: Connection
    busy: bool
    unread_bytes: int

    def mute(self, throttle_ms: int) -> None:
        """Take no requests for the throttle time."""

    def proceed(self, first: Callable[[], object]) -> None:
        """Go on with what waited, then with what came since; a fault ends this link alone."""


class Throttle:
    """Charges requests to their clients, and holds back those of a client beyond its quota.

    The throttle time mutes a connection, and a client may open others. So a quota is one of all of
    a client's connections: while it is used up, no request of the client is looked at.

    Parameters
    ----------
    loop
        The clock and the timers.
    ask
        Asks for the answer to a request; the request has been charged.
    note
        Called with whose request waits, or makes its client wait, and how long in ms.
    """

    def __init__(
        self,
        quotas: Quotas,
        loop: Timers,
        ask: Callable[[Any, PendingRequest], object],
        note: Callable[[Request, int], object],
    ) -> None:
        self.is_limited = quotas.is_limited
        self._quotas = quotas
        self._loop = loop
        self._ask = ask
        self._note = note
        self._held: dict[str, dict[MutedLink, PendingRequest]] = {}
        self._of: dict[MutedLink, str] = {}

    def ask(self, link: MutedLink, pending: PendingRequest) -> None:
        """Ask for the answer to a request, now or when its client has quota again."""
        if not link.connection.authenticated:  # charged when it has logged in
            self._ask(link, pending)
            return
        client = client_of(pending.request)
        held = self._held.get(client)
        wait_ms = self._charge(client)
        if held is None and not wait_ms:
            self._begin(client, link, pending)
            return
        self._note(pending.request, wait_ms)
        link.busy, link.unread_bytes = True, pending.size
        if held is None:
            held = self._held[client] = {}
            self._loop.call_later(wait_ms / 1000, self._go_on, client)
        held[link] = pending
        self._of[link] = client

    def charge_login(self, link: MutedLink) -> None:
        """Charge what a login took, once it is done."""
        requests, size = link.connection.take_login()
        if requests:
            self._charge(link.connection.session.principal, requests, size)

    def charge_answer(self, request: Request, frame: bytes) -> None:
        """Charge the bytes of an answer; the client's next request waits for them."""
        if self.is_limited:
            self._charge(client_of(request), 0, len(frame))

    def forget(self, link: MutedLink) -> None:
        """Forget the request of a connection that has gone."""
        client = self._of.pop(link, None)
        if client is not None:
            del self._held[client][link]

    def _go_on(self, client: str) -> None:
        """Ask for what waited longest, as far as there is quota."""
        held = self._held[client]
        while held:
            wait_ms = self._charge(client)
            if wait_ms:
                self._loop.call_later(wait_ms / 1000, self._go_on, client)
                return
            link = next(iter(held))
            pending = held.pop(link)
            del self._of[link]
            link.busy, link.unread_bytes = False, 0
            link.proceed(partial(self._begin, client, link, pending))
        del self._held[client]

    def _begin(self, client: str, link: MutedLink, pending: PendingRequest) -> None:
        """Charge a request and ask for its answer; its connection is mute for the throttle time."""
        throttle_ms = self._charge(client, 1, pending.size)
        pending.request.throttle_ms = throttle_ms
        if throttle_ms:
            self._note(pending.request, throttle_ms)
            link.mute(throttle_ms)
        self._ask(link, pending)

    def _charge(self, client: str, requests: int = 0, size: int = 0) -> int:
        return self._quotas.charge(client, requests, size, self._loop.time())


def client_of(request: Request) -> str:
    """Return whose quota a request uses: its principal's, or without one its client id's."""
    principal = request.session.principal
    return request.client_id if principal == ANONYMOUS else principal
