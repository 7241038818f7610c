"""What clients ask of the cluster's metadata: brokers, topics, leaders, coordinators, features.

Answers name brokers by the listener on which the client asks, as `KRaftMetadataCache` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from coordinator.core.java_hash import place_of
from coordinator.kraft.metadata_image import Broker, MetadataImage, Partition, Topic
from coordinator.kraft.registration import TOPIC, TRANSACTIONS, list_features
from coordinator.kraft.requests.upstream import TRANSACTION_KEY
from coordinator.wire import quirks
from coordinator.wire.apis.cluster_apis import GROUP_KEY, NO_NAME_SINCE, api_versions
from coordinator.wire.call import (
    NO_NODE,
    Call,
    Cluster,
    ClusterNode,
    from_uuid,
    is_valid_topic,
    respond_with,
)
from coordinator.wire.codec import Request, Values

INTERNAL = {TOPIC, TRANSACTIONS, "__share_group_state"}
BROKERS = 1
ENDPOINTS_SINCE, LISTENERS_SINCE = 1, 6
"""Of Metadata: before the first, replicas that are not alive are left out; from the second on, a
leader without the client's listener has an error of its own."""
NO_LEADER, NOT_ASKED = -1, -(2**31)
LOST, MIGRATING = UUID(int=1), UUID(int=2)
"""Ids that name no directory (KIP-858): a replica's has failed, or is not known yet."""


class Seen(NamedTuple):
    """What a node knows when a request comes.

    Attributes
    ----------
    image
        The metadata.
    offset
        Of the last record in it.
    """

    image: MetadataImage
    offset: int


class MetadataApis:
    """Answers from the metadata.

    Parameters
    ----------
    seen
        Asked for what is known now.
    choose
        Chooses the broker that answers name as the controller: any takes what is for that one.
    make_transactions
        Called with a transactional id while there is no topic of transactions.
    """

    def __init__(
        self,
        seen: Callable[[], Seen],
        cluster_id: str,
        choose: Callable[[list[int]], int] = random.choice,
        make_transactions: Callable[[str], object] = str,
    ) -> None:
        self._seen, self._cluster_id, self._choose = seen, cluster_id, choose
        self._make_transactions = make_transactions

    # The cluster ---------------------------------------------------------------------------------

    def api_versions(self, request: Request, cluster: Cluster) -> Call:
        """Say which APIs are served, and which features the cluster has."""
        call, (image, offset) = api_versions(request, cluster), self._seen()
        levels = list(image.features.items())
        known = {
            "supported_features": [
                {
                    "name": one["name"],
                    "min_version": one["min_supported_version"],
                    "max_version": one["max_supported_version"],
                }
                for one in list_features(image)
            ],
            "finalized_features_epoch": offset,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in levels
            ],
        }
        return Call(lambda answers: {**call.respond(answers), **known}, refusal=call.refusal)

    def describe_cluster(self, request: Request, _cluster: Cluster) -> Call:
        """Name the brokers that a client can reach; the fenced ones too, where it wants them."""
        body, image = request.body, self._seen().image
        if getattr(body, "endpoint_type", BROKERS) != BROKERS:
            return respond_with(
                {
                    "error_code": ErrorCode.mismatched_endpoint_type,
                    "error_message": "The request was sent to a broker: it knows brokers only.",
                    "cluster_id": "",
                    "controller_id": NO_LEADER,
                    "brokers": (),
                }
            )
        fenced = bool(getattr(body, "include_fenced_brokers", False))
        found = _list_brokers(image, request.session.listener, with_fenced=fenced)
        return respond_with(
            {
                "error_code": ErrorCode.none,
                "error_message": None,
                "cluster_id": self._cluster_id,
                "controller_id": self._controller(found),
                "brokers": [
                    _place(one, request.session.listener)._asdict()
                    | {"broker_id": one.node_id, "rack": one.rack, "is_fenced": one.is_fenced}
                    for one in found
                ],
            }
        )

    def _controller(self, found: list[Broker]) -> int:
        alive = [one.node_id for one in found if not one.is_fenced]
        return self._choose(alive) if alive else NO_LEADER

    # Topics --------------------------------------------------------------------------------------

    def metadata(self, request: Request, cluster: Cluster) -> Call:
        """Describe brokers and topics: all, or those asked for; none is created."""
        return Call(lambda _: self._describe(request, cluster))

    def _describe(self, request: Request, cluster: Cluster) -> Values:
        asked, version, listener = request.body.topics, request.version, request.session.listener
        image = self._seen().image
        found = _list_brokers(image, listener, with_fenced=False)
        look = _Look(image, listener, version)
        if asked is None or (version == 0 and not asked):
            names = cluster.topics().by_name  # those that the client may see
            known = sorted(image.topics.values(), key=lambda one: one.name)
            topics = [look.topic(one, cluster) for one in known if one.name in names]
        else:
            topics = [_find_topic(look, one, cluster) for one in dict.fromkeys(asked)]
        return {
            "brokers": [_place(one, listener)._asdict() | {"rack": one.rack} for one in found],
            "cluster_id": self._cluster_id,
            "controller_id": self._controller(found),
            "topics": topics,
            "error_code": ErrorCode.none,
        }

    # Coordinators --------------------------------------------------------------------------------

    def find_coordinator(self, request: Request, _cluster: Cluster) -> Call:
        """Name the leaders of the partitions that have groups or transactions."""
        body, listener = request.body, request.session.listener
        image = self._seen().image
        kind = getattr(body, "key_type", GROUP_KEY)

        def find(key: str) -> dict[str, object]:
            if kind not in {GROUP_KEY, TRANSACTION_KEY}:
                code, where = ErrorCode.invalid_request, NO_NODE
            else:
                where = _find_leader(image, TRANSACTIONS if kind else TOPIC, key, listener)
                code = ErrorCode.none if where.port > 0 else ErrorCode.coordinator_not_available
            why = None if not int(code) else f"{code.name.replace('_', ' ')}: {key}"
            return {"error_code": code, "error_message": why, "key": key, **where._asdict()}

        keys = getattr(body, "coordinator_keys", None)
        if kind == TRANSACTION_KEY and image.topic(TRANSACTIONS) is None:
            self._make_transactions(body.key if keys is None else keys[0] if keys else "")
        if keys is None:
            return respond_with(find(body.key))
        return respond_with({"coordinators": [find(key) for key in keys]})


def _list_brokers(image: MetadataImage, listener: str, *, with_fenced: bool) -> list[Broker]:
    """Return the brokers that have a listener, in order."""
    return [
        one
        for _, one in sorted(image.brokers.items())
        if (with_fenced or not one.is_fenced) and _place(one, listener) != NO_NODE
    ]


def _place(broker: Broker, listener: str) -> ClusterNode:
    """Return where a broker has a listener; nowhere if it does not."""
    for one in broker.endpoints:
        if one.name == listener:
            return ClusterNode(broker.node_id, one.host, one.port)
    return NO_NODE


def _find_leader(image: MetadataImage, name: str, key: str, listener: str) -> ClusterNode:
    """Return the leader of the partition of a topic that has a key; no node where none can be."""
    topic = image.topic(name)
    count = 0 if topic is None else len(topic.partitions)
    one = topic.partitions.get(place_of(key, count)) if topic is not None and count else None
    broker = None if one is None else image.brokers.get(one.leader)
    return NO_NODE if broker is None or broker.is_fenced else _place(broker, listener)


class _Look:
    """Topics, as a client of a listener and a version of Metadata sees them."""

    def __init__(self, image: MetadataImage, listener: str, version: int) -> None:
        self.image, self._listener, self.version = image, listener, version
        self._brokers = dict(image.brokers)

    def topic(self, topic: Topic, cluster: Cluster) -> dict[str, object]:
        """Return a topic with its partitions."""
        name = topic.name
        return {
            "error_code": ErrorCode.none,
            "name": name,
            "topic_id": topic.topic_id,
            "is_internal": name in INTERNAL,
            "partitions": [
                self._partition(number, one) for number, one in sorted(topic.partitions.items())
            ],
            "topic_authorized_operations": (
                NOT_ASKED if cluster.operations is None else cluster.operations(name)
            ),
        }

    def _is_offline(self, number: int, one: Partition) -> bool:
        broker = self._brokers.get(number)
        if broker is None or broker.is_fenced or _place(broker, self._listener) == NO_NODE:
            return True
        directory = one.directory_of(number)
        if directory in {None, MIGRATING} or not broker.log_dirs:
            return directory == LOST
        return directory not in broker.log_dirs

    def _partition(self, number: int, one: Partition) -> dict[str, object]:
        leader = self._brokers.get(one.leader)
        reached = leader is not None and not leader.is_fenced
        reached = reached and leader is not None and _place(leader, self._listener) != NO_NODE
        replicas, isr = list(one.replicas), list(one.isr)
        code = ErrorCode.none
        if not reached:
            names = self.version >= LISTENERS_SINCE and leader is not None
            code = ErrorCode.listener_not_found if names else ErrorCode.leader_not_available
        if self.version < ENDPOINTS_SINCE:
            alive = [n for n in replicas if not self._is_offline(n, one)]
            if code == ErrorCode.none and len(alive) < len(replicas):
                code = ErrorCode.replica_not_available
            replicas, isr = alive, [n for n in isr if n in alive]
        return {
            "error_code": code,
            "partition_index": number,
            "leader_id": one.leader if reached else NO_LEADER,
            "leader_epoch": one.leader_epoch,
            "replica_nodes": replicas,
            "isr_nodes": isr,
            "offline_replicas": [n for n in one.replicas if self._is_offline(n, one)],
        }


def _find_topic(look: _Look, one: Any, cluster: Cluster) -> dict[str, object]:  # noqa: ANN401 - kio's
    """Describe a topic that is asked for by its name or, if it has one, by its id."""
    topic_id = quirks.ask_by_id(one)
    name: str | None = getattr(one, "name", None) or ""
    if topic_id is not None:
        known = from_uuid(topic_id) in cluster.topics().by_id  # else no one may see it yet
        topic = look.image.topics.get(topic_id) if known else None
        code = ErrorCode.unknown_topic_id
        name = None if look.version >= NO_NAME_SINCE else ""
    else:
        topic, code = look.image.topic(name or ""), ErrorCode.unknown_topic_or_partition
        if not is_valid_topic(name or ""):
            code = ErrorCode.invalid_topic_exception
    if topic is not None:
        return look.topic(topic, cluster)
    operations = None if cluster.operations is None else cluster.operations(name or "")
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "partitions": (),
        "topic_authorized_operations": NOT_ASKED if operations is None else operations,
    }
