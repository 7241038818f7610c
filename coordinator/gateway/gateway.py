"""The sockets of a gateway: one where clients begin, and one for each broker."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakSet

from coordinator.config import Config, ConfigError, GatewayConfig, OAuthConfig, ServerConfig
from coordinator.gateway.broker_login import BrokerLogin
from coordinator.gateway.cluster import CONNECT_S, KafkaBehind
from coordinator.gateway.exchange import Exchange
from coordinator.gateway.offer import (
    NONE_OFFERED,
    Versions,
    forwarded_versions,
    offered_versions,
    own_versions,
)
from coordinator.gateway.relay import Relay
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.wire.access import Access
from coordinator.wire.call import Cluster, ClusterNode
from coordinator.wire.codec import Api
from coordinator.wire.link import Link
from coordinator.wire.listener import (
    PORT_MAX,
    bind_socket,
    join_address,
    load_access,
    parse_address,
)
from coordinator.wire.server import Server

PASSES = "kafka"
"""The setting of `gateway.login` by which clients log in at the brokers."""
logger = logging.getLogger("muster.gateway")


@dataclass(slots=True)
class Served:
    """A broker as the gateway serves it.

    Attributes
    ----------
    address
        Where it is.
    port
        Where clients find it, on the gateway's host; None while that cannot be bound.
    trouble
        Why it cannot; logged once.
    """

    address: tuple[str, int]
    port: int | None = None
    trouble: str = ""


class Gateway:
    """What stands before Muster's groups: a cluster's brokers, each on a port of its own.

    A broker's port is the gateway's, plus 1, plus how far its id is from the first id; it stays the
    same over restarts. Where the gateway's port is 0 each takes a free one.

    Parameters
    ----------
    behind
        The cluster, which has been looked at once.
    config
        Its `server.listen` is the address of the gateway.

    Attributes
    ----------
    relays
        The connections of clients.

    Raises
    ------
    ConfigError
        There is no port for a broker's id.
    """

    def __init__(self, behind: KafkaBehind, config: Config) -> None:
        self._behind, self._config = behind, config
        self._knows_clients = config.gateway.login == PASSES
        self._settings = behind.settings
        if self._knows_clients:  # they log in themselves
            self._settings = behind.settings._replace(login=None)
        self._own: dict[Api, tuple[int, int]] = {}
        self._forwarded: Versions = NONE_OFFERED
        self._offered: Versions = NONE_OFFERED
        self._served: dict[int, Served] = {}
        self._present: frozenset[int] = frozenset()
        self._host, self._port, self._bound = "", 0, 0
        self._begun = 0
        self.relays: WeakSet[Relay] = WeakSet()
        self._open: Callable[[socket.socket, int], object] | None = None
        for node_id in behind.seen.addresses:
            self._refuse_id(node_id)

    # What the server asks ------------------------------------------------------------------------

    def load_access(self, config: ServerConfig, oauth: OAuthConfig) -> Access:
        """Return TLS, logins and access lists of the clients."""
        return load_access(config, oauth, knows_clients=self._knows_clients)

    def show(self, cluster: Cluster) -> Cluster:
        """Return the cluster that clients see: groups are at the broker of the lowest id."""
        self._host, self._port = cluster.host, cluster.port
        self._own = own_versions(cluster.versions, with_login=cluster.with_login)
        return replace(
            cluster,
            versions=self._own,
            offered=lambda: self._offered,
            coordinator_of=lambda _: self._find_coordinator() if cluster.serves() else None,
        )

    def begin(
        self, serving: Server, sock: socket.socket, tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Listen where clients begin, and for each broker that there is."""
        loop = asyncio.get_running_loop()
        self._bound = sock.getsockname()[1]
        self._open = lambda at, node_id: serving.listen(at, tls, partial(self._relay, node_id))
        self._behind.changed = lambda: loop.is_running() and loop.call_soon_threadsafe(self._update)
        self._update()
        for node_id, one in self._served.items():
            if one.trouble:
                raise ConfigError(
                    f"broker {node_id} has no port: {one.trouble}: stop what listens there, or "
                    "give another --listen"
                )
        serving.listen(sock, tls, partial(self._relay, None))

    def end(self) -> None:
        """Open nothing more, and let go of who does not read."""
        self._behind.changed = lambda: None
        self._open = None
        for relay in list(self.relays):
            relay.stop()

    # Brokers -------------------------------------------------------------------------------------

    def _update(self) -> None:
        """Take what was seen of the cluster last."""
        seen = self._behind.seen
        for node_id, address in seen.addresses.items():
            self.place_of(node_id, *address)
        self._present = frozenset(seen.addresses)
        self._forwarded = forwarded_versions(
            seen.versions.values(), passes_logins=self._knows_clients
        )
        self._offered = offered_versions(self._own, self._forwarded)

    def place_of(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        """Return where a broker is served; one that is new is from now on."""
        one = self._served.setdefault(node_id, Served((host, port)))
        one.address = host, port
        if one.port is None:
            self._serve_broker(node_id, one)
        return None if one.port is None else (self._host, one.port)

    def _serve_broker(self, node_id: int, one: Served) -> None:
        if self._open is None:
            return
        try:
            bound = self._port_of(node_id, self._bound)
            host, _ = parse_address(self._config.server.listen, "server.listen")
            sock = bind_socket(join_address(host, bound), "server.listen")
        except (ConfigError, OSError) as error:
            if str(error) != one.trouble:
                one.trouble = str(error)
                logger.warning("broker %d is not served: %s", node_id, error)
            return
        self._open(sock, node_id)
        one.trouble, found = "", sock.getsockname()[1]
        one.port = self._port_of(node_id, self._port) if bound else found
        logger.info("broker %d (%s:%d) is served on port %d", node_id, *one.address, one.port)

    def _port_of(self, node_id: int, base: int) -> int:
        """Return a broker's port, counted from the gateway's; 0 for a free one."""
        _, wanted = parse_address(self._config.server.listen, "server.listen")
        return 0 if not wanted else base + 1 + self._refuse_id(node_id)

    def _refuse_id(self, node_id: int) -> int:
        """Return how far an id is from the first; refuse one for which there is no port."""
        first = self._config.gateway.first_broker_id
        _, port = parse_address(self._config.server.listen, "server.listen")
        away = node_id - first
        if away < 0 or (port and port + 1 + away > PORT_MAX):
            raise ConfigError(
                f"there is no port for broker {node_id} (gateway.first_broker_id is {first}): give "
                "the lowest id of the cluster as --first-broker-id"
            )
        return away

    def _find_coordinator(self) -> ClusterNode | None:
        """Return the broker that clients take for the coordinator of groups."""
        there = [(one, at.port) for one, at in self._served.items() if one in self._present]
        found = min(((one, port) for one, port in there if port is not None), default=None)
        return None if found is None else ClusterNode(found[0], self._host, found[1])

    # Connections ---------------------------------------------------------------------------------

    def _relay(self, node_id: int | None, link: Link) -> Relay:
        exchange = Exchange(
            lambda: self._forwarded,
            self.place_of,
            lambda: link.connection.may_ask,
            BrokerLogin(asyncio.get_running_loop().time) if self._knows_clients else None,
            lambda: node_id is None or node_id == self._coordinator_id,
        )
        relay = Relay(link, exchange, partial(self._call, node_id))
        self.relays.add(relay)
        return relay

    @property
    def _coordinator_id(self) -> int | None:
        found = self._find_coordinator()
        return None if found is None else found.node_id

    async def _call(self, node_id: int | None, protocol: asyncio.Protocol) -> object:
        """Connect a protocol to a broker, or to any that answers; return what keeps it so."""
        failure: Exception = ConnectionError("no broker is known")
        for address in self._addresses(node_id):
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._connect(address, protocol)
            except Exception as error:  # noqa: BLE001 - the next one may answer
                failure = error
        raise failure

    def _addresses(self, node_id: int | None) -> Iterator[tuple[str, int]]:
        """Yield where to call: a broker, or all of them, each time another first."""
        if node_id is not None:
            yield self._served[node_id].address
            return
        there = sorted(self._present)
        self._begun += 1
        for at in range(len(there)):
            yield self._served[there[(self._begun + at) % len(there)]].address

    async def _connect(self, address: tuple[str, int], protocol: asyncio.Protocol) -> object:
        settings = self._settings
        if settings.login is not None:
            connection = await KafkaConnection.open(
                address, settings.client_id, settings.tls, settings.login
            )
            await connection.give_to(protocol)
            return connection
        host, port = address
        loop = asyncio.get_running_loop()
        return await loop.create_connection(lambda: protocol, host, port, ssl=settings.tls)


def check_access(config: Config) -> None:
    """Refuse logins that contradict each other, or that leave groups open to all.

    Raises
    ------
    ConfigError
        As `load_access`; or clients should log in at two places, or no list says who may do what.
    """
    passes = config.gateway.login == PASSES
    if passes and not config.server.acls:
        raise ConfigError(
            "server.acls is missing: without it no one who logs in may do anything with groups: "
            "give a file of access lists, as conf/acls.toml"
        )
    if passes and (config.server.sasl_mechanisms or config.server.sasl_users):
        raise ConfigError(
            "gateway.login is 'kafka', and server.sasl_mechanisms and sasl_users let clients log "
            "in here: leave these out, or give gateway.login = 'here'"
        )
    access = load_access(config.server, config.oauth, knows_clients=passes)
    if access.acls is not None and not passes:
        logger.warning("server.acls guards groups alone: for topics, Kafka sees the gateway's user")
    knows = config.server.sasl_mechanisms or config.server.tls_client_ca or passes
    if "sasl.username" in config.gateway.kafka and not knows:
        logger.warning(
            "clients need no login here, and have all rights of the gateway's user in Kafka: "
            "configure a login (server.sasl_mechanisms, server.sasl_users)"
        )


def read_settings(servers: str, config: GatewayConfig) -> ClientSettings:
    """Return how the gateway reaches a cluster.

    Raises
    ------
    ConfigError
        A setting cannot be used.
    """
    settings = {"client.id": "muster-gateway", **config.kafka}
    found = ClientSettings.read(servers, settings, "gateway.kafka")
    if config.login == PASSES and found.login is None:
        raise ConfigError(
            "gateway.login is 'kafka', but gateway.kafka has no login: give security.protocol "
            "SASL_SSL or SASL_PLAINTEXT and a user, by whom the gateway reads topics"
        )
    return found
