"""Nodes that serve with TLS and logins reach each other as clients do, by nodes.kafka."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from dataclasses import replace

import pytest

from coordinator.config import Config, ConfigError, NodesConfig, ServerConfig
from coordinator.errors import GroupError
from coordinator.member.member import Member
from coordinator.shards.node import NODES, Node
from coordinator.storage.shards import make_shards
from coordinator.wire.sasl import Verifier
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes import LEASE, has
from tests.support.members import wait_for
from tests.wire.test_access import certificates, tls_of

__all__ = ["certificates"]
RIGHTS = """
[[acls]]
principal = "User:node"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "muster.nodes"

[[acls]]
principal = "User:node"
operations = ["DESCRIBE"]
resource_type = "TOPIC"
resource_name = "muster.shards"

[[acls]]
principal = "User:ann"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "g"

[[acls]]
principal = "User:ann"
operations = ["READ"]
resource_type = "TOPIC"
resource_name = "*"
"""


@pytest.fixture
def secured(certificates, tmp_path):
    """The settings of a node."""
    verifiers = {
        n: Verifier.of("SCRAM-SHA-256", f"of {n}", iterations=4096) for n in ("node", "ann")
    }
    users, acls = tmp_path / "users.toml", tmp_path / "acls.toml"
    users.write_text("[users]\n" + "".join(f'{n} = "{v}"\n' for n, v in verifiers.items()))
    acls.write_text(RIGHTS)
    server = ServerConfig(
        listen="127.0.0.1:0", sasl_mechanisms=("SCRAM-SHA-256",), sasl_users=str(users),
        acls=str(acls), **tls_of(certificates),
    )  # fmt: skip
    client = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "node", "sasl.password": "of node",
        "ssl.ca.location": f"{certificates}/ca.pem",
    }  # fmt: skip
    return Config(lease=LEASE, server=server, nodes=NodesConfig(client))


@contextmanager
def node(store, config, node_id):
    own = replace(config, server=replace(config.server, node_id=node_id))
    with Node(store, make_shards(store, SHARDS, own), own, {"t": 4}) as opened:
        opened.serve()
        yield opened


def test_nodes_log_in_at_each_other_and_clients_at_each(store, secured, certificates):
    trusting = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    ann = {"tls": trusting, "login": ("SCRAM-SHA-256", "ann", "of ann")}
    with node(store, secured, 1) as one, node(store, secured, 2) as two:
        wait_for(lambda: has(2, 2)(one, two))
        for address in (one.address, two.address):
            with Member(address, group_id="g", topics=["t"], **ann) as member:
                assert len(member.wait_for_change(60).owned) == 4
        stranger = Member(one.address, group_id=NODES, topics=["t"], client_id=two.address, **ann)
        with pytest.raises(GroupError, match="Not authorized to access GROUP"), stranger:
            stranger.wait_for_change(10)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "nodes.kafka has the security.protocol PLAINTEXT, and nodes serve with SASL_SSL"),
        ({"security.protocol": "SSL"}, "nodes.kafka has the security.protocol SSL"),
        ({"security.protocol": "SASL_SSL"}, "nodes.kafka: sasl.mechanism is ''"),
    ],
)
def test_settings_that_do_not_fit_are_refused(store, secured, changed, said):
    config = replace(secured, nodes=NodesConfig(changed))
    with pytest.raises(ConfigError, match=said):
        Node(store, make_shards(store, SHARDS, config), config)
