"""One socket with its connection, and limits on its buffers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar, cast

from coordinator.config import ServerConfig
from coordinator.core.events import Answer
from coordinator.wire.acceptor import ConnectionCounts, ConnectionSlot
from coordinator.wire.client_warnings import RefusedClients
from coordinator.wire.connection import Connection, PendingRequest
from coordinator.wire.decoder import StandsByError, WireError
from coordinator.wire.quotas import Throttle
from coordinator.wire.refusal_audit import RefusalCounter
from coordinator.wire.session import subject_of
from coordinator.wire.turns import Turns

T = TypeVar("T")
logger = logging.getLogger("muster.wire")


@dataclass(slots=True, eq=False)
class ConnectionLimits:
    """What the connections of a server share: its limits, and what is used of them.

    Attributes
    ----------
    links
        The connections there are.
    held
        Bytes of incomplete requests and unsent answers, of all connections.
    """

    config: ServerConfig
    metrics: ConnectionCounts
    turns: Turns
    throttle: Throttle
    clients: RefusedClients
    refusals: RefusalCounter
    links: set[Link] = field(default_factory=set)
    held: int = 0

    def note_failed_login(self, connection: Connection) -> None:
        """Count a login that failed."""
        self.clients.note(connection.session, "the login failed")
        self.refusals.note_login(connection.claimed_principal, connection.session)


class Link(asyncio.Protocol):
    """One socket, and the protocol state of its connection.

    Parameters
    ----------
    connect
        Makes that state, given who calls: an address as Kafka writes it, a certificate's subject.
    ask
        Answers a request: sooner or later its pending request has a frame.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        slot: ConnectionSlot,
        connect: Callable[[str, str | None], Connection],
        ask: Callable[[Link, PendingRequest], object],
    ) -> None:
        self._limits = limits
        self._slot = slot
        self._connect = connect
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._held_back: list[Callable[[], object]] = []
        self._wake: asyncio.TimerHandle | None = None
        self._held = 0
        self._reading = self._writing = True
        self.busy = False
        """Whether a long request is under way; nothing is taken meanwhile."""
        self.behind = False
        """Whether it waits for its turn; nothing is taken meanwhile."""
        self.unread_bytes = 0
        """Of a long request that waits to be read."""
        self.waiting: set[Future[Answer]] = set()
        """Of requests that the coordinator answers when other members of a group have asked."""
        self.waiting_bytes = 0
        """Of these requests: a group keeps what its leader will get of them."""
        self._beside = 0
        self._heard = self._loop.time()
        self._incomplete: float | None = self._heard  # the first request is awaited, too
        self._unread: float | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._checking: asyncio.Future[object] | None = None

    # From the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._slot.taken = True
        tls = transport.get_extra_info("ssl_object")
        subject = subject_of(tls and tls.getpeercert(binary_form=True))
        self.connection = self._connect(f"/{self._slot.address}", subject)
        self._limits.links.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes as they come."""
        self._heard = self._loop.time()
        self.connection.receive(data)
        self.proceed()

    def note_alive(self) -> None:
        """Note that the client has sent something that is not for us, on the same socket."""
        self._heard = self._loop.time()
        if self.connection.authenticated and not self.connection.buffered_bytes:
            self._incomplete = None

    def note_beside(self, held: int) -> None:
        """Note how many bytes of this connection others hold: they count with those held here."""
        self._beside = held
        self._update_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._transport = None
        self._held_back.clear()
        for future in list(self.waiting):
            future.cancel()
        for waiting in (self._wake, self._muted, self._checking):
            if waiting is not None:
                waiting.cancel()
        self._hold(0)
        self._limits.throttle.forget(self)
        self._limits.links.discard(self)
        self._slot.release()

    def pause_writing(self) -> None:
        """Stop taking requests while the client does not read its answers."""
        self._writing = False
        self._unread = self._loop.time()

    def resume_writing(self) -> None:
        """Take requests again: the client reads."""
        self._writing = True
        self._unread = None
        self.proceed()

    # Requests and answers ------------------------------------------------------------------------

    def proceed(self, first: Callable[[], object] | None = None) -> None:
        """Take the requests that arrived, and send the answers that are ready.

        Where as many requests came as may wait, others have their turn before the next of them.

        Parameters
        ----------
        first
            Goes on with a request that waited. What it raises ends this connection, and nothing
            else: it is called by timers and by other threads' results.
        """
        try:
            self._go_on(first)
        except Exception:  # a fault of the server: it costs this client, and no other
            logger.exception("a request from %s could not be answered", self._slot.address)
            self.abort("failed")

    def _go_on(self, first: Callable[[], object] | None) -> None:
        connection = self.connection
        try:
            if first is not None:
                first()
            if self._transport is not None:
                self._take()
                was_full = connection.full
                self._send()
                if was_full and not connection.full and self._open:
                    self._loop.call_soon(self.proceed)
        except WireError as error:
            self.refuse(error)
            return
        self._update_reading()

    def have_turn(self) -> None:
        """Go on with the request that waited for its turn."""
        self.behind = False
        self.proceed()

    def _take(self) -> None:
        """Ask for answers to the requests that arrived, while the client reads answers.

        What others have to wait for is asked when this connection has its turn.
        """
        while self._open:
            if not self.connection.is_next_brief and not self._limits.turns.take(self):
                self.behind = True
                return
            pending = self.connection.next_request()
            self._limits.throttle.charge_login(self)
            if pending is None:
                return
            if self._held_back:
                self._release()
            self._ask(self, pending)
            if self.connection.authenticated:
                self._incomplete = None

    def _send(self) -> None:
        """Send the answers that are next."""
        if self._transport is None:
            return
        frames = self.connection.take_answers()
        if frames:
            self._transport.write(frames)
        if self.connection.login_failed and not self._transport.is_closing():
            self._limits.note_failed_login(self.connection)
            self.close("login", "the login failed")

    def _update_reading(self) -> None:
        """Count the bytes in memory; read from the socket only while requests are taken."""
        if self._transport is None:
            return
        connection, limits = self.connection, self._limits
        held = connection.buffered_bytes
        if not self._writing:
            held += self._transport.get_write_buffer_size()
        beside = self.unread_bytes + self.waiting_bytes + self._beside
        if held + beside != self._held:
            self._hold(held + beside)
            if limits.held > limits.config.buffer_bytes_max:
                self.abort("memory", "too much is held for requests and answers")
                return
        reading = (self._open and not connection.full) or not connection.buffered_bytes
        if not reading or (not held and connection.authenticated):
            self._incomplete = None
        elif self._incomplete is None:
            self._incomplete = self._heard
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _hold(self, held: int) -> None:
        self._limits.held += held - self._held
        self._held = held

    @property
    def connected(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None

    @property
    def _open(self) -> bool:
        """Whether requests are taken now."""
        return self._writing and not self.busy and not self.behind and self._muted is None

    def finish_reading(self, found: asyncio.Future[T], start: Callable[[T], object]) -> None:
        """Continue with a long request that another thread decoded."""
        self.busy, self.unread_bytes = False, 0
        if found.cancelled():  # the server ends
            return
        self.proceed(lambda: start(found.result()))

    def finish_writing(self, pending: PendingRequest, found: asyncio.Future[bytes]) -> None:
        """Take a large answer that another thread encoded."""
        if pending.long:
            self.busy = False
        if found.cancelled():  # the server ends
            return
        if found.exception() is not None:
            logger.error("no answer to %s", pending.request, exc_info=found.exception())
            self.abort("failed")
            return
        pending.frame = found.result()
        self._limits.throttle.charge_answer(pending.request, pending.frame)
        self.proceed()

    def start_check(self, pending: PendingRequest, found: asyncio.Future[object]) -> None:
        """Wait for the check of a login in another thread."""
        self.busy = True
        self._checking = found
        found.add_done_callback(lambda done: self._finish_check(pending, done))

    def _finish_check(self, pending: PendingRequest, done: asyncio.Future[object]) -> None:
        self.busy, self._checking = False, None
        if done.cancelled():  # the client has gone, or the server ends
            return
        self.proceed(lambda: self.connection.log_in(pending, done.result()))

    def mute(self, throttle_ms: int) -> None:
        """Take no requests for the throttle time."""
        self._muted = self._loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.proceed()

    def hold_back(self, wait_ms: int, answer: Callable[[], object]) -> None:
        """Hold an answer back until its wait is over, or another request comes behind it."""
        self.busy = False
        self._held_back.append(answer)
        self._wake = self._loop.call_later(wait_ms / 1000, self._wait_over)

    def _wait_over(self) -> None:
        self.proceed(self._release)

    def _release(self) -> None:
        """Send the answers that were held back."""
        if self._wake is not None:
            self._wake.cancel()
        held_back, self._held_back = self._held_back, []
        for answer in held_back:
            answer()

    # The end -------------------------------------------------------------------------------------

    def find_timeout(self, now: float) -> str | None:
        """Return which timeout the client has exceeded; None if none."""
        config = self._limits.config
        patience = config.request_ms / 1000
        if self._unread is not None and now - self._unread > patience:
            return "does not read"
        if self._incomplete is not None and now - self._incomplete > patience:
            return "slow"
        if not self.waiting and now - self._heard > config.idle_ms / 1000:
            return "idle"
        return None

    def refuse(self, error: WireError) -> None:
        """Close because of what the client sent, once it has the answers that are ready."""
        self._send()
        reason = "stands by" if isinstance(error, StandsByError) else "refused"
        self.close(reason, str(error))

    def close(self, reason: str, message: str = "") -> None:
        """Close once what was written is sent."""
        if self._transport is not None:
            self._end(reason, message)
            self._transport.close()

    def abort(self, reason: str, message: str = "") -> None:
        """Close at once."""
        if self._transport is not None:
            self._end(reason, message)
            self._transport.abort()

    def _end(self, reason: str, message: str) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            peer = self._transport.get_extra_info("peername")
            logger.debug("closes %s (%s): %s", peer, reason, message or reason)
            self._limits.metrics.closed(reason)
            if reason == "refused":
                self._limits.clients.note(self.connection.session, message)
            self._hold(0)
