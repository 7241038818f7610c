"""What is wrong with groups: each finding in a log that has it, and not in a twin that has not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from msgspec.structs import replace as changed

from coordinator.config import Config
from coordinator.core.events import ExpireOffsets
from coordinator.core.state.groups import State
from coordinator.core.state.plan_values import MemberLoad, TopicWeights
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    ClassicRange,
    GroupMetadata,
    GroupUnread,
    LoadsNoted,
    MemberMetadata,
    OffsetCommitted,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import step
from coordinator.history.findings import LEVELS, SCHEMAS, TITLES, Level, Limits, examine, to_json
from coordinator.history.findings.doctor import FIND
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.record_log import Batch
from tests.support.classic_stories import ONLY_T
from tests.support.stories import MINUTE, NOON, SECOND, Story, many_groups, shipping, stored

DAY = 24 * 60 * MINUTE


def look(store, minutes=10, names=tuple(FIND), group_id=None, **limits):
    """Return what is found in a store, as of minutes after noon, by name: JSON rows."""
    limits = {"retention_ms": 7 * DAY, **limits}
    log = LogRows(LogReader(store), group_id)
    found = examine(log, NOON + round(minutes * MINUTE), Limits(**limits), names)
    return {one.name: to_json(one) for one in found}


@pytest.fixture
def found(tmp_path):
    """Return the rows of a finding after a story, or after records; the others are looked for too."""
    made = iter(range(10))

    def run(name, story, minutes=10, as_client=None, **limits):
        batches = story.batches if isinstance(story, Story) else as_batches(story)
        if as_client:  # who each new member is
            batches = [replace(b, records=[tell(r, as_client) for r in b.records]) for b in batches]
        store = stored(batches, tmp_path / str(next(made)))
        return look(store, minutes, **limits).get(name, [])

    return run


CLIENT = {"client_id": "c", "client_host": "/h"}


def tell(record, client):
    is_new = isinstance(record, MemberMetadata) and record.member_id.startswith("new")
    return changed(record, **client) if is_new else record


def as_batches(records):
    return [Batch(0, NOON, 1, []), Batch(0, NOON, 1, list(records))]


def pair(**topics):
    """Two members that share topics from noon on."""
    story = Story("g").topics(**(topics or {"t": 4})).at(0)
    return story.join("m1", *(topics or "t")).join("m2", *(topics or "t"))


def leave_unsettled(story, member, seconds):
    """Let a member leave, and no heartbeat come for a while."""
    fields = story.members.pop(member)[2]
    story.run(op="heartbeat", group="g", member=member, epoch=-1, **fields)
    story.run(op="advance", ms=seconds * SECOND)
    return story.settle()


def classic(group_id, *owned, protocol_type="consumer"):
    """A generation of a classic group over a topic of six partitions: how many each member owns."""
    members, at = [], 0
    for number, count in enumerate(owned):
        ranges = (ClassicRange("t", "id-t", at, count),) if count else ()
        members.append(
            ClassicMemberWritten(
                f"m{number}", client_id="c", client_host="/h", subscribed_topic_names=("t",),
                assigned=ranges,
            )
        )  # fmt: skip
        at += count
    written = ClassicGroupWritten(
        group_id, 3, protocol_type, "range", "m0", NOON, tuple(members), reason="member joined"
    )
    return [TopicChanged("t", "id-t", 6, version=1), written]


def test_findings_are_named_alike():
    assert list(FIND) == list(SCHEMAS) == list(LEVELS) == list(TITLES)
    assert all(schema.names[0] == "group_id" for schema in SCHEMAS.values())
    assert {name for name, level in LEVELS.items() if level is Level.NOTE} == {
        "idle_members",
        "classic_groups",
    }


def test_nothing_is_found_in_a_group_at_rest(tmp_path):
    assert look(stored(pair().at(9).batches, tmp_path)) == {}


def test_unreadable_groups(found):
    broken = GroupUnread("g", 7, 12, "value is cut")
    (row,) = found("unreadable_groups", [broken])
    assert (row["group_id"], row["offset"], row["reason"]) == ("g", 12, "value is cut")
    assert row["level"] == "problem"
    assert found("unreadable_groups", [broken, Tombstone(GroupUnread.kind, "g")]) == []


def test_unowned_partitions(found):
    """A topic has grown, and no member has the new part yet."""
    story = pair().at(1).topics(t=6)
    (row,) = found("unowned_partitions", story)
    assert (row["topic"], row["first_partition"], row["partition_count"]) == ("t", 4, 2)
    assert (row["state"], row["since"]) == ("Stable", None)
    assert found("unowned_partitions", story.settle()) == []
    (row,) = found("unowned_partitions", classic("c", 3, 2))
    assert (row["first_partition"], row["last_partition"]) == (5, 5)
    assert found("unowned_partitions", classic("c", 3, 3)) == []


def test_partitions_are_unowned_since_their_owner_left(found):
    story = pair().at(1)
    fields = story.members.pop("m1")[2]
    story.run(op="heartbeat", group="g", member="m1", epoch=-1, **fields)
    assert found("unowned_partitions", story, minutes=1.5) == [], "the group is on its way"
    (row,) = found("unowned_partitions", story, minutes=2.5)
    assert (row["state"], row["since"]) == ("Assigning", "2026-03-01T12:01:00.000Z")
    assert row["partition_count"] == 2


def test_slow_rebalances_name_who_was_waited_for(found):
    (row,) = found("slow_rebalances", shipping(), patience_ms=30 * SECOND)
    assert (row["waited_for"], row["waits_for"]) == (["s1"], 1)
    assert (row["began_at"], row["settled_at"]) == (clock(0), clock(1))
    assert (row["group_epoch"], row["last_epoch"], row["seconds"]) == (3, 4, 60)
    assert found("slow_rebalances", shipping()) == [], "a minute is not more than a minute"
    before = found("slow_rebalances", shipping(), minutes=62, patience_ms=30 * SECOND)
    assert before == [], "the window begins later"


def test_a_rebalance_that_goes_on_names_who_is_waited_for(found):
    story = Story("g").topics(t=4).at(0).join("m1", "t", rebalance_timeout_ms=3_600_000)
    story.hold_on("m1").join("m2", "t").at(5)
    (row,) = found("slow_rebalances", story)
    assert (row["settled_at"], row["seconds"], row["waited_for"]) == (None, 600, ["m1"])
    assert found("slow_rebalances", pair().at(5)) == []


def test_a_group_that_all_left_is_not_slow(found):
    story = pair().at(1).leave("m1").leave("m2").at(8).join("m1", "t").at(9)
    names = ("slow_rebalances", "ownership_gaps", "unowned_partitions")
    assert [found(name, story, patience_ms=30 * SECOND) for name in names] == [[], [], []]
    assert found("slow_rebalances", pair().at(1).leave("m1").leave("m2")) == []


def test_ownership_gaps(found):
    (row,) = found("ownership_gaps", leave_unsettled(pair().at(1), "m1", 40), patience_ms=30_000)
    assert (row["topic"], row["partition_count"], row["gaps"]) == ("t", 2, 1)
    assert (row["seconds"], row["reason_codes"]) == (40, ["member_left"])
    assert (row["last_gap_at"], row["last_gap_until"]) == (clock(1), clock(1 + 40 / 60))
    limits = {"patience_ms": 30_000, "minutes": 70}
    assert found("ownership_gaps", leave_unsettled(pair().at(1), "m1", 40), **limits) == []
    assert (
        found("ownership_gaps", leave_unsettled(pair().at(1), "m1", 20), patience_ms=30_000) == []
    )


def test_what_a_member_no_longer_wants_has_no_gap(found):
    story = Story("g").topics(t=2, u=2).join("m1", "t", "u").at(0).subscribe("m1", "t")
    story.at(5).subscribe("m1", "t", "u").at(6)
    assert found("ownership_gaps", story, patience_ms=SECOND) == []


def come_and_go(times, **fields):
    story = pair()
    for number in range(times):
        story.join("m3", "t", **fields)
        story.at(number + 0.5).leave("m3").at(number + 1)
    return story


def test_flapping_members(found):
    """Who comes back four times has come five times."""
    (row,) = found("flapping_members", come_and_go(5))
    assert (row["member_id"], row["returns"], row["members"]) == ("m3", 4, 1)
    assert found("flapping_members", come_and_go(4)) == []
    assert found("flapping_members", come_and_go(5), minutes=64) == [], "before the window"


def test_a_client_flaps_under_many_member_ids(found):
    def come_as_another(times, client, at_once=1):
        story = pair()
        for number in range(times):
            for one in range(at_once):
                story.join(f"new-{number}-{one}", "t", **client)
            story.at(number + 0.5)
            for one in range(at_once):
                story.leave(f"new-{number}-{one}")
        return story

    (row,) = found("flapping_members", come_as_another(5, {"instance_id": "i"}))
    assert (row["instance_id"], row["returns"], row["member_id"]) == ("i", 4, "new-4-0")
    (row,) = found("flapping_members", come_as_another(5, {}), as_client=CLIENT)
    assert (row["client_id"], row["client_host"], row["returns"]) == ("c", "/h", 4)
    # Three of one client that restart three times each are none that flaps.
    assert found("flapping_members", come_as_another(4, {}, at_once=3), as_client=CLIENT) == []
    assert found("flapping_members", come_as_another(5, {})) == [], "of no client"


def test_members_of_classic_groups_flap(found):
    both, one = classic("c", 3, 3), classic("c", 3)[1:]
    records = both + [r for _ in range(4) for r in (*one, *both[1:])]
    (row,) = found("flapping_members", [*number_generations(records)])
    assert (row["group_id"], row["member_id"], row["returns"]) == ("c", "m1", 4)
    assert found("flapping_members", [*number_generations(records[:-2])]) == []


def number_generations(records):
    for number, record in enumerate(records):
        is_group = isinstance(record, ClassicGroupWritten)
        yield changed(record, generation=number) if is_group else record


def test_flapping_partitions(found):
    rows = found("flapping_partitions", come_and_go(3))
    assert {row["topic"] for row in rows} == {"t"}
    assert max(row["moves"] for row in rows) == 7
    assert found("flapping_partitions", come_and_go(1)) == []


def test_frequent_rebalances(found):
    (row,) = found("frequent_rebalances", come_and_go(5))
    assert (row["rebalances"], row["an_hour"], row["members"]) == (12, 12, 2)
    assert (row["reason"], row["reason_count"], row["member_id"]) == ("member joined", 7, "m3")
    assert found("frequent_rebalances", come_and_go(4)) == [], "ten are not more than ten"
    assert found("frequent_rebalances", come_and_go(5), window_ms=2 * 60 * MINUTE) == []


def test_many_members_that_restart_are_no_frequent_rebalances(found):
    story = Story("g").topics(t=8)
    for number in range(7):
        story.join(f"m{number}", "t")
    for number in range(3):
        story.leave(f"m{number}").join(f"m{number}", "t")
    assert found("frequent_rebalances", story) == []


def test_expiring_offsets(found):
    story = pair().at(1).commit("m1", {"t": {"0": 5}}).at(2)
    days = 7 * 24 * 60
    assert found("expiring_offsets", story, minutes=days) == [], "members need them"
    story = story.leave("m1").leave("m2")
    (row,) = found("expiring_offsets", story, minutes=days - 60)
    assert (row["offsets"], row["all_offsets"]) == (1, 1)
    assert row["expires_at"] == "2026-03-08T12:01:00.000Z"
    assert found("expiring_offsets", story, minutes=days - 25 * 60) == []
    assert found("expiring_offsets", story, minutes=days - 25 * 60, expires_ms=2 * DAY) != []


@pytest.mark.parametrize("seed", range(3))
def test_offsets_expire_as_the_coordinator_expires_them(tmp_path, seed):
    """Of groups without members, of every kind: `ExpireOffsets` on the state that is replayed."""
    random, gone = Random(seed), []
    member = ClassicMemberWritten("m", subscribed_topic_names=("t",), subscription=ONLY_T)
    records = [GroupMetadata("empty", 3, 0, "member left")]
    for group_id, kind, members in (
        ("stopped", "consumer", ()), ("connect", "connect", ()), ("simple", "", ()),
        ("runs", "consumer", (member,)),
    ):  # fmt: skip
        emptied = NOON + random.randrange(20) * MINUTE
        records.append(
            ClassicGroupWritten(group_id, 2, kind, state_timestamp=emptied, members=members)
        )
    for group_id in ("empty", "stopped", "connect", "simple", "runs", "alone"):
        for partition in range(4):
            at = NOON + random.randrange(20) * MINUTE
            records.append(OffsetCommitted(group_id, "t", "id", partition, 5, commit_timestamp=at))
    records += [Tombstone(OffsetCommitted.kind, "alone", name="t", partition=3)]
    store, state, kept = stored(as_batches(records), tmp_path / "s"), State(), Config()
    kept = replace(kept, kafka=replace(kept.kafka, offsets_retention_minutes=10))
    for record in records:
        replay(state, record)
    for at in range(0, 35, 2):
        ended = step(state, kept, ExpireOffsets(), NOON + at * MINUTE).records
        ended = [r.group_id for r in ended if r.of == OffsetCommitted.kind]
        rows = look(store, at, ["expiring_offsets"], retention_ms=10 * MINUTE, expires_ms=0)
        found = {row["group_id"]: row["offsets"] for row in rows.get("expiring_offsets", [])}
        assert found == Counter(ended), at
        gone += ended
    assert set(gone) == {"empty", "stopped", "connect", "simple", "alone"}


def test_skew(found):
    (row,) = found("skew", classic("c", 5, 1))
    assert (row["member_id"], row["most"], row["least"], row["share"]) == ("m0", 5, 1, 3)
    assert (row["measure"], row["members"]) == ("partitions", 2)
    assert found("skew", classic("c", 5, 1), skew=2.0) == []
    assert found("skew", classic("c", 4, 2)) == []
    assert found("skew", classic("c", 1, 1, 1, 0, 0)) == [], "no assignment is closer"
    assert found("skew", classic("c", 6)) == []


def test_skew_of_weights(found):
    def weigh(*weights, **rules):
        return LoadsNoted("c", (TopicWeights("t", weights),), **rules)

    group = classic("c", 3, 3)
    (row,) = found("skew", [*group, weigh(3, 3, 3, 1, 1, 1)], skew=1.4)
    assert (row["measure"], row["most"], row["share"]) == ("weight", 9, 6)
    assert found("skew", [*group, weigh(2, 2, 2, 2, 2, 2)]) == []
    assert found("skew", [*group, weigh(30, 1, 1, 1, 1, 1)], skew=1.4) == [], "one is that heavy"
    rules = {"capacities": (MemberLoad("m0", 3.0),)}
    assert found("skew", [*group, weigh(3, 3, 3, 1, 1, 1, **rules)], skew=1.4) == []


def test_idle_members(found):
    (row,) = found("idle_members", pair(t=1).at(2))
    assert (row["idle"], row["members"], row["partitions"]) == (1, 2, 1)
    assert (row["member_ids"], row["level"]) == (["m2"], "note")
    assert found("idle_members", pair(t=2).at(2)) == []
    (row,) = found("idle_members", classic("c", *[1] * 6, *[0] * 20))
    assert (row["idle"], row["member_ids"][:2], len(row["member_ids"])) == (20, ["m10", "m11"], 10)
    assert found("idle_members", classic("c", 0, 0, protocol_type="connect")) == []


def test_classic_groups(found):
    (row,) = found("classic_groups", classic("c", 3, 3))
    assert (row["group_id"], row["members"], row["generation"]) == ("c", 2, 3)
    assert found("classic_groups", classic("c", 3, 3, protocol_type="connect")) == []
    assert found("classic_groups", classic("c")) == [], "it has no members"
    assert found("classic_groups", pair()) == []


def test_of_one_group_is_a_filter_of_all(tmp_path):
    store = many_groups(range(3, 31, 9), ["coordinator"], tmp_path)
    every = look(store, 10)
    rows = [row for some in every.values() for row in some]
    assert len({row["group_id"] for row in rows}) > 2
    assert set(every) >= {"unowned_partitions", "slow_rebalances", "idle_members"}
    for group_id in {row["group_id"] for row in rows}:
        mine = look(store, 10, group_id=group_id)
        assert [row for some in mine.values() for row in some] == [
            row for row in rows if row["group_id"] == group_id
        ]


def clock(minutes):
    from coordinator.display.times import format_time

    return format_time(NOON + round(minutes * MINUTE))
