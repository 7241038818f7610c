"""Requests that a node sends on: to the active controller as its client, and to brokers as itself.

To controllers, a request goes in an Envelope with the principal of the client and its address
(KIP-590): they decide whether that client may, and never do what only the node itself might. To
brokers goes only what the client was found to be allowed already.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from coordinator.core.events import Answer, Result
from coordinator.errors import GroupError
from coordinator.errors.trouble import Trouble
from coordinator.kraft.links import NOT_CONTROLLER, SENT, Controllers, Links, Quorum
from coordinator.kraft.requests.working import Working
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import make_frame, read_response
from coordinator.wire.codec import LENGTH, Api, Request, Values
from coordinator.wire.encoder import MILLISECOND, entity_writer
from coordinator.wire.session import Session

ANSWER_S, AGAIN_S = 30.0, 0.25
"""How long an answer is waited for, as brokers do; and between two tries."""
Work: TypeAlias = Callable[[], Awaitable[Values]]
"""What returns the fields of a response, in time."""
PRINCIPAL_VERSION = b"\0\0"
REFUSALS = {29, 30, 31}
"""Kafka's codes of what a user may not do."""
TRANSACTION_KEY = 1
"""Of FindCoordinator: the key is a transactional id."""
logger = logging.getLogger("muster.node")


class Upstream:
    """The controllers and brokers of a node's cluster, for one event loop.

    Parameters
    ----------
    brokers, controllers
        How the node reaches them.
    sent
        The versions of each API that go to brokers.
    quorum
        Which controller is active, as the node finds out by its heartbeats.
    """

    def __init__(
        self,
        brokers: ClientSettings,
        controllers: ClientSettings,
        sent: Mapping[Api, tuple[int, int]],
        quorum: Quorum | None = None,
    ) -> None:
        self._control = Controllers(brokers, controllers, ANSWER_S, quorum)
        self._brokers = Links(brokers, ANSWER_S, {**SENT, **sent})
        self._ids = range(0)
        self._allocating = asyncio.Lock()
        self._working = Working()
        self._making: Future[Answer] | None = None
        self._trouble = Trouble(logger.warning, "%s")

    @property
    def served(self) -> Mapping[int, tuple[int, int]]:
        """The versions of each API that the active controller serves; none while none is known."""
        return self._control.served

    def start(self, work: Work) -> Future[Answer]:
        """Begin work, in the loop."""
        return self._working.start(_result_of(work))

    def ask_controller(self, request: Request) -> Work:
        """Return what has the active controller answer a request of a client's.

        It raises OSError if none has answered in time. The request is read now: it is let go of
        while its answer is awaited.
        """
        session, api, version = request.session, request.api, request.version
        asked, client_id = list_fields(request.body), session.client_id.encode()
        frame = make_frame(api, version, request.correlation_id, client_id, asked)
        envelope: dict[str, object] = {
            "request_data": frame[LENGTH.size :],
            "request_principal": _write_principal(session),
            "client_host_address": ipaddress.ip_address(session.host).packed,
        }

        async def ask() -> Values:
            until = time.monotonic() + ANSWER_S
            while True:
                try:
                    answer = await self._control.ask(Api.ENVELOPE, **envelope)
                    if not int(answer.error_code):
                        found = read_response(api, version, answer.response_data)
                        if int(getattr(found, "error_code", 0)) != NOT_CONTROLLER:
                            return list_fields(found)
                        self._control.forget()
                    why = f"the controller answers {answer.error_code.name}"
                except (OSError, GroupError) as error:
                    why = str(error)
                if time.monotonic() > until:
                    raise ConnectionError(f"{api.name} cannot be sent on: {why}")
                await asyncio.sleep(AGAIN_S)

        return ask

    def ask_broker(self, request: Request) -> Work:
        """Return what has a broker answer a request that the client is allowed; as above."""
        api, asked = request.api, list_fields(request.body)

        async def ask() -> Values:
            why: Exception = ConnectionError("no broker is named")
            for address in self._brokers.settings.servers:
                try:
                    answer = await self._brokers.ask(address, api, **asked)
                except (OSError, GroupError) as error:
                    why = error
                    continue
                found = list_fields(answer)
                self._note_right(api, found)
                return found
            raise ConnectionError(f"{api.name} cannot be sent on: {why}")

        return ask

    def make_transactions(self, transactional_id: str) -> None:
        """Have a broker make the topic of transactions: it does when it is asked who has one.

        The client asks again, and has its answer when the topic is there; one request is enough
        for all clients that wait for it.
        """

        async def ask() -> Values:
            with contextlib.suppress(OSError, GroupError):
                await self._brokers.ask_any(
                    Api.FIND_COORDINATOR,
                    key_type=TRANSACTION_KEY,
                    coordinator_keys=(transactional_id,),
                )
            return {}

        if self._making is None or self._making.done():
            self._making = self.start(ask)

    def _note_right(self, api: Api, found: Mapping[str, Any]) -> None:
        """Say in the log that brokers refuse the node's own user what the client may ask."""
        results = found.get("results") or ()
        codes = {int(one.get("error_code", 0)) for one in (found, *results)}
        if codes & REFUSALS:
            self._trouble.note(
                f"the node's user may not ask {api.name}, so clients that ask the node get no "
                "answer: allow it what the docs say"
            )

    async def take_producer_id(self, node_id: int, broker_epoch: int) -> int:
        """Return an id for a producer, of a block that the controllers give to this node alone.

        Raises
        ------
        OSError, GroupError
            No controller gives one.
        """
        async with self._allocating:
            if not self._ids:
                answer = await self._control.ask(
                    Api.ALLOCATE_PRODUCER_IDS, broker_id=node_id, broker_epoch=broker_epoch
                )
                if int(answer.error_code):
                    raise ConnectionError(f"no producer ids are given: {answer.error_code.name}")
                begin = int(answer.producer_id_start)
                self._ids = range(begin, begin + int(answer.producer_id_len))
            found, self._ids = self._ids[0], self._ids[1:]
            return found

    async def close(self) -> None:
        """Close all connections."""
        self._working.close()
        await self._control.close()
        await self._brokers.close()


async def _result_of(work: Work) -> Answer:
    return Result(response=await work())


def _write_principal(session: Session) -> bytes:
    """Return a principal as brokers write it in an Envelope."""
    kind, _, name = session.principal.partition(":")
    out = bytearray(PRINCIPAL_VERSION)
    entity_writer(DefaultPrincipalData)(
        out, {"type_": kind, "name": name, "token_authenticated": False}
    )
    return bytes(out)


def list_fields(message: Any) -> dict[str, Any]:  # noqa: ANN401 - kio's
    """Return a message as its fields by name, as the encoder takes it."""
    found: dict[str, Any] = _as_values(message)
    return found


def _as_values(value: Any) -> Any:  # noqa: ANN401 - a message of kio's, or a part of one
    if is_dataclass(value):
        return {
            one.name: _as_values(found)
            for one in fields(value)
            for found in (getattr(value, one.name),)
            if "tag" not in one.metadata or found != one.default
        }
    if isinstance(value, tuple):
        return tuple(map(_as_values, value)) if value and not isinstance(value[0], int) else value
    return value // MILLISECOND if isinstance(value, timedelta) else value
