"""Accept connections of a listening socket, and limit their number.

A connection costs a file descriptor from its first packet on, long before a TLS handshake or a
login has shown who is there. So it is counted when it is accepted, by the address that it comes
from, and descriptors are kept back for the log.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from coordinator.config import ServerConfig
from coordinator.wire.acls import normalize_host
from coordinator.wire.quotas import Quota

BACKLOG = 4096
PAUSE_S = 0.5
"""How long nothing is accepted after the system had no descriptor or no memory for it."""
FILES_RESERVED = 200
"""File descriptors for everything but clients; half of those there may be, where that is less."""
NETWORK_BITS = 64
logger = logging.getLogger("muster.wire")


class ConnectionCounts(Protocol):
    """Counts connections."""

    def connected(self, more: int) -> None:
        """Count a connection that opened, or closed (−1)."""

    def closed(self, reason: str) -> None:
        """Count a connection that the server closed."""


class NoCounts:
    """Counts nothing: where no metrics tell of connections."""

    def connected(self, _more: int) -> None:
        """Ignore it."""

    def closed(self, _reason: str) -> None:
        """Ignore it."""


class ConnectionSlot:
    """A slot of the connection limit, held from accept until release.

    Attributes
    ----------
    taken
        Whether the connection's protocol has begun; its owner gives the slot back.
    """

    def __init__(self, address: str, give_back: Callable[[str], None]) -> None:
        self.address = address
        self.taken = False
        self._give_back: Callable[[str], None] | None = give_back

    def release(self) -> None:
        """Release the slot; a second call does nothing."""
        if self._give_back is not None:
            self._give_back(self.address)
            self._give_back = None


class Acceptor:
    """Accepts connections while there is room for them.

    Parameters
    ----------
    sock
        Bound; the acceptor closes it.
    tls
        What a new connection is encrypted with, as it is configured now.
    connect
        Makes the protocol of a connection, which releases its slot at its end.
    rate
        How many connections each address may open a second; None is any number.
    open_now
        How many connections there are, by network; other acceptors may count there, too.
    """

    def __init__(
        self,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        config: ServerConfig,
        metrics: ConnectionCounts,
        connect: Callable[[ConnectionSlot], asyncio.Protocol],
        rate: Quota | None = None,
        open_now: Counter[str] | None = None,
    ) -> None:
        self._socket = sock
        self._tls = tls
        self._config = config
        self._metrics = metrics
        self._connect = connect
        self._rate = rate
        self._open: Counter[str] = Counter() if open_now is None else open_now
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._files_max = raise_files_limit() - count_reserved_files() // 2
        sock.listen(BACKLOG)
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Take no more connections."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._beginning:
            task.cancel()

    def _accept(self) -> None:
        """Accept one waiting connection; open ones have their turn before the next."""
        try:
            sock, peer = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors, or no memory
            logger.warning("accepting no connections for %s s: %s", PAUSE_S, error)
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(PAUSE_S, self._resume)
            return
        address = normalize_host(peer[0])
        reason = self._full(sock.fileno(), address)
        if reason:
            self._note_closed(address, reason)
            sock.close()
        else:
            self._take(sock, ConnectionSlot(address, self._free_slot))

    def _resume(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _full(self, descriptor: int, address: str) -> str | None:
        """Return why a connection is refused; None while there is room."""
        config = self._config
        if self._open.total() >= config.connections_max:
            return "full"
        network = network_of(address)
        if 0 < config.connections_per_address_max <= self._open[network]:
            return "address"
        if self._rate is not None and not self._rate.take_one(network, self._loop.time()):
            return "rate"
        # Descriptors are given out from the lowest on: so many are in use, whosever they are.
        return "files" if descriptor >= self._files_max else None

    def _take(self, sock: socket.socket, slot: ConnectionSlot) -> None:
        """Begin a connection."""
        self._open[network_of(slot.address)] += 1
        self._metrics.connected(1)
        task = self._loop.create_task(self._begin(sock, slot))
        self._beginning.add(task)

        def finish(done: asyncio.Task[None]) -> None:
            self._beginning.discard(done)
            if slot.taken:
                return
            error = None if done.cancelled() else done.exception()
            self._note_closed(slot.address, "server" if done.cancelled() else "handshake", error)
            sock.close()
            slot.release()

        task.add_done_callback(finish)

    async def _begin(self, sock: socket.socket, slot: ConnectionSlot) -> None:
        """Give a socket to its protocol: with TLS, once the client has shaken hands."""
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tls = self._tls()
        patience_s = self._config.handshake_ms / 1000 if tls else None
        await self._loop.connect_accepted_socket(
            lambda: self._connect(slot),
            sock,
            ssl=tls,
            ssl_handshake_timeout=patience_s,
            ssl_shutdown_timeout=patience_s,
        )

    def _free_slot(self, address: str) -> None:
        self._metrics.connected(-1)
        network = network_of(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def _note_closed(self, address: str, reason: str, error: BaseException | None = None) -> None:
        logger.debug("closed a connection from %s (%s): %s", address, reason, error or reason)
        self._metrics.closed(reason)


def network_of(address: str) -> str:
    """Return whose connections an address counts with: itself, or of IPv6 its network (/64).

    One host may have all addresses of its network.
    """
    try:
        found = ipaddress.ip_address(normalize_host(address))
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - IPv4
        return str(found)
    return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))


def raise_files_limit() -> int:
    """Raise the limit of file descriptors to its hard limit, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def count_reserved_files() -> int:
    """Return how many file descriptors are reserved for everything but clients."""
    return min(FILES_RESERVED, raise_files_limit() // 2)


def limit_connections(setting: str, connections_max: int, files: int, most: int) -> int:
    """Return the limit of connections, lowered to what file descriptors allow.

    Parameters
    ----------
    setting
        Whose limit it is, for the log.
    files, most
        How many descriptors the process may have, and how many of them are for connections.
    """
    if most >= connections_max:
        return connections_max
    logger.warning(
        "%s is %d, but this process may have %d files: %d connections",
        setting,
        connections_max,
        files,
        most,
    )
    return most
