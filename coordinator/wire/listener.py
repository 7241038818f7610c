"""A coordinator's server in a thread of its own; refuses to open an unsafe address."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Container, Coroutine
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec
from typing import Protocol, Self

from coordinator.config import Config, ConfigError, OAuthConfig, ServerConfig
from coordinator.core.state.groups import TopicView
from coordinator.errors.status import LOST, Status
from coordinator.errors.trouble import Trouble
from coordinator.storage.nodes import Node, StoreNodes
from coordinator.wire import server
from coordinator.wire.acceptor import count_reserved_files, limit_connections, raise_files_limit
from coordinator.wire.access import NO_TOKENS, Access
from coordinator.wire.acls import Acls, Operation, Resource
from coordinator.wire.call import Cluster, ClusterNode
from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS
from coordinator.wire.refusal_audit import RefusalCounter
from coordinator.wire.sasl import Login
from coordinator.wire.session import Session

PORT_MAX = 65_535
LEAVE_S = 2.0
"""How long an end waits until the other servers can see it; a store may not answer."""
logger = logging.getLogger("muster.wire")


class ServedCoordinator(server.EventSubmitter, Protocol):
    """What a server needs of a coordinator."""

    @property
    def config(self) -> Config:
        """The settings."""

    @property
    def status(self) -> str:
        """Its status: active, fenced, closed, …."""

    @property
    def topics(self) -> TopicView:
        """The topics there are."""

    @property
    def nodes(self) -> StoreNodes | None:
        """The servers of its store, to be one of; None where no one else can have it."""


class ServerAccess(Protocol):
    """TLS, logins and access lists, as they are now."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of new connections; None without TLS."""

    @property
    def login(self) -> Callable[[], Login] | None:
        """Makes the login of a connection; None without logins."""

    @property
    def users(self) -> Container[str] | None:
        """The users who may log in with a password; None where no one may."""

    @property
    def acls(self) -> Acls | None:
        """The access lists; None allows everyone everything."""

    def reload(self, *, always: bool = False) -> bool:
        """Read again what has changed, or all; return whether users have."""


class Front(Protocol):
    """What stands before the groups of a server: it has the sockets, and answers other requests."""

    def load_access(self, config: ServerConfig, oauth: OAuthConfig) -> ServerAccess:
        """Return TLS, logins and access lists of the clients; raises `ConfigError`."""

    def show(self, cluster: Cluster) -> Cluster:
        """Return the cluster that clients see."""

    def begin(
        self,
        serving: server.Server,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """Listen, in the running event loop."""

    def end(self) -> None:
        """Open nothing more."""


class RunningServer:
    """A server that runs until it is closed; a context manager.

    Attributes
    ----------
    address
        Where clients connect: `bootstrap.servers`.
    listens
        The host and port that its socket is bound to.
    """

    def __init__(
        self, backend: ServedCoordinator, config: ServerConfig, front: Front | None = None
    ) -> None:
        load = load_access if front is None else front.load_access
        access: ServerAccess = load(config, backend.config.oauth)
        self._access = access
        files = raise_files_limit()
        most = files - count_reserved_files()
        most = limit_connections("server.connections_max", config.connections_max, files, most)
        config = replace(config, connections_max=most)
        self._socket = bind_socket(config.listen, "server.listen")
        host, port = _find_advertised(config, self._socket)
        self.address = join_address(host, port)
        bound = self._socket.getsockname()[1]
        self.listens = join_address(parse_address(config.listen, "server.listen")[0], bound)
        stands_by = backend.status == Status.STANDS_BY.value
        self._refusals = RefusalCounter()
        self._nodes = backend.nodes
        self._trouble = Trouble(logger.warning, "cannot refresh the other servers of the store: %s")
        self._wanted_id = config.node_id
        self._cluster = Cluster(
            node_id=self._register(),
            host=host,
            port=port,
            cluster_id=config.cluster_id,
            topics=lambda: backend.topics,
            serves=lambda: not stands_by and backend.status not in LOST,
            stands_by=stands_by,
            looks=getattr(backend, "looks", {}),
            coordinator_of=getattr(backend, "coordinator_of", None),
            find_offsets=getattr(backend, "find_offsets", None),
            other_nodes=self._other_nodes,
            other_coordinator=self._other_coordinator,
            with_login=access.login is not None,
            kafka=backend.config.kafka,
            acls=lambda: access.acls,
            note_denial=self._note_denial,
            versions=VERSIONS | CLASSIC_VERSIONS if config.classic_protocol else VERSIONS,
        )
        if front is not None:
            self._cluster = front.show(self._cluster)
        self._front = front
        self._stays = False
        self._closed = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._close_unknown: Callable[[], object] = lambda: None
        self._call_in_loop: Callable[..., object] = lambda *_: None
        self._show: Callable[[Cluster], object] = lambda _: None
        begun: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: _run(self._main(backend, config, access, begun), begun),
            name="muster-wire",
            daemon=True,
        )
        self._thread.start()
        begun.result()
        if config.reread_ms:
            self._repeat(self._watch, config.reread_ms / 1000, "muster-access")
        self._telling = (
            None
            if self._nodes is None
            else self._repeat(self._renew, self._nodes.every_s, "muster-nodes", self._leave)
        )

    @property
    def node(self) -> ClusterNode:
        """The server, as answers name it to clients."""
        return self._cluster.node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self, *, stays: bool = False) -> None:
        """Close all connections, and stop.

        Parameters
        ----------
        stays
            The address is served on by another server of this process.
        """
        self._stays = stays
        self._closed.set()
        self._stop()
        self._thread.join()
        if self._telling is not None:
            self._telling.join(LEAVE_S)

    def reload(self, *, always: bool = True) -> None:
        """Read the files of TLS, users and access lists again: all, or those that have changed.

        A file with an error leaves in force what was read before; the log says so. Certificates are
        those of new connections; a user that was removed loses those there are.
        """
        if self._access.reload(always=always):
            self._close_unknown()

    def _note_denial(self, session: Session, operation: Operation, of: Resource) -> None:
        """Count a denial, in the loop's thread: long requests are looked at in another."""
        self._call_in_loop(self._refusals.note_denial, session, operation, of)

    def _repeat(
        self,
        run: Callable[[], None],
        every_s: float,
        name: str,
        at_end: Callable[[], None] = lambda: None,
    ) -> threading.Thread:
        """Run something again and again until we close, in a thread of its own."""

        def repeat() -> None:
            while not self._closed.wait(every_s):
                run()
            at_end()

        thread = threading.Thread(target=repeat, name=name, daemon=True)
        thread.start()
        return thread

    def _watch(self) -> None:
        try:
            self.reload(always=False)
        except Exception:
            logger.exception("reload failed: TLS, users and access lists stay as they were")

    def _register(self) -> int:
        """Return our node id; where the store cannot be written now it is the one wanted."""
        if self._nodes is None:
            return self._wanted_id
        try:
            return self._nodes.register(self._wanted_id, self.address)
        except OSError as error:
            logger.warning("cannot tell other servers about %s yet: %s", self.address, error)
            return self._wanted_id

    def _renew(self) -> None:
        assert self._nodes is not None
        try:
            if self._nodes.is_registered:
                self._nodes.renew()
            else:
                node_id = self._nodes.register(self._wanted_id, self.address)
                self._cluster = replace(self._cluster, node_id=node_id)
                self._show(self._cluster)
            self._trouble.end()
        except OSError as error:
            self._trouble.note(error)

    def _leave(self) -> None:
        if self._nodes is not None and not self._stays:
            self._nodes.leave()

    def _other_nodes(self) -> tuple[ClusterNode, ...]:
        others = () if self._nodes is None else self._nodes.others
        return tuple(filter(None, map(as_node, others)))

    def _other_coordinator(self) -> ClusterNode | None:
        found = None if self._nodes is None else self._nodes.coordinator()
        return None if found is None else as_node(found)

    async def _main(
        self,
        backend: ServedCoordinator,
        config: ServerConfig,
        access: ServerAccess,
        begun: Future[None],
    ) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        login, quotas = access.login, backend.config.quotas
        serving = server.Server(backend, self._cluster, config, login, self._refusals, quotas)
        if self._front is None:
            serving.listen(self._socket, lambda: access.tls)
        else:
            try:
                self._front.begin(serving, self._socket, lambda: access.tls)
            except ConfigError:
                self._socket.close()
                await serving.close()
                raise
        self._stop = lambda: loop.call_soon_threadsafe(end.set) if loop.is_running() else None
        self._call_in_loop = lambda *work: loop.is_running() and loop.call_soon_threadsafe(*work)
        self._close_unknown = lambda: self._call_in_loop(
            lambda: serving.close_unknown(access.users or ())
        )
        self._show = lambda cluster: self._call_in_loop(serving.show, cluster)
        begun.set_result(None)
        await end.wait()
        if self._front is not None:
            self._front.end()
        await serving.close()


def as_node(node: Node) -> ClusterNode | None:
    """Return a server as answers name it to clients; None if they cannot."""
    try:
        return ClusterNode(node.node_id, *parse_address(node.address, "its address"))
    except ConfigError:
        return None


def serve(
    backend: ServedCoordinator,
    listen: str | None = None,
    *,
    insecure: bool = False,
    front: Front | None = None,
) -> RunningServer:
    """Serve a coordinator as its configuration says.

    Parameters
    ----------
    listen, insecure
        As for `Coordinator.serve`.
    front
        What stands before its groups.

    Raises
    ------
    ConfigError
        An address, file or mechanism that cannot be used, or an address that is not safe to open.
    OSError
        The address is taken.
    """
    config = backend.config.server
    return RunningServer(
        backend,
        replace(config, listen=listen or config.listen, insecure=insecure or config.insecure),
        front,
    )


def load_access(
    config: ServerConfig, oauth: OAuthConfig = NO_TOKENS, *, knows_clients: bool = False
) -> Access:
    """Check the server's settings, and return its TLS, logins and access lists.

    Parameters
    ----------
    knows_clients
        Whether they log in elsewhere.

    Raises
    ------
    ConfigError
        As `serve`.
    """
    access = Access(config, oauth)
    if not config.handshake_ms:
        raise ConfigError("server.handshake_ms is 0: give 1 or more")
    _refuse_open(config, safe=access.safe or (knows_clients and access.tls is not None))
    for name in ("advertised", "http_listen"):
        if getattr(config, name):
            parse_address(getattr(config, name), f"server.{name}")
    host, _ = parse_address(config.listen, "server.listen")
    if host in {"0.0.0.0", "::"} and not config.advertised:  # noqa: S104 - refused, not bound
        raise ConfigError(
            f"server.listen is {config.listen!r}: every address of this machine; say with "
            "--advertised (server.advertised) which one clients should use"
        )
    return access


def parse_address(text: str, name: str) -> tuple[str, int]:
    """Return the host and port of host:port; an IPv6 address stands in brackets.

    Raises
    ------
    ConfigError
        It is not an address.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ConfigError(f"{name} is {text!r}: give host:port, as in 127.0.0.1:9092")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return host:port; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _run(main: Coroutine[None, None, None], begun: Future[None]) -> None:
    """Run the server in an event loop of its own: uvloop's where it is installed."""
    factory = None
    if find_spec("uvloop"):
        import uvloop  # noqa: PLC0415 - optional

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main)
    except BaseException as error:
        if begun.done():
            logger.exception("the server ends")
            raise
        begun.set_exception(error)


def _refuse_open(config: ServerConfig, *, safe: bool) -> None:
    """Refuse an address open beyond this machine without TLS and logins."""
    host, _ = parse_address(config.listen, "server.listen")
    if safe or is_loopback(host):
        return
    what = f"{config.listen} listens beyond this machine"
    lacks = "TLS and a login (server.tls_certificate, tls_key, sasl_mechanisms, sasl_users)"
    if not config.insecure:
        raise ConfigError(
            f"{what}: configure {lacks}, listen on 127.0.0.1, or pass --insecure (server.insecure)"
        )
    logger.warning("%s without %s: anyone who can reach it may change every group", what, lacks)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_loopback(host_header: str) -> bool:
    """Whether a request was sent to loopback by a name of it, with or without a port.

    A site may give its own name the address of loopback, and have its readers' browsers ask.
    """
    name, colon, port = host_header.rpartition(":")
    if not colon or not port.isdigit() or (host_header.startswith("[") and not name.endswith("]")):
        name = host_header
    return is_loopback(name.removeprefix("[").removesuffix("]"))


def bind_socket(listen: str, setting: str) -> socket.socket:
    """Return a socket bound to an address.

    Raises
    ------
    ConfigError
        The host is not found.
    OSError
        The address is taken.
    """
    host, port = parse_address(listen, setting)
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(f"{setting} is {listen!r}: host not found: {error.strerror}") from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from None
    return sock


def _find_advertised(config: ServerConfig, sock: socket.socket) -> tuple[str, int]:
    """Return the address that answers give to clients."""
    port = sock.getsockname()[1]
    if config.advertised:
        host, advertised = parse_address(config.advertised, "server.advertised")
        return host, advertised or port
    return parse_address(config.listen, "server.listen")[0], port
