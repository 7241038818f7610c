"""server: moves bytes between sockets and conversations; everything else is told apart elsewhere.

All requests that one turn of the event loop brings are asked as one batch. A connection that
breaks a rule, or takes too long, is closed; no other notices.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, cast

from coordinator.config import QuotasConfig, ServerConfig
from coordinator.events import Audit, Event
from coordinator.metrics import Metrics
from coordinator.runner import Answer
from coordinator.wire.acceptor import Acceptor, Place
from coordinator.wire.authorization import call_of
from coordinator.wire.calls import Call, Cluster
from coordinator.wire.clients import Clients
from coordinator.wire.codec import Request, read_body
from coordinator.wire.connection import Asked, Connection
from coordinator.wire.quotas import Quotas
from coordinator.wire.reading import WireError
from coordinator.wire.refusals import Refusals
from coordinator.wire.requests import frame_of
from coordinator.wire.sasl import Login
from coordinator.wire.session import ANONYMOUS, subject_of

TOGETHER_MAX = 100
"""Events of one request that are asked together with those of others."""
GATHER_LINKS, GATHER_S = 64, 0.004
"""From so many connections on, so long at most a request waits for others."""
PATROL_S = 1.0
NO_QUOTAS = QuotasConfig()
logger = logging.getLogger("muster.wire")


class Backend(Protocol):
    """What the server needs of a coordinator."""

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Ask many things as one batch, without waiting."""

    @property
    def metrics(self) -> Metrics:
        """Where requests and connections are counted."""


class Server:
    """Serves connections in an event loop.

    Parameters
    ----------
    login
        Makes what a client must do before anything else; None lets everybody in.
    refusals
        Counts what is refused, for the audit.
    """

    def __init__(
        self,
        backend: Backend,
        cluster: Cluster,
        config: ServerConfig,
        login: Callable[[], Login] | None = None,
        refusals: Refusals | None = None,
        quotas: QuotasConfig = NO_QUOTAS,
    ) -> None:
        self.config = config
        self.login = login
        self.metrics = backend.metrics
        self.links: set[Link] = set()
        self.held = 0
        """Bytes of incomplete requests and unsent answers, of all connections."""
        self.loop = asyncio.get_running_loop()
        self.clients = Clients(self.metrics.client_refused, self.loop.time)
        self._quotas = Quotas(quotas)
        self._backend = backend
        self._cluster = cluster
        self._asked: list[tuple[Link, Asked, Call]] = []
        self._refusals = refusals or Refusals()
        self._submitted = 0.0
        self._acceptors: list[Acceptor] = []
        self._writers = ThreadPoolExecutor(1, "muster-wire-large")
        self._patrol = self.loop.create_task(self._watch())

    def listen(self, sock: socket.socket, tls: Callable[[], ssl.SSLContext | None]) -> None:
        """Take connections of a bound socket."""
        self._acceptors.append(
            Acceptor(sock, tls, self.config, self.metrics, lambda place: Link(self, place))
        )

    def close_unknown(self, users: Container[str]) -> None:
        """Close the connections of those who have logged in and are users no more."""
        for link in list(self.links):
            user = link.connection.user
            if user is not None and user not in users:
                link.close("login", "the user was removed")

    async def close(self) -> None:
        """Take no more connections, and close those there are."""
        self._patrol.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        for link in list(self.links):
            link.close("server", "the server ends")
        self._write_refusals()
        self._writers.shutdown(cancel_futures=True)
        await asyncio.sleep(0)

    def ask(self, link: Link, asked: Asked) -> None:
        """Have a request answered: at once, after its wait, or by the coordinator."""
        request = asked.request
        if self._quotas.any:
            request.throttle_ms = self._charge(request, 1, asked.size)
            if request.throttle_ms:
                self.metrics.throttled(request.throttle_ms)
                link.mute(request.throttle_ms)
        if not request.unread:
            self.do(link, asked, call_of(request, self._cluster))
            return
        link.busy, link.unread_bytes = True, len(request.unread)

        def read() -> Call:
            read_body(request)
            return call_of(request, self._cluster)

        future = self.loop.run_in_executor(self._writers, read)
        future.add_done_callback(lambda found: link.read(asked, found))

    def _charge(self, request: Request, requests: int, size: int) -> int:
        """Count what a client uses up; return for how many ms it is throttled."""
        principal = request.session.principal
        client = request.client_id if principal == ANONYMOUS else principal
        return self._quotas.charge(client, requests, size, self.loop.time())

    def charge_answer(self, request: Request, frame: bytes) -> None:
        """Count the bytes of an answer; the next request waits for them."""
        if self._quotas.any:
            self._charge(request, 0, len(frame))

    def do(self, link: Link, asked: Asked, call: Call) -> None:
        """Do what is to be done for a request."""
        if call.refused:
            self.clients.refused(asked.request.session, call.refused)
        asked.long = asked.long or len(call.events) > TOGETHER_MAX
        link.busy = asked.long
        if len(call.events) > TOGETHER_MAX:
            self._submit([(link, asked, call)])  # nobody else is to wait for these answers
        elif call.events:
            if not self._asked:
                self._submit_soon()
            self._asked.append((link, asked, call))
        elif call.wait_ms:
            link.park(asked, call)
        else:
            self.metrics.served({asked.request.api.name: 1})
            self.answer(link, asked, call, ())

    def _submit_soon(self) -> None:
        """Submit after all reads of this turn; with many clients, not again within `GATHER_S`.

        Each batch wakes two threads, which costs more than most requests in it.
        """
        since = self.loop.time() - self._submitted
        if len(self.links) < GATHER_LINKS or since >= GATHER_S:
            self.loop.call_soon(self._submit_asked)
        else:
            self.loop.call_later(GATHER_S - since, self._submit_asked)

    def _submit_asked(self) -> None:
        """Ask the coordinator everything that came meanwhile, as one batch."""
        self._submitted = self.loop.time()
        batch, self._asked = self._asked, []
        self._submit(batch)

    def _submit(self, batch: list[tuple[Link, Asked, Call]]) -> None:
        events = [event for _, _, call in batch for event in call.events]
        future = self._backend.submit(events)

        def answered(found: Future[list[Answer]]) -> None:
            try:
                self.loop.call_soon_threadsafe(self._deliver, batch, found)
            except RuntimeError:
                logger.info("%d answers come after the server's end", len(batch))

        future.add_done_callback(answered)

    def _deliver(self, batch: list[tuple[Link, Asked, Call]], found: Future[list[Answer]]) -> None:
        """Give each connection its answers, and let it go on."""
        answers = found.result()
        at = 0
        links: dict[Link, None] = {}
        for link, asked, call in batch:
            own = answers[at : at + len(call.events)]
            at += len(own)
            links[link] = None
            self.answer(link, asked, call, own)
        self.metrics.served(Counter(asked.request.api.name for _, asked, _ in batch))
        for link in links:
            link.go_on()

    def answer(self, link: Link, asked: Asked, call: Call, answers: Sequence[Answer]) -> None:
        """Write a response: here, or where a large one holds nobody else up."""
        request = asked.request
        if asked.long:
            future = self.loop.run_in_executor(self._writers, frame_of, request, call, answers)
            future.add_done_callback(lambda found: link.written(asked, found))
            return
        try:
            asked.frame = frame_of(request, call, answers)
            self.charge_answer(request, asked.frame)
        except Exception:
            logger.exception("no answer to %s", request)
            link.drop("failed")

    def note_failed_login(self, connection: Connection) -> None:
        """Count a login that failed."""
        self.clients.refused(connection.session, "the login failed")
        self._refusals.note_login(connection.claimed, connection.session)

    def _write_refusals(self) -> None:
        """Have what was refused meanwhile written to the log, without waiting for it."""
        records = self._refusals.take()
        if records and self.config.audit_ms:
            self._backend.submit([Audit(records)])

    async def _watch(self) -> None:
        """Close the connections that take too long; write down what was refused."""
        written = self.loop.time()
        while True:
            await asyncio.sleep(PATROL_S)
            now = self.loop.time()
            if now - written >= self.config.audit_ms / 1000:
                written = now
                self._write_refusals()
            for link in list(self.links):
                reason = link.overdue(now)
                if reason:
                    link.drop(reason)


class Link(asyncio.Protocol):
    """One socket, and the conversation over it."""

    def __init__(self, server: Server, place: Place) -> None:
        self._server = server
        self._place = place
        self._loop = server.loop
        self._transport: asyncio.Transport | None = None
        self._parked: list[tuple[Asked, Call]] = []
        self._wake: asyncio.TimerHandle | None = None
        self._held = 0
        self._reading = self._writing = True
        self.busy = False
        """Whether a long request is under way; nothing is taken meanwhile."""
        self.unread_bytes = 0
        """Of a long request that waits to be read."""
        self._heard = self._loop.time()
        self._incomplete: float | None = self._heard  # the first request is awaited, too
        self._unread: float | None = None
        self._muted: asyncio.TimerHandle | None = None

    # From the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        server, config = self._server, self._server.config
        self._transport = cast("asyncio.Transport", transport)
        self._place.taken = True
        self.connection = Connection(
            f"/{self._place.address}",  # as Kafka writes it
            config.request_bytes_max,
            config.in_flight_max,
            server.login() if server.login else None,
            subject_of(transport.get_extra_info("peercert")),
            config.elements_max,
        )
        server.links.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes as they come."""
        self._heard = self._loop.time()
        self.connection.receive(data)
        self.go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._transport = None
        self._parked.clear()
        for timer in (self._wake, self._muted):
            if timer is not None:
                timer.cancel()
        self._hold(0)
        self._server.links.discard(self)
        self._place.release()

    def pause_writing(self) -> None:
        """Take no more requests of a client that does not read its answers."""
        self._writing = False
        self._unread = self._loop.time()

    def resume_writing(self) -> None:
        """Go on: it reads again."""
        self._writing = True
        self._unread = None
        self.go_on()

    # Requests and answers ------------------------------------------------------------------------

    def go_on(self) -> None:
        """Take what requests there are, send what answers there are.

        Where as many requests came as may wait, others have their turn before the next of them.
        """
        connection = self.connection
        try:
            if self._transport is not None:
                self._take()
                was_full = connection.full
                self._send()
                if was_full and not connection.full and self._open:
                    self._loop.call_soon(self.go_on)
        except WireError as error:
            self._send()
            self.close("refused", str(error))
            return
        self._settle()

    def _take(self) -> None:
        """Have what requests there are answered, as far as the client reads answers."""
        while self._open and (asked := self.connection.next_request()) is not None:
            if self._parked:
                self._release()
            self._server.ask(self, asked)
            if self.connection.known:
                self._incomplete = None

    def _send(self) -> None:
        """Send the answers that are next."""
        if self._transport is None:
            return
        frames = self.connection.answers()
        if frames:
            self._transport.write(frames)
        if self.connection.refused and not self._transport.is_closing():
            self._server.note_failed_login(self.connection)
            self.close("login", "the login failed")

    def _settle(self) -> None:
        """Keep account of what is held; read on only where it will be looked at."""
        if self._transport is None:
            return
        connection, server = self.connection, self._server
        held = connection.held
        if not self._writing:
            held += self._transport.get_write_buffer_size()
        if held + self.unread_bytes != self._held:
            self._hold(held + self.unread_bytes)
            if server.held > server.config.buffer_bytes_max:
                self.drop("memory", "too much is held for requests and answers")
                return
        reading = (self._open and not connection.full) or not connection.held
        if not reading or (not held and connection.known):
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
        self._server.held += held - self._held
        self._held = held

    @property
    def _open(self) -> bool:
        """Whether requests are taken now."""
        return self._writing and not self.busy and self._muted is None

    def read(self, asked: Asked, found: asyncio.Future[Call]) -> None:
        """Go on with a long request that was read elsewhere."""
        self.busy, self.unread_bytes = False, 0
        if found.cancelled():  # the server ends
            return
        error = found.exception()
        if error is None:
            self._server.do(self, asked, found.result())
            self.go_on()
        elif isinstance(error, WireError):
            self._send()
            self.close("refused", str(error))
        else:
            logger.error("no answer to %s", asked.request.api.name, exc_info=error)
            self.drop("failed")

    def written(self, asked: Asked, found: asyncio.Future[bytes]) -> None:
        """Take a large answer that was written elsewhere."""
        self.busy = False
        if found.cancelled():  # the server ends
            return
        if found.exception() is not None:
            logger.error("no answer to %s", asked.request, exc_info=found.exception())
            self.drop("failed")
            return
        asked.frame = found.result()
        self._server.charge_answer(asked.request, asked.frame)
        self.go_on()

    def mute(self, throttle_ms: int) -> None:
        """Take no more requests for so long."""
        self._muted = self._loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.go_on()

    def park(self, asked: Asked, call: Call) -> None:
        """Hold an answer back until its wait is over, or another request comes behind it."""
        self.busy = False
        self._parked.append((asked, call))
        self._wake = self._loop.call_later(call.wait_ms / 1000, self._awake)

    def _awake(self) -> None:
        self._release()
        self.go_on()

    def _release(self) -> None:
        """Give the answers that were held back."""
        if self._wake is not None:
            self._wake.cancel()
        parked, self._parked = self._parked, []
        for asked, call in parked:
            self._server.answer(self, asked, call, ())

    # The end -------------------------------------------------------------------------------------

    def overdue(self, now: float) -> str | None:
        """Return why the client has had its time, None while it has not."""
        config = self._server.config
        patience = config.request_ms / 1000
        if self._unread is not None and now - self._unread > patience:
            return "does not read"
        if self._incomplete is not None and now - self._incomplete > patience:
            return "slow"
        if now - self._heard > config.idle_ms / 1000:
            return "idle"
        return None

    def close(self, reason: str, message: str = "") -> None:
        """Close once what was written is sent."""
        if self._transport is not None:
            self._end(reason, message)
            self._transport.close()

    def drop(self, reason: str, message: str = "") -> None:
        """Close at once."""
        if self._transport is not None:
            self._end(reason, message)
            self._transport.abort()

    def _end(self, reason: str, message: str) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            peer = self._transport.get_extra_info("peername")
            logger.info("closes %s (%s): %s", peer, reason, message or reason)
            self._server.metrics.closed(reason)
            if reason == "refused":
                self._server.clients.refused(self.connection.session, message)
            self._hold(0)
