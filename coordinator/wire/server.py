"""Move bytes between sockets and conversations, and nothing else.

All requests that one turn of the event loop brings are asked as one batch. A connection that
breaks a rule, or takes too long, is closed; no other notices.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from coordinator.config import QuotasConfig, ServerConfig
from coordinator.core.events import Answer, Event, RecordAudit
from coordinator.wire.acceptor import Acceptor, Connections
from coordinator.wire.apis.group_apis import frame_of
from coordinator.wire.authorization import call_of
from coordinator.wire.call import Call, Cluster
from coordinator.wire.codec import Request, read_body
from coordinator.wire.connection import Asked, Connection
from coordinator.wire.link import Link
from coordinator.wire.quotas import Quotas
from coordinator.wire.refusals import Refusals
from coordinator.wire.refused_clients import Clients
from coordinator.wire.sasl import Login
from coordinator.wire.session import ANONYMOUS
from coordinator.wire.split_requests import Pieces, pieces_of

GATHER_LINKS, GATHER_S = 64, 0.004
"""From so many connections on, so long at most a request waits for others."""
PATROL_S = 1.0
NO_QUOTAS = QuotasConfig()
logger = logging.getLogger("muster.wire")


class Counts(Connections, Protocol):
    """Counts what is served and what is refused."""

    def served(self, requests: Mapping[str, int]) -> None:
        """Count requests, by API."""

    def throttled(self, throttle_ms: int) -> None:
        """Count a request whose client is not listened to for a while."""

    def client_refused(self, client: str) -> None:
        """Count that a client's software was refused."""


class Backend(Protocol):
    """What the server needs of a coordinator."""

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Ask many things as one batch, without waiting."""

    @property
    def metrics(self) -> Counts:
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
        self._hashers = ThreadPoolExecutor(1, "muster-wire-login")
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
        for pool in (self._writers, self._hashers):
            pool.shutdown(cancel_futures=True)
        await asyncio.sleep(0)

    def ask(self, link: Link, asked: Asked) -> None:
        """Have a request answered: at once, after its wait, or by the coordinator."""
        request = asked.request
        if asked.check is not None:
            link.check(asked, self.loop.run_in_executor(self._hashers, asked.check))
            return
        if self._quotas.any:
            request.throttle_ms = self._charge(request, 1, asked.size)
            if request.throttle_ms:
                self.metrics.throttled(request.throttle_ms)
                link.mute(request.throttle_ms)
        if not request.unread:
            self.do(link, asked, self._todo(request))
            return
        link.busy, link.unread_bytes = True, len(request.unread)

        def read() -> Call | Pieces:
            read_body(request)
            return self._todo(request)

        future = self.loop.run_in_executor(self._writers, read)
        future.add_done_callback(lambda found: link.read(asked, found))

    def _todo(self, request: Request) -> Call | Pieces:
        """Return what is to be done for a request: at once, or piece by piece."""
        return pieces_of(request) or call_of(request, self._cluster)

    def _charge(self, request: Request, requests: int, size: int) -> int:
        """Count what a client uses up; return for how many ms it is throttled."""
        principal = request.session.principal
        client = request.client_id if principal == ANONYMOUS else principal
        return self._quotas.charge(client, requests, size, self.loop.time())

    def charge_answer(self, request: Request, frame: bytes) -> None:
        """Count the bytes of an answer; the next request waits for them."""
        if self._quotas.any:
            self._charge(request, 0, len(frame))

    def do(self, link: Link, asked: Asked, todo: Call | Pieces) -> None:
        """Do what is to be done for a request."""
        if isinstance(todo, Pieces):
            link.busy = asked.long = True
            self._begin_pieces(link, asked, todo)
            return
        call = todo
        if call.refused:
            self.clients.refused(asked.request.session, call.refused)
        link.busy = asked.long
        if call.events:
            if not self._asked:
                self._submit_soon()
            self._asked.append((link, asked, call))
        elif call.wait_ms:
            link.park(asked, call)
        else:
            self.metrics.served({asked.request.api.name: 1})
            self.answer(link, asked, call, ())

    def _begin_pieces(self, link: Link, asked: Asked, pieces: Pieces) -> None:
        """Have a long request answered piece by piece, once it is known what they are."""
        if not pieces.before:
            self._next_piece(link, asked, pieces)
            return

        def answered(answers: Sequence[Answer]) -> None:
            pieces.begin(answers)
            if link.connected:
                self._next_piece(link, asked, pieces)

        self._ask_coordinator(pieces.before, answered)

    def _next_piece(self, link: Link, asked: Asked, pieces: Pieces) -> None:
        """Have the next piece of a long request answered, and at its end write the whole answer."""
        part = pieces.next()
        if part is None:
            self.metrics.served({asked.request.api.name: 1})
            future = self.loop.run_in_executor(self._writers, pieces.frame)
            future.add_done_callback(lambda found: link.written(asked, found))
            return
        call = call_of(part, self._cluster)
        if call.refused:
            self.clients.refused(asked.request.session, call.refused)

        def answered(answers: Sequence[Answer]) -> None:
            try:
                pieces.add(call, answers)
            except Exception:
                logger.exception("no answer to %s", asked.request.api.name)
                link.drop("failed")
            if link.connected:
                self._next_piece(link, asked, pieces)

        if call.events:
            self._ask_coordinator(call.events, answered)
        else:
            self.loop.call_soon(answered, ())

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
        events = [event for _, _, call in batch for event in call.events]
        self._ask_coordinator(events, lambda answers: self._deliver(batch, answers))

    def _ask_coordinator(
        self, events: Sequence[Event], answered: Callable[[Sequence[Answer]], object]
    ) -> None:
        """Ask the coordinator, and have its answers taken in this thread."""

        def done(found: Future[list[Answer]]) -> None:
            try:
                self.loop.call_soon_threadsafe(lambda: answered(found.result()))
            except RuntimeError:
                logger.info("%d answers come after the server's end", len(events))

        self._backend.submit(events).add_done_callback(done)

    def _deliver(self, batch: list[tuple[Link, Asked, Call]], answers: Sequence[Answer]) -> None:
        """Give each connection its answers, and let it go on."""
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
            self._backend.submit([RecordAudit(records)])

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
