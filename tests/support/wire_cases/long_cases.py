"""Cases of names that are too long for anything, of APIs whose other cases have none, and doubled ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.wire.codec import Api
from tests.support.wire_cases import Case
from tests.support.wire_cases.classic_cases import leave, sync
from tests.support.wire_cases.cluster_cases import GROUP_TYPE, RECORDS, SETTING, TOPIC
from tests.support.wire_cases.group_cases import CLASSIC, COMMITTED, fetch, named, of, topic

LONG = "$y:300"
"""No other case has it."""
BY_NAME = tuple(range(4, 13))
"""Versions of Fetch that name topics."""


def _of_members() -> Iterator[Case]:
    for api in (Api.SYNC_GROUP, Api.HEARTBEAT):
        yield Case("long group", api, sync(group=LONG))
        yield Case("long member", api, sync(member=LONG), before=CLASSIC)
    yield Case("long group", Api.LEAVE_GROUP, leave({"member_id": "m1"}, group=LONG))
    yield Case("long member", Api.LEAVE_GROUP, leave({"member_id": LONG}), before=CLASSIC)


def _of_offsets() -> Iterator[Case]:
    yield Case("long group", Api.OFFSET_FETCH, fetch(of(named("clicks", 0), group=LONG)))
    yield Case("long name", Api.OFFSET_FETCH, fetch(of(named(LONG, 0))), before=COMMITTED)
    for name, words in {
        "long group": {"group_id": LONG, "topics": [topic("clicks", {"partition_index": 0})]},
        "long name": {"group_id": "{g}", "topics": [topic(LONG, {"partition_index": 0})]},
    }.items():
        yield Case(name, Api.OFFSET_DELETE, words, before=COMMITTED)


def _of_topics() -> Iterator[Case]:
    one = topic(LONG, {"index": 0, "records": RECORDS}, key="partition_data")
    yield Case("long name", Api.PRODUCE, {"acks": -1, "timeout": 1000, "topic_data": [one]})
    part: dict[str, Any] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked = {"max_wait": 1, "min_bytes": 1, "max_bytes": 1000, "replica_id": -1}
    some = [topic(LONG, part) | {"topic": LONG}]
    yield Case("long name", Api.FETCH, asked | {"topics": some}, versions=BY_NAME)
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    asked = {"replica_id": -1, "timeout": 1000}
    yield Case("long name", Api.LIST_OFFSETS, asked | {"topics": [topic(LONG, part)]})
    for api in (Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS):
        for name, topics in {"long name": [LONG], "doubled topic": ["clicks", "clicks"]}.items():
            some = [
                {"name": one, "topic": one, "partition_indexes": [0], "partitions": [0]}
                for one in topics
            ]
            yield Case(name, api, {"topics": some, "timeout": 1000})
    parts = [{"partition_index": 0}]
    words = {"topics": [{"topic_name": LONG, "partitions": parts}]}
    yield Case("long name", Api.DESCRIBE_QUORUM, words)


def _of_settings() -> Iterator[Case]:
    for name, kind, of_, key in (
        ("long topic", TOPIC, LONG, "retention.ms"),
        ("long group", GROUP_TYPE, LONG, SETTING),
        ("long setting", GROUP_TYPE, "{g}", LONG),
    ):
        one = {"resource_type": kind, "resource_name": of_, "configuration_keys": [key]}
        yield Case(name, Api.DESCRIBE_CONFIGS, {"resources": [one]})


def _of_filters_and_logins() -> Iterator[Case]:
    yield Case("long state", Api.LIST_GROUPS, {"states_filter": [LONG]}, versions=(4, 5))
    yield Case("long type", Api.LIST_GROUPS, {"types_filter": [LONG]}, versions=(5,))
    yield Case("long state", Api.LIST_TRANSACTIONS, {"state_filters": [LONG]})
    words = {"transactional_id_pattern": LONG}
    yield Case("long pattern", Api.LIST_TRANSACTIONS, words, versions=(2,))
    names = {"client_software_name": LONG, "client_software_version": LONG}
    yield Case("long name", Api.API_VERSIONS, names)
    words = {"mechanism": LONG}
    yield Case("long mechanism", Api.SASL_HANDSHAKE, words, login=False, versions=(1,))
    plain = ((Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),)
    login = "$hex:" + (b"\0" + b"x" * 300 + b"\0" + b"x" * 300).hex()
    yield Case("long user", Api.SASL_AUTHENTICATE, {"auth_bytes": login}, before=plain, login=False)


def long_cases() -> Iterator[Case]:
    """Return all of them."""
    for some in (_of_members, _of_offsets, _of_topics, _of_settings, _of_filters_and_logins):
        yield from some()
