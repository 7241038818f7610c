"""Settings of groups, topics and this node are described; those of groups are altered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.config.kafka import KAFKA_NAMES, kafka_config
from coordinator.errors import ErrorCode
from coordinator.wire.codec import Api
from tests.support.wire_side import NONE, UNKNOWN_TOPIC, side

__all__ = ["side"]

TIMEOUT, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
STATIC, DEFAULT, OF_GROUP = 4, 5, 8
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


def described(side, kind=GROUP, name="g", version=4, keys=None, **more):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (found,) = side.ask(Api.DESCRIBE_CONFIGS, version, resources=[resource], **more).results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


def alter(side, *changes, version=1, kind=GROUP, name="g", **more):
    configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
    return altered(side, Api.INCREMENTAL_ALTER_CONFIGS, version, kind, name, configs, **more)


def alter_all(side, settings, version=2, kind=GROUP, name="g", **more):
    configs = [{"name": n, "value": value} for n, value in settings]
    return altered(side, Api.ALTER_CONFIGS, version, kind, name, configs, **more)


def altered(side, api, version, kind, name, configs, validate_only=False):
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = side.ask(api, version, resources=[resource], validate_only=validate_only)
    (found,) = answer.responses
    assert (found.resource_type, found.resource_name) == (kind, name)
    return int(found.error_code), found.error_message


def own(side):
    return side.processor.state.settings.get("g", {})


# Altered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_settings_are_set_one_by_one_and_go_back(side, version):
    assert alter(side, (TIMEOUT, 0, "50000"), version=version) == (NONE, None)
    assert alter(side, (INTERVAL, 0, "6000"), version=version) == (NONE, None)
    assert own(side) == {TIMEOUT: "50000", INTERVAL: "6000"}
    assert alter(side, (TIMEOUT, 1, None), version=version) == (NONE, None)
    assert own(side) == {INTERVAL: "6000"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_settings_are_set_as_a_whole(side, version):
    """B2: AlterConfigs, as clients older than Kafka 2.3 ask; what is left out goes back."""
    assert alter_all(side, [(TIMEOUT, "50000"), (INTERVAL, "6000")], version) == (NONE, None)
    assert own(side) == {TIMEOUT: "50000", INTERVAL: "6000"}
    assert alter_all(side, [(INTERVAL, "7000")], version) == (NONE, None)
    assert own(side) == {INTERVAL: "7000"}
    assert alter_all(side, [(TIMEOUT, "50000")], version, validate_only=True) == (NONE, None)
    assert own(side) == {INTERVAL: "7000"}
    assert alter_all(side, [], version) == (NONE, None)
    assert own(side) == {}


def test_an_invalid_setting_refuses_the_whole_request(side):
    refused = (ErrorCode.INVALID_CONFIG, f"{TIMEOUT} is '1': give 45000 to 60000")
    assert alter(side, (TIMEOUT, 0, "1")) == alter_all(side, [(TIMEOUT, "1")]) == refused
    for changes in ([(TIMEOUT, 2, "50000")], [(TIMEOUT, 0, "50000"), (TIMEOUT, 1, None)]):
        code, message = alter(side, *changes)
        assert code == INVALID_REQUEST
        assert TIMEOUT in message
    for settings in ([(TIMEOUT, None)], [(TIMEOUT, "50000"), (TIMEOUT, "50000")]):
        code, message = alter_all(side, settings)
        assert (code, message) == (INVALID_REQUEST, f"{TIMEOUT}: give it a value, once.")
    assert alter_all(side, [("retention.ms", "1")])[0] == ErrorCode.INVALID_CONFIG
    assert alter_all(side, [(TIMEOUT, "50000")], name="")[0] == ErrorCode.INVALID_GROUP_ID
    message = "Only settings of groups can be altered here (resource type 32)."
    for kind, name in [(TOPIC, "clicks"), (BROKER, "7"), (BROKER, ""), (77, "")]:
        one = ("retention.ms", 0, "1")
        assert alter(side, one, kind=kind, name=name) == (INVALID_REQUEST, message)
        assert alter_all(side, [one[::2]], kind=kind, name=name) == (INVALID_REQUEST, message)
    assert alter(side, (TIMEOUT, 0, "50000"), validate_only=True) == (NONE, None)
    assert side.processor.state.settings == {}


def test_a_resource_that_is_named_twice_is_not_altered_and_others_are(side):
    configs = [{"name": TIMEOUT, "config_operation": 0, "value": "50000"}]
    resources = [{"resource_type": GROUP, "resource_name": n, "configs": configs} for n in "ghg"]
    answer = side.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    codes = [(one.resource_name, int(one.error_code)) for one in answer.responses]
    assert codes == [("g", INVALID_REQUEST), ("h", NONE), ("g", INVALID_REQUEST)]
    assert side.processor.state.settings == {"h": {TIMEOUT: "50000"}}


# Described ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described_with_their_source(side, version):
    alter(side, (TIMEOUT, 0, "50000"))
    found = {c.name: (c.value, c.config_source) for c in described(side, version=version).configs}
    assert found[TIMEOUT] == ("50000", OF_GROUP)
    assert found[INTERVAL] == ("5000", DEFAULT)
    assert found["consumer.assignor.max.moves"] == (None, DEFAULT)
    (one,) = described(side, version=version, keys=[TIMEOUT]).configs
    assert (one.name, one.read_only, one.synonyms) == (TIMEOUT, False, ())
    missing = described(side, version=version, name="")
    assert (int(missing.error_code), missing.configs) == (INVALID_REQUEST, ())


def synonyms(found):
    return {c.name: [(s.name, s.value, s.source) for s in c.synonyms] for c in found.configs}


def test_synonyms_are_the_lower_levels(side):
    alter(side, (TIMEOUT, 0, "50000"), ("consumer.assignor.engine", 0, "local"))
    side.cluster = replace(
        side.cluster, kafka=kafka_config({"group.consumer.session.timeout.ms": 46_000})
    )
    found = synonyms(described(side, include_synonyms=True))
    of_broker = "group.consumer.session.timeout.ms"
    assert found[TIMEOUT] == [
        (TIMEOUT, "50000", OF_GROUP), (of_broker, "46000", STATIC), (of_broker, "45000", DEFAULT)
    ]  # fmt: skip
    assert found[INTERVAL] == [(f"group.{INTERVAL}", "5000", DEFAULT)]
    assert found["consumer.assignor.engine"] == [
        ("consumer.assignor.engine", "local", OF_GROUP),
        ("consumer.assignor.engine", "auto", DEFAULT),
    ]
    alter(side, (TIMEOUT, 1, None))
    (timeout,) = described(side, keys=[TIMEOUT]).configs
    assert timeout.config_source == STATIC


def test_a_group_s_settings_are_those_of_its_coordinator_where_the_node_has_others(side):
    """The root has settings of its own, by which nodes count their sessions."""
    side.cluster = replace(side.cluster, kafka=kafka_config({f"group.{INTERVAL}": 9_000}))
    (found,) = described(side, keys=[INTERVAL], include_synonyms=True).configs
    assert (found.value, found.config_source) == ("5000", STATIC)
    assert [one.value for one in found.synonyms] == ["5000", "5000"], "the node's own is no level"


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_s_settings_are_what_is_known(side, version):
    """B2: INVALID_REQUEST here broke kafka-topics, kafka-configs, kaf, kadm and sarama."""
    found = described(side, TOPIC, "clicks", version)
    assert (int(found.error_code), found.error_message) == (NONE, None)
    assert [(c.name, c.value, c.read_only) for c in found.configs] == [
        ("min.insync.replicas", "1", True)
    ]
    assert described(side, TOPIC, "clicks", version, ["retention.ms"]).configs == ()
    unknown = described(side, TOPIC, "nowhere", version)
    assert (int(unknown.error_code), unknown.configs) == (UNKNOWN_TOPIC, ())


@pytest.mark.parametrize("version", range(1, 5))
def test_this_node_s_settings_are_those_it_was_started_with(side, version):
    kafka = kafka_config({"group.consumer.max.size": 9, "group.consumer.assignors": "range,sticky"})
    side.cluster = replace(side.cluster, kafka=kafka)
    found = described(side, BROKER, "7", version)
    assert int(found.error_code) == NONE
    shown = {c.name: (c.value, c.config_source, c.read_only) for c in found.configs}
    assert tuple(shown) == KAFKA_NAMES
    assert shown["group.consumer.max.size"] == ("9", STATIC, True)
    assert shown["group.consumer.assignors"] == ("range,sticky", STATIC, True)
    assert shown["group.consumer.heartbeat.interval.ms"] == ("5000", DEFAULT, True)
    for kind, name in [(BROKER, ""), (LOGGER, "7"), (CLIENT_METRICS, "all")]:
        nothing = described(side, kind, name, version)
        assert (int(nothing.error_code), nothing.configs) == (NONE, ())
    for kind, name in [(BROKER, "8"), (BROKER, "x"), (LOGGER, ""), (CLIENT_METRICS, ""), (3, "a")]:
        refused = described(side, kind, name, version)
        assert (int(refused.error_code), refused.configs) == (INVALID_REQUEST, ())
        assert refused.error_message


def listed(side, *kinds, version=1):
    answer = side.ask(Api.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
    found = [
        (getattr(one, "resource_type", CLIENT_METRICS), one.resource_name)
        for one in answer.config_resources
    ]
    return int(answer.error_code), found


def test_config_resources_are_listed(side):
    """B2: kafka-configs and kafka-client-metrics ask for it."""
    assert listed(side, GROUP) == (NONE, [])
    for name in ("h", "g"):
        alter(side, (TIMEOUT, 0, "50000"), name=name)
    assert listed(side, GROUP) == (NONE, [(GROUP, "g"), (GROUP, "h")])
    assert listed(side, CLIENT_METRICS) == listed(side, version=0) == (NONE, [])
    assert listed(side) == (
        NONE,
        [
            (TOPIC, "clicks"), (TOPIC, "orders"), (BROKER, "7"), (LOGGER, "7"), (GROUP, "g"),
            (GROUP, "h"),
        ],
    )  # fmt: skip
    assert listed(side, GROUP, 77) == (35, [])
