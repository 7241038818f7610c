"""A node leads only where it lets clients in as the brokers do; what it lacks is named before."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from coordinator.config import Config, ConfigError, NodeConfig, ServerConfig
from coordinator.kraft.metadata_image import Acl
from coordinator.kraft.requests.access import open_access, read_acls
from coordinator.wire.acls import CLUSTER, Operation, Resource, ResourceType
from coordinator.wire.codec import Api
from tests.kraft.conftest import NODE
from tests.wire.test_access import certificates, tls_of

from .fake_kafka import FakeKafka

__all__ = ["certificates"]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN = NodeConfig(super_users=("User:admin",))
ORDERS = Resource(ResourceType.TOPIC, "orders")


def settings(code=0, **named):
    """What a broker answers of its settings."""
    named = {"authorizer_class_name": ""} | named
    configs = [
        {
            "name": name.replace("_", "."), "value": value, "read_only": True, "config_source": 4,
            "is_sensitive": False, "synonyms": (), "config_type": 2, "documentation": None,
        }
        for name, value in named.items()
    ]  # fmt: skip
    return lambda body: {
        "results": [
            {
                "error_code": code, "error_message": None, "resource_type": one.resource_type,
                "resource_name": one.resource_name, "configs": () if code else configs,
            }
            for one in body.resources
        ]
    }  # fmt: skip


def opened(image, answer, config=None):
    with FakeKafka({Api.DESCRIBE_CONFIGS: answer}) as kafka:
        return asyncio.run(open_access(config or Config(), image, NODE, kafka.settings))


def test_without_an_authorizer_everyone_may_do_everything(image):
    """Lists that are there count for nothing, as with brokers."""
    image.acls[UUID(int=9)] = Acl(2, "orders", 3, "User:ann", "*", 3, 2)
    assert opened(image, settings()).acls is None


def another_node(body):
    """What a node of Muster answers, which has no such settings."""
    found = settings()(body)
    return {"results": [one | {"configs": ()} for one in found["results"]]}


@pytest.mark.parametrize(
    "answer", [settings(authorizer_class_name=STANDARD), settings(31), another_node]
)
def test_an_authorizer_decides_also_where_brokers_do_not_tell_of_it(image, answer):
    image.acls.clear()
    acls = opened(image, answer, Config(node=ADMIN)).acls
    assert acls.allows("User:admin", "h", Operation.READ, ORDERS)
    assert not acls.allows("User:ann", "h", Operation.READ, ORDERS)


@pytest.mark.parametrize(
    ("answer", "config", "says"),
    [
        (settings(authorizer_class_name="org.acme.Ranger"), Config(node=ADMIN), "authorizer org.acme.Ranger"),
        (settings(principal_builder_class="org.acme.Builder"), Config(), "principals by org.acme.Builder"),
        (settings(listener_name_plaintext_principal_builder_class="org.acme.Own"), Config(), "principals by org.acme.Own"),
        (settings(authorizer_class_name=STANDARD), Config(), "node.super_users is empty"),
        (settings(), Config(server=ServerConfig(acls="a.toml")), "server.acls is set"),
        (settings(), Config(server=ServerConfig(sasl_mechanisms=("GSSAPI",))), "has 'GSSAPI'"),
        (settings(), Config(server=ServerConfig(sasl_mechanisms=("PLAIN",))), "sasl_users is missing"),
        (settings(), Config(node=NodeConfig(super_users=("admin",))), "node.super_users is 'admin': give User:name"),
        (settings(), Config(node=NodeConfig(super_users=("User:*",))), "node.super_users is 'User:\\*'"),
    ],
)  # fmt: skip
def test_what_a_node_cannot_do_as_brokers_is_refused_at_its_start(image, answer, config, says):
    image.acls.clear()
    with pytest.raises(ConfigError, match=says):
        opened(image, answer, config)


@pytest.mark.parametrize(
    ("protocol", "server", "says"),
    [
        (1, ServerConfig(), "listener PLAINTEXT is SSL, but server.tls_certificate is empty"),
        (2, ServerConfig(), "is SASL_PLAINTEXT, but server.sasl_mechanisms is empty"),
        (3, ServerConfig(sasl_mechanisms=("SCRAM-SHA-256",)), "is SASL_SSL, but server.tls_cert"),
    ],
)
def test_what_a_listener_needs_is_named(image, protocol, server, says):
    secure(image, protocol)
    with pytest.raises(ConfigError, match=says):
        opened(image, settings(), Config(server=server))


@pytest.mark.parametrize(
    ("named", "ca", "says"),
    [
        ({"ssl_client_auth": "required"}, "", "require certificates"),
        ({"listener_name_plaintext_ssl_client_auth": "required"}, "", "require certificates"),
        ({"ssl_client_auth": "none"}, "ca.pem", "require no certificates"),
        ({"ssl_client_auth": "required", "ssl_principal_mapping_rules": "RULE:x"}, "ca.pem", "map certificates"),
    ],
)  # fmt: skip
def test_certificates_are_asked_for_as_brokers_do(image, certificates, named, ca, says):
    secure(image, 1)
    words = tls_of(certificates) | ({"tls_client_ca": f"{certificates}/{ca}"} if ca else {})
    with pytest.raises(ConfigError, match=says):
        opened(image, settings(**named), Config(server=ServerConfig(**words)))


def test_a_listener_has_the_mechanisms_that_brokers_have_there(image, certificates, tmp_path):
    secure(image, 3)
    users = tmp_path / "users.toml"
    users.write_text('[users]\nann = "pw"\n')
    words = {"sasl_mechanisms": ("PLAIN", "SCRAM-SHA-512"), "sasl_users": str(users)}
    config = Config(server=ServerConfig(**tls_of(certificates), **words))
    name = "listener_name_plaintext_sasl_enabled_mechanisms"
    found = settings(**{name: "SCRAM-SHA-512", "sasl_enabled_mechanisms": "PLAIN"})
    assert opened(image, found, config).login_of("PLAINTEXT")().mechanisms == ("SCRAM-SHA-512",)
    with pytest.raises(ConfigError, match="has none of GSSAPI, which brokers have on the listener"):
        opened(image, settings(**{name: "GSSAPI"}), config)


def secure(image, protocol):
    """Give all brokers a listener of another security protocol."""
    for number in (1, 2):
        one = image.brokers[number]
        (end,) = one.endpoints
        image.brokers[number] = one._replace(
            endpoints=(end._replace(name="PLAINTEXT", security_protocol=protocol),)
        )


def test_brokers_may_follow_by_a_list_in_place_of_a_super_user(image):
    image.acls.clear()
    image.acls[UUID(int=1)] = Acl(4, "kafka-cluster", 3, "User:broker", "*", 9, 3)
    acls = opened(image, settings(authorizer_class_name=STANDARD)).acls
    assert acls.allows("User:broker", "h", Operation.CLUSTER_ACTION, CLUSTER)


def test_lists_are_read_as_kafka_writes_them(image):
    """Denials, beginnings, hosts, and what a node does not decide on: tokens, users, new kinds."""
    image.acls.clear()
    entries = [
        Acl(2, "ord", 4, "User:ann", "*", 3, 3),
        Acl(2, "orders-secret", 3, "User:ann", "10.0.0.1", 2, 2),
        Acl(6, "token", 3, "User:ann", "*", 8, 3),
        Acl(2, "orders", 3, "User:bob", "*", 99, 3),
        Acl(5, "t", 3, "User:ann", "*", 4, 3),
    ]  # fmt: skip
    image.acls.update({UUID(int=n + 1): one for n, one in enumerate(entries)})
    acls = read_acls(image, [], otherwise=False)
    secret = ORDERS._replace(name="orders-secret")

    def may(operation, of, principal="User:ann", host="10.0.0.2"):
        return acls.allows(principal, host, operation, of)

    assert may(Operation.READ, ORDERS)
    assert may(Operation.DESCRIBE, ORDERS)
    assert not may(Operation.WRITE, ORDERS)
    assert may(Operation.READ, secret)
    assert not may(Operation.READ, secret, host="10.0.0.1")
    assert not may(Operation.READ, ORDERS, principal="User:bob")
    assert may(Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, "t"))
    assert acls.digest != read_acls(replace_one(image), [], otherwise=False).digest
    assert read_acls(image, [], otherwise=True).allows(
        "User:eve", "h", Operation.READ, ORDERS._replace(name="x")
    )


def replace_one(image):
    one = image.acls[UUID(int=1)]
    image.acls[UUID(int=1)] = one._replace(principal="User:eve")
    return image
