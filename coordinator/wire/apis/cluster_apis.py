"""APIs about the cluster: versions, metadata, coordinators, login.

The nodes of the cluster are the servers of one store: one coordinates, the others stand by and
name it to clients. Its topics are those of the catalog, with their ids; it holds no records, so the
coordinator leads every partition, and a Fetch waits and brings nothing: that keeps clients quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache

from kio.schema.errors import ErrorCode

from coordinator.core.state.groups import Topic
from coordinator.wire import quirks
from coordinator.wire.call import (
    NO_NODE,
    Call,
    Cluster,
    ClusterNode,
    from_uuid,
    is_valid_topic,
    respond_with,
    to_uuid,
)
from coordinator.wire.codec import Api, EncodedPart, Request, Values, encode_part
from coordinator.wire.decoder import StandsByError, WireError
from coordinator.wire.session import is_valid_software

NO_RECORDS = "Muster keeps no records: write them where the members of its groups read them."
ONLY_GROUPS = "Only consumer groups have a coordinator here."
SASL = {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
GROUP_KEY, BROKERS = 0, 1
MILLISECOND = timedelta(milliseconds=1)
NOT_ASKED = -(2**31)
"""What Kafka says of authorized operations that were not asked for."""
NO_EPOCH = -1
"""The leader epoch in Metadata. Epochs come with offsets, from those who read elsewhere or from a
cluster; a client that has heard of a later one than Metadata names takes Metadata for old."""
NO_NAME_SINCE = 12
"""Of Metadata; before, a topic without a known name had an empty one."""
WHILE_STANDING_BY = {
    Api.API_VERSIONS,
    Api.METADATA,
    Api.DESCRIBE_CLUSTER,
    Api.FIND_COORDINATOR,
    Api.LIST_GROUPS,
    Api.SASL_HANDSHAKE,
    Api.SASL_AUTHENTICATE,
}
"""What a node answers that stands by: who coordinates, and that it has no groups itself."""


def api_versions(request: Request, cluster: Cluster) -> Call:
    """Say which APIs and versions are served."""
    offered = cluster.versions if cluster.offered is None else cluster.offered()
    served = [
        {"api_key": api, "min_version": least, "max_version": most}
        for api, (least, most) in offered.items()
        if cluster.with_login or cluster.offered or api not in SASL
    ]
    if request.body is None:
        return respond_with({"error_code": ErrorCode.unsupported_version, "api_keys": served})
    for field in ("client_software_name", "client_software_version"):
        if hasattr(request.body, field) and not is_valid_software(getattr(request.body, field)):
            values = {"error_code": ErrorCode.invalid_request, "api_keys": ()}
            return respond_with(values, refusal=f"its {field} is not valid")
    return respond_with({"error_code": ErrorCode.none, "api_keys": served})


def metadata(request: Request, cluster: Cluster) -> Call:
    """Describe the nodes and topics: all, or those asked for; none is ever created."""
    return Call(lambda _: _describe_cluster(request, cluster))


def _describe_cluster(request: Request, cluster: Cluster) -> Values:
    asked = request.body.topics
    every = asked is None or (request.version == 0 and not asked)
    view = cluster.topics()
    topics = (
        [_describe_topic(topic, request.version, cluster) for topic in view.by_name.values()]
        if every
        else [_find_topic(one, request.version, cluster) for one in dict.fromkeys(asked)]
    )
    return {
        "brokers": [node._asdict() for node in _list_nodes(cluster)],
        "cluster_id": cluster.cluster_id,
        "controller_id": _find_leader(cluster).node_id,
        "topics": topics,
        "error_code": ErrorCode.none,
    }


def refuse_standing_by(request: Request) -> None:
    """Refuse what only the coordinator knows; the client asks another node then.

    Raises
    ------
    StandsByError
        It is such a request.
    """
    if request.api not in WHILE_STANDING_BY:
        raise StandsByError(f"this server stands by, and is asked for {request.api.name}")


def _list_nodes(cluster: Cluster) -> list[ClusterNode]:
    """Return this node and the others: clients go on by their addresses when one has ended."""
    return sorted((cluster.node, *cluster.other_nodes()))


def _find_leader(cluster: Cluster) -> ClusterNode:
    """Return who leads all partitions and is the controller: the coordinator."""
    return cluster.coordinator() or cluster.node


def _find_topic(one: object, version: int, cluster: Cluster) -> Values | EncodedPart:
    """Describe a topic that is asked for by its name or, if it has one, by its id."""
    view, topic_id = cluster.topics(), quirks.ask_by_id(one)
    name: str | None = getattr(one, "name", None) or ""
    if topic_id is not None:
        topic, code = view.by_id.get(from_uuid(topic_id)), ErrorCode.unknown_topic_id
        name = None if version >= NO_NAME_SINCE else ""
    else:
        topic, code = view.by_name.get(name or ""), ErrorCode.unknown_topic_or_partition
        if not is_valid_topic(name or ""):
            code = ErrorCode.invalid_topic_exception
    if topic is not None:
        return _describe_topic(topic, version, cluster)
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "partitions": (),
        "topic_authorized_operations": _operations(name or "", cluster),
    }


def _describe_topic(topic: Topic, version: int, cluster: Cluster) -> EncodedPart:
    name, topic_id = topic.key.name, topic.key.topic_id
    operations = _operations(name, cluster)
    leader = _find_leader(cluster).node_id
    return _encode_topic(version, name, topic_id, topic.partitions, leader, operations)


def _operations(name: str, cluster: Cluster) -> int:
    return NOT_ASKED if cluster.operations is None else cluster.operations(name)


@lru_cache(maxsize=256)
def _encode_topic(
    version: int, name: str, topic_id: str, partitions: int, node_id: int, operations: int
) -> EncodedPart:
    """Return a topic with its partitions; every client that comes asks for the same."""
    here = (node_id,)
    of_one = {
        "error_code": ErrorCode.none,
        "leader_id": node_id,
        "leader_epoch": NO_EPOCH,
        "replica_nodes": here,
        "isr_nodes": here,
    }
    topic = {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": to_uuid(topic_id),
        "partitions": [of_one | {"partition_index": number} for number in range(partitions)],
        "topic_authorized_operations": operations,
    }
    return encode_part(Api.METADATA, version, "topics", topic)


def describe_cluster(request: Request, cluster: Cluster) -> Call:
    """Describe the cluster's nodes."""
    brokers = getattr(request.body, "endpoint_type", BROKERS) == BROKERS
    return respond_with(
        {
            "error_code": ErrorCode.none if brokers else ErrorCode.unsupported_endpoint_type,
            "error_message": None if brokers else "Muster has no controllers: ask for brokers.",
            "cluster_id": cluster.cluster_id,
            "controller_id": _find_leader(cluster).node_id,
            "brokers": [
                node._asdict() | {"broker_id": node.node_id, "is_fenced": False}
                for node in (_list_nodes(cluster) if brokers else ())
            ],
        }
    )


def find_coordinator(request: Request, cluster: Cluster) -> Call:
    """Name the coordinator of groups; transactions have none here."""
    asked = request.body
    is_group = getattr(asked, "key_type", GROUP_KEY) == GROUP_KEY

    def find(group_id: str) -> Values:
        if not is_group:
            return _coordinator(ErrorCode.invalid_request, ONLY_GROUPS, NO_NODE)
        node = cluster.find_coordinator(group_id)
        if node is None:
            return _coordinator(
                ErrorCode.coordinator_not_available, "Another coordinator has the store.", NO_NODE
            )
        return _coordinator(ErrorCode.none, None, node)

    keys: Iterable[str] = getattr(asked, "coordinator_keys", ())
    found = [{**find(key), "key": key} for key in keys]
    # An older version asks for one; the group "" is no one's question.
    one = {} if found else find(getattr(asked, "key", ""))
    return respond_with({**one, "coordinators": found}, refusal="" if is_group else ONLY_GROUPS)


def _coordinator(code: ErrorCode, message: str | None, place: ClusterNode) -> Values:
    return {"error_code": code, "error_message": message, **place._asdict()}


def refuse_unanswered(request: Request) -> None:
    """Refuse a Produce that wants no answer.

    Raises
    ------
    WireError
        It is one (acks 0): an answer would be taken for that to the next request, and all that the
        client can notice is a closed connection.
    """
    if request.body.acks == 0:
        raise WireError(f"a Produce that wants no answer: {NO_RECORDS}")


def produce(request: Request, _cluster: Cluster) -> Call:
    """Take no records: a partition here has no place for any."""
    refuse_unanswered(request)
    refused = {
        "error_code": ErrorCode.policy_violation,
        "base_offset": -1,
        "record_errors": (),
        "error_message": NO_RECORDS,
    }
    topics = [
        {
            "name": topic.name,
            "partition_responses": [
                {"index": one.index, **refused} for one in topic.partition_data
            ],
        }
        for topic in request.body.topic_data
    ]
    return respond_with({"responses": topics}, refusal=NO_RECORDS)


def fetch(request: Request, _cluster: Cluster) -> Call:
    """Bring nothing, once the client's patience is over.

    Any offset is taken to be the end: one that was committed here must not be out of range.
    """
    asked = request.body
    topics = [
        {
            "topic": getattr(topic, "topic", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": [
                {
                    "partition_index": one.partition,
                    "error_code": ErrorCode.none,
                    "high_watermark": one.fetch_offset,
                    "last_stable_offset": one.fetch_offset,
                    "log_start_offset": 0,
                    "aborted_transactions": None,
                    "records": b"",
                }
                for one in topic.partitions
            ],
        }
        for topic in asked.topics
    ]
    wait_ms = max(asked.max_wait // MILLISECOND, 0)
    return respond_with({"error_code": ErrorCode.none, "responses": topics}, wait_ms)


def refuse_login(request: Request, _cluster: Cluster) -> Call:
    """Refuse a login where none is asked for, or after it."""
    code, message = ErrorCode.illegal_sasl_state, "No login is expected now."
    return respond_with(
        {"error_code": code, "error_message": message, "auth_bytes": b"", "mechanisms": ()}
        if request.api is Api.SASL_AUTHENTICATE
        else {"error_code": code, "mechanisms": ()}
    )


HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = {
    Api.API_VERSIONS: api_versions,
    Api.METADATA: metadata,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.PRODUCE: produce,
    Api.FETCH: fetch,
    Api.SASL_HANDSHAKE: refuse_login,
    Api.SASL_AUTHENTICATE: refuse_login,
}
