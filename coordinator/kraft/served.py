"""The sockets of a node that may lead: followers and clients, on every listener of the cluster.

Each request is answered as a broker does: of groups and records here, of the cluster from its
metadata; what changes the cluster goes to the controllers as its client, and is decided there.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from coordinator.config import ConfigError, OAuthConfig, ServerConfig
from coordinator.kraft.leader import LeaderOf
from coordinator.kraft.links import Links, Quorum
from coordinator.kraft.metadata_image import MetadataImage
from coordinator.kraft.registration import list_protocols
from coordinator.kraft.replica_apis import ReplicaApis
from coordinator.kraft.requests.access import ClusterAccess
from coordinator.kraft.requests.broker_apis import (
    HERE,
    RULES,
    TO_BROKERS,
    TO_CONTROLLERS,
    BrokerApis,
    Folder,
)
from coordinator.kraft.requests.metadata_apis import MetadataApis, Seen
from coordinator.kraft.requests.txn_apis import TransactionApis
from coordinator.kraft.requests.upstream import Upstream
from coordinator.member.client_settings import ClientSettings
from coordinator.wire import quirks
from coordinator.wire.call import Call, Cluster
from coordinator.wire.codec import CLASSIC_VERSIONS, Api, Request
from coordinator.wire.listener import bind_socket, join_address, parse_address
from coordinator.wire.server import Door, Server

Listeners: TypeAlias = Mapping[str, tuple[str, int]]
"""By the names of the cluster's listeners, where the node has them."""
REPLICAS: Mapping[Api, tuple[int, int]] = {
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.WRITE_TXN_MARKERS: (1, 2),
}
"""What brokers ask, and who reads the topic of groups."""
METADATA: Mapping[Api, tuple[int, int]] = {
    Api.METADATA: quirks.METADATA_VERSIONS,
    Api.FIND_COORDINATOR: (0, 6),
    Api.API_VERSIONS: (0, 4),
    Api.DESCRIBE_CLUSTER: (0, 2),
}
GROUPS: Mapping[Api, tuple[int, int]] = {
    Api.OFFSET_COMMIT: (2, 10),
    Api.OFFSET_FETCH: (1, 10),
    Api.TXN_OFFSET_COMMIT: (0, 6),
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: quirks.HANDSHAKE_VERSIONS,
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.DELETE_GROUPS: (0, 2),
    Api.OFFSET_DELETE: (0, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
    **CLASSIC_VERSIONS,
}
"""Share and streams groups are not served."""
VERSIONS: Mapping[Api, tuple[int, int]] = {
    **REPLICAS,
    **METADATA,
    **GROUPS,
    **TO_CONTROLLERS,
    **TO_BROKERS,
    **HERE,
}


class Node(NamedTuple):
    """What a node knows of itself and of its cluster.

    Attributes
    ----------
    seen
        Asked for the metadata as it is now.
    broker_epoch
        Asked for the epoch of its registration.
    folder
        Asked for what is in the folder of its logs.
    brokers, controllers
        How it reaches them.
    quorum
        Which controller is active, as far as the node knows.
    """

    node_id: int
    cluster_id: str
    seen: Callable[[], Seen]
    broker_epoch: Callable[[], int]
    folder: Callable[[], Folder]
    brokers: ClientSettings
    controllers: ClientSettings
    quorum: Quorum | None = None


class NodeFront:
    """What stands before the groups of a node.

    Parameters
    ----------
    listeners
        By name, where each is: the host and port to bind, which clients use as well.
    access
        Of the clients; its lists are those of the cluster.

    Attributes
    ----------
    listeners
        Where they are, once they are bound.
    """

    def __init__(
        self, leader: LeaderOf, listeners: Listeners, access: ClusterAccess, node: Node
    ) -> None:
        self._leader, self._access, self._node = leader, access, node
        self._wanted = dict(listeners)
        self.listeners: Listeners = {}
        self._upstream: Upstream | None = None
        self._transactions: TransactionApis | None = None
        self._closing: asyncio.Task[None] | None = None
        self._handlers: Mapping[Api, Callable[[Request, Cluster], Call]] = {}
        self._offered: Callable[[], Mapping[int, tuple[int, int]]] = dict

    def load_access(self, _config: ServerConfig, _oauth: OAuthConfig) -> ClusterAccess:
        """Return what is asked of clients, and what they may do."""
        return self._access

    def show(self, cluster: Cluster) -> Cluster:
        """Return the cluster as connections see it."""
        own = (
            *REPLICAS, *METADATA, *TO_CONTROLLERS, *TO_BROKERS, *HERE, Api.TXN_OFFSET_COMMIT,
        )  # fmt: skip
        return replace(
            cluster,
            cluster_id=self._node.cluster_id,
            versions=dict(VERSIONS),
            offered=self._list_offered,
            own={api: partial(self._answer, api) for api in own},
            rules=RULES,
        )

    def _list_offered(self) -> Mapping[int, tuple[int, int]]:
        return self._offered()

    def _answer(self, api: Api, request: Request, cluster: Cluster) -> Call:
        return self._handlers[api](request, cluster)

    def begin(
        self, serving: Server, sock: socket.socket, _tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Listen: the first listener has the socket that is given."""
        node = self._node
        replicas = ReplicaApis(lambda: self._leader.leaders)
        self._upstream = Upstream(node.brokers, node.controllers, TO_BROKERS, node.quorum)
        metadata = MetadataApis(
            node.seen, node.cluster_id, make_transactions=self._upstream.make_transactions
        )
        others = BrokerApis(
            self._upstream, node.node_id, lambda: node.seen().image, node.broker_epoch, node.folder
        )
        self._transactions = TransactionApis(
            self._leader, Links(node.brokers), lambda: node.seen().image
        )
        self._handlers = {
            **replicas.handlers(),
            **self._transactions.handlers(),
            **others.handlers(),
            Api.METADATA: metadata.metadata,
            Api.FIND_COORDINATOR: metadata.find_coordinator,
            Api.API_VERSIONS: metadata.api_versions,
            Api.DESCRIBE_CLUSTER: metadata.describe_cluster,
        }
        own = {int(api): span for api, span in {**REPLICAS, **METADATA, **GROUPS}.items()}
        self._offered = lambda: own | others.offered()
        self._leader.changed = replicas.wake
        for name, (host, port) in self._wanted.items():
            at = bind_socket(join_address(host, port), "--listen") if self.listeners else sock
            self.listeners = {**self.listeners, name: (host, at.getsockname()[1])}
            door = Door(name, self._access.login_of(name))
            serving.listen(at, self._access.tls_of(name), door=door)

    def end(self) -> None:
        """Open nothing more."""
        self._leader.changed = lambda: None
        if self._transactions is not None:
            self._transactions.close()
        if self._upstream is not None:
            self._closing = asyncio.get_running_loop().create_task(self._upstream.close())


def read_listeners(image: MetadataImage, given: str, node_id: int) -> Listeners:
    """Return where the node has each listener of the cluster.

    Parameters
    ----------
    given
        host:port where brokers have one listener; else NAME=host:port,…, one for each.

    Raises
    ------
    ConfigError
        A listener is missing, or is not the cluster's.
    """
    known = list_protocols(image, node_id)
    if any(host in given for host in ("0.0.0.0", "[::]")):  # noqa: S104 - refused, not bound
        raise ConfigError(
            f"--listen is {given}: every address of this machine; name one that brokers and "
            "clients reach"
        )
    parts = [part.strip().rpartition("=") for part in given.split(",")]
    if len(parts) == 1 and not parts[0][1] and len(known) == 1:
        return {next(iter(known)): parse_address(parts[0][2], "--listen")}
    found = {name: parse_address(address, "--listen") for name, _, address in parts}
    if found.keys() != known.keys():
        raise ConfigError(
            f"--listen has {', '.join(sorted(found)) or given}, but the brokers have the listeners "
            f"{', '.join(sorted(known))}: give each as NAME=host:port, with commas between"
        )
    return found
