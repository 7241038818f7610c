"""Move bytes between sockets and connections, and requests to the coordinator.

All requests that one turn of the event loop brings are asked as one batch. A connection that
breaks a rule, or takes too long, is closed; no other notices.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.config import QuotasConfig, ServerConfig
from coordinator.core.events import Answer, Event, RecordAudit, Result
from coordinator.core.large_requests import joins
from coordinator.core.state.groups import TopicView
from coordinator.wire.acceptor import Acceptor, ConnectionCounts
from coordinator.wire.apis.cluster_apis import refuse_standing_by
from coordinator.wire.apis.group_apis import brings_much, encode_noted, note_answers
from coordinator.wire.authorization import authorize_request
from coordinator.wire.call import (
    ELEMENTS_LEAST,
    REQUEST_BYTES_LEAST,
    Call,
    Cluster,
    RequestRoom,
)
from coordinator.wire.client_warnings import RefusedClients, VainFetches
from coordinator.wire.codec import Request, decode_body
from coordinator.wire.connection import BRIEF, Connection, PendingRequest
from coordinator.wire.later_answer import LaterAnswer
from coordinator.wire.link import ConnectionLimits, Link
from coordinator.wire.quotas import Quota, Quotas, Throttle
from coordinator.wire.refusal_audit import RefusalCounter
from coordinator.wire.sasl import Login
from coordinator.wire.split_requests import SplitRequest, split_request
from coordinator.wire.turns import REQUESTS_A_TURN, Turns

GATHER_LINKS, GATHER_S = 64, 0.004
"""From so many connections on, so long at most a request waits for others."""
PATROL_S = 1.0
NO_QUOTAS = QuotasConfig()
Asked: TypeAlias = tuple[Link, PendingRequest, Call]
logger = logging.getLogger("muster.wire")


class RequestCounts(ConnectionCounts, Protocol):
    """Counts what is served and what is refused."""

    def served(self, requests: Mapping[str, int]) -> None:
        """Count requests, by API."""

    def throttled(self, throttle_ms: int) -> None:
        """Count a request whose client is throttled."""

    def client_refused(self, client: str) -> None:
        """Count that a client's software was refused."""


class EventSubmitter(Protocol):
    """What the server needs of a coordinator."""

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events as one batch, without waiting."""

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""

    @property
    def metrics(self) -> RequestCounts:
        """Where requests and connections are counted."""


class Door(NamedTuple):
    """What clients of a socket find.

    Attributes
    ----------
    listener
        The name of the listener.
    login
        Makes what a client must do before anything else; None lets everyone in.
    """

    listener: str = ""
    login: Callable[[], Login] | None = None


class Server:
    """Serves connections in an event loop.

    Parameters
    ----------
    login
        Makes what a client must do before anything else; None lets everyone in.
    refusals
        Counts what is refused, for the audit.
    """

    def __init__(
        self,
        backend: EventSubmitter,
        cluster: Cluster,
        config: ServerConfig,
        login: Callable[[], Login] | None = None,
        refusals: RefusalCounter | None = None,
        quotas: QuotasConfig = NO_QUOTAS,
    ) -> None:
        self._config = config
        self._door = Door(login=login)
        self._metrics = backend.metrics
        self._loop = asyncio.get_running_loop()
        self._clients = RefusedClients(self._metrics.client_refused, self._loop.time)
        self._refusals = refusals or RefusalCounter()
        self._throttle = Throttle(Quotas(quotas), self._loop, self._ask, self._note_throttle)
        self._limits = ConnectionLimits(
            config,
            self._metrics,
            Turns(self._loop),
            self._throttle,
            self._clients,
            self._refusals,
        )
        self._links = self._limits.links
        self._vain = None if cluster.find_offsets is None else VainFetches(cluster.topics)
        self._connections = Quota(quotas.connections_per_s_max, quotas.connections_per_s)
        self._backend = backend
        self._cluster = cluster
        self._pending: list[Asked] = []
        self._answered: deque[tuple[Link, PendingRequest, Call, Future[Answer]]] = deque()
        """Requests that waited, and are answered now."""
        self._wakes = False
        self._submitted = 0.0
        self._acceptors: list[Acceptor] = []
        self._open_now: Counter[str] = Counter()
        self._writers = ThreadPoolExecutor(1, "muster-wire-large")
        self._hashers = ThreadPoolExecutor(1, "muster-wire-login")
        self._patrol = self._loop.create_task(self._watch())
        self._room: tuple[TopicView, RequestRoom] | None = None

    def listen(
        self,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        between: Callable[[Link], asyncio.Protocol] = lambda link: link,
        door: Door | None = None,
    ) -> None:
        """Take connections of a bound socket.

        Parameters
        ----------
        door
            What its clients find, where it is another than elsewhere.
        between
            Makes what stands between a socket and its connection here.
        """
        self._acceptors.append(
            Acceptor(
                sock,
                tls,
                self._config,
                self._metrics,
                lambda slot: between(
                    Link(self._limits, slot, partial(self._connect, door or self._door), self.ask)
                ),
                self._connections,
                self._open_now,
            )
        )

    def show(self, cluster: Cluster) -> None:
        """Answer from now on that this is the cluster: our node id was not known before."""
        self._cluster = cluster

    def _connect(self, door: Door, address: str, subject: str | None) -> Connection:
        """Return the protocol state of a new connection."""
        config = self._config
        connection = Connection(
            address,
            config.request_bytes_max or REQUEST_BYTES_LEAST,
            config.in_flight_max,
            door.login() if door.login else None,
            subject,
            config.elements_max or ELEMENTS_LEAST,
            self._cluster.versions,
            self.room,
        )
        connection.session.listener = door.listener
        return connection

    def room(self) -> RequestRoom:
        """Return how large a request may be with the topics there are; 0 where a setting says."""
        view = self._cluster.topics()
        if self._room is None or self._room[0] is not view:
            self._room = view, RequestRoom.of(view)
        size, elements = self._room[1]
        bound = self._config
        return RequestRoom(
            0 if bound.request_bytes_max else size, 0 if bound.elements_max else elements
        )

    def close_unknown(self, users: Container[str]) -> None:
        """Close the connections of users that were removed."""
        for link in list(self._links):
            user = link.connection.user
            if user is not None and user not in users:
                link.close("login", "the user was removed")

    async def close(self) -> None:
        """Take no more connections, and close those there are."""
        self._patrol.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        for link in list(self._links):
            link.close("server", "the server ends")
        self._write_refusals()
        for pool in (self._writers, self._hashers):
            pool.shutdown(cancel_futures=True)
        await asyncio.sleep(0)

    def ask(self, link: Link, pending: PendingRequest) -> None:
        """Answer a request: at once, after its wait, or by the coordinator."""
        if pending.check is not None:
            link.start_check(pending, self._loop.run_in_executor(self._hashers, pending.check))
            return
        if self._throttle.is_limited:
            self._throttle.ask(link, pending)
        else:
            self._ask(link, pending)

    def _ask(self, link: Link, pending: PendingRequest) -> None:
        """Answer a request that its client may make now."""
        request = pending.request
        look = self._cluster.looks.get(request.api)
        if not request.unread and look is None:
            self._start(link, pending, self._plan(request))
            return
        link.busy, link.unread_bytes = True, len(request.unread)

        def read() -> Call | SplitRequest:
            if request.unread:
                decode_body(request)
            if look is not None:
                look()
            return self._plan(request)

        future = self._loop.run_in_executor(self._writers, read)
        start = partial(self._start, link, pending)
        future.add_done_callback(lambda found: link.finish_reading(found, start))

    def _plan(self, request: Request) -> Call | SplitRequest:
        """Return how a request is answered: whole, or split."""
        if self._cluster.stands_by:
            refuse_standing_by(request)
        pieces = None if request.api in self._cluster.own else split_request(request)
        return pieces or authorize_request(request, self._cluster)

    def _start(self, link: Link, pending: PendingRequest, plan: Call | SplitRequest) -> None:
        """Start answering a request."""
        if isinstance(plan, SplitRequest):
            link.busy = pending.long = True
            self._begin_pieces(link, pending, plan)
            return
        call = plan
        if self._vain is not None:
            self._vain.note(pending.request)
        if call.refusal:
            self._clients.note(pending.request.session, call.refusal)
        link.busy = pending.long
        if call.events:
            if not self._pending:
                self._submit_soon()
            self._pending.append((link, pending, call))
        elif call.later is not None:
            self._metrics.served({pending.request.api.name: 1})
            self._await_answer(link, pending, call, call.later())
        elif call.wait_ms:
            link.hold_back(call.wait_ms, partial(self._answer, link, pending, call, ()))
        else:
            self._metrics.served({pending.request.api.name: 1})
            self._answer(link, pending, call, ())

    def _begin_pieces(self, link: Link, pending: PendingRequest, pieces: SplitRequest) -> None:
        """Answer a split request, once its pieces are known."""
        if not pieces.before:
            self._next_piece(link, pending, pieces)
            return

        def answered(answers: Sequence[Answer]) -> None:
            pieces.begin(answers)
            if link.connected:
                self._next_piece(link, pending, pieces)

        self._ask_coordinator(pieces.before, answered)

    def _next_piece(self, link: Link, pending: PendingRequest, pieces: SplitRequest) -> None:
        """Answer the next piece of a split request; after the last, encode the whole answer."""
        part = pieces.next()
        if part is None:
            self._metrics.served({pending.request.api.name: 1})
            future = self._loop.run_in_executor(self._writers, pieces.frame)
            future.add_done_callback(lambda found: link.finish_writing(pending, found))
            return
        call = authorize_request(part, self._cluster)
        if call.refusal:
            self._clients.note(pending.request.session, call.refusal)

        def answered(answers: Sequence[Answer]) -> None:
            try:
                pieces.add(call, answers)
            except Exception:
                logger.exception("no answer to %s", pending.request.api.name)
                link.abort("failed")
            if link.connected:
                self._next_piece(link, pending, pieces)

        if call.events:
            self._ask_coordinator(call.events, answered)
        else:
            self._loop.call_soon(answered, ())

    def _submit_soon(self) -> None:
        """Submit after all reads of this turn; with many clients, not again within `GATHER_S`.

        Each batch wakes two threads, which costs more than most requests in it.
        """
        since = self._loop.time() - self._submitted
        if len(self._links) < GATHER_LINKS or since >= GATHER_S:
            self._loop.call_soon(self._submit_pending)
        else:
            self._loop.call_later(GATHER_S - since, self._submit_pending)

    def _submit_pending(self) -> None:
        """Ask the coordinator what came meanwhile: what is brief as one batch, joins, and the rest.

        The coordinator answers brief requests first; in one batch they would wait for the rest, and
        the rest for each that is large. What a client sends behind a join stays behind it.
        """
        self._submitted = self._loop.time()
        pending, self._pending = self._pending, []
        large, is_large = [], self._backend.is_large
        join: set[Link] = set()
        joining, brief, rest = batches = list[Asked](), list[Asked](), list[Asked]()
        for asked in pending:
            link, request, call = asked
            if any(map(is_large, call.events)):
                large.append([asked])
            elif request.request.api not in BRIEF:
                rest.append(asked)
            elif link in join or any(map(joins, call.events)):
                join.add(link)
                joining.append(asked)
            else:
                brief.append(asked)
        for batch in filter(None, (*batches, *large)):
            events = [event for _, _, call in batch for event in call.events]
            self._ask_coordinator(events, partial(self._deliver, batch))

    def _ask_coordinator(
        self, events: Sequence[Event], answered: Callable[[Sequence[Answer]], object]
    ) -> None:
        """Ask the coordinator, and have its answers taken in this thread."""

        def done(found: Future[list[Answer]]) -> None:
            try:
                self._loop.call_soon_threadsafe(lambda: answered(found.result()))
            except RuntimeError:
                logger.info("dropped %d answers: server stopped", len(events))

        self._backend.submit(events).add_done_callback(done)

    def _deliver(self, batch: list[Asked], answers: Sequence[Answer]) -> None:
        """Give each connection its answers."""
        at = 0
        links: dict[Link, None] = {}
        for link, pending, call in batch:
            own = answers[at : at + len(call.events)]
            at += len(own)
            links[link] = None
            later = own[0].response if isinstance(own[0], Result) else None
            if isinstance(later, LaterAnswer):
                self._await_answer(link, pending, call, later.future)
            else:
                self._answer(link, pending, call, own)
        served = Counter(pending.request.api for _, pending, _ in batch)
        self._metrics.served({api.name: count for api, count in served.items()})
        for link in links:
            link.proceed()

    def _await_answer(
        self, link: Link, pending: PendingRequest, call: Call, future: Future[Answer]
    ) -> None:
        """Answer a request once who was asked does; until then it is one of its connection's.

        What only its way in needed is let go: very many may wait, and for long. A client that is
        gone before its request waits is not waited for: its end has cancelled what waited then.
        """
        if not link.connected:
            future.cancel()
            return
        link.waiting.add(future)
        link.waiting_bytes += pending.size
        call.events = ()
        pending.request.body = None

        def done(found: Future[Answer]) -> None:
            self._answered.append((link, pending, call, found))
            if not self._wakes:
                self._wake_to_answer()

        future.add_done_callback(done)

    def _wake_to_answer(self) -> None:
        """Have what waited answered, in the loop's thread; any thread may say so."""
        self._wakes = True
        try:
            self._loop.call_soon_threadsafe(self._answer_waiting)
        except RuntimeError:
            logger.info("dropped an answer: server stopped")

    def _answer_waiting(self) -> None:
        """Answer those that waited, so many of them that others have their turn in between."""
        self._wakes = False  # before it looks: what comes from now on wakes it again
        links: dict[Link, None] = {}
        for _ in range(min(len(self._answered), REQUESTS_A_TURN)):
            link, pending, call, future = self._answered.popleft()
            link.waiting.discard(future)
            link.waiting_bytes -= pending.size
            if not link.connected or future.cancelled():
                continue
            if (error := future.exception()) is None:
                self._answer(link, pending, call, [future.result()])
                links[link] = None
            else:  # one connection ends, and no other waits for it
                logger.error("no answer to %s", pending.request, exc_info=error)
                link.abort("failed")
        for link in links:  # once each, however many of its requests waited
            link.proceed()
        if self._answered:
            self._wake_to_answer()

    def _answer(
        self, link: Link, pending: PendingRequest, call: Call, answers: Sequence[Answer]
    ) -> None:
        """Encode a response: here, or a large one in another thread."""
        request = pending.request
        try:
            note_answers(request, answers)
            if pending.long or brings_much(answers):
                future = self._loop.run_in_executor(
                    self._writers, encode_noted, request, call, answers
                )
                future.add_done_callback(lambda found: link.finish_writing(pending, found))
                return
            pending.frame = encode_noted(request, call, answers)
            self._throttle.charge_answer(request, pending.frame)
        except Exception:
            logger.exception("no answer to %s", request)
            link.abort("failed")

    def _note_throttle(self, request: Request, throttle_ms: int) -> None:
        """Count a request whose client has to wait."""
        self._metrics.throttled(throttle_ms)
        self._refusals.note_throttle(request.session)

    def _write_refusals(self) -> None:
        """Submit the refusals counted so far as audit records, without waiting."""
        records = self._refusals.take()
        if records and self._config.audit_ms:
            self._backend.submit([RecordAudit(records)])

    async def _watch(self) -> None:
        """Close connections past a timeout; write the audit records of refusals."""
        written = self._loop.time()
        while True:
            await asyncio.sleep(PATROL_S)
            now = self._loop.time()
            if now - written >= self._config.audit_ms / 1000:
                written = now
                self._write_refusals()
            for link in list(self._links):
                reason = link.find_timeout(now)
                if reason:
                    link.abort(reason)
