"""`muster doctor`: what it prints and exits with, and what it refuses."""

from __future__ import annotations

import json
import shutil

import pytest
from msgspec.structs import replace as changed

from coordinator.cli import doctor as command
from coordinator.config import Config
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    ClassicRange,
    CurrentMember,
    KafkaWatched,
    TopicChanged,
)
from coordinator.history.findings import LEVELS, SCHEMAS
from coordinator.storage.record_log import Batch
from coordinator.storage.shards import make_shards, shard_at
from tests.conftest import GOLDEN
from tests.support.stories import NOON, Story, shipping, stored

HOSTILE = "<b>\n\x1b[31m'\u202e"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A group that took a minute to settle."""
    return stored(shipping().batches, tmp_path_factory.mktemp("doctor") / "store")


@pytest.fixture
def doctor(muster_here, store):
    def run(*options, of=store):
        done = muster_here("doctor", "--store", of, *options)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_shards_are_examined_as_one_store(doctor, store, tmp_path):
    root = str(tmp_path / "shards")
    shards = make_shards(root, 2, Config())
    for shard in range(2):  # the group is in one of them; a row of each shows that both are read
        shutil.copytree(store, shard_at(root, shard))
    code, output, _ = doctor(*SLOW, "--json", of=root)
    assert (code, [row["finding"] for row in rows(output)]) == (1, ["slow_rebalances"] * 2)
    code, output, _ = doctor(*SLOW, "--json", "shipping", of=root)
    assert (code, [row["finding"] for row in rows(output)]) == (1, ["slow_rebalances"])
    shutil.rmtree(shard_at(root, 1 - shards.shard_of("shipping")))
    assert doctor("shipping", *SLOW, of=root)[0] == 1
    assert doctor("absent", *SLOW, of=root)[0] == 2
    assert doctor("--as-of", "3", "shipping", of=root)[0] == 0, "a group has positions"


SLOW = ("--as-of", "2026-03-01T12:10Z", "--patience", "30s")


def test_a_problem_is_a_row_and_an_exit_code(doctor):
    code, output, _ = doctor(*SLOW, "--json")
    (row,) = rows(output)
    assert (code, row["finding"], row["level"]) == (1, "slow_rebalances", "problem")
    assert ["finding", "level", *SCHEMAS["slow_rebalances"].names] == list(row)
    assert doctor("--as-of", "2026-03-01T12:10Z") == (0, "", ""), "a minute is allowed"
    assert doctor(*SLOW, "--skip", "slow_rebalances") == (0, "", "")
    assert doctor(*SLOW, "--only", "skew", "--only", "idle_members") == (0, "", "")
    assert doctor(*SLOW, "shipping")[0] == 1
    assert doctor("--as-of", "2026-03-01T14:10Z", "--window", "30m")[0] == 0


def test_the_window_ends_at_the_position_that_is_asked_for(doctor):
    assert doctor("--patience", "30s") == (0, "", ""), "it was long ago"
    assert doctor("--as-of", "22", "--patience", "30s")[0] == 1


def test_notes_count_only_if_they_are_asked_for(doctor, tmp_path):
    story = Story("g").topics(t=1).at(0).join("m1", "t").join("m2", "t")
    quiet = stored(story.batches, tmp_path / "s")
    code, output, _ = doctor(of=quiet)
    assert (code, [row["level"] for row in rows(output)]) == (0, ["note"])
    assert doctor("--only", "idle_members", of=quiet)[0] == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--window", "1", "give a time such as"),
        ("--window", "-1h", "give a time such as"),
        ("--window", "0h", "give a time such as"),
        ("--window", "9999999d", "give a time such as"),
        ("--patience", "soon", "give a time such as"),
        ("--expires", "1w", "give a time such as"),
        ("--rebalances", "-1", "give 0 or more"),
        ("--flaps", "0", "give 1 or more"),
        ("--skew", "0.9", "give 1 or more"),
        ("--skew", "nan", "give 1 or more"),
        ("--only", "flapping", "give one of unreadable_groups, "),
        ("--skip", "", "give one of unreadable_groups, "),
        ("--as-of", "4711", "it has positions 1 to"),
    ],
)
def test_bad_input_is_refused(doctor, option, value, said):
    code, output, error = doctor(f"{option}={value}")
    assert (code, output) == (2, "")
    assert said in error
    assert len(error.splitlines()) == 1


def test_nothing_to_look_for_is_refused(doctor):
    code, _, error = doctor("--only", "skew", "--skip", "skew")
    assert code == 2
    assert "leave nothing to look for" in error


def test_an_unknown_group_is_refused(doctor, tmp_path):
    code, _, error = doctor("nobody")
    assert code == 2
    assert "group 'nobody' is not in" in error
    code, _, error = doctor(of=tmp_path / "none")
    assert code == 2
    assert "is not the store of a coordinator" in error


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A classic group whose names could control a terminal or a page."""
    output = {"client_id": HOSTILE, "client_host": HOSTILE, "subscribed_topic_names": (HOSTILE,)}
    member = ClassicMemberWritten(HOSTILE, **output)
    records = [
        TopicChanged(HOSTILE, "id", 3, version=1),
        ClassicGroupWritten(HOSTILE, 1, "consumer", "range", HOSTILE, NOON, (member,)),
    ]
    batches = [Batch(0, NOON, 1, []), Batch(0, NOON, 1, records)]
    return stored(batches, tmp_path_factory.mktemp("hostile") / "store")


def test_names_cannot_control_a_terminal(doctor, hostile, monkeypatch):
    found = rows(doctor(of=hostile)[1])
    assert {row["group_id"] for row in found} == {HOSTILE}
    assert [row["finding"] for row in found] == [
        "unowned_partitions",
        "idle_members",
        "classic_groups",
    ]
    monkeypatch.setattr(command, "wants_json", lambda _: False)
    monkeypatch.setenv("COLUMNS", "300")
    code, output, _ = doctor(of=hostile)
    assert code == 1
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert r"<b>\n\x1b[31m'\u202e" in output
    assert "problem: Partitions that no member owns (unowned_partitions)" in output
    assert "│ 0-2 " in output


def test_a_terminal_says_that_nothing_was_found(doctor, monkeypatch):
    monkeypatch.setattr(command, "wants_json", lambda _: False)
    assert doctor("--as-of", "2026-03-01T12:10Z")[1] == "nothing found\n"
    assert set(LEVELS) == set(SCHEMAS)


def test_a_watched_store_is_judged_as_of_when_it_was_watched(doctor, tmp_path):
    """It says nothing of the time since then, however long a rebalance would have gone on."""
    story = Story("g").topics(t=4).at(0).join("m1", "t", rebalance_timeout_ms=3_600_000)
    batches = story.hold_on("m1").join("m2", "t").batches
    own = stored(batches, tmp_path / "own")
    assert doctor(of=own)[0] == 1, "it still goes on"
    batches[1].records.append(KafkaWatched("c", "topic", NOON))
    watched = stored(batches, tmp_path / "watched")
    assert doctor(of=watched)[0] == 0
    lease = {"owner": "w", "coordinator_epoch": 1, "address": "", "token": ""}
    for minutes, code in ((0.5, 0), (2, 1), (10**7, 1)):
        lease["expires_ms"] = NOON + round(minutes * 60_000)
        (watched / "_lease.json").write_text(json.dumps(lease))
        assert doctor(of=watched)[0] == code
    (watched / "_lease.json").write_text("{")
    assert doctor(of=watched)[0] == 0


def test_an_old_store_is_looked_at_and_a_damaged_one_is_refused(doctor, tmp_path):
    old = GOLDEN / ".." / "store-0.1" / "store"
    code, output, error = doctor("--as-of", "2026-11-22T11:00Z", of=old)  # its offsets age
    assert (code, error) == (1, "")
    assert [row["finding"] for row in rows(output)] == ["slow_rebalances"]
    damaged = stored(shipping().batches, tmp_path / "damaged")
    (part,) = (damaged / "log").glob("*.parquet")
    for text in (b"no rows", None):
        part.unlink() if text is None else part.write_bytes(text)
        code, output, error = doctor(of=damaged)
        assert (code, output, len(error.splitlines())) == (2, "", 1)
        assert "cannot be read" in error


def backward(name):
    """Return a log in which a range ends before it begins, and the position of its record."""
    topic = TopicKey("t", "id")
    if name == "classic":
        member = ClassicMemberWritten("m1", assigned=(ClassicRange("t", "id", 3, -2),))
        group = ClassicGroupWritten("g", 1, "consumer", "range", "m1", NOON, (member,))
        return [Batch(0, NOON, 1, []), Batch(0, NOON, 1, [group])], 2
    batches = Story("g").topics(t=4).at(0).join("m1", "t").batches
    places, position = {}, 0
    for batch in batches:
        position += not batch.records
        for number, record in enumerate(batch.records):
            position += 1
            if isinstance(record, CurrentMember):
                places[position] = batch.records, number
    last = max(places)
    records, number = places[last]
    records[number] = changed(records[number], **{name: ((topic, 3, 1, 1),)})
    return batches, last


@pytest.mark.parametrize("name", ["assigned", "pending", "classic"])
def test_a_range_that_ends_before_it_begins_is_refused(muster_here, tmp_path, name):
    batches, position = backward(name)
    damaged = stored(batches, tmp_path / "damaged")
    for command_ in (["doctor"], ["history", "g"]):
        done = muster_here(*command_, "--store", damaged)
        error = done.stderr.decode()
        assert (done.returncode, done.stdout, len(error.splitlines())) == (2, b"", 1)
        assert f"the log of {damaged} is damaged" in error
        assert f"at position {position};" in error
