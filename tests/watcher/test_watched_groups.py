"""What Kafka wrote, read back: groups are as Kafka itself describes them after a fail-over."""

import base64
import json

import pytest

from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.events import DescribeGroup
from coordinator.core.group_admin import describe_group
from coordinator.core.state.embedded import MalformedError, read_assignment, read_subscription
from coordinator.trace.kafka_json import to_camel_case

from .recorded import FILES, WatchedGroups, batches_of, change, play, read_lines

CONFIG = Config(kafka=kafka_config({"group.consumer.assignors": "range,uniform"}))
NO_GROUP = 69


def describe(watched, group_id):
    """A group as ConsumerGroupDescribe answers; None for one that is not there."""
    found = describe_group(watched.state, CONFIG, DescribeGroup(group_id)).response.fields()
    return None if found["error_code"] else to_camel_case(found)


def normal(group, *, wished):
    """A described group with its members in one order.

    Which assignor a group has whose members ask for none, or for several alike, is the broker's
    setting, and not in its records.
    """
    group = json.loads(json.dumps(group))
    if not wished:
        del group["assignorName"]
    group["members"].sort(key=lambda member: member["memberId"])
    for member in group["members"]:
        for name in ("assignment", "targetAssignment"):
            member[name]["topicPartitions"].sort(key=lambda topic: topic["topicId"])
    return group


def describe_classic(watched, group_id):
    """A classic group's record, as DescribeGroups answers of a group that is Stable."""
    group = watched.state.classic.get(group_id)
    if group is None:
        return None
    members = [
        (m.member_id, m.instance_id, m.client_id, m.client_host, subscription(m), assignment(m))
        for m in group.members.values()
    ]
    return group.protocol_type or "", sorted(members)


def subscription(member):
    ((_, raw),) = member.protocols
    try:
        found = read_subscription(raw)
    except MalformedError:  # of another protocol than consumers'
        return base64.b64encode(raw).decode()
    return found.version, list(found.topics), dict(found.owned), found.generation


def assignment(member):
    try:
        found = read_assignment(member.assignment)
    except MalformedError:
        return base64.b64encode(member.assignment).decode()
    return found.version, dict(found.partitions)


def classic_as_kafka(kafkas):
    """The same of a recorded answer."""
    if kafkas["error_code"]:
        return None
    members = []
    for m in kafkas["members"]:
        asks, given = m["metadata"], m["assignment"]
        if isinstance(asks, dict):
            owned, generation = asks.get("owned", {}), asks.get("generation", -1)
            asks = asks["version"], asks["topics"], owned, generation
            given = given["version"], given["partitions"]
        who = m["member_id"], m["instance_id"], m["client_id"], m["client_host"]
        members.append((*who, asks, given))
    return kafkas["protocol_type"], sorted(members)


def offsets(watched, group_id):
    found = {}
    for (topic, partition), one in watched.state.offsets.get(group_id, {}).items():
        found.setdefault(topic, {})[str(partition)] = one.offset
    return found


def compare(watched, line):
    for group_id, kafkas in line["groups"].items():
        found = describe(watched, group_id)
        if kafkas["errorCode"] == NO_GROUP:
            assert found is None
        else:
            wishes = watched.state.groups[group_id].wishes.most_common(2)
            wished = len({count for _, count in wishes}) == len(wishes) > 0
            assert normal(found, wished=wished) == normal(kafkas, wished=wished)
    for kafkas in line["classic"]:
        assert describe_classic(watched, kafkas["group"]) == classic_as_kafka(kafkas)
    for group_id, kafkas in line["offsets"].items():
        assert offsets(watched, group_id) == kafkas


@pytest.mark.parametrize("name", FILES)
def test_groups_are_as_kafka_describes_them(name):
    watched, compared = WatchedGroups(), 0
    for line in play(name, watched):
        compare(watched, line)
        compared += 1
    assert not watched.faults.undecodable
    assert compared


@pytest.mark.parametrize("name", FILES)
def test_a_compacted_topic_is_its_last_records(name):
    written, topics = [], {}
    for line in read_lines(name):
        if "topics" in line:
            change(topics, line)
        elif "records" in line:
            written += [record for batch in batches_of(line) for record in batch]
        else:
            watched = WatchedGroups()
            watched.set_topics(topics)
            records = watched.load(written)
            compare(watched, line)
            assert not any(getattr(record, "reason", "") for record in records)
