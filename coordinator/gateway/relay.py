"""Move bytes between a client, the broker that it means, and Muster.

To the server that answers for groups, a client is one of its connections (`Link`), on a transport
that is a part of the client's. The broker is called when something is first sent on to it, and when
it goes, the client's connection goes too, as if there were no gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from coordinator.gateway.exchange import KEPT_ANSWERS, Exchange, To
from coordinator.wire.decoder import WireError
from coordinator.wire.link import Link
from coordinator.wire.session import principal_of

BROKER = "broker"
"""Why a client is not read from: its broker does not read."""
LINGER_S = 5.0
"""How long what was written to a connection is still sent after its end."""
logger = logging.getLogger("muster.gateway")


class Relay(asyncio.Protocol):
    """The connection of one client.

    Parameters
    ----------
    link
        The connection as Muster's server has it.
    call
        Connects a protocol to the broker that the client means.

    Attributes
    ----------
    client
        Its transport, once it is connected.
    """

    client: asyncio.Transport

    def __init__(
        self,
        link: Link,
        exchange: Exchange,
        call: Callable[[asyncio.Protocol], Awaitable[object]],
    ) -> None:
        self._link, self._exchange, self._call = link, exchange, call
        self._loop = asyncio.get_running_loop()
        self._broker: asyncio.Transport | None = None
        self._calling: asyncio.Task[None] | None = None
        self._unsent: list[bytes | memoryview] = []
        self._holds: set[str] = set()
        """Why the client is not read from."""
        self._client_reads = self._link_writes = self._broker_read = True
        self._noted = 0
        self._continues = False
        self._kept: object = None
        """What keeps the connection to the broker."""

    # Of the client -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.client = cast("asyncio.Transport", transport)
        self._link.connection_made(MusterSide(self))

    def data_received(self, data: bytes) -> None:
        """Take requests."""
        self._link.note_alive()
        self._take(data)

    def connection_lost(self, error: Exception | None) -> None:
        """End the other sides too."""
        if self._broker is not None:
            _close(self._broker)  # once it has what the client sent, as a Produce without an answer
        elif self._calling is not None and not self._unsent:
            self._calling.cancel()
        self._link.connection_lost(error)

    def pause_writing(self) -> None:
        """Hear no more while the client does not read."""
        self._client_reads = False
        self._update_reading()
        self._note_held()

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        self._client_reads = True
        self._answer()

    # Requests ------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        try:
            for to, piece in self._exchange.take_requests(data):
                if to is To.KAFKA:
                    self._send_on(piece)
                elif not self.client.is_closing():
                    self._link.data_received(bytes(piece))
        except WireError as error:
            self._link.refuse(error)
            return
        self._answer()

    def _send_on(self, piece: bytes | memoryview) -> None:
        if self._broker is not None:
            self._broker.write(piece)
            return
        self._unsent.append(piece)
        self.hold("calling", on=True)
        if self._calling is None:
            self._calling = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Call the broker; if it does not answer, close, as if the client had called it."""
        try:
            self._kept = await self._call(BrokerSide(self))
        except Exception as error:  # noqa: BLE001 - any error ends this connection
            logger.debug("no broker for %s: %s", self.client.get_extra_info("peername"), error)
            self._link.close("no broker", str(error))

    def broker_made(self, broker: asyncio.Transport) -> None:
        """Send on what has waited."""
        self._broker = broker
        broker.writelines(self._unsent)
        self._unsent.clear()
        if self.client.is_closing():
            _close(broker)
        self.hold("calling", on=False)

    def hold(self, why: str, *, on: bool) -> None:
        """Read nothing of the client for a reason, or no longer for that one."""
        held = bool(self._holds)
        (self._holds.add if on else self._holds.discard)(why)
        if held != bool(self._holds) and not self.client.is_closing():
            (self.client.pause_reading if self._holds else self.client.resume_reading)()

    # Answers -------------------------------------------------------------------------------------

    def hear_broker(self, data: bytes) -> None:
        """Take what the broker says."""
        self._link.note_alive()
        try:
            self._send(self._exchange.hear_kafka(data))
        except WireError as error:
            self._fail(error)
            return
        self._after_answers()

    def hear_muster(self, data: bytes) -> None:
        """Take answers of Muster's."""
        self._exchange.hear_muster(data)
        self._answer()

    def broker_lost(self) -> None:
        """Close, as the broker has."""
        self._link.close("broker", "the broker closed the connection")

    def _answer(self) -> None:
        """Send the answers that are next, while the client reads."""
        if self._client_reads:
            try:
                self._send(self._exchange.take_answers())
            except WireError as error:
                self._fail(error)
                return
        self._after_answers()

    def _send(self, pieces: list[bytes | memoryview]) -> None:
        if self.client.is_closing():
            return
        for piece in pieces:
            self.client.write(piece)

    def _after_answers(self) -> None:
        """Go on with requests that waited for answers; end what is refused."""
        exchange = self._exchange
        self._update_reading()
        login = exchange.login
        if login is not None and login.done:
            self._link.connection.session.principal = principal_of(login.name)
        if exchange.ends:
            self._link.close("login", "the login is not passed on")
            return
        self._pause_link()
        self._note_held()
        self.hold("answers", on=exchange.is_full or exchange.has_unread)
        if exchange.has_unread and not self._continues:
            self._continues = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Take requests that have waited for others' turn, or for answers."""
        self._continues = False
        if not self.client.is_closing():
            self._take(b"")

    def _pause_link(self) -> None:
        writes = self._exchange.kept_bytes < KEPT_ANSWERS
        if writes != self._link_writes:
            self._link_writes = writes
            (self._link.resume_writing if writes else self._link.pause_writing)()

    def _update_reading(self) -> None:
        """Read from the broker while its answers can go on."""
        read = self._client_reads and not self._exchange.keeps_kafka_waiting
        if self._broker is not None and read != self._broker_read:
            self._broker_read = read
            if not self._broker.is_closing():
                (self._broker.resume_reading if read else self._broker.pause_reading)()

    def _note_held(self) -> None:
        """Count what is held against the limit of all connections."""
        held = self._exchange.held_bytes
        if not self._client_reads:
            held += self.client.get_write_buffer_size()
        if self._broker is not None and BROKER in self._holds:
            held += self._broker.get_write_buffer_size()
        if held != self._noted:
            self._noted = held
            self._link.note_beside(held)

    def _fail(self, error: WireError) -> None:
        peer = self.client.get_extra_info("peername")
        logger.error("closes %s: %s", peer, error)
        self._link.abort("broker", str(error))

    def end(self, *, at_once: bool) -> None:
        """Close the client's connection, with what can go before it or at once."""
        if at_once:
            self.client.abort()
        else:
            _close(self.client)

    def stop(self) -> None:
        """End at once what does not read: the loop ends, and would wait for it."""
        for one in (getattr(self, "client", None), self._broker):
            if one is not None and one.get_write_buffer_size():
                one.abort()

    @property
    def kept_bytes(self) -> int:
        """Of Muster's answers that the client has not got."""
        return self._exchange.kept_bytes


def _close(transport: asyncio.Transport) -> None:
    """Close a connection once what was written is sent, or its other side has had its time."""
    transport.close()
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)


class BrokerSide(asyncio.Protocol):
    """The connection to a broker, of one client."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._relay.broker_made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        self._relay.hear_broker(data)

    def connection_lost(self, _error: Exception | None) -> None:
        """End the client's connection too."""
        self._relay.broker_lost()

    def pause_writing(self) -> None:
        """Read no more of the client while the broker does not."""
        self._relay.hold(BROKER, on=True)

    def resume_writing(self) -> None:
        """Go on: the broker reads."""
        self._relay.hold(BROKER, on=False)


class MusterSide(asyncio.Transport):
    """What Muster's server writes to as if it were the client's socket."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return what is known of the client's connection."""
        return self._relay.client.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Answer requests."""
        self._relay.hear_muster(bytes(data))

    def get_write_buffer_size(self) -> int:
        """Return how much of it waits."""
        return self._relay.kept_bytes

    def pause_reading(self) -> None:
        """Take no more requests."""
        self._relay.hold("muster", on=True)

    def resume_reading(self) -> None:
        """Take requests again."""
        self._relay.hold("muster", on=False)

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._relay.client.is_closing()

    def close(self) -> None:
        """Close it with what can go before."""
        self._relay.end(at_once=False)

    def abort(self) -> None:
        """Close it at once."""
        self._relay.end(at_once=True)
