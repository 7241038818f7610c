"""Describe and alter settings of groups; describe those of topics and this node.

Sources are Kafka's: a group's own value stands before the one that this coordinator was started
with, and that before the default. Nothing but a group's settings can be altered here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode as Code

from coordinator.config.kafka import (
    GROUP_NAMES,
    KafkaConfig,
    group_defaults,
    kafka_settings,
    setting_types,
)
from coordinator.core.events import AlterConfig, Answer, DescribeConfig, ListConfiguredGroups
from coordinator.errors import GroupError
from coordinator.wire.call import Call, Cluster, is_valid_topic, respond_with
from coordinator.wire.codec import Api, Request, Values

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Types of resources."""
STATIC_SOURCE, DEFAULT_SOURCE, GROUP_SOURCE = 4, 5, 8
SET, DELETE = 0, 1
TYPES_SINCE = 1
"""Of ListConfigResources; before, it listed client metrics only."""
TOPIC_SETTINGS = {"min.insync.replicas": "1"}
"""What is true of every topic: this node is its only replica. `kafka-topics` counts with it."""
CODES = {bool: 1, str: 2, int: 3, tuple: 7}
LONG = 5
TYPES = {name: CODES[kind] for name, kind in setting_types().items()} | {
    "offsets.retention.check.interval.ms": LONG,
    **dict.fromkeys(TOPIC_SETTINGS, CODES[int]),
}
"""Kafka's types of settings, by name."""


class ConfigSynonym(NamedTuple):
    """What a setting is at one level; Kafka calls it a synonym."""

    name: str
    value: str | None
    source: int


Settings = Mapping[str, Sequence[ConfigSynonym]]
"""Settings by name, each with its levels; the first is the one that holds."""


class RefusedError(Exception):
    """A resource whose settings are not shown or altered, with the error that says so."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# Described ---------------------------------------------------------------------------------------


def describe_configs(request: Request, cluster: Cluster) -> Call:
    """DescribeConfigs: what is known of each resource."""
    asked = request.body

    def respond(answers: Sequence[Answer]) -> Values:
        found = iter(answers)
        return {
            "results": [
                _resource_fields(one)
                | _describe_resource(one, found, cluster, asked.include_synonyms)
                for one in asked.resources
            ]
        }

    groups = [one.resource_name for one in asked.resources if _is_group(one)]
    return Call(respond, [DescribeConfig(group_id) for group_id in groups])


def _is_group(asked: Any) -> bool:  # noqa: ANN401 - one of kio's classes
    return bool(asked.resource_type == GROUP and asked.resource_name)


def _describe_resource(
    asked: Any,  # noqa: ANN401 - one of kio's classes
    answers: Iterator[Answer],
    cluster: Cluster,
    with_synonyms: bool,  # noqa: FBT001 - as it is asked
) -> dict[str, object]:
    """Return the settings of a resource: all of them, or those that were asked for."""
    try:
        settings = (
            _list_group_settings(next(answers), cluster.kafka)
            if _is_group(asked)
            else _list_other_settings(asked, cluster)
        )
    except RefusedError as refused:
        return _outcome_fields(refused) | {"configs": ()}
    wanted = frozenset(asked.configuration_keys or settings)
    return _outcome_fields(None) | {
        "configs": [
            {
                "name": name,
                "value": levels[0].value,
                "read_only": asked.resource_type != GROUP,
                "config_source": levels[0].source,
                "is_sensitive": False,
                "synonyms": [level._asdict() for level in levels] if with_synonyms else (),
                "config_type": TYPES[name],
                "documentation": None,
            }
            for name, levels in settings.items()
            if name in wanted
        ]
    }


def _list_group_settings(answer: Answer, kafka: KafkaConfig) -> Settings:
    """Return a group's settings; one that it does not set is the coordinator's, or a default."""
    found: Any = _response(answer)
    node, defaults = _list_node_settings(kafka), group_defaults(kafka)
    settings = {}
    for name, (value, own) in found.items():
        below = node.get(f"group.{name}", [ConfigSynonym(name, defaults.get(name), DEFAULT_SOURCE)])
        if not own and value != below[0].value:  # its coordinator has other settings, as a root has
            below = [ConfigSynonym(f"group.{name}", value, STATIC_SOURCE), below[-1]]
        settings[name] = [ConfigSynonym(name, value, GROUP_SOURCE), *below] if own else below
    return settings


def _list_node_settings(kafka: KafkaConfig) -> Settings:
    """Return this coordinator's settings under Kafka's names."""
    defaults = kafka_settings(KafkaConfig())
    settings = {}
    for name, value in kafka_settings(kafka).items():
        own = [ConfigSynonym(name, value, STATIC_SOURCE)] if value != defaults[name] else []
        settings[name] = [*own, ConfigSynonym(name, defaults[name], DEFAULT_SOURCE)]
    return settings


def _list_other_settings(asked: Any, cluster: Cluster) -> Settings:  # noqa: ANN401
    """Return the settings of other resources than groups.

    Raises
    ------
    RefusedError
        The resource does not exist.
    """
    kind, name = asked.resource_type, asked.resource_name
    if kind == TOPIC:
        if not is_valid_topic(name):
            raise RefusedError(Code.invalid_topic_exception, f"{name!r} is not a valid topic name.")
        if name not in cluster.topics().by_name:
            raise RefusedError(Code.unknown_topic_or_partition, f"There is no topic {name!r}.")
        return {n: [ConfigSynonym(n, value, DEFAULT_SOURCE)] for n, value in TOPIC_SETTINGS.items()}
    if kind == BROKER and not name:  # what was set for all brokers while they run: nothing
        return {}
    if kind in {BROKER, BROKER_LOGGER}:
        if name != str(cluster.node_id):
            message = f"There is no broker {name!r}: this is {cluster.node_id}."
            raise RefusedError(Code.invalid_request, message)
        return _list_node_settings(cluster.kafka) if kind == BROKER else {}
    if kind not in {CLIENT_METRICS, GROUP}:
        raise RefusedError(Code.invalid_request, f"No resource of type {kind} has settings.")
    if not name:
        raise RefusedError(Code.invalid_request, "The resource's name is empty: give one.")
    return {}


def list_config_resources(request: Request, cluster: Cluster) -> Call:
    """ListConfigResources: groups with settings of their own, topics, and this node."""
    every = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}
    since = request.version >= TYPES_SINCE
    kinds = set(request.body.resource_types or every) if since else {CLIENT_METRICS}
    if not kinds <= every:
        return respond_with({"error_code": Code.unsupported_version, "config_resources": ()})

    def respond(answers: Sequence[Answer]) -> Values:
        names: dict[int, Any] = {
            TOPIC: cluster.topics().by_name,
            BROKER: [str(cluster.node_id)],
            BROKER_LOGGER: [str(cluster.node_id)],
            CLIENT_METRICS: (),
        }
        if GROUP in kinds:
            try:
                names[GROUP] = _response(answers[0])
            except RefusedError as refused:
                return {"error_code": refused.code, "config_resources": ()}
        return {
            "error_code": Code.none,
            "config_resources": [
                {"resource_name": name, "resource_type": kind}
                for kind in sorted(kinds)
                for name in names[kind]
            ],
        }

    return Call(respond, [ListConfiguredGroups()] if GROUP in kinds else [])


# Altered -----------------------------------------------------------------------------------------

Changes = dict[str, str | None]


def alter_configs(request: Request, _cluster: Cluster) -> Call:
    """AlterConfigs: a group's settings as a whole; those left out go back to their defaults."""
    return _alter_groups(request, lambda one: dict.fromkeys(GROUP_NAMES) | _read_settings(one))


def _read_settings(asked: Any) -> Changes:  # noqa: ANN401 - one of kio's classes
    given: Changes = {}
    for one in asked.configs:
        if one.value is None or one.name in given:
            raise RefusedError(Code.invalid_request, f"{one.name}: give it a value, once.")
        given[one.name] = one.value
    return given


def incremental_alter_configs(request: Request, _cluster: Cluster) -> Call:
    """IncrementalAlterConfigs: some settings of a group, the others as they are."""
    return _alter_groups(request, _read_changes)


def _read_changes(asked: Any) -> Changes:  # noqa: ANN401
    changes: Changes = {}
    for one in asked.configs:
        if one.config_operation not in {SET, DELETE} or one.name in changes:
            message = (
                f"{one.name}: set it or delete it, once; it is not a list that can be appended to."
            )
            raise RefusedError(Code.invalid_request, message)
        changes[one.name] = None if one.config_operation == DELETE else one.value or ""
    return changes


def _alter_groups(request: Request, changes_of: Callable[[Any], Changes]) -> Call:
    """Alter groups, each as a whole or not at all."""
    asked = request.body.resources
    times = Counter((one.resource_type, one.resource_name) for one in asked)

    def event(one: Any) -> AlterConfig | RefusedError:  # noqa: ANN401
        if one.resource_type != GROUP:
            message = "Only settings of groups can be altered here (resource type 32)."
            return RefusedError(Code.invalid_request, message)
        if times[one.resource_type, one.resource_name] > 1:
            return RefusedError(Code.invalid_request, "Name each resource once.")
        try:
            changes = changes_of(one)
        except RefusedError as refused:
            return refused
        return AlterConfig(one.resource_name, changes, request.body.validate_only)

    wanted = [event(one) for one in asked]

    def respond(answers: Sequence[Answer]) -> Values:
        found = iter(answers)
        outcomes = [one if isinstance(one, RefusedError) else next(found) for one in wanted]
        pairs = zip(asked, outcomes, strict=True)
        return {
            "responses": [
                _resource_fields(one) | _outcome_fields(outcome) for one, outcome in pairs
            ]
        }

    return Call(respond, [one for one in wanted if isinstance(one, AlterConfig)])


def _resource_fields(asked: Any) -> dict[str, object]:  # noqa: ANN401
    return {"resource_type": asked.resource_type, "resource_name": asked.resource_name}


def _response(answer: Answer) -> object:
    if isinstance(answer, GroupError):
        raise RefusedError(answer.code, answer.message)
    return answer.response


def _outcome_fields(answer: Answer | RefusedError | None) -> dict[str, object]:
    if isinstance(answer, GroupError | RefusedError):
        return {"error_code": answer.code, "error_message": str(answer)}
    return {"error_code": Code.none, "error_message": None}


HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = {
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.ALTER_CONFIGS: alter_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
}
