"""Views of a store without a JVM: as the log tells them record by record; of one group; damaged."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import UTC, date, datetime
from itertools import zip_longest

import pyarrow as pa
import pytest

from assignors import SpecError
from coordinator.config import LogConfig
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    TargetMetadata,
    TopicChanged,
)
from coordinator.display.times import format_time
from coordinator.history import VIEWS, frame
from coordinator.history.frames import read_view, sort_rows
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.history.ownership_view import read_history_pieces
from coordinator.history.view_rows import explain_epochs, list_rows
from coordinator.storage.delta_log import DeltaLog, read_log
from coordinator.storage.record_log import Batch, LogError, LostTarget
from coordinator.storage.state_loader import write_snapshot
from tests.support.history_oracle import History, epoch_rows, history_rows
from tests.support.longer import EVERY
from tests.support.stories import NOON, Story, many_groups, shipping, stored

TRACES = ["batching", "commits", "coordinator", "timers-regex-topics"]
OF_GROUPS = sorted(VIEWS.keys() - {"topics", "targets"})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One log of many groups."""
    return many_groups(range(2, 31, 4), TRACES, tmp_path_factory.mktemp("store"))


def records_of(store):
    """Yield position, at_ms and record; a log of `stored` has a row a record."""
    return [(b.position, b.at_ms, record) for b in read_log(store) for record in b.records]


def numbered(store):
    """The same, with the position of each record."""
    found = frame(store, "log")
    claims = {row["position"] for row in found.to_pylist() if row["kind"] == "claim"}
    positions = [p for p in range(1, len(found) + 1) if p not in claims]
    records = records_of(store)
    assert len(positions) == len(records)
    return [(p, at, record) for p, (_, at, record) in zip(positions, records, strict=True)]


def as_set(rows):
    texts = [json.dumps(row, sort_keys=True) for row in rows]
    assert len(set(texts)) == len(texts)
    return set(texts)


@pytest.mark.parametrize("seed", range(6))
def test_views_equal_a_record_by_record_computation(store, seed):
    """At any position: what columns say is what a fold of the log says."""
    records = numbered(store)
    last = records[-1][0]
    position = last if seed == 0 else random.Random(seed).randint(1, last)
    groups = {getattr(record, "group_id", "") for _, _, record in records} - {""}
    histories = [History(group_id) for group_id in sorted(groups)]
    for at, at_ms, record in records:
        for history in histories if at <= position else ():
            history.tell(record, at, at_ms)
    epochs = frame(store, "epochs", as_of=position).drop_columns(["target_position"])
    expected = [row for history in histories for row in epoch_rows(history)]
    assert as_set(to_json_rows(epochs)) == as_set(expected)
    expected = [row for history in histories for row in history_rows(history)]
    assert as_set(to_json_rows(frame(store, "assignment_history", as_of=position))) == as_set(
        expected
    )
    assert seed or len(expected) > 250


@pytest.mark.parametrize("view", OF_GROUPS)
def test_view_of_one_group_is_a_filter_of_the_whole_view(store, view):
    found = frame(store, view).to_pylist()
    groups = sorted({row["group_id"] for row in found if row["group_id"] is not None})
    assert len(groups) > 1
    for group_id in groups[:: 1 if EVERY else 4]:
        wanted = [row for row in found if row["group_id"] == group_id]
        assert frame(store, view, group_id=group_id).to_pylist() == wanted


@pytest.mark.parametrize("most", [1, 7, 40])
def test_pieces_of_a_view_are_the_whole_view(store, most):
    pieces = list(read_history_pieces(LogRows(LogReader(store)), most))
    assert len(pieces) > 5
    assert sum(len(piece) > 0 for piece in pieces) > 5
    whole = frame(store, "assignment_history")
    assert sort_rows("assignment_history", pa.concat_tables(pieces)).equals(whole)


def test_view_of_one_group_reads_only_its_row_groups(store, monkeypatch):
    """A predicate on the group goes down to the files."""
    from coordinator.history import log_rows

    asked = []
    dataset = log_rows.ds.FileSystemDataset

    def spied(*words, **named):
        files = dataset(*words, **named)
        if named:
            return files  # of pq.read_table

        class Files:
            def to_table(self, **more):
                asked.append(str(more["filter"]))
                return files.to_table(**more)

        return Files()

    monkeypatch.setattr(log_rows.ds, "FileSystemDataset", spied)
    frame(store, "assignment_history", group_id="billing")
    assert len(asked) == 3  # of consumer groups, of classic ones, and where groups ended
    assert all('(group_id == "billing")' in one for one in asked)


@pytest.fixture
def lived(tmp_path):
    """A store with a snapshot, and with something after it."""
    log = DeltaLog(tmp_path / "store", LogConfig(fsync=False))
    story = Story("billing", log=log).topics(orders=6, payments=4)
    story.at(-5).join("m1", "orders", "payments").commit("m1", {"orders": {"0": 7}})
    story.at(-4).join("m2", "orders").join("m3", "payments").leave("m3")
    write_snapshot(log, NOON)
    story.at(-2).join("m4", "orders").leave("m2").topics(orders=8, returns=1).settle()
    story.trace.close()
    return tmp_path / "store"


def test_small_files_are_not_opened_for_each_question(lived, monkeypatch):
    """A view that asks for rows many times has them after the second."""
    from coordinator.history import log_rows

    opened, known, dataset = Counter(), {}, log_rows.ds.FileSystemDataset

    def counted(fragments, *more, **named):
        if not named:  # else of pq.read_table
            opened.update(one.path for one in fragments)
            assert all(known.setdefault(one.path, one) is one for one in fragments), "its end too"
        return dataset(fragments, *more, **named)

    monkeypatch.setattr(log_rows.ds, "FileSystemDataset", counted)
    frame(lived, "events")
    assert len(opened) > 9
    assert max(opened.values()) == 4  # twice all files, and twice those after the snapshot


def everything(store, views=VIEWS):
    return {view: frame(store, view).to_pylist() for view in views}


def test_views_are_the_same_with_a_snapshot_with_a_damaged_one_and_without(lived, caplog):
    found = everything(lived)
    assert {row["member_id"] for row in found["members"]} == {"m1", "m4"}
    assert found["groups"][0]["state"] == "Stable"
    (part,) = (lived / "snapshots").glob("*.parquet")
    part.write_bytes(part.read_bytes()[:100])
    some = "members", "groups", "epochs"  # all find their snapshot by one way
    assert everything(lived, some) == {view: found[view] for view in some}
    assert "ignored snapshot" in caplog.text
    shutil.rmtree(lived / "snapshots")
    assert everything(lived) == found


def test_damaged_log_is_an_error(lived):
    part = max((lived / "log").glob("*.parquet"), key=lambda file: file.stat().st_size)
    part.write_bytes(part.read_bytes()[:100])
    for view in ("log", "assignment_history"):
        with pytest.raises(LogError, match="cannot be read"):
            frame(lived, view)


def test_missing_target_is_an_error(tmp_path):
    install = TargetMetadata(
        "big", 2, NOON, "uniform",
        computation_id="run", targets_version=1, digest=1, members=1, ranges=1,
    )  # fmt: skip
    records = [
        TopicChanged("orders", "o", 1),
        MemberMetadata("big", "m1"),
        GroupMetadata("big", 2, 0),
    ]
    log = DeltaLog(tmp_path, LogConfig(fsync=False))
    log.claim("test", "", NOON)
    log.append([*records, install], NOON)
    with pytest.raises(LostTarget, match="target of group 'big' for assignment epoch 2"):
        frame(tmp_path, "target_assignments")
    assert frame(tmp_path, "groups")["assignment_epoch"].to_pylist() == [2]


def test_views_of_a_new_store_are_empty(tmp_path):
    DeltaLog(tmp_path, LogConfig(fsync=False)).claim("test", "", NOON)
    assert {view: len(frame(tmp_path, view)) for view in VIEWS} == dict.fromkeys(VIEWS, 0) | {
        "log": 1
    }


def test_a_history_needs_no_target(tmp_path):
    """A dump may have what members own, and no record of what they are to own."""
    held = ((TopicKey("t", "id"), 0, 2, 1),)
    records = [
        GroupMetadata("g", 1, 0),
        MemberMetadata("g", "m"),
        CurrentMember("g", "m", 1, 0, MemberState.STABLE, held, ()),
    ]
    store = stored([Batch(0, NOON, 1, []), Batch(0, NOON, 1, records)], tmp_path / "s")
    (row,) = frame(store, "assignment_history").to_pylist()
    expected = row["member_id"], row["since_position"], row["partition_count"], row["reason"]
    assert expected == ("m", 4, 2, None)


def test_as_of_accepts_all_forms_of_time(lived):
    found = frame(lived, "epochs", as_of=datetime.fromtimestamp(NOON / 1000 - 180, UTC))
    assert 0 < len(found) < len(frame(lived, "epochs"))
    assert frame(lived, "epochs", as_of="2026-03-01T11:57Z") == found
    position = LogReader(lived, "2026-03-01T11:57Z").position
    assert frame(lived, "epochs", as_of=str(position)) == found


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        (["epoch"], {}, "unknown view 'epoch': the views are assignment_history, "),
        (["topics"], {"group_id": "billing"}, "'topics' has no group_id"),
        (["log"], {"as_of": 0}, "position 0 is not in the log"),
        (["log"], {"as_of": "noon"}, "'noon' is neither a position nor a time"),
        (["log"], {"as_of": datetime(2026, 3, 1, 12)}, "has no time zone"),  # noqa: DTZ001
        (["log"], {"as_of": date(2026, 3, 1)}, "is neither a position nor a time"),
        (["log"], {"as_of": 1.5}, "as_of 1.5 is neither a position nor a time"),
        (["log"], {"as_of": True}, "as_of True is neither a position nor a time"),
        (["log"], {"as_of": "1_0"}, "'1_0' is neither a position nor a time"),
        (["log"], {"as_of": "0001-01-01T00:00+14:00"}, "is before the first record"),
        (["log"], {"as_of": "9999-12-31T23:59:59-14:00"}, "is in the future"),
        (["log"], {"group_id": 5}, "group_id 5 is not a string"),
        (["log"], {"group_id": "\udcff"}, "is not a string"),
    ],
)
def test_bad_arguments_are_refused(store, words, more, said):
    with pytest.raises(SpecError, match=said):
        frame(store, *words, **more)


def test_the_time_of_a_record_finds_it_to_the_millisecond(tmp_path):
    """As a fraction of seconds this one, of 2038, is a little less than it is."""
    log = DeltaLog(tmp_path, LogConfig(fsync=False))
    log.claim("test", "", 1)
    log.append([GroupMetadata("g", 1, 1)], 2_151_635_454_397)
    assert LogReader(tmp_path, format_time(2_151_635_454_397)).position == 2


def test_a_missing_store_is_refused(tmp_path):
    with pytest.raises(SpecError, match="is not the store of a coordinator"):
        frame(tmp_path, "groups")


def test_unknown_group_has_no_rows(store):
    assert len(frame(store, "assignment_history", group_id="nobody")) == 0
    with pytest.raises(SpecError, match="group 'nobody' is not in"):
        list_rows(LogReader(store), "assignment_history", "nobody")


# Commands ----------------------------------------------------------------------------------------


def test_explaining_many_joins_reads_each_reason_once(tmp_path):
    """One target took all their epochs in: its reasons are read once, not for every member."""
    log = DeltaLog(tmp_path, LogConfig(fsync=False))
    story = Story("crowd", log=log, props={"group.consumer.assignment.interval.ms": 1000})
    story.topics(orders=40)
    for number in range(40):
        story.run(
            op="heartbeat", group="crowd", member=f"m{number:02}", epoch=0,
            subscribed=["orders"], rebalance_timeout_ms=60_000, owned={},
        )  # fmt: skip
    story.trace.close()
    expected = explain_epochs(LogReader(tmp_path), "crowd")
    assert len(expected) == 40


LONG = "Z" * 44
NAMES = {"client_id": "client-of-m1", "client_host": "/10.0.0.1"}


@pytest.fixture
def named(tmp_path):
    """A member with a long id, run by a client that has a name."""
    log = DeltaLog(tmp_path / "store", LogConfig(fsync=False))
    log.claim("test", "", NOON)
    story = Story("billing").topics(orders=2)
    story.join(LONG, "orders").leave(LONG)
    records = [record for batch in story.batches for record in batch.records]
    log.append([_renamed(record) for record in records], NOON)
    return tmp_path / "store"


def _renamed(record):
    import msgspec

    if isinstance(record, MemberMetadata):
        return msgspec.structs.replace(record, **NAMES, instance_id="billing-1")
    return record


def test_history_names_clients_and_hosts(named):
    (row,) = frame(named, "assignment_history").to_pylist()
    who = {"instance_id": "billing-1", **NAMES}
    assert {name: row[name] for name in who} == who
    (joined, left) = list_rows(LogReader(named), "epochs", "billing")
    assert {name: joined[name] for name in who} == {name: left[name] for name in who} == who
    (_, expected) = explain_epochs(LogReader(named), "billing")
    assert {name: expected["lost"][0][name] for name in who} == who


@pytest.mark.parametrize("command", ["history", "explain"])
def test_a_terminal_shows_whole_ids_clients_and_utc(named, muster_here, monkeypatch, command):
    """However narrow it is: what does not fit goes on in the next line."""
    from coordinator.cli import inspect

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(inspect, "wants_json", lambda _: False)
    done = muster_here(command, "billing", "--store", named)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert "(UTC)" in said or " UTC " in said
    assert "…" not in said
    rows = [line.strip("│").split("│") for line in said.splitlines()]
    columns = [
        "".join(cell.strip() for cell in column) for column in zip_longest(*rows, fillvalue="")
    ]
    for word in (LONG, "client-of-m1", "/10.0.0.1", "billing-1"):
        assert word in "\n".join(columns)


def test_a_partition_that_had_no_owner_is_refused(named, muster_here):
    (topic,) = {
        row["topic"] for row in list_rows(LogReader(named), "assignment_history", "billing")
    }
    words = ["history", "billing", "--store", named, "--topic", topic, "--partition"]
    assert muster_here(*words, "0").returncode == 0
    done = muster_here(*words, "99")
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"owned partition 99 of topic '{topic}': give one up to " in done.stderr.decode()


def test_what_has_no_owner_has_rows(store, tmp_path):
    """Of all that a group subscribes to, each partition is in one row, at any position."""
    last = LogReader(store).position
    for position in range(last, last - 400, -40):
        reading = LogReader(store, position)
        state, owned = reading.state(), {}
        for row in read_view(reading, "partition_owners").to_pylist():
            assert row["partition_count"] == row["last_partition"] + 1 - row["first_partition"]
            some = owned.setdefault((row["group_id"], row["topic"]), [])
            some += range(row["first_partition"], row["last_partition"] + 1)
        wanted = {
            (group_id, topic): [*range(state.topics[topic].partitions)]
            for group_id, group in state.groups.items()
            for topic in group.names
            if topic in state.topics
        }
        # Of a topic that shrank, members have more until their next heartbeat.
        known = {key: [p for p in sorted(owned[key]) if p < len(wanted[key])] for key in wanted}
        assert known == wanted
    waits = stored(shipping().batches, tmp_path)
    (row,) = frame(
        waits, "partition_owners", as_of=18
    ).to_pylist()  # s1 is gone, s2 does not know it
    expected = ("first_partition", "last_partition", "partition_count", "member_id")
    assert [row[name] for name in expected] == [0, 3, 4, None]
    assert (row["topic"], row["assignment_epoch"], row["pending_revocation"]) == (
        "parcels",
        None,
        False,
    )


def test_offsets_over_time(lived):
    (first,) = frame(lived, "offset_commits").to_pylist()
    assert (first["offset"], first["deleted"], first["topic"]) == (7, False, "orders")
