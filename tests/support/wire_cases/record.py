"""Record what a real Kafka 4.4.0 answers: `python -m tests.support.wire_cases.record`.

It needs Java 17 and Maven, and Maven Central once; it takes two minutes and writes
`tests/golden/wire/broker-4.4.0.jsonl` again. The broker has a login by PLAIN, and access lists by which
`admin` may do everything and `alice` little.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from coordinator.wire.codec import Api
from tests.clients.kafka_broker import Kafka
from tests.support.wire_cases import SETTINGS, TOPICS, Peer
from tests.support.wire_cases.asker import Asker
from tests.support.wire_cases.golden import GOLDEN, all_cases, line_of

PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin" user_alice="alice";'
)
GROUP, PREFIXED, LITERAL = (
    ResourceType.GROUP,
    ResourcePatternType.PREFIXED,
    ResourcePatternType.LITERAL,
)
ALLOWED = (
    (GROUP, "team-", PREFIXED, ("READ", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")),
    (ResourceType.TOPIC, "clicks", LITERAL, ("READ", "WRITE")),
)
"""What alice may do."""


def settings(port: int) -> tuple[str, ...]:
    """Return the settings of the broker, which listens for logins two ports further on."""
    hosts = {"PLAINTEXT": port, "SASL": port + 2}
    listeners = ",".join(f"{name}://127.0.0.1:{one}" for name, one in hosts.items())
    own = f"{listeners},CONTROLLER://127.0.0.1:{port + 1}"
    return (
        f"listeners={own}",
        f"advertised.listeners={own}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config={PLAIN_LOGIN}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS;User:admin",
        "auto.create.topics.enable=false",
        *(f"{name}={value}" for name, value in SETTINGS.items()),
    )


class Secured(Kafka):
    """A broker with a login and access lists."""

    def start(self):
        """Start it."""
        self._run("start", str(self.port), *settings(self.port))


def allow(address: str) -> None:
    """Give alice her rights."""
    bindings = [
        AclBinding(
            kind, name, pattern, "User:alice", "*", AclOperation[one], AclPermissionType.ALLOW
        )
        for kind, name, pattern, operations in ALLOWED
        for one in operations
    ]
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_acls(bindings).values():
        future.result(30)


def introduce(asker: Asker) -> None:
    """Find the ids of topics, and wait until groups have a coordinator."""
    patience = time.monotonic() + 60
    ready: object = False
    while not ready:
        assert time.monotonic() < patience, "the broker does not get ready"
        time.sleep(0.2)
        topics = asker.ask("admin", Api.METADATA, 12, {"topics": None})
        place = asker.ask("admin", Api.FIND_COORDINATOR, 3, {"key": "team", "key_type": 0})
        assert isinstance(topics, dict)
        assert isinstance(place, dict)
        ids = {one["name"]: one["topic_id"] for one in topics["topics"]}
        ready = place["error_code"] == 0 and set(TOPICS) <= set(ids)
    asker.peer.ids = {name: ids[name] for name in TOPICS}


def main() -> None:
    """Record."""
    with tempfile.TemporaryDirectory() as folder, Secured(Path(folder), TOPICS) as kafka:
        allow(kafka.address)
        words = {str(kafka.port + 2): "$port", str(kafka.port + 1): "$controller"}
        words |= {f"{folder}/kafka/data": "$folder"}
        asker = Asker(f"127.0.0.1:{kafka.port + 2}", Peer({}, words), settle_s=0.5)
        described = asker.ask("admin", Api.DESCRIBE_CLUSTER, 0, {})
        assert isinstance(described, dict)
        introduce(asker)
        words[described["cluster_id"]] = "$cluster"
        asker.peer.words = words
        lines = []
        for case in all_cases():
            answers = {version: asker.answer(case, version) for version in case.all_versions()}
            lines.append(line_of(case, answers))
        asker.close()
    GOLDEN.write_text("".join(line + "\n" for line in lines))
    sys.stdout.write(f"{len(lines)} lines in {GOLDEN}\n")


if __name__ == "__main__":
    main()
