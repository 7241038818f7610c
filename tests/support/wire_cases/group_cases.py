"""Cases about groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.wire.codec import Api
from tests.support.wire_cases import Case

GROUP = "{g}"
SECRET = "secret"
"""A group that alice may not see."""
RANGE = {"name": "range", "metadata": "$hex:0001000000010006636c69636b73000000000000000000000000"}
EPOCHS, JOINS = (9, 10), (0, 1)


def topic(
    name: str, *partitions: Any, key: str = "partitions", topic_id: str | None = None
) -> dict:
    """Return a topic by name and id, whichever the version has."""
    known = name in {"clicks", "orders", "hidden"}
    shown = f"$id:{name}" if known else "$id:nowhere" if topic_id is None else topic_id
    return {"name": name, "topic_id": shown, key: list(partitions)}


def offset(partition: int, committed: int = 5, metadata: str | None = "", epoch: int = -1) -> dict:
    """Return an offset of a partition."""
    return {
        "partition_index": partition,
        "committed_offset": committed,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def commit(*topics: dict, group: str = GROUP, member: str = "", epoch: int = -1) -> dict:
    """Return an OffsetCommit."""
    words = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": epoch}
    return {**words, "retention_time": -1, "topics": list(topics)}


def fetch(*groups: dict) -> dict:
    """Return an OffsetFetch, in both forms."""
    return {**(groups[0] if groups else {}), "groups": list(groups)}


def of(*topics: dict, group: str = GROUP, **words: Any) -> dict:
    """Return what is fetched of a group."""
    return {"group_id": group, "topics": list(topics), **words}


def everything(group: str = GROUP) -> dict:
    """Return a fetch of all topics."""
    return {"group_id": group, "topics": None}


def named(name: str, *partitions: int, topic_id: str | None = None) -> dict:
    """Return a topic that is fetched."""
    return topic(name, *partitions, key="partition_indexes", topic_id=topic_id)


def beat(member: str = "m1", epoch: int = 0, group: str = GROUP, **words: Any) -> dict:
    """Return a heartbeat; one that joins, unless something else is said."""
    join = {
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["clicks"],
        "topic_partitions": [],
    }
    known = {"group_id": group, "member_id": member, "member_epoch": epoch}
    return known | (join if epoch == 0 else {"topic_partitions": None}) | words


JOINED = ((Api.CONSUMER_GROUP_HEARTBEAT, 1, beat()),)
COMMITTED = (
    (Api.OFFSET_COMMIT, 9, commit(topic("clicks", offset(0, 5, "why", 3), offset(1)),
                                  topic("hidden", offset(0)))),
)  # fmt: skip
SECRETS = ((Api.OFFSET_COMMIT, 9, commit(topic("clicks", offset(0)), group=SECRET)),)


def join(member: str = "", group: str = GROUP, **words: Any) -> dict:
    """Return a JoinGroup."""
    return {
        "group_id": group, "member_id": member, "session_timeout": 60_000,
        "rebalance_timeout": 60_000, "protocol_type": "consumer", "protocols": [RANGE], **words,
    }  # fmt: skip


CLASSIC = ((Api.JOIN_GROUP, 2, join()),)


def offset_commits() -> Iterator[Case]:
    """OffsetCommit."""
    fine, nowhere = topic("clicks", offset(0)), topic("nowhere", offset(0), offset(-1, -1))
    hidden = topic("hidden", offset(0))
    cases = {
        "fine": commit(fine),
        "with an epoch": commit(topic("clicks", offset(0, 5, "why", 3))),
        "epoch below -1": commit(topic("clicks", offset(0, epoch=-5))),
        "nothing": commit(),
        "no partitions": commit(topic("clicks")),
        "unknown topic": commit(nowhere),
        "unknown partition": commit(topic("clicks", offset(4), offset(99))),
        "negative partition": commit(topic("clicks", offset(-1), offset(0))),
        "negative offset": commit(topic("clicks", offset(0, -5), offset(1, 7))),
        "offset -1": commit(topic("clicks", offset(0, -1))),
        "largest offset": commit(topic("clicks", offset(0, 2**63 - 1))),
        "metadata at its limit": commit(topic("clicks", offset(0, metadata="$x:4096"))),
        "metadata over its limit": commit(
            topic("clicks", offset(0, metadata="$x:4097"), offset(1))
        ),
        "metadata of two bytes": commit(topic("clicks", offset(0, metadata="$ü:4096"))),
        "metadata of two units": commit(topic("clicks", offset(0, metadata="$😀:2049"))),
        "metadata of two units at its limit": commit(
            topic("clicks", offset(0, metadata="$😀:2048"))
        ),
        "no metadata": commit(topic("clicks", offset(0, metadata=None))),
        "doubled topic": commit(fine, topic("clicks", offset(1), offset(0, 9))),
        "doubled partition": commit(topic("clicks", offset(0, 5), offset(0, 6))),
        "doubled unknown topic": commit(nowhere, nowhere),
        "some of it": commit(
            nowhere, topic("clicks", offset(99), offset(0), offset(1, -1)), hidden
        ),
        "no name": commit(topic("", offset(0), topic_id="$id:")),
        "odd name": commit(topic("a b!", offset(0))),
        "long name": commit(topic("$x:300", offset(0))),
        "group without a name": commit(fine, group=""),
        "group without a name and no topic": commit(nowhere, group=""),
        "long group": commit(fine, group="$x:300"),
        "member of no group": commit(fine, member="m1"),
        "epoch of no group": commit(fine, member="m1", epoch=5),
        "unknown topic of a member of no group": commit(nowhere, member="m1", epoch=5),
        "nothing of a member of no group": commit(member="m1", epoch=5),
        "epoch without a member": commit(fine, epoch=5),
        "instance": commit(fine) | {"group_instance_id": "i1"},
    }
    for name, asked in cases.items():
        yield Case(name, Api.OFFSET_COMMIT, asked)
    members = {
        "of a member": commit(fine, member="m1", epoch=2),
        "without a member": commit(fine),
        "of another member": commit(fine, member="m2", epoch=2),
        "nothing of another member": commit(member="m2", epoch=2),
        "unknown topic of another member": commit(nowhere, member="m2", epoch=2),
        "epoch too high": commit(fine, member="m1", epoch=9),
    }
    for name, asked in members.items():
        yield Case(name, Api.OFFSET_COMMIT, asked, before=JOINED)
    users = {
        "alice": commit(fine, nowhere, hidden),
        "alice hidden": commit(hidden),
        "alice secret": commit(fine, nowhere, group=SECRET),
        "alice secret nothing": commit(group=SECRET),
        "alice without a group": commit(fine, group=""),
    }
    for name, asked in users.items():
        yield Case(name, Api.OFFSET_COMMIT, asked, "alice")


def offset_fetches() -> Iterator[Case]:
    """OffsetFetch."""
    fine, nowhere = named("clicks", 0, 1, 2), named("nowhere", 0, -1)
    cases = {
        "fine": fetch(of(fine)),
        "everything": fetch(everything()),
        "no topics": fetch(of()),
        "no partitions": fetch(of(named("clicks"))),
        "unknown topic": fetch(of(nowhere)),
        "unknown partition": fetch(of(named("clicks", 0, 99))),
        "negative partition": fetch(of(named("clicks", -1, 0))),
        "doubled topic": fetch(of(fine, named("clicks", 0))),
        "doubled partition": fetch(of(named("clicks", 0, 0))),
        "some of it": fetch(of(nowhere, fine)),
        "no name": fetch(of(named("", 0, topic_id="$id:"))),
        "odd name": fetch(of(named("a b!", 0))),
        "group without a name": fetch(of(fine, group="")),
        "everything of a group without a name": fetch(everything("")),
        "unknown group": fetch(of(fine, group="nobodys")),
        "everything of an unknown group": fetch(everything("nobodys")),
        "doubled group": fetch(of(fine), of(fine)),
        "two groups": fetch(of(fine), of(fine, group="nobodys")),
        "stable": fetch(of(fine)) | {"require_stable": True},
        "member of no group": fetch(of(fine, group="nobodys", member_id="m1", member_epoch=3)),
        "member of none": fetch(of(fine, member_id="m1", member_epoch=3)),
    }
    for name, asked in cases.items():
        yield Case(name, Api.OFFSET_FETCH, asked, before=COMMITTED)
    several = (8, 9, 10)
    yield Case("no groups", Api.OFFSET_FETCH, fetch(), versions=several)
    yield Case("alice no groups", Api.OFFSET_FETCH, fetch(), "alice", versions=several)
    members = {
        "of a member": of(fine, member_id="m1", member_epoch=2),
        "epoch too low": of(fine, member_id="m1", member_epoch=1),
        "of another member": of(fine, member_id="m2", member_epoch=2),
        "member without an epoch": of(fine, member_id="m1"),
        "epoch without a member": of(fine, member_epoch=2),
        "member without a name": of(fine, member_id="", member_epoch=2),
    }
    for name, group in members.items():
        yield Case(name, Api.OFFSET_FETCH, fetch(group), before=JOINED, versions=EPOCHS)
    stored = {
        "after some of it": commit(
            topic("nowhere", offset(0)), topic("clicks", offset(99), offset(0), offset(1, -1))
        ),
        "after a negative offset": commit(topic("clicks", offset(0, -5), offset(1, 7))),
        "after a negative partition": commit(topic("clicks", offset(-1), offset(0))),
        "after a doubled partition": commit(topic("clicks", offset(0, 5), offset(0, 6))),
        "after a doubled topic": commit(topic("clicks", offset(0)), topic("clicks", offset(0, 9))),
        "after no metadata": commit(topic("clicks", offset(0, metadata=None))),
        "after an epoch below -1": commit(topic("clicks", offset(0, epoch=-5))),
        "after too much metadata": commit(
            topic("clicks", offset(0, metadata="$x:4097"), offset(1))
        ),
    }
    for name, asked in stored.items():
        before = ((Api.OFFSET_COMMIT, 9, asked),)
        yield Case(name, Api.OFFSET_FETCH, fetch(everything()), before=before)
    users = {
        "alice": fetch(of(fine, nowhere, named("hidden", 0))),
        "alice hidden": fetch(of(named("hidden", 0, 99))),
        "alice everything": fetch(everything()),
        "alice secret": fetch(of(fine, group=SECRET)),
        "alice everything secret": fetch(everything(SECRET)),
        "alice two groups": fetch(of(fine), of(fine, group=SECRET)),
        "alice without a group": fetch(of(fine, group="")),
    }
    for name, asked in users.items():
        yield Case(name, Api.OFFSET_FETCH, asked, "alice", before=COMMITTED + SECRETS)


def offset_deletes() -> Iterator[Case]:
    """OffsetDelete."""

    def delete(*topics: dict, group: str = GROUP) -> dict:
        return {"group_id": group, "topics": list(topics)}

    def named(name: str, *partitions: int) -> dict:
        return {"name": name, "partitions": [{"partition_index": one} for one in partitions]}

    cases = {
        "fine": delete(named("clicks", 0)),
        "without an offset": delete(named("clicks", 3)),
        "nothing": delete(),
        "no partitions": delete(named("clicks")),
        "unknown topic": delete(named("nowhere", 0, -1)),
        "unknown partition": delete(named("clicks", 0, 99)),
        "negative partition": delete(named("clicks", -1, 0)),
        "doubled topic": delete(named("clicks", 0), named("clicks", 1)),
        "doubled partition": delete(named("clicks", 0, 0)),
        "some of it": delete(named("nowhere", 0), named("clicks", 99, 0), named("orders", 1)),
        "no name": delete(named("", 0)),
        "odd name": delete(named("a b!", 0)),
        "group without a name": delete(named("clicks", 0), group=""),
        "unknown group": delete(named("clicks", 0), group="nobodys"),
        "unknown topic of an unknown group": delete(named("nowhere", 0), group="nobodys"),
    }
    for name, asked in cases.items():
        yield Case(name, Api.OFFSET_DELETE, asked, before=COMMITTED)
    subscribed = delete(named("clicks", 0, 99), named("orders", 0), named("nowhere", 0))
    yield Case("subscribed", Api.OFFSET_DELETE, subscribed, before=JOINED)
    yield Case("subscribed, classic", Api.OFFSET_DELETE, subscribed, before=CLASSIC)
    users = {
        "alice": delete(named("clicks", 0, 99), named("hidden", 0, 99), named("nowhere", 0)),
        "alice hidden": delete(named("hidden", 0)),
        "alice secret": delete(named("clicks", 0), group=SECRET),
    }
    for name, asked in users.items():
        yield Case(name, Api.OFFSET_DELETE, asked, "alice", before=COMMITTED + SECRETS)


def heartbeats() -> Iterator[Case]:
    """ConsumerGroupHeartbeat."""

    def owned(*topics: tuple[str, list[int]]) -> dict:
        found = [{"topic_id": f"$id:{name}", "partitions": some} for name, some in topics]
        return {"topic_partitions": found}

    cases = {
        "join": beat(),
        "group without a name": beat(group=""),
        "member without a name": beat(""),
        "long group": beat(group="$x:300"),
        "long member": beat("$x:300"),
        "epoch -3": beat(epoch=-3),
        "leaves for a while without an instance": beat(epoch=-2),
        "leaves a group that is none": beat(epoch=-1),
        "epoch of no group": beat(epoch=5),
        "instance without a name": beat(instance_id=""),
        "rack without a name": beat(rack_id=""),
        "no timeout": beat(rebalance_timeout=-1),
        "timeout 0": beat(rebalance_timeout=0),
        "negative timeout": beat(rebalance_timeout=-5),
        "owns nothing known": beat(topic_partitions=None),
        "joins with partitions": beat(**owned(("clicks", [0]))),
        "joins with no partitions of a topic": beat(**owned(("clicks", []))),
        "subscribes to nothing": beat(subscribed_topic_names=None),
        "subscribes to none": beat(subscribed_topic_names=[]),
        "doubled name": beat(subscribed_topic_names=["clicks", "clicks"]),
        "empty name": beat(subscribed_topic_names=[""]),
        "odd name": beat(subscribed_topic_names=["a b!"]),
        "long name": beat(subscribed_topic_names=["$x:300"]),
        "unknown topic": beat(subscribed_topic_names=["nowhere"]),
        "assignor without a name": beat(server_assignor=""),
        "unknown assignor": beat(server_assignor="best"),
    }
    for name, asked in cases.items():
        yield Case(name, Api.CONSUMER_GROUP_HEARTBEAT, asked)
    pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": "cl.*"}
    regexes = {
        "pattern": pattern,
        "pattern and names": pattern | {"subscribed_topic_names": ["orders"]},
        "empty pattern": pattern | {"subscribed_topic_regex": ""},
        "wrong pattern": pattern | {"subscribed_topic_regex": "("},
    }
    for name, words in regexes.items():
        yield Case(name, Api.CONSUMER_GROUP_HEARTBEAT, beat(**words), versions=(1,))
    every = ("clicks", [0, 1, 2, 3])
    members = {
        "beats": beat(epoch=2),
        "owns all of it": beat(epoch=2, **owned(every)),
        "owns partition -1": beat(epoch=2, **owned(every, ("orders", [-1]))),
        "owns an unknown partition": beat(epoch=2, **owned(("clicks", [0, 1, 2, 3, 99]))),
        "owns an unknown topic": beat(epoch=2, **owned(every, ("nowhere", [0]))),
        "owns a topic without an id": beat(epoch=2, **owned(every, ("", [0]))),
        "owns a doubled topic": beat(epoch=2, **owned(every, every)),
        "owns a doubled partition": beat(epoch=2, **owned(("clicks", [0, 0, 1, 2, 3]))),
        "member is unknown": beat("m2", 2),
        "epoch too low": beat(epoch=1),
        "epoch too high": beat(epoch=9),
        "leaves": beat(epoch=-1),
        "another leaves": beat("m2", -1),
        "timeout below -1 later": beat(epoch=2, rebalance_timeout=-5),
    }
    for name, asked in members.items():
        yield Case(name, Api.CONSUMER_GROUP_HEARTBEAT, asked, before=JOINED)
    yield Case("joins a classic group", Api.CONSUMER_GROUP_HEARTBEAT, beat(), before=CLASSIC)
    yield Case(
        "beats in a classic group", Api.CONSUMER_GROUP_HEARTBEAT, beat(epoch=1), before=CLASSIC
    )
    users = {
        "alice": beat(),
        "alice hidden": beat(subscribed_topic_names=["clicks", "hidden"]),
        "alice unknown topic": beat(subscribed_topic_names=["clicks", "nowhere"]),
        "alice secret": beat(group=SECRET),
        "alice leaves secret": beat(epoch=-1, group=SECRET),
        "alice without a group": beat(group=""),
    }
    for name, asked in users.items():
        yield Case(name, Api.CONSUMER_GROUP_HEARTBEAT, asked, "alice")


def groups_by_name() -> Iterator[Case]:
    """ConsumerGroupDescribe, DescribeGroups, DeleteGroups, FindCoordinator."""
    fields = {
        Api.CONSUMER_GROUP_DESCRIBE: "group_ids",
        Api.DESCRIBE_GROUPS: "groups",
        Api.DELETE_GROUPS: "groups_names",
        Api.FIND_COORDINATOR: "coordinator_keys",
    }
    for api, key in fields.items():

        def asked(*groups: str, key: str = key, **words: Any) -> dict:
            return {key: list(groups), "key": groups[0] if groups else "", **words}

        operations = {"include_authorized_operations": True}
        cases = {
            "nothing": (asked(), ()),
            "unknown group": (asked("nobodys"), ()),
            "group without a name": (asked(""), ()),
            "long group": (asked("$x:300"), ()),
            "doubled unknown group": (asked("nobodys", "nobodys"), ()),
            "doubled group": (asked(GROUP, GROUP), COMMITTED),
            "of offsets": (asked(GROUP), COMMITTED),
            "of members": (asked(GROUP), JOINED),
            "of classic members": (asked(GROUP), CLASSIC),
            "some of it": (asked("", GROUP, "nobodys", ""), COMMITTED),
        }
        if api in {Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS}:
            cases["with operations"] = (asked(GROUP, "nobodys", **operations), COMMITTED)
            cases["members with operations"] = (asked(GROUP, **operations), JOINED)
        for name, (words, before) in cases.items():
            yield Case(name, api, words, before=before)
        hidden = ((Api.CONSUMER_GROUP_HEARTBEAT, 1, beat(subscribed_topic_names=["hidden"])),)
        users = {
            "alice": (asked(GROUP, **operations), JOINED),
            "alice secret": (asked(SECRET, "secrets", GROUP, **operations), SECRETS + COMMITTED),
            "alice hidden": (asked(GROUP), hidden),
            "alice without a group": (asked(""), ()),
        }
        for name, (words, before) in users.items():
            yield Case(name, api, words, "alice", before=before)
    for kind in (1, 2, 9, -1):
        words = {"coordinator_keys": ["t:AAAAAAAAAAAAAAAAAAAAAA:0"], "key": "t", "key_type": kind}
        versions = (1, 2, 3, 4, 5, 6) if kind != 2 else (6,)
        name = f"key type {kind}"
        yield Case(name, Api.FIND_COORDINATOR, words, versions=versions)
        yield Case(f"alice {name}", Api.FIND_COORDINATOR, words, "alice", versions=versions)


def lists() -> Iterator[Case]:
    """ListGroups, before there are any others than these."""
    groups = (
        (Api.OFFSET_COMMIT, 9, commit(topic("clicks", offset(0)), group="team-offsets")),
        (Api.CONSUMER_GROUP_HEARTBEAT, 1, beat(group="team-members")),
        (Api.CONSUMER_GROUP_HEARTBEAT, 1, beat(group="secret-members")),
    )
    cases = {
        "all": {},
        "states": {"states_filter": ["Empty"]},
        "states in another case": {"states_filter": ["eMPTY"]},
        "unknown state": {"states_filter": ["Sleeping"]},
        "unknown state and another": {"states_filter": ["Sleeping", "Empty"]},
        "doubled state": {"states_filter": ["Empty", "Empty"]},
        "empty state": {"states_filter": [""]},
        "types": {"types_filter": ["consumer"]},
        "types in another case": {"types_filter": ["Consumer", "CLASSIC"]},
        "unknown type": {"types_filter": ["best"]},
        "share groups": {"types_filter": ["share", "streams"]},
        "empty type": {"types_filter": [""]},
        "state of another type": {"states_filter": ["Dead"], "types_filter": ["consumer"]},
    }
    for name, asked in cases.items():
        versions = (5,) if "types_filter" in asked else (4, 5) if asked else None
        for user in ("admin", "alice"):
            shown = name if user == "admin" else f"alice {name}"
            yield Case(shown, Api.LIST_GROUPS, asked, user, groups, versions)
            groups = ()  # once


def group_cases() -> Iterator[Case]:
    """Return all cases about groups, lists first."""
    for some in (
        lists, offset_commits, offset_fetches, offset_deletes, heartbeats, groups_by_name
    ):  # fmt: skip
        yield from some()
