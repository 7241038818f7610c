"""Subscriptions by regular expression: resolved off the heartbeat path, by the coordinator."""

from __future__ import annotations

import pytest

from coordinator.config import Config
from coordinator.core.consumer.regexes import REGEX_REFRESH_MIN_MS
from coordinator.core.events import Heartbeat, RegexesResolved, ResolveRegexes
from coordinator.core.state import state_records
from coordinator.core.state.groups import State
from coordinator.core.state.records import (
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    RegexResolved,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog
from tests.support.coordinator_core import INTERVAL, Code, kinds, lists

REFRESH_MS = 600_000


def reasons(result):
    return [record.reason for record in result.records if isinstance(record, GroupMetadata)]


def join(group, member, regex, *names, **fields):
    return group.run(group.joining(member, *names, subscribed_topic_regex=regex, **fields))


@pytest.mark.behaviour("G-81", "S-24", "K-37", "G-10")
@pytest.mark.parametrize("regex", ["[", "a(", "(?<=a)b", "*"])
def test_an_invalid_pattern_is_refused_and_nothing_written(group, regex):
    group.join("m1", "a")
    for event in (
        group.joining("m2", subscribed_topic_regex=regex),
        group.heartbeat("m1", subscribed_topic_regex=regex),
    ):
        assert group.refused(event) is Code.INVALID_REGULAR_EXPRESSION
    assert set(group.group.members) == {"m1"}


@pytest.mark.behaviour("G-82", "G-87", "G-35", "K-21")
def test_a_new_pattern_is_resolved_by_a_task_and_then_moves_the_epoch(group):
    joined = join(group, "m1", "[ab]")
    assert joined.response.assignment == ()
    assert reasons(joined) == []
    assert joined.tasks == [ResolveRegexes("g", ("[ab]",))]
    epoch = group.group.epoch
    (resolved,) = group.resolve()
    assert reasons(resolved) == ["topics matched"]
    assert group.group.epoch == epoch + 1
    found = group.group.regexes["[ab]"]
    assert (found.topics, found.version, found.timestamp) == (
        ("a", "b"),
        group.state.topics_version,
        group.now,
    )
    group.settle()
    assert group.given["m1"] == {"a": [0, 1, 2, 3, 4, 5], "b": [0, 1]}


@pytest.mark.behaviour("G-80")
@pytest.mark.parametrize(
    ("regex", "matches"),
    [
        ("a", ["a"]),
        ("a.*", ["a", "aa"]),
        ("(?i)A+", ["a", "aa"]),
        (".", ["a", "b"]),
        ("x", []),
        ("a|b", ["a", "b"]),
    ],
)
def test_the_whole_name_must_match(regex, matches):
    log = MemoryLog()
    log.claim("test", "", 0)
    processor = EventProcessor(log, Config(), lambda: 0, DictCatalog({"a": 1, "aa": 1, "b": 1}))
    processor.load()
    event = prepare_resolution(processor, ResolveRegexes("g", (regex,)))()
    assert event.topics == {regex: matches}


@pytest.mark.behaviour("G-86")
def test_names_and_pattern_add_up(group):
    join(group, "m1", "b.*", "a")
    group.resolve()
    group.settle()
    assert set(group.given["m1"]) == {"a", "b"}
    group.beat("m1", names=[], owned=group.given["m1"])
    group.settle()
    assert set(group.given["m1"]) == {"b"}


@pytest.mark.behaviour("G-34", "G-35")
def test_a_pattern_that_is_resolved_already_moves_the_epoch_at_once(group):
    join(group, "m1", "b.*")
    group.resolve()
    assert reasons(join(group, "m2", "b.*")) == ["member joined"]
    group.join("m3", "a")
    assert reasons(group.run(group.heartbeat("m3", subscribed_topic_regex="b.*"))) == [
        "subscription changed"
    ]
    assert reasons(group.run(group.heartbeat("m3", subscribed_topic_regex=""))) == [
        "subscription changed"
    ]


@pytest.mark.behaviour("G-85", "S-24")
@pytest.mark.parametrize("how", ["leaves", "changes"])
def test_a_pattern_without_members_ends(group, how):
    join(group, "m1", "b.*")
    join(group, "m2", "b.*")
    group.resolve()
    last = {"leaves": {"epoch": -1}, "changes": {"subscribed_topic_regex": ""}}[how]
    group.run(group.heartbeat("m1", **last))
    assert "b.*" in group.group.regexes
    result = group.run(group.heartbeat("m2", **last))
    assert [
        r.name for r in result.records if isinstance(r, Tombstone) and r.of == RegexResolved.kind
    ] == ["b.*"]
    assert group.group.regexes == {}
    assert group.group.topics_hash == 0


@pytest.mark.behaviour("G-82", "G-34")
def test_what_a_pattern_gave_goes_to_others_when_the_next_one_matches_nothing(group):
    join(group, "m1", "b.*")
    group.resolve()
    group.join("m2", "b")
    group.settle()
    group.beat("m2", -1)
    group.settle()
    assert group.given["m1"] == {"b": [0, 1]}
    group.join("m2", "b")  # b stays subscribed: the hash of the topics does not tell
    group.advance(REGEX_REFRESH_MIN_MS + 1)
    changed = group.beat_result("m1", subscribed_topic_regex="nothing")
    assert reasons(changed) == []
    (resolved,) = group.resolve()
    assert reasons(resolved) == ["topics matched"]
    group.settle()
    assert (group.given["m1"], group.given["m2"]) == ({}, {"b": [0, 1]})


@pytest.mark.behaviour("G-82", "G-35")
def test_a_first_pattern_that_matches_nothing_moves_no_epoch(group):
    group.join("m1", "b")
    join(group, "m2", "nothing")
    (resolved,) = group.resolve()
    assert reasons(resolved) == []


@pytest.mark.behaviour("G-85")
def test_results_for_a_pattern_dropped_meanwhile_are_ignored(group):
    join(group, "m1", "b.*")
    group.beat("m1", names=["a"], subscribed_topic_regex="")
    (result,) = group.resolve()
    assert result.records == []


@pytest.mark.behaviour("G-85")
def test_a_failed_resolution_changes_nothing(group):
    join(group, "m1", "b.*")
    assert group.run(RegexesResolved("g", None, 1, group.now)).records == []
    assert group.run(RegexesResolved("none", {"b.*": ["b"]}, 1, group.now)).records == []


@pytest.mark.behaviour("G-82")
def test_the_same_outcome_again_moves_no_epoch(group):
    join(group, "m1", "b.*")
    group.resolve()
    group.settle()
    again = RegexesResolved("g", {"b.*": ["b"]}, group.state.topics_version, group.now + 1)
    assert [type(r) for r in group.run(again).records] == [RegexResolved]
    assert group.group.regexes["b.*"].timestamp == group.now + 1


# When ---------------------------------------------------------------------------------------------


@pytest.fixture
def resolved(group):
    """m1 subscribes to b.* and has b; that was just resolved."""
    join(group, "m1", "b.*")
    group.resolve()
    group.settle()
    assert group.tasks == []
    return group


def asked(group, ms, member="m1"):
    """Whether a heartbeat after this time asks for another resolution."""
    group.advance(ms)
    group.beat(member)
    waiting, group.tasks = group.tasks, []
    return bool(waiting)


@pytest.mark.behaviour("G-83", "S-24")
def test_new_topics_are_matched_at_the_next_heartbeat_but_ten_seconds_apart(resolved):
    resolved.topics(bb=1)
    assert not asked(resolved, REGEX_REFRESH_MIN_MS)
    assert asked(resolved, 1)


@pytest.mark.behaviour("G-83")
def test_a_grown_or_deleted_topic_needs_no_resolution(resolved):
    resolved.topics(b=3)
    resolved.topics(delete=["a"])
    assert not asked(resolved, 2 * REGEX_REFRESH_MIN_MS)


@pytest.mark.behaviour("G-83", "G-140")
def test_patterns_are_resolved_again_now_and_then(resolved):
    for _ in range(REFRESH_MS // 40_000):
        assert not asked(resolved, 40_000)
    assert asked(resolved, 1)


@pytest.mark.behaviour("G-83")
def test_a_pattern_that_came_too_soon_after_the_last_resolution_waits(resolved):
    resolved.advance(1_000)
    assert join(resolved, "m2", "a.*").tasks == []
    assert asked(resolved, REGEX_REFRESH_MIN_MS, "m2")


@pytest.mark.behaviour("K-15", "G-83")
@pytest.mark.parametrize("when", ["before the snapshot", "after it"])
def test_new_topics_are_matched_after_a_load_from_a_snapshot_too(group, when):
    """The versions of topics and patterns must still compare: a snapshot forgets the changes between."""
    for count in range(3, 9):
        group.topics(b=count)
    join(group, "m1", "b.*")
    group.resolve()
    group.settle()
    if when == "before the snapshot":
        group.topics(bb=1)
    restored = State()
    for record in state_records.records_of(group.state):
        replay(restored, record)
    group.state = restored
    group.records = list(state_records.records_of(restored))
    assert not asked(group, 0)
    if when == "after it":
        group.topics(bb=1)
    assert asked(group, REGEX_REFRESH_MIN_MS + 1)


@pytest.mark.behaviour("S-22", "G-34")
def test_topics_of_a_pattern_that_grow_or_go_move_the_epoch(resolved):
    resolved.topics(b=4)
    assert reasons(resolved.run(resolved.heartbeat("m1"))) == ["topics changed"]
    resolved.settle()
    assert lists(resolved.member("m1").current.assigned) == {"b": [0, 1, 2, 3]}
    resolved.topics(delete=["b"])
    resolved.settle()
    assert resolved.given["m1"] == {}


@pytest.mark.behaviour("G-38", "G-82")
def test_the_first_member_gets_what_its_pattern_matches_at_its_next_heartbeat(group):
    """Java clients and franz-go send it 50 ms after the join, whatever the interval."""
    group.configure(**{INTERVAL: 15_000})
    joined = join(group, "m1", "[ab]")
    assert (joined.response.member_epoch, kinds(joined)) == (1, [MemberMetadata, MembersAdvanced])
    group.resolve()
    group.now += 50
    answer = group.beat("m1", owned={})
    assert lists(answer.assignment) == {"a": [0, 1, 2, 3, 4, 5], "b": [0, 1]}


@pytest.mark.behaviour("G-34", "G-85")
def test_another_pattern_moves_the_epoch_once_when_it_is_resolved(resolved):
    """A target in between, for nothing but what the old one no longer matches, helps no member."""
    resolved.advance(REGEX_REFRESH_MIN_MS + 1)
    assert reasons(resolved.beat_result("m1", subscribed_topic_regex="a.*")) == []
    assert reasons(resolved.beat_result("m1", owned={})) == []
    result, _ = resolved.resolve()
    assert reasons(result) == ["topics matched"]
    resolved.settle()
    assert set(resolved.given["m1"]) == {"a"}


@pytest.mark.behaviour("G-85")
def test_a_resolution_that_finds_a_grown_topic_moves_the_epoch(resolved):
    resolved.topics(b=4)
    again = RegexesResolved("g", {"b.*": ["b"]}, resolved.state.topics_version, resolved.now)
    assert reasons(resolved.run(again)) == ["topics changed"]
    resolved.settle()
    assert resolved.given["m1"] == {"b": [0, 1, 2, 3]}


@pytest.mark.behaviour("G-83")
@pytest.mark.parametrize(("change", "due"), [({}, False), ({"a": 7}, True)])
def test_a_coordinator_that_begins_resolves_what_is_older_than_its_topics(change, due):
    storage = MemoryLog().storage
    catalog = DictCatalog({"a": 6})

    def begun(now):
        log = MemoryLog(storage)
        log.claim("test", "", 0)
        processor = EventProcessor(log, Config(), lambda: now, catalog)
        processor.load()
        return processor

    processor = begun(1_000)
    join_ = Heartbeat(
        "g",
        "m1",
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex="a",
        topic_partitions={},
    )
    processor.run([join_])
    (task,) = processor.take_tasks()
    processor.run([prepare_resolution(processor, task)()])
    for name, partitions in change.items():
        catalog.set(name, partitions)
        processor.see_topics()
    after = begun(20_000)
    after.run([Heartbeat("g", "m1", 1)])
    assert bool(after.take_tasks()) is due


@pytest.mark.behaviour("G-83")
def test_a_recreated_topic_is_a_new_topic(resolved):
    """Under one look of the catalog: it was not there before."""
    resolved.catalog["b"] = resolved.catalog["b"].__class__("another id", 2)
    resolved.topics()
    assert asked(resolved, REGEX_REFRESH_MIN_MS + 1)
