"""authorization: what a request may ask, by Kafka's rules for each API, and how it is refused.

The one place where access lists meet requests. A request of many things is cut: what its principal
may ask goes on, the rest is refused beside it, and nobody is told whether it exists. An API that
has no rule here is refused whole; a test sees that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from coordinator.acls import CLUSTER, OPERATIONS, Acls, Operation, Resource, ResourceType
from coordinator.errors import ErrorCode
from coordinator.events import (
    AlterConfig,
    Caller,
    ConfigureGroup,
    DeleteGroup,
    Event,
    OffsetDelete,
)
from coordinator.runner import Answer
from coordinator.state import TopicView
from coordinator.wire.admin import HANDLERS as ADMIN
from coordinator.wire.calls import Call, Cluster, id_of, ready
from coordinator.wire.cluster import GROUP_KEY, NOBODY
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.configs import GROUP, TOPIC
from coordinator.wire.reading import WireError
from coordinator.wire.requests import HANDLERS
from coordinator.wire.session import Session

TOP_LEVEL_ERROR_SINCE = 2
"""Of OffsetFetch; before, each partition had the group's error."""
REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
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


class May:
    """What the principal of a request may do: asked of what it wants, a no is a denial."""

    __slots__ = ("_note_denial", "_session", "acls")

    def __init__(self, session: Session, cluster: Cluster, acls: Acls | None) -> None:
        self._session, self.acls = session, acls
        self._note_denial = cluster.note_denial

    def __call__(self, operation: Operation, of: Resource) -> bool:
        """Whether it may do what it asked for."""
        allowed = self.see(operation, of)
        if not allowed:
            self._note_denial(self._session, operation, of)
        return allowed

    def see(self, operation: Operation, of: Resource) -> bool:
        """Whether it may do something that it did not ask for: a part of all there is, say."""
        return self.acls is None or self._session.may(self.acls, operation, of)


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


def _refused(of: Resource) -> dict[str, object]:
    code = REFUSALS[of.type]
    return {"error_code": code, "error_message": f"Not authorized to access {of.type.name}."}


def _group(name: str) -> Resource:
    return Resource(ResourceType.GROUP, name)


def _topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


# Requests of many things -------------------------------------------------------------------------


def _topic_of(_body: Any, item: Any, cluster: Cluster) -> Resource | None:  # noqa: ANN401 - kio's
    """Return the topic that an element names; of an id that nothing has, None: it is no secret."""
    topic_id = getattr(item, "topic_id", None)
    name = getattr(item, "name", None) or getattr(item, "topic", None)
    if topic_id is not None:
        known = cluster.topics().by_id.get(id_of(topic_id))
        name = known.key.name if known else None
    return None if name is None else _topic(name)


def _group_of(_body: Any, item: str, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    return _group(item)


def _key_of(body: Any, item: str, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    return _group(item) if body.key_type == GROUP_KEY else None


def _configured(_body: Any, item: Any, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    """Return whose settings an element names; what is neither a topic nor a group, the cluster."""
    if item.resource_type == TOPIC:
        return _topic(item.resource_name)
    return _group(item.resource_name) if item.resource_type == GROUP else CLUSTER


@dataclass(frozen=True, slots=True)
class Each:
    """The rule of a request of many things, each of which is allowed or refused alone.

    Attributes
    ----------
    operation
        What is needed on each.
    asked, answered
        The field that lists them, in the request and in the response.
    of
        What an element names; None has its answer from the handler, whoever asks.
    refuse
        The answer to an element that may not be asked.
    """

    operation: Operation
    asked: str
    answered: str
    of: Callable[[Any, Any, Cluster], Resource | None]
    refuse: Callable[[Any, Resource], Values]

    def __call__(self, request: Request, cluster: Cluster, may: May) -> Call:
        """Have what may be asked answered, and refuse the rest."""
        named = [
            (item, self.of(request.body, item, cluster))
            for item in getattr(request.body, self.asked)
        ]
        allowed, refused = _cut(named, self.operation, may)
        handler = HANDLERS[request.api]
        if not refused:
            return handler(request, cluster)
        refusals = [self.refuse(item, of) for item, of in refused]
        if not allowed:
            return ready({"error_code": ErrorCode.NONE, self.answered: refusals})
        return _joined(
            handler(_with(request, self.asked, allowed), cluster), self.answered, refusals
        )


def _cut(
    named: Iterable[tuple[Any, Resource | None]], operation: Operation, may: May
) -> tuple[list[Any], list[tuple[Any, Resource]]]:
    """Return the elements that may be asked, and those that may not with what they name."""
    allowed: list[Any] = []
    refused: list[tuple[Any, Resource]] = []
    for item, of in named:
        if of is None or may(operation, of):
            allowed.append(item)
        else:
            refused.append((item, of))
    return allowed, refused


def _with(request: Request, name: str, items: Sequence[Any]) -> Request:
    """Return a request that asks only for these."""
    return replace(request, body=replace(request.body, **{name: tuple(items)}))


def _joined(call: Call, name: str, refusals: Sequence[Values]) -> Call:
    """Return a call whose response lists refusals beside the answers."""

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        answered: Any = values[name]
        return {**values, name: [*answered, *refusals]}

    return replace(call, respond=respond)


def _partitions(topic: Any) -> Iterable[int]:  # noqa: ANN401 - one of kio's classes
    """Return the partitions that an element of a request names, whatever the field is called."""
    fetched: Iterable[int] | None = getattr(topic, "partition_indexes", None)
    if fetched is not None:
        return fetched
    names = ("partition_index", "partition", "index")
    parts: Any = getattr(topic, "partition_data", None) or topic.partitions
    return [next(getattr(one, n) for n in names if hasattr(one, n)) for one in parts]


def _refused_topic(item: Any, of: Resource) -> Values:  # noqa: ANN401 - one of kio's classes
    """Refuse each partition of a topic, in the words of every response that has some."""
    code = REFUSALS[of.type]
    partitions = [
        {
            "partition_index": partition,
            "index": partition,
            "error_code": code,
            "committed_offset": -1,
            "committed_leader_epoch": -1,
            "metadata": "",
            "base_offset": -1,
            "record_errors": (),
            "error_message": None,
            "high_watermark": -1,
            "aborted_transactions": None,
            "records": b"",
        }
        for partition in _partitions(item)
    ]
    return {
        "name": getattr(item, "name", None) or getattr(item, "topic", None),
        "topic": getattr(item, "topic", None),
        "topic_id": getattr(item, "topic_id", None),
        "partitions": partitions,
        "partition_responses": partitions,
    }


def _refused_group(group_id: str, of: Resource) -> dict[str, object]:
    return _refused(of) | {
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def _refused_key(key: str, of: Resource) -> Values:
    return {**_refused(of), **NOBODY, "key": key}


def _refused_resource(item: Any, of: Resource) -> Values:  # noqa: ANN401 - one of kio's classes
    asked = {"resource_type": item.resource_type, "resource_name": item.resource_name}
    return _refused(of) | asked | {"configs": ()}


def _describe(request: Request, cluster: Cluster, may: May) -> Call:
    """ConsumerGroupDescribe: a group is shown only with topics that may be described."""
    rule = Each(Operation.DESCRIBE, "group_ids", "groups", _group_of, _refused_group)
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
            if not may.see(Operation.DESCRIBE, _topic(name)):
                return _refused_group(group["group_id"], _topic(name)) | {
                    "error_message": "The group has topics that the client may not describe."
                }
        return group

    return replace(call, respond=respond)


# Requests of one group ---------------------------------------------------------------------------


def _heartbeat(request: Request, cluster: Cluster, may: May) -> Call:
    """ConsumerGroupHeartbeat: READ of the group, DESCRIBE of every topic that is named."""
    of: Resource | None = _group(request.body.group_id)
    if may(Operation.READ, _group(request.body.group_id)):
        names = request.body.subscribed_topic_names or ()
        topics = map(_topic, names)
        of = next((topic for topic in topics if not may(Operation.DESCRIBE, topic)), None)
    if of is None:
        request.allowed_by = may.acls  # by which it was allowed: there may be new ones now
        return HANDLERS[request.api](request, cluster)
    return ready(_refused(of) | {"member_epoch": 0, "heartbeat_interval": 0})


def _offset_commit(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetCommit: READ of the group and of each topic."""
    group = _group(request.body.group_id)
    if may(Operation.READ, group):
        return _of_topics(Operation.READ)(request, cluster, may)
    return ready({"topics": [_refused_topic(topic, group) for topic in request.body.topics]})


def _offset_delete(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetDelete: DELETE of the group, READ of each topic."""
    group = _group(request.body.group_id)
    if may(Operation.DELETE, group):
        return _of_topics(Operation.READ)(request, cluster, may)
    return ready(_refused(group) | {"topics": ()})


def _of_topics(operation: Operation, asked: str = "topics", answered: str = "topics") -> Each:
    return Each(operation, asked, answered, _topic_of, _refused_topic)


def _offset_fetch(request: Request, cluster: Cluster, may: May) -> Call:
    """OffsetFetch: DESCRIBE of each group and topic; of all topics, those that may be described."""
    body = request.body
    several = hasattr(body, "groups")
    groups, refusals, denied = [], [], []
    for group in body.groups if several else [body]:
        of = _group(group.group_id)
        if not may(Operation.DESCRIBE, of):
            refusals.append(_refused_offsets(group, of, request.version))
            continue
        named = [(one, _topic_of(body, one, cluster)) for one in group.topics or ()]
        allowed, refused = _cut(named, Operation.DESCRIBE, may)
        denied.append([_refused_topic(one, of) for one, of in refused])
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
        if topic["name"] is None or may.see(Operation.DESCRIBE, _topic(topic["name"]))
    ]
    return group | {"topics": [*topics, *refused]}


def _refused_offsets(group: Any, of: Resource, version: int) -> dict[str, object]:  # noqa: ANN401
    """Refuse all offsets of a group."""
    asked = (group.topics or ()) if version < TOP_LEVEL_ERROR_SINCE else ()
    topics = [_refused_topic(topic, of) for topic in asked]
    return _refused(of) | {"group_id": group.group_id, "topics": topics}


# Requests of the cluster -------------------------------------------------------------------------


def _anybody(request: Request, cluster: Cluster, _may: May) -> Call:
    return HANDLERS[request.api](request, cluster)


def _of_cluster(operation: Operation) -> Rule:
    """Return the rule of a request that needs something of the cluster."""

    def rule(request: Request, cluster: Cluster, may: May) -> Call:
        if may(operation, CLUSTER):
            return HANDLERS[request.api](request, cluster)
        return ready({**_refused(CLUSTER), **NOTHING})

    return rule


def _find_coordinator(request: Request, cluster: Cluster, may: May) -> Call:
    """FindCoordinator: DESCRIBE of each group."""
    body = request.body
    if hasattr(body, "coordinator_keys"):
        rule = Each(Operation.DESCRIBE, "coordinator_keys", "coordinators", _key_of, _refused_key)
        return rule(request, cluster, may)
    group = _group(body.key)
    if getattr(body, "key_type", GROUP_KEY) != GROUP_KEY or may(Operation.DESCRIBE, group):
        return HANDLERS[request.api](request, cluster)
    return ready(_refused_key(body.key, group))


def _list_groups(request: Request, cluster: Cluster, may: May) -> Call:
    """ListGroups: all of them with DESCRIBE of the cluster, else those that may be described."""
    call = HANDLERS[request.api](request, cluster)
    if may.see(Operation.DESCRIBE, CLUSTER):
        return call

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        groups: Any = values["groups"]
        shown = [one for one in groups if may.see(Operation.DESCRIBE, _group(one["group_id"]))]
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
                    if may.see(Operation.DESCRIBE, _topic(name))
                }
            )

        return handler(request, replace(cluster, topics=visible))
    named = [(one, _topic_of(request.body, one, cluster)) for one in asked]
    allowed, refused = _cut(named, Operation.DESCRIBE, may)
    if not refused:
        return handler(request, cluster)
    # Of no topics, version 0 would list all: one without a name finds none.
    call = handler(_with(request, "topics", allowed or asked[:1]), cluster)
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
        cluster = replace(cluster, operations=lambda name: _bits(_topic(name), may))
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
    return {**group, "authorized_operations": _bits(_group(group["group_id"]), may)}


def _bits(of: Resource, may: May) -> int:
    """Return the operations that are allowed, each as the bit of its code (KIP-430)."""
    return sum(1 << operation for operation in OPERATIONS[of.type] if may.see(operation, of))


ALTER_EACH = Each(Operation.ALTER_CONFIGS, "resources", "responses", _configured, _refused_resource)
RULES: dict[Api, Rule] = dict.fromkeys(ADMIN, _of_cluster(Operation.DESCRIBE)) | {
    Api.LIST_TRANSACTIONS: _anybody,
    Api.PRODUCE: _of_topics(Operation.WRITE, "topic_data", "responses"),
    Api.FETCH: _of_topics(Operation.READ, answered="responses"),
    Api.LIST_OFFSETS: _of_topics(Operation.DESCRIBE),
    Api.METADATA: _metadata,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.OFFSET_FETCH: _offset_fetch,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.DESCRIBE_GROUPS: Each(Operation.DESCRIBE, "groups", "groups", _group_of, _refused_group),
    Api.LIST_GROUPS: _list_groups,
    Api.SASL_HANDSHAKE: _anybody,
    Api.API_VERSIONS: _anybody,
    Api.DESCRIBE_CONFIGS: Each(
        Operation.DESCRIBE_CONFIGS, "resources", "results", _configured, _refused_resource
    ),
    Api.SASL_AUTHENTICATE: _anybody,
    Api.DELETE_GROUPS: Each(Operation.DELETE, "groups_names", "results", _group_of, _refused_group),
    Api.ALTER_CONFIGS: ALTER_EACH,
    Api.INCREMENTAL_ALTER_CONFIGS: ALTER_EACH,
    Api.LIST_CONFIG_RESOURCES: _of_cluster(Operation.DESCRIBE_CONFIGS),
    Api.OFFSET_DELETE: _offset_delete,
    Api.DESCRIBE_CLUSTER: _anybody,
    Api.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: _describe,
}
"""What each API needs (KafkaApis.scala)."""
