"""What a Kafka cluster is, as the replay of its metadata: brokers, topics, leaders, settings, ACLs.

As in Kafka, `replay` is the only writer. Records between the beginning and the end of a transaction
of the controller count when it ends, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.kraft.metadata_records import MetadataError, MetadataRecord

NO_LEADER, SAME_LEADER = -1, -2
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
METADATA_VERSION = "metadata.version"


class Endpoint(NamedTuple):
    """Where a broker listens, under which name, and by which security protocol (Kafka's number)."""

    name: str
    host: str
    port: int
    security_protocol: int


class Broker(NamedTuple):
    """A registered broker.

    Attributes
    ----------
    features
        By name, the lowest and the highest level that it supports.
    cordoned_log_dirs
        Those that take no new replicas; None where the broker does not say.
    """

    node_id: int
    epoch: int
    incarnation_id: UUID | None
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    features: dict[str, tuple[int, int]]
    is_fenced: bool
    is_shutting_down: bool
    log_dirs: tuple[UUID | None, ...]
    cordoned_log_dirs: tuple[UUID | None, ...] | None


class Partition(NamedTuple):
    """A partition, as its leader and its replicas need it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int
    directories: tuple[UUID | None, ...]
    eligible_leaders: tuple[int, ...]

    def directory_of(self, node_id: int) -> UUID | None:
        """Return the log directory of a replica; None where it has none, or is none."""
        if node_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        return self.directories[self.replicas.index(node_id)]


class Topic(NamedTuple):
    """A topic and its partitions, by number."""

    topic_id: UUID
    name: str
    partitions: dict[int, Partition]


class Acl(NamedTuple):
    """An entry of Kafka's access control, in Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramVerifier(NamedTuple):
    """What proves that a user knows a password, without the password (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class MetadataImage:
    """The state of a cluster after some records of its metadata.

    Attributes
    ----------
    brokers
        By node id, fenced ones too.
    topics, topic_ids
        Topics by id, and ids by name.
    settings
        By kind and name of a resource, then by name; the cluster's defaults are of broker "".
    acls
        By their ids.
    access_changes
        How often access lists and verifiers have changed.
    verifiers
        By user and mechanism, in Kafka's numbers.
    features
        The finalized level of each.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[UUID, Topic] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.settings: dict[tuple[int, str], dict[str, str]] = {}
        self.acls: dict[UUID, Acl] = {}
        self.verifiers: dict[tuple[str, int], ScramVerifier] = {}
        self.access_changes = 0
        self.features: dict[str, int] = {}
        self._transaction: list[MetadataRecord] | None = None

    def replay(self, record: MetadataRecord) -> None:
        """Apply a record.

        Raises
        ------
        MetadataError
            It changes what there is not: records are missing before it.
        """
        if record.kind == "BeginTransactionRecord":
            self._transaction = []
        elif record.kind == "EndTransactionRecord":
            ended, self._transaction = self._transaction, None
            for one in ended or ():
                self.replay(one)
        elif record.kind == "AbortTransactionRecord":
            self._transaction = None
        elif self._transaction is not None:
            self._transaction.append(record)
        elif change := _CHANGES.get(record.kind):
            try:
                change(self, record.fields)
            except KeyError as error:
                raise MetadataError(
                    f"a {record.kind} of the cluster's metadata is about {error.args[0]}, which no "
                    "record before it has made"
                ) from None

    def topic(self, name: str) -> Topic | None:
        """Return a topic by its name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def setting(self, kind: int, name: str, key: str) -> str | None:
        """Return a setting of a resource, else the cluster's own default; None for neither."""
        for resource in ((kind, name), (BROKER, "")):
            value = self.settings.get(resource, {}).get(key)
            if value is not None:
                return value
        return None

    def held_by(self, node_id: int) -> list[tuple[Topic, int]]:
        """Return the partitions of which a node is a replica, in order of their names."""
        found = [
            (topic, number)
            for topic in self.topics.values()
            for number, one in topic.partitions.items()
            if node_id in one.replicas
        ]
        return sorted(found, key=lambda one: (one[0].name, one[1]))


# Brokers -------------------------------------------------------------------------------------


def _register(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    image.brokers[found.broker_id] = Broker(
        found.broker_id,
        found.broker_epoch,
        found.incarnation_id,
        tuple(
            Endpoint(one.name, one.host, one.port, one.security_protocol)
            for one in found.end_points
        ),
        found.rack,
        {
            one.name: (one.min_supported_version, one.max_supported_version)
            for one in found.features
        },
        found.fenced,
        found.in_controlled_shutdown,
        found.log_dirs,
        found.cordoned_log_dirs,
    )


def _unregister(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    del image.brokers[found.broker_id]


def _change_broker(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    broker = image.brokers[found.broker_id]
    if found.fenced:
        broker = broker._replace(is_fenced=found.fenced > 0)
    if found.in_controlled_shutdown:
        broker = broker._replace(is_shutting_down=True)
    if found.log_dirs:
        broker = broker._replace(log_dirs=found.log_dirs)
    if found.cordoned_log_dirs is not None:
        broker = broker._replace(cordoned_log_dirs=found.cordoned_log_dirs)
    image.brokers[found.broker_id] = broker


def _fence(*, is_fenced: bool) -> Callable[[MetadataImage, Any], None]:
    def change(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
        image.brokers[found.id] = image.brokers[found.id]._replace(is_fenced=is_fenced)

    return change


# Topics --------------------------------------------------------------------------------------


def _topic(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    image.topics[found.topic_id] = Topic(found.topic_id, found.name, {})
    image.topic_ids[found.name] = found.topic_id


def _remove_topic(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    topic = image.topics.pop(found.topic_id)
    image.topic_ids.pop(topic.name, None)
    image.settings.pop((TOPIC, topic.name), None)


def _partition(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    image.topics[found.topic_id].partitions[found.partition_id] = Partition(
        found.replicas,
        found.isr,
        found.removing_replicas,
        found.adding_replicas,
        found.leader,
        found.leader_epoch,
        found.partition_epoch,
        found.leader_recovery_state,
        found.directories,
        found.eligible_leader_replicas or (),
    )


def _change_partition(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    """Apply what a change names; it raises the epochs by itself, as `PartitionRegistration.merge`.

    Each change raises the partition's epoch; one that names a leader, the same one or none, the
    leader's epoch too.
    """
    partitions = image.topics[found.topic_id].partitions
    old = partitions[found.partition_id]
    given = {
        "replicas": found.replicas,
        "isr": found.isr,
        "removing": found.removing_replicas,
        "adding": found.adding_replicas,
        "directories": found.directories,
        "eligible_leaders": found.eligible_leader_replicas,
        "leader": None if found.leader == SAME_LEADER else found.leader,
        "recovery_state": None if found.leader_recovery_state < 0 else found.leader_recovery_state,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    partitions[found.partition_id] = old._replace(
        **changed,
        leader_epoch=old.leader_epoch + (found.leader != SAME_LEADER),
        partition_epoch=old.partition_epoch + 1,
    )


def _clear_elr(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    named = image.topics.values()
    topics: Iterable[Topic] = (
        named if not found.topic_name else [image.topics[image.topic_ids[found.topic_name]]]
    )
    for topic in topics:
        for number, one in topic.partitions.items():
            topic.partitions[number] = one._replace(eligible_leaders=())


# Settings and access -------------------------------------------------------------------------


def _setting(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    resource = (found.resource_type, found.resource_name)
    known = image.settings.setdefault(resource, {})
    if found.value is None:
        known.pop(found.name, None)
    else:
        known[found.name] = found.value
    if not known:
        del image.settings[resource]


def _acl(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    image.access_changes += 1
    image.acls[found.id] = Acl(
        found.resource_type,
        found.resource_name,
        found.pattern_type,
        found.principal,
        found.host,
        found.operation,
        found.permission_type,
    )


def _remove_acl(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    del image.acls[found.id]
    image.access_changes += 1


def _verifier(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    image.access_changes += 1
    image.verifiers[found.name, found.mechanism] = ScramVerifier(
        found.salt, found.stored_key, found.server_key, found.iterations
    )


def _remove_verifier(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    del image.verifiers[found.name, found.mechanism]
    image.access_changes += 1


def _feature(image: MetadataImage, found: Any) -> None:  # noqa: ANN401 - an entity
    if found.feature_level:
        image.features[found.name] = found.feature_level
    else:
        image.features.pop(found.name, None)


_CHANGES: dict[str, Callable[[MetadataImage, Any], None]] = {
    "RegisterBrokerRecord": _register,
    "UnregisterBrokerRecord": _unregister,
    "BrokerRegistrationChangeRecord": _change_broker,
    "FenceBrokerRecord": _fence(is_fenced=True),
    "UnfenceBrokerRecord": _fence(is_fenced=False),
    "TopicRecord": _topic,
    "RemoveTopicRecord": _remove_topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _change_partition,
    "ClearElrRecord": _clear_elr,
    "ConfigRecord": _setting,
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "UserScramCredentialRecord": _verifier,
    "RemoveUserScramCredentialRecord": _remove_verifier,
    "FeatureLevelRecord": _feature,
}
