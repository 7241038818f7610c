"""As what a node registers, and what it says in each heartbeat. No I/O.

Until a node leads, no client may find it: it registers a listener of a name of its own, and a
broker shows to a client only nodes that have the listener on which it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.config import ConfigError
from coordinator.kraft.metadata_image import (
    BROKER,
    METADATA_VERSION,
    MetadataImage,
    Partition,
    Topic,
)
from coordinator.kraft.node_files import Identity

LISTENER = "MUSTER"
PLAINTEXT = 0
METADATA_LEVELS = (7, 33)
"""Levels of metadata.version whose records we read: 3.3-IV3 to 4.4-IV2."""
CORDON_LEVEL = 30
"""4.3-IV0: from there on, controllers give no replicas to a cordoned directory (KIP-1066)."""
LEVEL_MAX = 32_767
WINDOW_SETTING = "muster.takes.replicas.until"
"""Of a node, among the cluster's settings of brokers: until when it is not cordoned, in ms since
1970. So a command that moves replicas need not run on the node's machine."""
TIME_DIGITS = 18
WINDOW_MS_MAX = 60_000
"""A time that is further away is none that a command of Muster's has written."""
TOPIC, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class Place(NamedTuple):
    """Where a node is.

    Attributes
    ----------
    rack
        One that brokers have; None where they have none.
    listeners
        By the names of the cluster's own, where the node has them; none where it follows only.
    """

    host: str
    port: int
    rack: str | None
    listeners: Mapping[str, tuple[str, int]] = MappingProxyType({})


def choose_rack(image: MetadataImage, node_id: int, wanted: str | None) -> str | None:
    """Return the rack of a node: one of the others', as partitions are placed by racks first.

    Raises
    ------
    ConfigError
        None is named where there are racks, or one that is not there.
    """
    racks = sorted({b.rack for b in image.brokers.values() if b.rack and b.node_id != node_id})
    if wanted is None and not racks:
        return None
    if wanted in racks:
        return wanted
    if not racks:
        raise ConfigError(f"--rack is {wanted!r}, but no broker has a rack: leave it out")
    raise ConfigError(
        f"--rack is {wanted or 'missing'}: give a rack that brokers have, {', '.join(racks)}; a "
        "rack of its own would get a replica of every new partition"
    )


def list_features(image: MetadataImage) -> list[dict[str, object]]:
    """Return which levels of features the node supports.

    All of those that it does not interpret: a level that a registered broker lacks can be set for
    no one. Of the metadata's own version those that it reads.
    """
    known = {name for broker in image.brokers.values() for name in broker.features}
    known |= image.features.keys() | {METADATA_VERSION}
    levels = {
        name: METADATA_LEVELS if name == METADATA_VERSION else (0, LEVEL_MAX) for name in known
    }
    return [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, (low, high) in sorted(levels.items())
    ]


def registration(image: MetadataImage, identity: Identity, place: Place) -> dict[str, Any]:
    """Return the fields of a BrokerRegistration."""
    listeners = place.listeners or {LISTENER: (place.host, place.port)}
    protocols = list_protocols(image, identity.node_id)
    return {
        "broker_id": identity.node_id,
        "cluster_id": identity.cluster_id,
        "incarnation_id": identity.incarnation_id,
        "listeners": [
            {
                "name": name,
                "host": host,
                "port": port,
                "security_protocol": protocols.get(name, PLAINTEXT),
            }
            for name, (host, port) in listeners.items()
        ],
        "features": list_features(image),
        "rack": place.rack,
        "log_dirs": [identity.directory_id],
        "previous_broker_epoch": identity.previous_epoch,
    }


def heartbeat(
    image: MetadataImage,
    identity: Identity,
    epoch: int,
    applied: int,
    *,
    takes_replicas: bool,
    shuts_down: bool,
    wants_fence: bool,
) -> dict[str, Any]:
    """Return the fields of a BrokerHeartbeat.

    Parameters
    ----------
    applied
        The offset of the last record of the metadata that is replayed: while it stands still, no
        other broker's controlled shutdown ends.
    takes_replicas
        Whether controllers may give it new replicas.
    wants_fence
        Whether brokers must lead what the node leads, and not wait for it.
    """
    cordoned = [] if takes_replicas else [identity.directory_id]
    return {
        "broker_id": identity.node_id,
        "broker_epoch": epoch,
        "current_metadata_offset": applied,
        "want_fence": wants_fence,
        "want_shut_down": shuts_down,
        **({"cordoned_log_dirs": cordoned} if can_cordon(image) else {}),
    }


def is_let_in(image: MetadataImage, node_id: int, now_ms: int) -> bool:
    """Whether the cluster's settings say that a node takes new replicas now."""
    until = image.setting(BROKER, str(node_id), WINDOW_SETTING) or ""
    is_time = until.isdecimal() and len(until) <= TIME_DIGITS
    return is_time and now_ms < int(until) <= now_ms + WINDOW_MS_MAX


def can_cordon(image: MetadataImage) -> bool:
    """Whether controllers heed that a directory takes no new replicas."""
    return image.features.get(METADATA_VERSION, 0) >= CORDON_LEVEL


def must_not_lead(image: MetadataImage, node_id: int) -> bool:
    """Whether a partition would be led by the node, which cannot: it is fenced until another does.

    So it is, too, while there is no leader and the node could become it.
    """
    return any(
        one.leader == node_id or (one.leader < 0 and node_id in (*one.isr, *one.eligible_leaders))
        for topic, number in image.held_by(node_id)
        for one in (topic.partitions[number],)
    )


def list_protocols(image: MetadataImage, node_id: int | None) -> dict[str, int]:
    """Return Kafka's number of the security protocol of each listener that brokers have, by name.

    Nodes of Muster that only follow have one of their own, which is left out.
    """
    return {
        one.name: one.security_protocol
        for broker in list(image.brokers.values())
        for one in broker.endpoints
        if broker.node_id != node_id and one.name != LISTENER
    }


def find_replicas(image: MetadataImage, node_id: int) -> dict[int, Partition]:
    """Return the partitions of Kafka's topic of groups of which the node is a replica."""
    topic = image.topic(TOPIC)
    if topic is None:
        return {}
    return {n: one for n, one in topic.partitions.items() if node_id in one.replicas}


def find_misplaced(image: MetadataImage, identity: Identity) -> dict[UUID, list[int]]:
    """Return partitions, by topic, whose replica controllers look for in another log directory.

    So it is after the logs were lost: the replica counts as offline until its new directory is
    named (KIP-858).
    """
    found: dict[UUID, list[int]] = {}
    for topic, number in image.held_by(identity.node_id):
        known = topic.partitions[number].directory_of(identity.node_id)
        if known not in {None, identity.directory_id}:
            found.setdefault(topic.topic_id, []).append(number)
    return found


def find_strays(image: MetadataImage, node_id: int) -> list[tuple[Topic, int]]:
    """Return partitions of other topics that were placed on the node: it follows none of them."""
    return [(topic, n) for topic, n in image.held_by(node_id) if topic.name != TOPIC]
