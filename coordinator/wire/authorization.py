"""What each API requires of its principal, and how it is refused.

The one place where access lists meet requests. A request of many things is cut: what its principal
may ask goes on, the rest is refused beside it, without saying whether it exists. An API without a
rule here is refused as a whole; a test checks that every API has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.core.events import (
    AlterConfig,
    Answer,
    Caller,
    ConfigureGroup,
    DeleteGroup,
    Event,
    OffsetDelete,
)
from coordinator.core.state.groups import TopicView
from coordinator.errors import ErrorCode
from coordinator.wire.acls import CLUSTER, OPERATIONS, Operation, Resource
from coordinator.wire.apis.admin_apis import HANDLERS as ADMIN
from coordinator.wire.apis.classic_apis import CLASSIC_HANDLERS, NO_PROTOCOL_SINCE, is_unnamed
from coordinator.wire.apis.cluster_apis import GROUP_KEY, NO_NAME_SINCE, refuse_unanswered
from coordinator.wire.apis.group_apis import find_handler
from coordinator.wire.call import Call, Cluster, Rule, respond_with
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.decoder import WireError
from coordinator.wire.item_rules import (
    ItemRule,
    Permissions,
    group_resource,
    refusal_fields,
    refuse_config,
    refuse_group,
    refuse_key,
    refuse_topic,
    resource_of_config,
    resource_of_group,
    resource_of_key,
    resource_of_topic,
    split_by_permission,
    topic_resource,
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
NOTHING: Mapping[str, object] = {
    "config_resources": (), "results": (), "topics": (), "nodes": (),
    "resources": (), "entries": None,
}  # fmt: skip
"""What refused requests of the cluster are about, under any field's name."""


def authorize_request(request: Request, cluster: Cluster) -> Call:
    """Return the call of a request, restricted to what its principal may do.

    Raises
    ------
    WireError
        The API has no rule: better no answer than one to the wrong client.
    """
    call = _apply_rule(request, cluster)
    if request.api in AUDITED and call.events:
        session = request.session
        by = Caller(session.principal, request.client_id, session.host)
        call.events = [_add_caller(event, by) for event in call.events]
    return call


def _add_caller(event: Event, by: Caller) -> Event:
    if isinstance(event, DeleteGroup | OffsetDelete | AlterConfig | ConfigureGroup):
        return msgspec.structs.replace(event, by=by)
    return event


def _apply_rule(request: Request, cluster: Cluster) -> Call:
    """Apply the rule of the request's API."""
    acls, session = cluster.acls(), request.session
    if acls is None:
        if request.api not in WITH_OPERATIONS:
            return find_handler(request.api, cluster)(request, cluster)
        return _add_operations(request, cluster, allow_anybody, Permissions(session, cluster, None))
    if request.conversation.is_allowed(request.body, acls):
        return find_handler(request.api, cluster)(request, cluster)
    rule = cluster.rules.get(request.api) or RULES.get(request.api)
    if rule is None:
        raise WireError(f"{request.api.name} has no rule of authorization: it is not served")
    permissions = Permissions(session, cluster, acls)
    if request.api in WITH_OPERATIONS:
        return _add_operations(request, cluster, rule, permissions)
    return rule(request, cluster, permissions)


def _describe(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """ConsumerGroupDescribe: a group is shown only with topics that may be described."""
    rule = ItemRule(Operation.DESCRIBE, "group_ids", "groups", resource_of_group, refuse_group)
    call = rule(request, cluster, permissions)

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
            if not permissions.allows(Operation.DESCRIBE, topic_resource(name)):
                return refuse_group(group["group_id"], topic_resource(name)) | {
                    "error_message": "The group has topics that the client may not describe."
                }
        return group

    return replace(call, respond=respond)


# Requests of one group ---------------------------------------------------------------------------


def _heartbeat(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """ConsumerGroupHeartbeat: READ of the group, DESCRIBE of every topic that is named."""
    of: Resource | None = group_resource(request.body.group_id)
    if permissions.authorize(Operation.READ, group_resource(request.body.group_id)):
        names = request.body.subscribed_topic_names or ()
        topics = map(topic_resource, names)
        of = next(
            (topic for topic in topics if not permissions.authorize(Operation.DESCRIBE, topic)),
            None,
        )
    if of is None:
        # by which it was allowed: there may be new ones now
        request.conversation.note_allowed(request.body, permissions.acls)
        return find_handler(request.api, cluster)(request, cluster)
    return respond_with(refusal_fields(of) | {"member_epoch": 0, "heartbeat_interval": 0})


def _classic(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup: READ of the group (H-3)."""
    body, api = request.body, request.api
    group = group_resource(body.group_id)
    unnamed = api is Api.SYNC_GROUP and is_unnamed(request)
    if unnamed or permissions.authorize(Operation.READ, group):
        return find_handler(api, cluster)(request, cluster)
    named = api is Api.JOIN_GROUP and request.version < NO_PROTOCOL_SINCE
    refused = {
        "member_id": getattr(body, "member_id", ""), "leader": "",
        "protocol_name": "" if named else None,
    }  # fmt: skip
    return respond_with(refusal_fields(group) | refused | {"members": (), "assignment": b""})


def _offset_commit(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """OffsetCommit: READ of the group and of each topic."""
    group = group_resource(request.body.group_id)
    if permissions.authorize(Operation.READ, group):
        return topic_rule(Operation.READ)(request, cluster, permissions)
    return respond_with({"topics": [refuse_topic(topic, group) for topic in request.body.topics]})


def _offset_delete(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """OffsetDelete: DELETE of the group, READ of each topic."""
    group = group_resource(request.body.group_id)
    if permissions.authorize(Operation.DELETE, group):
        return topic_rule(Operation.READ)(request, cluster, permissions)
    return respond_with(refusal_fields(group) | {"topics": ()})


def topic_rule(operation: Operation, asked: str = "topics", answered: str = "topics") -> ItemRule:
    """Return the rule of a request that lists topics, each of which needs an operation."""
    return ItemRule(operation, asked, answered, resource_of_topic, refuse_topic)


def _produce(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """Produce: WRITE of each topic; a request that wants no answer gets none, allowed or not."""
    refuse_unanswered(request)
    return topic_rule(Operation.WRITE, "topic_data", "responses")(request, cluster, permissions)


def _offset_fetch(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """OffsetFetch: DESCRIBE of each group and topic; of all topics, those that may be described."""
    body = request.body
    several = hasattr(body, "groups")
    groups, refusals, denied = [], [], []
    for group in body.groups if several else [body]:
        of = group_resource(group.group_id)
        if not permissions.authorize(Operation.DESCRIBE, of):
            refusals.append(_refuse_offsets(group, of, request.version))
            continue
        named = [(one, resource_of_topic(body, one, cluster)) for one in group.topics or ()]
        allowed, refused = split_by_permission(named, Operation.DESCRIBE, permissions)
        denied.append([refuse_topic(one, of) for one, of in refused])
        groups.append(replace(group, topics=tuple(allowed)) if refused else group)
    if not groups:
        return respond_with((refusals[0] if refusals else {}) | {"groups": refusals})
    asked = replace(body, groups=tuple(groups)) if several else groups[0]
    call = find_handler(request.api, cluster)(replace(request, body=asked), cluster)

    def respond(answers: Sequence[Answer]) -> Values:
        found: Any = call.respond(answers)["groups"]
        pairs = zip(found, denied, strict=True)
        shown = [_hide_offsets(group, refused, permissions) for group, refused in pairs]
        return shown[0] | {"groups": [*shown, *refusals]}

    return replace(call, respond=respond)


def _hide_offsets(
    group: dict[str, Any], refused: Sequence[Values], permissions: Permissions
) -> dict[str, object]:
    """Return a group's offsets, of topics that may be described, and the refusals of the others."""
    topics = [
        topic
        for topic in group["topics"]
        if topic["name"] is None
        or permissions.allows(Operation.DESCRIBE, topic_resource(topic["name"]))
    ]
    return group | {"topics": [*topics, *refused]}


def _refuse_offsets(group: Any, of: Resource, version: int) -> dict[str, object]:  # noqa: ANN401
    """Refuse all offsets of a group."""
    asked = (group.topics or ()) if version < TOP_LEVEL_ERROR_SINCE else ()
    topics = [refuse_topic(topic, of) for topic in asked]
    return refusal_fields(of) | {"group_id": group.group_id, "topics": topics}


# Requests of the cluster -------------------------------------------------------------------------


def allow_anybody(request: Request, cluster: Cluster, _permissions: Permissions) -> Call:
    """Answer every client."""
    return find_handler(request.api, cluster)(request, cluster)


def cluster_rule(operation: Operation) -> Rule:
    """Return the rule of a request that needs something of the cluster."""

    def rule(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
        if permissions.authorize(operation, CLUSTER):
            return find_handler(request.api, cluster)(request, cluster)
        return respond_with({**refusal_fields(CLUSTER), **NOTHING})

    return rule


def _find_coordinator(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """FindCoordinator: DESCRIBE of each group."""
    body = request.body
    if hasattr(body, "coordinator_keys"):
        rule = ItemRule(
            Operation.DESCRIBE, "coordinator_keys", "coordinators", resource_of_key, refuse_key
        )
        return rule(request, cluster, permissions)
    group = group_resource(body.key)
    if getattr(body, "key_type", GROUP_KEY) != GROUP_KEY or permissions.authorize(
        Operation.DESCRIBE, group
    ):
        return find_handler(request.api, cluster)(request, cluster)
    return respond_with(refuse_key(body.key, group))


def _list_groups(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """ListGroups: all of them with DESCRIBE of the cluster, else those that may be described."""
    call = find_handler(request.api, cluster)(request, cluster)
    if permissions.allows(Operation.DESCRIBE, CLUSTER):
        return call

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        groups: Any = values["groups"]
        shown = [
            one
            for one in groups
            if permissions.allows(Operation.DESCRIBE, group_resource(one["group_id"]))
        ]
        return {**values, "groups": shown}

    return replace(call, respond=respond)


def _metadata(request: Request, cluster: Cluster, permissions: Permissions) -> Call:
    """Metadata: DESCRIBE of each topic; of all topics, those that may be described."""
    asked, view = request.body.topics, cluster.topics()
    cluster = replace(cluster, topics=lambda: view)  # what is decided on is what is answered
    handler = find_handler(request.api, cluster)
    if asked is None or (request.version == 0 and not asked):

        def visible() -> TopicView:
            by_name = cluster.topics().by_name
            return TopicView.of(
                {
                    name: by_name[name]
                    for name in by_name
                    if permissions.allows(Operation.DESCRIBE, topic_resource(name))
                }
            )

        return handler(request, replace(cluster, topics=visible))
    each = dict.fromkeys(asked)
    named = [(one, resource_of_topic(request.body, one, cluster)) for one in each]
    allowed, refused = split_by_permission(named, Operation.DESCRIBE, permissions)
    if not refused:
        return handler(request, cluster)
    # Of no topics, version 0 would list all: one without a name finds none.
    call = handler(request.with_items("topics", allowed or asked[:1]), cluster)
    refusals = [
        {
            "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "name": one.name or (None if request.version >= NO_NAME_SINCE else ""),
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


def _add_operations(
    request: Request, cluster: Cluster, rule: Rule, permissions: Permissions
) -> Call:
    """Return the call of a rule whose response says, if it is asked to, what may be done."""
    body = request.body
    if getattr(body, "include_topic_authorized_operations", False):
        cluster = replace(
            cluster, operations=lambda name: _operation_bits(topic_resource(name), permissions)
        )
    call = rule(request, cluster, permissions)
    of_groups = getattr(body, "include_authorized_operations", False)
    of_cluster = getattr(body, "include_cluster_authorized_operations", False)
    if not of_groups and not of_cluster:
        return call

    def respond(answers: Sequence[Answer]) -> Values:
        values = dict(call.respond(answers))
        if of_cluster:
            seen = permissions.allows(Operation.DESCRIBE, CLUSTER)
            values["cluster_authorized_operations"] = (
                _operation_bits(CLUSTER, permissions) if seen else 0
            )
        if of_groups:
            groups: Any = values["groups"]
            values["groups"] = [_add_group_operations(group, permissions) for group in groups]
        return values

    return replace(call, respond=respond)


def _add_group_operations(group: Mapping[str, Any], permissions: Permissions) -> Mapping[str, Any]:
    """Return a group with what may be done with it, if it was found."""
    if group.get("error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return group
    return {
        **group,
        "authorized_operations": _operation_bits(group_resource(group["group_id"]), permissions),
    }


def _operation_bits(of: Resource, permissions: Permissions) -> int:
    """Return the operations that are allowed, each as the bit of its code (KIP-430)."""
    return sum(
        1 << operation for operation in OPERATIONS[of.type] if permissions.allows(operation, of)
    )


ALTER_EACH = ItemRule(
    Operation.ALTER_CONFIGS, "resources", "responses", resource_of_config, refuse_config
)
RULES: dict[Api, Rule] = dict.fromkeys(ADMIN, cluster_rule(Operation.DESCRIBE)) | {
    **dict.fromkeys(CLASSIC_HANDLERS, _classic),
    Api.LIST_TRANSACTIONS: allow_anybody,
    Api.PRODUCE: _produce,
    Api.FETCH: topic_rule(Operation.READ, answered="responses"),
    Api.LIST_OFFSETS: topic_rule(Operation.DESCRIBE),
    Api.METADATA: _metadata,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.OFFSET_FETCH: _offset_fetch,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.DESCRIBE_GROUPS: ItemRule(
        Operation.DESCRIBE, "groups", "groups", resource_of_group, refuse_group
    ),
    Api.LIST_GROUPS: _list_groups,
    Api.SASL_HANDSHAKE: allow_anybody,
    Api.API_VERSIONS: allow_anybody,
    Api.DESCRIBE_CONFIGS: ItemRule(
        Operation.DESCRIBE_CONFIGS, "resources", "results", resource_of_config, refuse_config
    ),
    Api.SASL_AUTHENTICATE: allow_anybody,
    Api.DELETE_GROUPS: ItemRule(
        Operation.DELETE, "groups_names", "results", resource_of_group, refuse_group
    ),
    Api.ALTER_CONFIGS: ALTER_EACH,
    Api.INCREMENTAL_ALTER_CONFIGS: ALTER_EACH,
    Api.LIST_CONFIG_RESOURCES: cluster_rule(Operation.DESCRIBE_CONFIGS),
    Api.OFFSET_DELETE: _offset_delete,
    Api.DESCRIBE_CLUSTER: allow_anybody,
    Api.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: _describe,
}
"""What each API needs (KafkaApis.scala)."""
