"""What each API requires of its principal, and how it is refused.

The one place where access lists meet requests. A request of many things is cut: what its principal
may ask goes on, the rest is refused beside it, and nobody is told whether it exists. An API that
has no rule here is refused whole; a test sees that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from coordinator.core.events import (
    AlterConfig,
    Answer,
    Caller,
    ConfigureGroup,
    DeleteGroup,
    Event,
    OffsetDelete,
)
from coordinator.core.state import TopicView
from coordinator.errors import ErrorCode
from coordinator.wire.acls import CLUSTER, OPERATIONS, Operation, Resource
from coordinator.wire.apis.admin_apis import HANDLERS as ADMIN
from coordinator.wire.apis.cluster_apis import GROUP_KEY
from coordinator.wire.apis.group_apis import HANDLERS
from coordinator.wire.call import Call, Cluster, ready
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.decoder import WireError
from coordinator.wire.item_rules import (
    Each,
    May,
    configured,
    cut,
    group_named,
    group_of,
    key_of,
    refusal_of,
    refused_group,
    refused_key,
    refused_resource,
    refused_topic,
    topic_named,
    topic_of,
)

TOP_LEVEL_ERROR_SINCE = 2
"""Of OffsetFetch; before, each partition had the group's error."""
AUDITED = {
    Api.DELETE_GROUPS,
    Api.OFFSET_DELETE,
    Api.ALTER_CONFIGS,
    Api.INCREMENTAL_ALTER_CONFIGS,
}
"""APIs by which something is deleted or altered: the log says who did it."""
WITH_OPERATIONS = {
    Api.METADATA,
    Api.DESCRIBE_GROUPS,
    Api.DESCRIBE_CLUSTER,
    Api.CONSUMER_GROUP_DESCRIBE,
}
"""APIs that say, if they are asked, what their principal may do."""
NOTHING: Mapping[str, object] = {"config_resources": (), "results": (), "topics": (), "nodes": ()}
"""What requests of the cluster that are refused bring, whatever they call it."""


Rule: TypeAlias = Callable[[Request, Cluster, May], Call]


def call_of(request: Request, cluster: Cluster) -> Call:
    """Return what is to be done for a request, as far as its principal may ask it, and by whom.

    Raises
    ------
    WireError
        There is no rule for the API: better no answer than one to the wrong client.
    """
    call = _allowed(request, cluster)
    if request.api in AUDITED and call.events:
        session = request.session
        by = Caller(session.principal, request.client_id, session.host)
        call.events = [_asked_by(event, by) for event in call.events]
    return call


def _asked_by(event: Event, by: Caller) -> Event:
    if isinstance(event, DeleteGroup | OffsetDelete | AlterConfig | ConfigureGroup):
        return replace(event, by=by)
    return event


def _allowed(request: Request, cluster: Cluster) -> Call:
    """Return the call of what the principal may ask."""
    acls, session = cluster.acls(), request.session
    if acls is None:
        if request.api not in WITH_OPERATIONS:
            return HANDLERS[request.api](request, cluster)
        return _with_operations(request, cluster, _anybody, May(session, cluster, None))
    if acls is request.allowed_by:
        return HANDLERS[request.api](request, cluster)
    rule = RULES.get(request.api)
    if rule is None:
        raise WireError(f"{request.api.name} has no rule of authorization: it is not served")
    may = May(session, cluster, acls)
    if request.api in WITH_OPERATIONS:
        return _with_operations(request, cluster, rule, may)
    return rule(request, cluster, may)


def _describe(request: Request, cluster: Cluster, may: May) -> Call:
    """ConsumerGroupDescribe: a group is shown only with topics that may be described."""
    rule = Each(Operation.DESCRIBE, "group_ids", "groups", group_of, refused_group)
    call = rule(request, cluster, may)

    def respond(answers: Sequence[Answer]) -> Values:
        groups: Any = call.respond(answers)["groups"]
        return {"groups": [shown(group) for group in groups]}

    def shown(group: Mapping[str, Any]) -> Values:
        names = {
            topic["topic_name"]
            for member in group["members"]
            for of in ("assignment", "target_assignment")
            for topic in member[of]["topic_partitions"]
        }
        for name in sorted(names):
            if not may.see(Operation.DESCRIBE, topic_named(name)):
                return refused_group(group["group_id"], topic_named(name)) | {
                    "error_message": "The group has topics that the client may not describe."
                }
        return group

    return replace(call, respond=respond)


# Requests of one group ---------------------------------------------------------------------------


def _heartbeat(request: Request, cluster: Cluster, may: May) -> Call:
    """ConsumerGroupHeartbeat: READ of the group, DESCRIBE of every topic that is named."""
    of: Resource | None = group_named(request.body.group_id)
    if may(Operation.READ, group_named(request.body.group_id)):
        names = request.body.subscribed_topic_names or ()
        topics = map(topic_named, names)
        of = next((topic for topic in topics if not may(Operation.DESCRIBE, topic)), None)
    if of is None:
        request.allowed_by = may.acls  # by which it was allowed: there may be new ones now
        return HANDLERS[request.api](request, cluster)
    return ready(refusal_of(of) | {"member_epoch": 0, "heartbeat_interval": 0})


def _offset_commit(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetCommit: READ of the group and of each topic."""
    group = group_named(request.body.group_id)
    if may(Operation.READ, group):
        return _of_topics(Operation.READ)(request, cluster, may)
    return ready({"topics": [refused_topic(topic, group) for topic in request.body.topics]})


def _offset_delete(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetDelete: DELETE of the group, READ of each topic."""
    group = group_named(request.body.group_id)
    if may(Operation.DELETE, group):
        return _of_topics(Operation.READ)(request, cluster, may)
    return ready(refusal_of(group) | {"topics": ()})


def _of_topics(operation: Operation, asked: str = "topics", answered: str = "topics") -> Each:
    return Each(operation, asked, answered, topic_of, refused_topic)


def _offset_fetch(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetFetch: DESCRIBE of each group and topic; of all topics, those that may be described."""
    body = request.body
    several = hasattr(body, "groups")
    groups, refusals, denied = [], [], []
    for group in body.groups if several else [body]:
        of = group_named(group.group_id)
        if not may(Operation.DESCRIBE, of):
            refusals.append(_refused_offsets(group, of, request.version))
            continue
        named = [(one, topic_of(body, one, cluster)) for one in group.topics or ()]
        allowed, refused = cut(named, Operation.DESCRIBE, may)
        denied.append([refused_topic(one, of) for one, of in refused])
        groups.append(replace(group, topics=tuple(allowed)) if refused else group)
    if not groups:
        return ready(refusals[0] | {"groups": refusals})
    asked = replace(body, groups=tuple(groups)) if several else groups[0]
    call = HANDLERS[request.api](replace(request, body=asked), cluster)

    def respond(answers: Sequence[Answer]) -> Values:
        found: Any = call.respond(answers)["groups"]
        pairs = zip(found, denied, strict=True)
        shown = [_visible_offsets(group, refused, may) for group, refused in pairs]
        return shown[0] | {"groups": [*shown, *refusals]}

    return replace(call, respond=respond)


def _visible_offsets(
    group: dict[str, Any], refused: Sequence[Values], may: May
) -> dict[str, object]:
    """Return a group's offsets, of topics that may be described, and the refusals of the others."""
    topics = [
        topic
        for topic in group["topics"]
        if topic["name"] is None or may.see(Operation.DESCRIBE, topic_named(topic["name"]))
    ]
    return group | {"topics": [*topics, *refused]}


def _refused_offsets(group: Any, of: Resource, version: int) -> dict[str, object]:  # noqa: ANN401
    """Refuse all offsets of a group."""
    asked = (group.topics or ()) if version < TOP_LEVEL_ERROR_SINCE else ()
    topics = [refused_topic(topic, of) for topic in asked]
    return refusal_of(of) | {"group_id": group.group_id, "topics": topics}


# Requests of the cluster -------------------------------------------------------------------------


def _anybody(request: Request, cluster: Cluster, _may: May) -> Call:
    return HANDLERS[request.api](request, cluster)


def _of_cluster(operation: Operation) -> Rule:
    """Return the rule of a request that needs something of the cluster."""

    def rule(request: Request, cluster: Cluster, may: May) -> Call:
        if may(operation, CLUSTER):
            return HANDLERS[request.api](request, cluster)
        return ready({**refusal_of(CLUSTER), **NOTHING})

    return rule


def _find_coordinator(request: Request, cluster: Cluster, may: May) -> Call:
    """FindCoordinator: DESCRIBE of each group."""
    body = request.body
    if hasattr(body, "coordinator_keys"):
        rule = Each(Operation.DESCRIBE, "coordinator_keys", "coordinators", key_of, refused_key)
        return rule(request, cluster, may)
    group = group_named(body.key)
    if getattr(body, "key_type", GROUP_KEY) != GROUP_KEY or may(Operation.DESCRIBE, group):
        return HANDLERS[request.api](request, cluster)
    return ready(refused_key(body.key, group))


def _list_groups(request: Request, cluster: Cluster, may: May) -> Call:
    """ListGroups: all of them with DESCRIBE of the cluster, else those that may be described."""
    call = HANDLERS[request.api](request, cluster)
    if may.see(Operation.DESCRIBE, CLUSTER):
        return call

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        groups: Any = values["groups"]
        shown = [one for one in groups if may.see(Operation.DESCRIBE, group_named(one["group_id"]))]
        return {**values, "groups": shown}

    return replace(call, respond=respond)


def _metadata(request: Request, cluster: Cluster, may: May) -> Call:
    """Metadata: DESCRIBE of each topic; of all topics, those that may be described."""
    asked = request.body.topics
    handler = HANDLERS[request.api]
    if asked is None or (request.version == 0 and not asked):

        def visible() -> TopicView:
            by_name = cluster.topics().by_name
            return TopicView.of(
                {
                    name: by_name[name]
                    for name in by_name
                    if may.see(Operation.DESCRIBE, topic_named(name))
                }
            )

        return handler(request, replace(cluster, topics=visible))
    named = [(one, topic_of(request.body, one, cluster)) for one in asked]
    allowed, refused = cut(named, Operation.DESCRIBE, may)
    if not refused:
        return handler(request, cluster)
    # Of no topics, version 0 would list all: one without a name finds none.
    call = handler(request.asking_for("topics", allowed or asked[:1]), cluster)
    refusals = [
        {
            "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "name": one.name,
            "topic_id": getattr(one, "topic_id", None),
            "partitions": (),
        }
        for one, _ in refused
    ]

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        answered: Any = values["topics"] if allowed else ()
        return {**values, "topics": [*answered, *refusals]}

    return replace(call, respond=respond)


# What a principal may do --------------------------------------------------------------------------


def _with_operations(request: Request, cluster: Cluster, rule: Rule, may: May) -> Call:
    """Return the call of a rule whose response says, if it is asked to, what may be done."""
    body = request.body
    if getattr(body, "include_topic_authorized_operations", False):
        cluster = replace(cluster, operations=lambda name: _bits(topic_named(name), may))
    call = rule(request, cluster, may)
    of_groups = getattr(body, "include_authorized_operations", False)
    of_cluster = getattr(body, "include_cluster_authorized_operations", False)
    if not of_groups and not of_cluster:
        return call

    def respond(answers: Sequence[Answer]) -> Values:
        values = dict(call.respond(answers))
        if of_cluster:
            seen = may.see(Operation.DESCRIBE, CLUSTER)
            values["cluster_authorized_operations"] = _bits(CLUSTER, may) if seen else 0
        if of_groups:
            groups: Any = values["groups"]
            values["groups"] = [_operable(group, may) for group in groups]
        return values

    return replace(call, respond=respond)


def _operable(group: Mapping[str, Any], may: May) -> Mapping[str, Any]:
    """Return a group with what may be done with it, if it was found."""
    if group.get("error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return group
    return {**group, "authorized_operations": _bits(group_named(group["group_id"]), may)}


def _bits(of: Resource, may: May) -> int:
    """Return the operations that are allowed, each as the bit of its code (KIP-430)."""
    return sum(1 << operation for operation in OPERATIONS[of.type] if may.see(operation, of))


ALTER_EACH = Each(Operation.ALTER_CONFIGS, "resources", "responses", configured, refused_resource)
RULES: dict[Api, Rule] = dict.fromkeys(ADMIN, _of_cluster(Operation.DESCRIBE)) | {
    Api.LIST_TRANSACTIONS: _anybody,
    Api.PRODUCE: _of_topics(Operation.WRITE, "topic_data", "responses"),
    Api.FETCH: _of_topics(Operation.READ, answered="responses"),
    Api.LIST_OFFSETS: _of_topics(Operation.DESCRIBE),
    Api.METADATA: _metadata,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.OFFSET_FETCH: _offset_fetch,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.DESCRIBE_GROUPS: Each(Operation.DESCRIBE, "groups", "groups", group_of, refused_group),
    Api.LIST_GROUPS: _list_groups,
    Api.SASL_HANDSHAKE: _anybody,
    Api.API_VERSIONS: _anybody,
    Api.DESCRIBE_CONFIGS: Each(
        Operation.DESCRIBE_CONFIGS, "resources", "results", configured, refused_resource
    ),
    Api.SASL_AUTHENTICATE: _anybody,
    Api.DELETE_GROUPS: Each(Operation.DELETE, "groups_names", "results", group_of, refused_group),
    Api.ALTER_CONFIGS: ALTER_EACH,
    Api.INCREMENTAL_ALTER_CONFIGS: ALTER_EACH,
    Api.LIST_CONFIG_RESOURCES: _of_cluster(Operation.DESCRIBE_CONFIGS),
    Api.OFFSET_DELETE: _offset_delete,
    Api.DESCRIBE_CLUSTER: _anybody,
    Api.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: _describe,
}
"""What each API needs (KafkaApis.scala)."""
