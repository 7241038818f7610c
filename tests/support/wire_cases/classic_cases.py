"""Cases about members of classic groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.wire.codec import Api
from tests.support.wire_cases import Case
from tests.support.wire_cases.group_cases import (
    CLASSIC,
    COMMITTED,
    GROUP,
    JOINED,
    RANGE,
    SECRET,
    join,
)  # fmt: skip


def sync(group: str = GROUP, generation: int = 2, member: str = "m1", **words: Any) -> dict:
    """Return a SyncGroup, or a Heartbeat."""
    known = {"group_id": group, "generation_id": generation, "member_id": member}
    return (
        known | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []} | words
    )


def leave(*members: dict, group: str = GROUP) -> dict:
    """Return a LeaveGroup."""
    first = members[0]["member_id"] if members else ""
    return {"group_id": group, "member_id": first, "members": list(members)}


def classic_members() -> Iterator[Case]:
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
    joins = {
        "join": join(),
        "group without a name": join(group=""),
        "long group": join(group="$x:300"),
        "unknown member": join("m1"),
        "instance": join(group_instance_id="i1"),
        "instance without a name": join(group_instance_id=""),
        "unknown member with an instance": join("m1", group_instance_id="i1"),
        "session too short": join(session_timeout=10),
        "session too long": join(session_timeout=2_000_000),
        "negative session": join(session_timeout=-1),
        "negative timeout": join(rebalance_timeout=-1),
        "no protocols": join(protocols=[]),
        "no protocol type": join(protocol_type=""),
        "another protocol type": join(protocol_type="connect"),
        "protocol without a name": join(protocols=[RANGE | {"name": ""}]),
        "doubled protocol": join(protocols=[RANGE, RANGE]),
        "no metadata": join(protocols=[RANGE | {"metadata": "$hex:"}]),
        "odd metadata": join(protocols=[RANGE | {"metadata": "$hex:00ff"}]),
        "long reason": join(reason="$x:300"),
    }
    for name, asked in joins.items():
        yield Case(name, Api.JOIN_GROUP, asked)
    yield Case("members of the other protocol", Api.JOIN_GROUP, join(), before=JOINED)
    yield Case("unknown among members", Api.JOIN_GROUP, join("m9"), before=JOINED)
    yield Case("offsets", Api.JOIN_GROUP, join(), before=COMMITTED)
    yield Case("alice", Api.JOIN_GROUP, join(), "alice")
    yield Case("alice secret", Api.JOIN_GROUP, join(group=SECRET), "alice")
    yield Case("alice without a group", Api.JOIN_GROUP, join(group=""), "alice")

    unnamed = {"protocol_type": None, "protocol_name": None}
    several = [{"member_id": "m1", "assignment": "$hex:00"}] * 2
    for api in (Api.SYNC_GROUP, Api.HEARTBEAT):
        cases: dict[str, tuple[dict, Any]] = {
            "unknown group": (sync(), ()),
            "group without a name": (sync(group=""), ()),
            "member without a name": (sync(member=""), ()),
            "negative generation": (sync(generation=-1), ()),
            "instance": (sync(group_instance_id="i1"), ()),
            "instance without a name": (sync(group_instance_id=""), ()),
            "unknown member": (sync(), CLASSIC),
            "unknown member, other generation": (sync(generation=9), CLASSIC),
            "unknown member of members": (sync(), JOINED),
            "consumer member": (sync(), JOINED),
            "unknown member of offsets": (sync(), COMMITTED),
        }
        if api is Api.SYNC_GROUP:
            cases |= {
                "unnamed": (sync(**unnamed), ()),
                "unnamed without a group": (sync(group="", **unnamed), ()),
                "half named": (sync(protocol_name=None), ()),
                "doubled assignment": (sync(assignments=several), ()),
            }
            yield Case("alice secret unnamed", api, sync(group=SECRET, **unnamed), "alice")
        for name, (asked, before) in cases.items():
            yield Case(name, api, asked, before=before)
        yield Case("alice", api, sync(), "alice")
        yield Case("alice secret", api, sync(group=SECRET), "alice")

    one, other = {"member_id": "m1"}, {"member_id": "", "group_instance_id": "i1"}
    leaves = {
        "unknown group": (leave(one), ()),
        "group without a name": (leave(one, group=""), ()),
        "member without a name": (leave({"member_id": ""}), ()),
        "nobody": (leave(), ()),
        "nobody of a group": (leave(), CLASSIC),
        "unknown member": (leave(one), CLASSIC),
        "doubled unknown member": (leave(one, one, other), CLASSIC),
        "unknown member of members": (leave(one | {"member_id": "m9"}, other), JOINED),
        "consumer member": (leave(one), JOINED),
        "unknown member of offsets": (leave(one), COMMITTED),
    }
    for name, (asked, before) in leaves.items():
        yield Case(name, Api.LEAVE_GROUP, asked, before=before)
    yield Case("alice", Api.LEAVE_GROUP, leave(one), "alice")
    yield Case("alice secret", Api.LEAVE_GROUP, leave(one, other, group=SECRET), "alice")
