"""Cases about the cluster, its topics and settings, and about logins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.wire.codec import Api
from tests.support.wire_cases import Case
from tests.support.wire_cases.group_cases import COMMITTED, GROUP, topic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP_TYPE = 2, 4, 8, 16, 32
RECORDS = (
    "$hex:0000000000000000000000390000000002ae59b08f00000000000000000000000003e80000000000"
    "0003e8ffffffffffffffffffffffffffff000000010e00000001027600"
)
"""A batch of one record."""
SETTING = "consumer.session.timeout.ms"
OPERATIONS = {
    "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
}


def metadata() -> Iterator[Case]:
    """Metadata."""

    def one(name: str | None, topic_id: str = "$id:") -> dict:
        return {"name": name, "topic_id": topic_id}

    def asked(*topics: dict, **words: Any) -> dict:
        return {"topics": list(topics), "allow_auto_topic_creation": False, **words}

    cases = {
        "all": asked(topics=None),
        "nothing": asked(),
        "fine": asked(one("clicks")),
        "doubled topic": asked(one("clicks"), one("clicks")),
        "doubled unknown topic": asked(one("nowhere"), one("nowhere")),
        "some of it": asked(one("nowhere"), one("clicks"), one("a b!")),
        "no name": asked(one("")),
        "odd name": asked(one("a b!")),
        "long name": asked(one("$x:300")),
        "dots": asked(one("..")),
        "unknown topic": asked(one("nowhere")),
        "unknown topic to be made": asked(one("nowhere"), allow_auto_topic_creation=True),
        "odd name to be made": asked(one("a b!"), allow_auto_topic_creation=True),
        "with operations": asked(one("clicks"), one("nowhere"), **OPERATIONS),
    }
    for name, words in cases.items():
        yield Case(name, Api.METADATA, words)
    ids = {
        "by id": asked(one(None, "$id:clicks")),
        "by id and an empty name": asked(one("", "$id:clicks")),
        "by id and name": asked(one("orders", "$id:clicks")),
        "unknown id": asked(one(None, "$id:nowhere")),
        "unknown id and an empty name": asked(one("", "$id:nowhere")),
        "neither": asked(one(None)),
        "doubled id": asked(one(None, "$id:clicks"), one(None, "$id:clicks")),
        "by id and by name": asked(one(None, "$id:clicks"), one("orders")),
    }
    for name, words in ids.items():
        yield Case(name, Api.METADATA, words, versions=(10, 11, 12, 13))
        yield Case(f"alice {name}", Api.METADATA, words, "alice", versions=(10, 11, 12, 13))
    users = {
        "alice": asked(one("clicks"), one("hidden"), one("nowhere"), **OPERATIONS),
        "alice all": asked(topics=None, **OPERATIONS),
        "alice nothing": asked(),
        "alice hidden": asked(one("hidden")),
        "alice doubled hidden": asked(one("hidden"), one("hidden")),
        "alice odd name": asked(one("a b!")),
    }
    for name, words in users.items():
        yield Case(name, Api.METADATA, words, "alice")
    hidden = asked(one(None, "$id:hidden"), one(None, "$id:nowhere"))
    yield Case("alice hidden by id", Api.METADATA, hidden, "alice", versions=(10, 11, 12, 13))


def list_offsets() -> Iterator[Case]:
    """ListOffsets."""

    def part(index: int, timestamp: int = -1, **words: Any) -> dict:
        return {
            "partition_index": index,
            "timestamp": timestamp,
            "current_leader_epoch": -1,
            **words,
        }

    def asked(*topics: dict, **words: Any) -> dict:
        return {"replica_id": -1, "topics": list(topics), "timeout": 1000, **words}

    cases = {
        "nothing": asked(),
        "no partitions": asked(topic("clicks")),
        "unknown topic": asked(topic("nowhere", part(0))),
        "unknown partition": asked(topic("clicks", part(0), part(99))),
        "negative partition": asked(topic("clicks", part(-1))),
        "doubled topic": asked(topic("clicks", part(0)), topic("clicks", part(1))),
        "doubled partition": asked(topic("clicks", part(0), part(0), part(1))),
        "doubled partition of two topics": asked(
            topic("clicks", part(0)), topic("clicks", part(0))
        ),
        "doubled unknown partition": asked(topic("nowhere", part(0), part(0))),
        "no name": asked(topic("", part(0))),
        "odd name": asked(topic("a b!", part(0))),
        "leader epoch": asked(topic("clicks", part(0, current_leader_epoch=0))),
        "leader epoch to come": asked(topic("clicks", part(0, current_leader_epoch=5))),
        "committed only": asked(topic("clicks", part(0)), isolation_level=1),
        "some of it": asked(topic("nowhere", part(0)), topic("clicks", part(0), part(99), part(1))),
    }
    for at in (-2, -3, -4, -5, -6, -7, -100, 0, 1_000):
        cases[f"time {at}"] = asked(topic("clicks", part(0, at)))
    for name, words in cases.items():
        yield Case(name, Api.LIST_OFFSETS, words)
    hidden = topic("hidden", part(0), part(0))
    users = {
        "alice": asked(topic("clicks", part(0)), hidden, topic("nowhere", part(0))),
        "alice hidden": asked(hidden),
    }
    for name, words in users.items():
        yield Case(name, Api.LIST_OFFSETS, words, "alice")


def records() -> Iterator[Case]:
    """Produce and Fetch."""

    def produced(*topics: dict, **words: Any) -> dict:
        return {"acks": -1, "timeout": 1000, "topic_data": list(topics), **words}

    def batch(name: str, *partitions: int) -> dict:
        made = [{"index": one, "records": RECORDS} for one in partitions]
        return topic(name, *made, key="partition_data")

    cases = {
        "nothing": produced(),
        "no partitions": produced(batch("clicks")),
        "unknown topic": produced(batch("nowhere", 0)),
        "unknown partition": produced(batch("clicks", 99)),
        "negative partition": produced(batch("clicks", -1)),
        "records": produced(batch("orders", 0)),
        "acks 5": produced(batch("orders", 0), acks=5),
        "acks 0": produced(batch("orders", 0), acks=0),
        "doubled partition": produced(batch("orders", 0, 0)),
        "acks 0 of nothing": produced(acks=0),
        "acks 0 of an unknown topic": produced(batch("nowhere", 0), acks=0),
    }
    for name, words in cases.items():
        yield Case(name, Api.PRODUCE, words)
    users = {
        "alice": produced(batch("orders", 0), batch("hidden", 0)),
        "alice hidden": produced(batch("hidden", 0)),
        "alice hidden without partitions": produced(batch("hidden")),
        "alice hidden acks 0": produced(batch("hidden", 0), acks=0),
        "alice transactional": produced(batch("orders", 0), transactional_id="t"),
    }
    for name, words in users.items():
        yield Case(name, Api.PRODUCE, words, "alice")

    def part(index: int, at: int = 0, **words: Any) -> dict:
        return {"partition": index, "fetch_offset": at, "partition_max_bytes": 1000, **words}

    def fetch(name: str, *partitions: dict, topic_id: str | None = None) -> dict:
        made = topic(name, *partitions, topic_id=topic_id)
        return made | {"topic": name}

    def asked(*topics: dict, **words: Any) -> dict:
        known = {"max_wait": 1, "min_bytes": 1, "max_bytes": 1000, "replica_id": -1}
        return known | {"topics": list(topics)} | words

    fetches = {
        "nothing": asked(),
        "fine": asked(fetch("clicks", part(0))),
        "no partitions": asked(fetch("clicks")),
        "unknown topic": asked(fetch("nowhere", part(0))),
        "unknown partition": asked(fetch("clicks", part(0), part(99))),
        "negative partition": asked(fetch("clicks", part(-1))),
        "doubled topic": asked(fetch("clicks", part(0)), fetch("clicks", part(1))),
        "doubled partition": asked(fetch("clicks", part(0), part(0))),
        "negative offset": asked(fetch("clicks", part(0, -5))),
        "offset beyond the end": asked(fetch("clicks", part(0, 7))),
        "no name": asked(fetch("", part(0), topic_id="$id:")),
        "no wait": asked(fetch("clicks", part(0)), max_wait=0),
        "negative wait": asked(fetch("clicks", part(0)), max_wait=-1),
        "leader epoch to come": asked(fetch("clicks", part(0, current_leader_epoch=5))),
        "epoch of no session": asked(fetch("clicks", part(0)), session_id=77, session_epoch=5),
    }
    for name, words in fetches.items():
        yield Case(name, Api.FETCH, words)
    hidden = fetch("hidden", part(0), part(99))
    several = asked(fetch("clicks", part(0)), hidden, fetch("nowhere", part(0)))
    yield Case("alice", Api.FETCH, several, "alice")
    yield Case("alice hidden", Api.FETCH, asked(hidden), "alice")


def settings() -> Iterator[Case]:
    """DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

    def of(kind: int, name: str, *keys: str) -> dict:
        return {
            "resource_type": kind,
            "resource_name": name,
            "configuration_keys": list(keys) or None,
        }

    def asked(*resources: dict, **words: Any) -> dict:
        return {"resources": list(resources), **words}

    own = (
        (Api.INCREMENTAL_ALTER_CONFIGS, 1, asked(altered(GROUP_TYPE, GROUP, (SETTING, "50000")))),
    )
    cases = {
        "nothing": asked(),
        "topic": asked(of(TOPIC, "clicks", "min.insync.replicas")),
        "unknown topic": asked(of(TOPIC, "nowhere")),
        "topic without a name": asked(of(TOPIC, "")),
        "odd topic": asked(of(TOPIC, "a b!")),
        "broker": asked(of(BROKER, "1", "group.consumer.session.timeout.ms")),
        "all brokers": asked(of(BROKER, "")),
        "unknown broker": asked(of(BROKER, "9")),
        "odd broker": asked(of(BROKER, "one")),
        "logger of an unknown broker": asked(of(BROKER_LOGGER, "9")),
        "loggers without a name": asked(of(BROKER_LOGGER, "")),
        "client metrics": asked(of(CLIENT_METRICS, "m")),
        "client metrics without a name": asked(of(CLIENT_METRICS, "")),
        "group": asked(of(GROUP_TYPE, GROUP, SETTING)),
        "group with synonyms": asked(of(GROUP_TYPE, GROUP, SETTING), include_synonyms=True),
        "group without a name": asked(of(GROUP_TYPE, "")),
        "unknown setting": asked(of(GROUP_TYPE, GROUP, "best")),
        "doubled setting": asked(of(GROUP_TYPE, GROUP, SETTING, SETTING)),
        "doubled resource": asked(of(GROUP_TYPE, GROUP, SETTING), of(GROUP_TYPE, GROUP, SETTING)),
        "no keys": asked(of(GROUP_TYPE, GROUP) | {"configuration_keys": []}),
        "type 0": asked(of(0, "a")),
        "type 99": asked(of(99, "a")),
        "some of it": asked(of(TOPIC, "nowhere"), of(GROUP_TYPE, GROUP, SETTING), of(0, "a")),
    }
    for name, words in cases.items():
        yield Case(name, Api.DESCRIBE_CONFIGS, words)
    yield Case("own", Api.DESCRIBE_CONFIGS, cases["group with synonyms"], before=own)
    every = asked(
        of(TOPIC, "hidden"), of(GROUP_TYPE, "secret"), of(BROKER, "1"), of(GROUP_TYPE, GROUP, SETTING)
    )  # fmt: skip
    yield Case("alice", Api.DESCRIBE_CONFIGS, every, "alice")
    yield from _changes()
    lists = {
        "all": {"resource_types": []},
        "groups": {"resource_types": [GROUP_TYPE, GROUP_TYPE]},
        "unknown type": {"resource_types": [99]},
        "type 0 and topics": {"resource_types": [0, TOPIC]},
        "topics": {"resource_types": [TOPIC]},
    }
    for name, words in lists.items():
        if name not in {"all", "groups"}:
            yield Case(name, Api.LIST_CONFIG_RESOURCES, words, versions=(1,))
        yield Case(f"alice {name}", Api.LIST_CONFIG_RESOURCES, words, "alice")


def altered(kind: int, name: str, *changes: tuple) -> dict:
    """Return a resource with changes: (name, value, operation)."""
    configs = [
        {"name": key, "value": value, "config_operation": more[0] if more else 0}
        for key, value, *more in changes
    ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def _changes() -> Iterator[Case]:
    def asked(*resources: dict, validate_only: bool = False) -> dict:
        return {"resources": list(resources), "validate_only": validate_only}

    def group(*changes: tuple, name: str = GROUP) -> dict:
        return altered(GROUP_TYPE, name, *changes)

    fine = (SETTING, "50000")
    cases = {
        "nothing": asked(),
        "fine": asked(group(fine)),
        "no settings": asked(group()),
        "only looked at": asked(group(fine), validate_only=True),
        "group without a name": asked(group(fine, name="")),
        "long group": asked(group(fine, name="$x:300")),
        "unknown setting": asked(group(("best", "1"))),
        "setting without a name": asked(group(("", "1"))),
        "value of another type": asked(group((SETTING, "soon"))),
        "value with blanks": asked(group((SETTING, " 50000 "))),
        "value out of bounds": asked(group((SETTING, "1"))),
        "empty value": asked(group((SETTING, ""))),
        "no value": asked(group((SETTING, None))),
        "doubled setting": asked(group(fine, fine)),
        "doubled resource": asked(group(fine), group(fine)),
        "unknown topic": asked(altered(TOPIC, "nowhere", ("retention.ms", "1"))),
        "unknown broker": asked(altered(BROKER, "9", ("log.retention.ms", "1"))),
        "type 0": asked(altered(0, "a", ("b", "1"))),
        "type 99": asked(altered(99, "a", ("b", "1"))),
        "some of it": asked(group(fine), group(("best", "1"), name="{g}-b"), altered(0, "a")),
    }
    for api in (Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS):
        for name, words in cases.items():
            yield Case(name, api, words)
        users = asked(
            group(fine), group(fine, name="secret"), altered(TOPIC, "hidden", ("retention.ms", "1"))
        )
        yield Case("alice", api, users, "alice")
        yield Case("alice doubled", api, asked(*[group(fine, name="secret")] * 2), "alice")
    operations = {
        "delete": (SETTING, None, 1),
        "delete with a value": (SETTING, "9", 1),
        "append": (SETTING, "9", 2),
        "subtract": (SETTING, "9", 3),
        "operation 9": (SETTING, "9", 9),
        "delete an unknown setting": ("best", None, 1),
    }
    for name, change in operations.items():
        yield Case(name, Api.INCREMENTAL_ALTER_CONFIGS, asked(group(change)))
    set_ = ((Api.INCREMENTAL_ALTER_CONFIGS, 1, asked(group((SETTING, " 50000 ")))),)
    resource = {
        "resource_type": GROUP_TYPE,
        "resource_name": GROUP,
        "configuration_keys": [SETTING],
    }
    yield Case("after blanks", Api.DESCRIBE_CONFIGS, asked(resource), before=set_)


def cluster() -> Iterator[Case]:
    """What is asked of the node."""
    for kind in (1, 2, 9):
        for user in ("admin", "alice"):
            words = {"endpoint_type": kind, **OPERATIONS}
            yield Case(f"{user} endpoints {kind}", Api.DESCRIBE_CLUSTER, words, user)
    for name, words in {
        "all": {},
        "unknown state": {"state_filters": ["Sleeping", "Empty", "Sleeping"]},
        "negative duration": {"duration_filter": -9},
        "wrong pattern": {"transactional_id_pattern": "("},
    }.items():
        yield Case(name, Api.LIST_TRANSACTIONS, words)
        yield Case(f"alice {name}", Api.LIST_TRANSACTIONS, words, "alice")
    for api in (Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_LOG_DIRS):

        def one(name: str, *parts: int) -> dict:
            return {"name": name, "topic": name, "partition_indexes": parts, "partitions": parts}

        lists = {
            "all": None,
            "nothing": [],
            "unknown topic": [one("nowhere", 0)],
            "negative partition": [one("clicks", -1)],
            "no partitions": [one("clicks")],
        }
        for name, topics in lists.items():
            yield Case(name, api, {"topics": topics, "timeout": 1000})
        yield Case("alice", api, {"topics": None, "timeout": 1000}, "alice")
    log, nowhere = "__cluster_metadata", "nowhere"

    def quorum(name: str, *parts: int) -> dict:
        return {"topic_name": name, "partitions": [{"partition_index": one} for one in parts]}

    for name, topics in {
        "fine": [quorum(log, 0)],
        "nothing": [],
        "no partitions": [quorum(log)],
        "unknown topic": [quorum(nowhere, 0)],
        "unknown partition": [quorum(log, 5)],
        "doubled partition": [quorum(log, 0, 0)],
        "two topics": [quorum(log, 0), quorum(nowhere, 0)],
    }.items():
        yield Case(name, Api.DESCRIBE_QUORUM, {"topics": topics})
    yield Case("alice", Api.DESCRIBE_QUORUM, {"topics": [quorum(log, 0)]}, "alice")


def logins() -> Iterator[Case]:
    """ApiVersions and logins."""
    for name, words in {
        "fine": ("test", "1.0"),
        "no name": ("", "1.0"),
        "odd name": ("a b", "1.0"),
        "no version": ("test", ""),
        "odd version": ("test", "1 0"),
        "dash first": ("-test", "1.0"),
    }.items():
        resource = dict(
            zip(("client_software_name", "client_software_version"), words, strict=True)
        )
        yield Case(name, Api.API_VERSIONS, resource)
        yield Case(f"{name}, before the login", Api.API_VERSIONS, resource, login=False)
    for name in ("PLAIN", "plain", "", "GSSAPI"):
        words = {"mechanism": name}
        yield Case(f"mechanism {name}", Api.SASL_HANDSHAKE, words, login=False, versions=(1,))
        yield Case(f"mechanism {name} later", Api.SASL_HANDSHAKE, words)
    right = "$hex:" + b"\0alice\0alice".hex()
    plain = ((Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),)
    for name, data in {
        "right": right,
        "wrong password": "$hex:" + b"\0alice\0bob".hex(),
        "unknown user": "$hex:" + b"\0carol\0carol".hex(),
        "nothing": "$hex:",
        "no password": "$hex:" + b"\0alice\0".hex(),
        "no user": "$hex:" + b"\0\0alice".hex(),
        "one part": "$hex:" + b"alice".hex(),
        "four parts": "$hex:" + b"\0a\0b\0c".hex(),
        "as another": "$hex:" + b"bob\0alice\0alice".hex(),
        "no text": "$hex:00ff00ff",
    }.items():
        words = {"auth_bytes": data}
        yield Case(name, Api.SASL_AUTHENTICATE, words, before=plain, login=False)
    yield Case("without a handshake", Api.SASL_AUTHENTICATE, {"auth_bytes": right}, login=False)
    yield Case("later", Api.SASL_AUTHENTICATE, {"auth_bytes": right})
    yield Case("before the login", Api.LIST_GROUPS, {}, login=False)
    yield Case("between the steps", Api.LIST_GROUPS, {}, before=plain, login=False)
    again = {"mechanism": "PLAIN"}
    yield Case("again", Api.SASL_HANDSHAKE, again, before=plain, login=False, versions=(1,))


def cluster_cases() -> Iterator[Case]:
    """Return all cases about anything but groups."""
    assert COMMITTED
    for some in (metadata, list_offsets, records, settings, cluster, logins):
        yield from some()
