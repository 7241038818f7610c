"""The sockets of a node that may lead: followers and clients, on every listener of the cluster.

What is about groups, and what replicas ask, is answered here. All else goes as it comes to the same
listener of a broker that is alive, whose answers name this node like any other.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from weakref import WeakSet

from coordinator.config import ConfigError
from coordinator.gateway.exchange import Exchange
from coordinator.gateway.offer import FORWARDED, Versions
from coordinator.gateway.relay import Relay
from coordinator.kraft.leader import LeaderOf
from coordinator.kraft.metadata_image import Broker, MetadataImage
from coordinator.kraft.registration import why_not_lead
from coordinator.kraft.replica_apis import ReplicaApis
from coordinator.wire.call import Call, Cluster
from coordinator.wire.codec import CLASSIC_VERSIONS, Api, Request
from coordinator.wire.link import Link
from coordinator.wire.listener import bind_socket, join_address, parse_address
from coordinator.wire.server import Server

Listeners: TypeAlias = Mapping[str, tuple[str, int]]
"""By the names of the cluster's listeners, where the node has them."""
CONNECT_S = 5.0
OWN: Mapping[Api, tuple[int, int]] = {
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.OFFSET_COMMIT: (2, 10),
    Api.OFFSET_FETCH: (1, 10),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.WRITE_TXN_MARKERS: (1, 2),
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.LIST_GROUPS: (0, 5),
    Api.API_VERSIONS: (0, 4),
    Api.DELETE_GROUPS: (0, 2),
    Api.OFFSET_DELETE: (0, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
    **CLASSIC_VERSIONS,
}
"""What is answered here. Offsets in transactions, share and streams groups are not."""
ELSEWHERE: Versions = {key: span for key, span in FORWARDED.items() if key not in set(OWN)}
logger = logging.getLogger("muster.node")


class NodeFront:
    """What stands before the groups of a node.

    Parameters
    ----------
    listeners
        By name, where each is: the host and port to bind, which clients use as well.
    image
        Asked for the metadata as it is now.
    """

    knows_clients = False

    def __init__(
        self,
        leader: LeaderOf,
        listeners: Listeners,
        image: Callable[[], MetadataImage | None],
        node_id: int,
    ) -> None:
        self._leader, self._image, self._node_id = leader, image, node_id
        self._wanted = dict(listeners)
        self.listeners: Listeners = {}
        """Where they are, once they are bound."""
        self._apis: ReplicaApis | None = None
        self.relays: WeakSet[Relay] = WeakSet()

    def show(self, cluster: Cluster) -> Cluster:
        """Return the cluster as connections see it."""
        offered = {**{int(api): span for api, span in OWN.items()}, **ELSEWHERE}
        return replace(
            cluster,
            versions=dict(OWN),
            offered=lambda: offered,
            own={api: partial(self._answer, api) for api in REPLICAS},
        )

    def _answer(self, api: Api, request: Request, cluster: Cluster) -> Call:
        assert self._apis is not None
        return self._apis.handlers()[api](request, cluster)

    def begin(
        self, serving: Server, sock: socket.socket, tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Listen: the first listener has the socket that is given."""
        self._apis = ReplicaApis(lambda: self._leader.leaders)
        self._leader.changed = self._apis.wake
        for name, (host, port) in self._wanted.items():
            at = bind_socket(join_address(host, port), "--listen") if self.listeners else sock
            self.listeners = {**self.listeners, name: (host, at.getsockname()[1])}
            serving.listen(at, tls, partial(self._relay, name))

    def end(self) -> None:
        """Open nothing more, and let go of who does not read."""
        self._leader.changed = lambda: None
        for relay in list(self.relays):
            relay.stop()

    def _relay(self, name: str, link: Link) -> Relay:
        exchange = Exchange(
            lambda: ELSEWHERE, lambda _, host, port: (host, port), shared=frozenset()
        )
        relay = Relay(link, exchange, partial(self._call, name))
        self.relays.add(relay)
        return relay

    async def _call(self, name: str, protocol: asyncio.Protocol) -> object:
        """Connect a protocol to a broker that is alive, on the same listener."""
        failure: Exception = ConnectionError("no broker is alive")
        loop = asyncio.get_running_loop()
        for host, port in self._brokers(name):
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await loop.create_connection(lambda: protocol, host, port)
            except OSError as error:
                failure = error
        raise failure

    def _brokers(self, name: str) -> Iterator[tuple[str, int]]:
        image = self._image()
        found = [
            (one.host, one.port)
            for broker in (image.brokers.values() if image else ())
            if broker.node_id != self._node_id and not broker.is_fenced
            for one in broker.endpoints
            if one.name == name
        ]
        random.shuffle(found)
        yield from found


REPLICAS = (
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.OFFSET_FOR_LEADER_EPOCH,
    Api.WRITE_TXN_MARKERS,
)
"""What brokers ask, and who reads the topic of groups."""


def read_listeners(image: MetadataImage, given: str, node_id: int) -> Listeners:
    """Return where the node has each listener of the cluster.

    Parameters
    ----------
    given
        host:port where brokers have one listener; else NAME=host:port,…, one for each.

    Raises
    ------
    ConfigError
        A listener is missing, is not the cluster's, or is not plain; or the cluster has ACLs.
    """
    known = _names(one for one in image.brokers.values() if one.node_id != node_id)
    why = why_not_lead(image, node_id)
    if why is not None:
        raise ConfigError(f"--listen: {why}: leave --listen out, and the node follows")
    if any(host in given for host in ("0.0.0.0", "[::]")):  # noqa: S104 - refused, not bound
        raise ConfigError(
            f"--listen is {given}: every address of this machine; name one that brokers and "
            "clients reach"
        )
    parts = [part.strip().rpartition("=") for part in given.split(",")]
    if len(parts) == 1 and not parts[0][1] and len(known) == 1:
        return {next(iter(known)): parse_address(parts[0][2], "--listen")}
    found = {name: parse_address(address, "--listen") for name, _, address in parts}
    if found.keys() != known:
        raise ConfigError(
            f"--listen has {', '.join(sorted(found)) or given}, but the brokers have the listeners "
            f"{', '.join(sorted(known))}: give each as NAME=host:port, with commas between"
        )
    return found


def _names(brokers: Iterable[Broker]) -> set[str]:
    return {one.name for broker in brokers for one in broker.endpoints}
