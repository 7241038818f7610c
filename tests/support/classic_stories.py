"""Logs of classic groups, for tests of what views tell of them."""

from __future__ import annotations

from random import Random

from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    ClassicRange,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.storage.delta_log import DeltaLog

NOON = 1_772_366_400_000
TOPICS = {"t": 6, "u": 4}
REASONS = ("member joined", "member left", "session timeout", "member joined, member left")
SUBSCRIBED = write_subscription(Subscription(1, ["u", "t"]))
ONLY_T = write_subscription(Subscription(1, ["t"]))
ODD_BYTES = (b"", b"\xff\xff", b"\0\1\0\0\0\1\xff", bytes(range(256)))


def classic_log(store, seed=0, records=40):
    """Write a log of classic groups that live at random; return what was written, by position."""
    random = Random(seed)
    log = DeltaLog(store)
    log.claim("story", "", NOON)
    written = [TopicChanged(name, f"id-{name}", count, version=1) for name, count in TOPICS.items()]
    last = {}
    for _ in range(records):
        group_id = random.choice(("alpha", "beta", "connectors"))
        before = last.get(group_id)
        if before and random.random() < 0.1:
            written.append(Tombstone(ClassicGroupWritten.kind, group_id))
            last[group_id] = None
        elif before and before.members and random.random() < 0.2:
            written.append(returned(before, random))
            last[group_id] = written[-1]
        else:
            written.append(generation(group_id, before, random))
            last[group_id] = written[-1]
    written += converted()
    half = len(written) // 2
    for part in (written[:half], written[half:]):
        log.append(part, NOON + log.position)
    log.close()
    return list(enumerate(written, start=2))  # the first row is the claim


def generation(group_id, before, random):
    """Return the record of a next generation: some members, each with some ranges."""
    consumers = group_id != "connectors"
    free = [(name, at) for name, count in TOPICS.items() for at in range(count)]
    members = []
    for name in sorted(random.sample("abcdef", random.randrange(5))):
        mine = sorted(random.sample(free, min(len(free), random.randrange(4))))
        free = [one for one in free if one not in mine]
        metadata = random.choice(ODD_BYTES)
        if consumers and random.random() < 0.8:
            metadata = SUBSCRIBED
        members.append(
            ClassicMemberWritten(
                f"{name}-{random.randrange(2)}",
                f"static-{name}" if name < "c" else None,
                f"client-{name}", f"/host-{random.randrange(2)}", 60_000, 10_000,
                metadata, random.choice(ODD_BYTES),
                ("t", "u") if metadata == SUBSCRIBED else (),
                tuple(ClassicRange(t, f"id-{t}", at, 1) for t, at in mine) if consumers else (),
            )
        )  # fmt: skip
    ids = [one.member_id for one in (*members, *(before.members if before else ()))]
    ours = random.random() < 0.5
    return ClassicGroupWritten(
        group_id,
        (before.generation if before else 0) + 1 + random.randrange(2),
        "consumer" if consumers else "connect",
        "range" if members else None,
        members[0].member_id if members else None,
        NOON,
        tuple(members),
        "uniform" if ours else "",
        random.randrange(3) if ours else 0,
        random.choice(REASONS),
        random.choice([*ids, "who went before", None]),
    )


def returned(before, random):
    """Return the record by which a static member has another id, in the same generation."""
    from msgspec.structs import replace

    at = random.randrange(len(before.members))
    members = list(before.members)
    gone = members.pop(at)
    members.append(replace(gone, member_id=f"{gone.member_id[0]}-back-{random.randrange(99)}"))
    return replace(before, members=tuple(members))


def converted():
    """Return records of a group that becomes a consumer group, and a classic one again."""
    key, whole = TopicKey("t", "id-t"), ((TopicKey("t", "id-t"), 0, 6),)
    ranges = (ClassicRange("t", "id-t", 0, 6),)
    member = ClassicMemberWritten(
        "m", None, "c", "/h", subscription=ONLY_T, subscribed_topic_names=("t",), assigned=ranges
    )
    record = ClassicGroupWritten(
        "moving",
        4,
        "consumer",
        "range",
        "m",
        NOON,
        (member,),
        reason="member joined",
        member_id="m",
    )
    return [
        record,
        Tombstone(ClassicGroupWritten.kind, "moving"),
        MemberMetadata(
            "moving", "m", client_id="c", client_host="/h", subscribed_topic_names=("t",)
        ),
        GroupMetadata("moving", 4, 7, "classic group converted"),
        TargetMember("moving", "m", whole),
        TargetMetadata("moving", 4),
        CurrentMember("moving", "m", 4, 4, assigned=((key, 0, 6, 4),)),
        Tombstone(CurrentMember.kind, "moving", "m"),
        Tombstone(TargetMember.kind, "moving", "m"),
        Tombstone(TargetMetadata.kind, "moving"),
        Tombstone(MemberMetadata.kind, "moving", "m"),
        Tombstone(GroupMetadata.kind, "moving"),
        ClassicGroupWritten(
            "moving",
            9,
            "consumer",
            "range",
            "m",
            NOON,
            (member,),
            reason="consumer group converted",
        ),
    ]
