"""Every API of a broker that is about neither groups nor metadata: who answers it, and who may ask.

What changes the cluster goes to the controllers, which decide whether the client may. What the
brokers alone know is asked of one of them, once the client was found to be allowed. Producers get
their ids here, and what leaders of other topics are asked is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from coordinator.kraft.metadata_image import BROKER, MetadataImage
from coordinator.kraft.registration import TOPIC, WINDOW_SETTING
from coordinator.kraft.replica_apis import first_response
from coordinator.kraft.requests.upstream import TRANSACTION_KEY, Upstream, Work
from coordinator.wire.acls import CLUSTER, Acls, Operation, Resource, ResourceType
from coordinator.wire.apis.admin_apis import list_transactions
from coordinator.wire.apis.cluster_apis import GROUP_KEY, refuse_unanswered
from coordinator.wire.authorization import RULES as KAFKAS
from coordinator.wire.authorization import allow_anybody, cluster_rule, topic_rule
from coordinator.wire.call import Call, Cluster, Rule, respond_with
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.item_rules import (
    ItemRule,
    Permissions,
    group_resource,
    refusal_fields,
    refuse_key,
    refuse_topic,
)
from coordinator.wire.session import ANONYMOUS

TO_CONTROLLERS: Mapping[Api, tuple[int, int]] = {
    Api.CREATE_TOPICS: (2, 7),
    Api.DELETE_TOPICS: (1, 6),
    Api.CREATE_ACLS: (1, 3),
    Api.DELETE_ACLS: (1, 3),
    Api.ALTER_CONFIGS: (0, 2),
    Api.CREATE_PARTITIONS: (0, 3),
    Api.CREATE_DELEGATION_TOKEN: (1, 3),
    Api.RENEW_DELEGATION_TOKEN: (1, 2),
    Api.EXPIRE_DELEGATION_TOKEN: (1, 2),
    Api.ELECT_LEADERS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    Api.ALTER_CLIENT_QUOTAS: (0, 1),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    Api.DESCRIBE_QUORUM: (0, 2),
    Api.UPDATE_FEATURES: (0, 2),
    Api.UNREGISTER_BROKER: (0, 0),
    Api.ADD_RAFT_VOTER: (0, 1),
    Api.REMOVE_RAFT_VOTER: (0, 0),
}
"""What a broker sends on in an Envelope, in the versions of Kafka 4.4."""
TO_BROKERS: Mapping[Api, tuple[int, int]] = {
    Api.DESCRIBE_ACLS: (1, 3),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    Api.LIST_CONFIG_RESOURCES: (0, 1),
}
"""What depends on the settings of brokers, or on records that a node does not keep."""
HERE: Mapping[Api, tuple[int, int]] = {
    Api.PRODUCE: (3, 13),
    Api.DELETE_RECORDS: (0, 2),
    Api.INIT_PRODUCER_ID: (0, 5),
    Api.DESCRIBE_LOG_DIRS: (1, 5),
    Api.LIST_TRANSACTIONS: (0, 2),
}
TOKENS = {Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN}
NOT_LEADER = ErrorCode.not_leader_or_follower


class Folder(NamedTuple):
    """The folder of a node's logs, and the bytes in it of each partition that it holds."""

    path: str
    sizes: Mapping[int, int]


class BrokerApis:
    """Answers them.

    Parameters
    ----------
    image
        Asked for the metadata as it is now.
    broker_epoch
        Asked for the epoch of the node's registration.
    folder
        Asked for what is in the node's folder.
    """

    def __init__(
        self,
        upstream: Upstream,
        node_id: int,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        folder: Callable[[], Folder],
    ) -> None:
        self._upstream, self._node_id, self._image = upstream, node_id, image
        self._broker_epoch, self._folder = broker_epoch, folder

    def handlers(self) -> dict[Api, Callable[[Request, Cluster], Call]]:
        """Return what answers each API."""
        return {
            **dict.fromkeys(TO_CONTROLLERS, self._send_on),
            **dict.fromkeys(TOKENS, self._send_token_request),
            **dict.fromkeys(TO_BROKERS, self._ask_broker),
            Api.DESCRIBE_CONFIGS: self._describe_configs,
            Api.PRODUCE: _refuse_produce,
            Api.DELETE_RECORDS: _refuse_deletes,
            Api.INIT_PRODUCER_ID: self._give_producer_id,
            Api.DESCRIBE_LOG_DIRS: self._describe_folder,
            Api.LIST_TRANSACTIONS: list_transactions,
        }

    def offered(self) -> dict[int, tuple[int, int]]:
        """Return which versions clients may send: of what goes on, those of the controllers too."""
        known = self._upstream.served
        found = {int(api): span for api, span in (*TO_BROKERS.items(), *HERE.items())}
        for api, (least, most) in TO_CONTROLLERS.items():
            low, high = known.get(int(api), (least, most))
            if max(low, least) <= min(high, most):
                found[int(api)] = max(low, least), min(high, most)
        return found

    # Sent on -------------------------------------------------------------------------------------

    def _send_on(self, request: Request, _cluster: Cluster) -> Call:
        """Have the active controller answer; it decides what the client may."""
        return self._later(self._upstream.ask_controller(request))

    def _send_token_request(self, request: Request, cluster: Cluster) -> Call:
        """Have the active controller answer, if the client has shown who it is."""
        if request.session.principal == ANONYMOUS:
            code = ErrorCode.delegation_token_request_not_allowed
            return respond_with(NO_TOKEN | {"error_code": code})
        return self._send_on(request, cluster)

    def _ask_broker(self, request: Request, _cluster: Cluster) -> Call:
        """Have a broker answer what the client is allowed."""
        return self._later(self._upstream.ask_broker(request))

    def _describe_configs(self, request: Request, cluster: Cluster) -> Call:
        """Describe settings; those of this node itself are what the cluster has of it."""
        asked = request.body.resources
        ours = [one for one in asked if self._is_this_node(one)]
        if not ours:
            return self._ask_broker(request, cluster)
        own = [self._describe_node(one) for one in ours]
        rest = [one for one in asked if not self._is_this_node(one)]
        if not rest:
            return respond_with({"results": own})
        call = self._ask_broker(request.with_items("resources", rest), cluster)

        def respond(answers: Any) -> Values:  # noqa: ANN401 - of a broker
            values = call.respond(answers)
            found: Any = values["results"]
            return {**values, "results": [*own, *found]}

        return Call(respond, later=call.later)

    def _is_this_node(self, one: Any) -> bool:  # noqa: ANN401 - kio's
        return bool(one.resource_type == BROKER and one.resource_name == str(self._node_id))

    def _describe_node(self, one: Any) -> Values:  # noqa: ANN401 - kio's
        known = self._image().settings.get((BROKER, one.resource_name), {})
        names = one.configuration_keys
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "resource_type": one.resource_type,
            "resource_name": one.resource_name,
            "configs": [
                {
                    "name": name,
                    "value": value if name in SHOWN else None,
                    "read_only": False,
                    "config_source": DYNAMIC_OF_A_BROKER,
                    "is_sensitive": name not in SHOWN,
                    "synonyms": (),
                    "config_type": 0,
                    "documentation": None,
                }
                for name, value in sorted(known.items())
                if names is None or name in names
            ],
        }

    def _later(self, work: Work) -> Call:
        return Call(first_response, later=lambda: self._upstream.start(work))

    # Answered here -------------------------------------------------------------------------------

    def _give_producer_id(self, request: Request, _cluster: Cluster) -> Call:
        """Give a producer its id; transactions have another coordinator."""
        if request.body.transactional_id is not None:
            return respond_with(NO_PRODUCER | {"error_code": ErrorCode.not_coordinator})

        async def give() -> Values:
            found = await self._upstream.take_producer_id(self._node_id, self._broker_epoch())
            return NO_PRODUCER | {
                "error_code": ErrorCode.none,
                "producer_id": found,
                "producer_epoch": 0,
            }

        return self._later(give)

    def _describe_folder(self, request: Request, _cluster: Cluster) -> Call:
        """Say how large the logs are that the node has."""
        asked = request.body.topics
        wanted = None
        if asked is not None:
            wanted = {n for one in asked if one.topic == TOPIC for n in one.partitions}
        path, sizes = self._folder()
        partitions = [
            {
                "partition_index": number,
                "partition_size": size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for number, size in sorted(sizes.items())
            if wanted is None or number in wanted
        ]
        topics = [{"name": TOPIC, "partitions": partitions}] if partitions else ()
        folder = {"error_code": ErrorCode.none, "log_dir": path, "topics": topics}
        return respond_with({"error_code": ErrorCode.none, "results": [folder]})


NO_RIGHTS = Acls({}, {})
"""Lists that allow nothing."""
SHOWN = {WINDOW_SETTING}
"""Settings of a node whose values are no secret; of others that is not known."""
DYNAMIC_OF_A_BROKER = 2
"""Kafka's number of where a setting is from: of one broker, and changed while it runs."""
NO_PRODUCER: dict[str, object] = {"producer_id": -1, "producer_epoch": -1}
NO_TOKEN: dict[str, object] = {
    "principal_type": "",
    "principal_name": "",
    "token_requester_principal_type": "",
    "token_requester_principal_name": "",
    "issue_timestamp": None,
    "expiry_timestamp": None,
    "max_timestamp": None,
    "token_id": "",
    "hmac": b"",
}


def _refuse_produce(request: Request, _cluster: Cluster) -> Call:
    """Take no records: a node leads no topic that has some for clients."""
    refuse_unanswered(request)
    refused = {"error_code": NOT_LEADER, "base_offset": -1, "record_errors": ()}
    topics = [
        {
            "name": getattr(topic, "name", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partition_responses": [refused | {"index": one.index} for one in topic.partition_data],
        }
        for topic in request.body.topic_data
    ]
    return respond_with({"responses": topics})


def _refuse_deletes(request: Request, _cluster: Cluster) -> Call:
    """Delete no records: those of groups are not deleted so, and others are not here."""
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "low_watermark": -1,
                    "error_code": NOT_LEADER,
                }
                for one in topic.partitions
            ],
        }
        for topic in request.body.topics
    ]
    return respond_with({"topics": topics})


# Who may ask -------------------------------------------------------------------------------------


def _producer_id_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """InitProducerId: WRITE of the transactional id, or IDEMPOTENT_WRITE, or WRITE of any topic."""
    named = request.body.transactional_id
    if named is not None:
        of = Resource(ResourceType.TRANSACTIONAL_ID, named)
        allowed = permissions.authorize(Operation.WRITE, of)
    else:
        of = CLUSTER
        allowed = permissions.allows_any(
            Operation.WRITE, ResourceType.TOPIC
        ) or permissions.authorize(Operation.IDEMPOTENT_WRITE, CLUSTER)
    if allowed:
        return cluster.own[request.api](request, cluster)
    return respond_with(refusal_fields(of) | NO_PRODUCER)


def _fetch_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """Fetch: of replicas CLUSTER_ACTION, of others READ of each topic."""
    state = getattr(request.body, "replica_state", None)
    replica = state.replica_id if state is not None else request.body.replica_id
    if replica >= 0 and permissions.authorize(Operation.CLUSTER_ACTION, CLUSTER):
        return cluster.own[request.api](request, cluster)
    if replica < 0:
        return topic_rule(Operation.READ, answered="responses")(request, cluster, permissions)
    denied = Permissions(request.session, cluster, NO_RIGHTS)  # none of what it asks
    return topic_rule(Operation.READ, answered="responses")(request, cluster, denied)


def _epochs_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """OffsetForLeaderEpoch: CLUSTER_ACTION, or DESCRIBE of each topic."""
    if permissions.allows(Operation.CLUSTER_ACTION, CLUSTER):
        return cluster.own[request.api](request, cluster)
    return topic_rule(Operation.DESCRIBE)(request, cluster, permissions)


def _markers_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """WriteTxnMarkers: ALTER or CLUSTER_ACTION of the cluster."""
    if permissions.allows(Operation.ALTER, CLUSTER) or permissions.authorize(
        Operation.CLUSTER_ACTION, CLUSTER
    ):
        return cluster.own[request.api](request, cluster)
    code = ErrorCode.cluster_authorization_failed
    markers = [
        {
            "producer_id": marker.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": number, "error_code": code}
                        for number in topic.partition_indexes
                    ],
                }
                for topic in marker.topics
            ],
        }
        for marker in request.body.markers
    ]
    return respond_with({"markers": markers})


def _transaction_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """TxnOffsetCommit: WRITE of the transactional id, READ of the group and of each topic."""
    body = request.body
    needed = (
        (Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, body.transactional_id)),
        (Operation.READ, group_resource(body.group_id)),
    )
    for operation, of in needed:
        if not permissions.authorize(operation, of):
            return respond_with({"topics": [refuse_topic(topic, of) for topic in body.topics]})
    return topic_rule(Operation.READ)(request, cluster, permissions)


def _coordinator_rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """FindCoordinator: DESCRIBE of each transactional id, as of each group."""
    body = request.body
    if getattr(body, "key_type", GROUP_KEY) != TRANSACTION_KEY:
        return KAFKAS[request.api](request, cluster, permissions)

    def of(key: str) -> Resource:
        return Resource(ResourceType.TRANSACTIONAL_ID, key)

    if hasattr(body, "coordinator_keys"):
        return ItemRule(
            Operation.DESCRIBE,
            "coordinator_keys",
            "coordinators",
            lambda _body, key, _cluster: of(key),
            refuse_key,
        )(request, cluster, permissions)
    if permissions.authorize(Operation.DESCRIBE, of(body.key)):
        return cluster.own[request.api](request, cluster)
    return respond_with(refuse_key(body.key, of(body.key)))


RULES: Mapping[Api, Rule] = {
    **dict.fromkeys(TO_CONTROLLERS, allow_anybody),
    Api.FETCH: _fetch_rule,
    Api.FIND_COORDINATOR: _coordinator_rule,
    Api.OFFSET_FOR_LEADER_EPOCH: _epochs_rule,
    Api.WRITE_TXN_MARKERS: _markers_rule,
    Api.TXN_OFFSET_COMMIT: _transaction_rule,
    Api.DELETE_RECORDS: topic_rule(Operation.DELETE),
    Api.INIT_PRODUCER_ID: _producer_id_rule,
    Api.DESCRIBE_LOG_DIRS: cluster_rule(Operation.DESCRIBE),
    Api.DESCRIBE_ACLS: cluster_rule(Operation.DESCRIBE),
    Api.DESCRIBE_CLIENT_QUOTAS: cluster_rule(Operation.DESCRIBE_CONFIGS),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster_rule(Operation.DESCRIBE),
}
"""Where they are others than those of a server of Muster's own."""
