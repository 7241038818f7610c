"""Requests about many resources, each of which is authorized alone.

What may be asked goes on to the handler, the rest is refused beside its answers in the words of the
response, without saying whether it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator.core.events import Answer
from coordinator.errors import ErrorCode
from coordinator.wire.acls import CLUSTER, Acls, Operation, Resource, ResourceType
from coordinator.wire.apis.cluster_apis import GROUP_KEY
from coordinator.wire.apis.config_apis import GROUP, TOPIC
from coordinator.wire.apis.group_apis import find_handler
from coordinator.wire.call import NO_NODE, Call, Cluster, from_uuid, respond_with
from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.session import Session

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Permissions:
    """What the principal of a request may do; a denied request is noted for the audit."""

    __slots__ = ("_note_denial", "_session", "acls")

    def __init__(self, session: Session, cluster: Cluster, acls: Acls | None) -> None:
        self._session, self.acls = session, acls
        self._note_denial = cluster.note_denial

    def authorize(self, operation: Operation, of: Resource) -> bool:
        """Whether the principal may do what it requested; a denial is noted."""
        allowed = self.allows(operation, of)
        if not allowed:
            self._note_denial(self._session, operation, of)
        return allowed

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may do something with some resource of a kind."""
        session = self._session
        return self.acls is None or self.acls.allows_any(
            session.principal, session.host, operation, kind
        )

    def allows(self, operation: Operation, of: Resource) -> bool:
        """Whether the principal may do something it did not request by name; nothing is noted."""
        return self.acls is None or self._session.may(self.acls, operation, of)


def refusal_fields(of: Resource) -> dict[str, object]:
    """Return the error fields of an unauthorized resource, in Kafka's words."""
    code = REFUSALS[of.type]
    return {"error_code": code, "error_message": f"Not authorized to access {of.type.name}."}


def group_resource(name: str) -> Resource:
    """Return the resource of a group."""
    return Resource(ResourceType.GROUP, name)


def topic_resource(name: str) -> Resource:
    """Return the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def resource_of_topic(_body: Any, item: Any, cluster: Cluster) -> Resource | None:  # noqa: ANN401 - kio's
    """Return the topic that an item names; None for an unknown topic id, which is not secret."""
    topic_id = getattr(item, "topic_id", None)
    name = getattr(item, "name", None) or getattr(item, "topic", None)
    if topic_id is not None:
        known = cluster.topics().by_id.get(from_uuid(topic_id))
        name = known.key.name if known else None
    return None if name is None else topic_resource(name)


def resource_of_group(_body: Any, item: str, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    """Return the group that an item names."""
    return group_resource(item)


def resource_of_key(body: Any, item: str, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    """Return the group of a coordinator key; None for another kind of key."""
    return group_resource(item) if body.key_type == GROUP_KEY else None


def resource_of_config(_body: Any, item: Any, _cluster: Cluster) -> Resource | None:  # noqa: ANN401
    """Return the resource whose settings an item names: a topic, a group, else the cluster."""
    if item.resource_type == TOPIC:
        return topic_resource(item.resource_name)
    return group_resource(item.resource_name) if item.resource_type == GROUP else CLUSTER


ANSWERED_ONCE = {Api.METADATA, Api.DELETE_GROUPS}
"""What is asked for twice has one answer there."""


@dataclass(frozen=True, slots=True)
class ItemRule:
    """The rule of a request with many items, each authorized alone.

    Attributes
    ----------
    operation
        What is needed on each.
    request_field, response_field
        The field that lists them, in the request and in the response.
    resource_of
        What an element names; for None the handler answers any client.
    refuse
        The answer to an element that may not be asked.
    """

    operation: Operation
    request_field: str
    response_field: str
    resource_of: Callable[[Any, Any, Cluster], Resource | None]
    refuse: Callable[[Any, Resource], Values]

    def __call__(self, request: Request, cluster: Cluster, permissions: Permissions) -> Call:
        """Answer the authorized items, and refuse the others."""
        asked: Iterable[Any] = getattr(request.body, self.request_field)
        if request.api in ANSWERED_ONCE:
            asked = dict.fromkeys(asked)
        named = [(item, self.resource_of(request.body, item, cluster)) for item in asked]
        allowed, refused = split_by_permission(named, self.operation, permissions)
        handler = find_handler(request.api, cluster)
        if not refused:
            return handler(request, cluster)
        refusals = [self.refuse(item, of) for item, of in refused]
        if not allowed:
            return respond_with({"error_code": ErrorCode.NONE, self.response_field: refusals})
        return add_refusals(
            handler(request.with_items(self.request_field, allowed), cluster),
            self.response_field,
            refusals,
        )


def split_by_permission(
    named: Iterable[tuple[Any, Resource | None]], operation: Operation, permissions: Permissions
) -> tuple[list[Any], list[tuple[Any, Resource]]]:
    """Return the authorized items, and the others with their resources."""
    allowed: list[Any] = []
    refused: list[tuple[Any, Resource]] = []
    for item, of in named:
        if of is None or permissions.authorize(operation, of):
            allowed.append(item)
        else:
            refused.append((item, of))
    return allowed, refused


def add_refusals(call: Call, name: str, refusals: Sequence[Values]) -> Call:
    """Return a call whose response lists the refusals after the answers."""

    def respond(answers: Sequence[Answer]) -> Values:
        values = call.respond(answers)
        answered: Any = values[name]
        return {**values, name: [*answered, *refusals]}

    return replace(call, respond=respond)


def _partitions(topic: Any) -> Iterable[int]:  # noqa: ANN401 - one of kio's classes
    """Return the partitions that an element of a request names, under any field's name."""
    fetched: Iterable[int] | None = getattr(topic, "partition_indexes", None)
    if fetched is not None:
        return fetched
    names = ("partition_index", "partition", "index")
    parts: Any = topic.partition_data if hasattr(topic, "partition_data") else topic.partitions
    return [next(getattr(one, n) for n in names if hasattr(one, n)) for one in parts]


def refuse_topic(item: Any, of: Resource) -> Values:  # noqa: ANN401 - one of kio's classes
    """Refuse each partition of a topic, in the words of every response that has some."""
    code = REFUSALS[of.type]
    partitions = [
        {
            "partition_index": partition,
            "partition": partition,
            "index": partition,
            "error_code": code,
            "committed_offset": -1,
            "committed_leader_epoch": -1,
            "metadata": "",
            "base_offset": -1,
            "record_errors": (),
            "error_message": None,
            "high_watermark": -1,
            "low_watermark": -1,
            "leader_epoch": -1,
            "end_offset": -1,
            "aborted_transactions": (),
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


def refuse_group(group_id: str, of: Resource) -> dict[str, object]:
    """Refuse a group, in the words of every response that has some."""
    return refusal_fields(of) | {
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


def refuse_key(key: str, of: Resource) -> Values:
    """Refuse to name the coordinator of a group."""
    return {**refusal_fields(of), **NO_NODE._asdict(), "key": key}


def refuse_config(item: Any, of: Resource) -> Values:  # noqa: ANN401 - one of kio's classes
    """Refuse the settings of a group or topic."""
    asked = {"resource_type": item.resource_type, "resource_name": item.resource_name}
    return refusal_fields(of) | asked | {"configs": ()}
