"""A node with its sockets open, of a cluster with logins or without."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

from coordinator.config import NodeConfig, OAuthConfig, ServerConfig
from coordinator.errors import GroupError
from coordinator.kraft.links import SENT
from coordinator.kraft.metadata_image import Acl, Endpoint, ScramVerifier
from coordinator.kraft.registration import list_protocols
from coordinator.kraft.requests.access import ClusterAccess
from coordinator.kraft.requests.broker_apis import Folder
from coordinator.kraft.requests.metadata_apis import Seen
from coordinator.kraft.served import VERSIONS, NodeFront
from coordinator.kraft.served import Node as Known
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.wire.codec import Api
from coordinator.wire.listener import parse_address, serve
from coordinator.wire.sasl import Verifier
from tests.kraft.test_leader import Node, until
from tests.kraft.test_membership import NODE

SASL_PLAINTEXT, PLAINTEXT = 2, 0
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
READ, WRITE, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, IDEMPOTENT_WRITE = 3, 4, 8, 9, 10, 12
DENY, ALLOW = 2, 3
OF_BROKERS = {
    "include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False,
}  # fmt: skip
NAMES = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": True}


def start_node(tmp_path, image, kafka, protocol, super_users=()):
    for number, port in ((1, 9101), (2, 9102)):
        at = Endpoint("CLIENTS", "kafka", port, protocol)
        image.brokers[number] = image.brokers[number]._replace(endpoints=(at,), is_fenced=False)
    image.acls.clear()
    image.verifiers.clear()
    for name in ("admin", "ann"):
        one = Verifier.of("SCRAM-SHA-256", f"{name}-pw", b"salt" * 4, 4_096)
        image.verifiers[name, 1] = ScramVerifier(
            one.salt, one.stored_key, one.server_key, one.iterations
        )
    users = tmp_path / "users.toml"
    users.write_text('[users]\nann = "plain-pw"\n')
    server = ServerConfig(sasl_mechanisms=("SCRAM-SHA-256", "PLAIN"), sasl_users=str(users))
    access = ClusterAccess(
        server, OAuthConfig(), NodeConfig(super_users=super_users), list_protocols(image, NODE),
        has_authorizer=bool(super_users),
    )  # fmt: skip
    access.update(image)
    node = Node(tmp_path / "logs", image)
    known = Known(
        NODE, "cluster-1", lambda: Seen(node.image, 41), lambda: 7, lambda: Folder("/logs", {0: 5}),
        kafka.settings, kafka.settings,
    )  # fmt: skip
    front = NodeFront(node.leader, {"CLIENTS": ("127.0.0.1", 0)}, access, known)
    settings = node.leader.config
    node.leader.config = replace(settings, server=replace(settings.server, audit_ms=50))
    with serve(node.leader, "127.0.0.1:0", front=front) as running:
        node.address, node.access = running.listens, access
        here = Endpoint("CLIENTS", *parse_address(running.listens, "it"), protocol)
        image.brokers[NODE] = image.brokers[NODE]._replace(endpoints=(here,))
        node.see()
        until(lambda: node.code() is None)
        yield node
    node.leader.close()


def allow(node, principal, kind, name, *operations, pattern=LITERAL, permission=ALLOW):
    """Write access lists into the cluster's metadata."""
    for operation in operations:
        one = Acl(kind, name, pattern, principal, "*", operation, permission)
        node.image.acls[UUID(int=len(node.image.acls) + 1)] = one
        node.image.access_changes += 1
    node.access.update(node.image)


class Person:
    """A client that has logged in; it asks in the newest versions."""

    def __init__(self, node, name, password=None, mechanism="SCRAM-SHA-256"):
        self.runner = asyncio.Runner()
        login = (mechanism, name, password or f"{name}-pw") if name else None
        address = parse_address(node.address, "it")
        try:
            self.connection = self.runner.run(
                KafkaConnection.open(address, "test", None, login, {**SENT, **VERSIONS})
            )
        except GroupError:
            self.runner.close()
            raise

    def ask(self, api, **fields):
        return self.runner.run(self.connection.ask(api, **fields))

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.runner.run(self.connection.close())
        self.runner.close()


def ask_metadata(client, *names):
    topics = [{"topic_id": None, "name": one} for one in names] if names else None
    return client.ask(Api.METADATA, topics=topics, **NAMES)


def codes(found):
    return {one.name: int(one.error_code) for one in found.topics}
