"""Classic groups in the views: what a fold of their records says, row by row."""

from __future__ import annotations

import pytest

from coordinator.config import Config
from coordinator.core.state.records import ClassicGroupWritten, Tombstone
from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import describe_with_offsets, explain_epochs
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.state_loader import write_snapshot
from tests.support.classic_stories import classic_log

STATIC = "static member returned"


@pytest.fixture(scope="module", params=range(4))
def written(request, tmp_path_factory):
    store = tmp_path_factory.mktemp("classic")
    return store, classic_log(store, request.param)


def rows(store, view, **more):
    found = frame(store, view, **more).to_pylist()
    return [row for row in found if row["group_id"] != "moving"]


def fold(records):
    """Return the generations, and who had which partition from when until when and why."""
    last, generations, tenures, open_ = {}, [], [], {}
    for position, record in records:
        if not isinstance(record, ClassicGroupWritten | Tombstone) or record.group_id == "moving":
            continue
        ended = isinstance(record, Tombstone)
        before = last.get(record.group_id)
        members = () if ended else record.members
        generation = 0 if ended else record.generation
        begins = not ended and generation != (before.generation if before else 0)
        if begins:
            generations.append((position, record))
        there = {one.member_id for one in members}
        has = {
            (record.group_id, one.member_id, range_.topic, range_.first_partition)
            for one in members
            for range_ in one.assigned
        }
        for key in [key for key in open_ if key[0] == record.group_id and key not in has]:
            gone = key[1] not in there
            cause = (record.generation, record.reason, record.member_id) if begins else None
            if not begins:
                cause = (None, None if ended else STATIC, None)
            tenures.append((key, open_.pop(key), position, *cause, not gone))
        for key in has - open_.keys():
            why = (generation, record.reason, record.member_id)
            open_[key] = (position, *(why if begins else (generation, STATIC, key[1])))
        last[record.group_id] = None if ended else record
    tenures += [(key, since, *[None] * 5) for key, since in open_.items()]
    return generations, tenures, {key: one for key, one in last.items() if one}


def test_who_owned_what_and_why(written):
    store, records = written
    _, tenures, _ = fold(records)
    found = [
        (
            (row["group_id"], row["member_id"], row["topic"], partition),
            (row["since_position"], row["assignment_epoch"], row["reason"], row["reason_member_id"]),
            row["until_position"], row["until_epoch"], row["until_reason"], row["until_member_id"],
            row["revoked"],
        )
        for row in rows(store, "assignment_history")
        for partition in range(row["first_partition"], row["last_partition"] + 1)
    ]  # fmt: skip
    assert sorted(found, key=str) == sorted(tenures, key=str)
    assert len(found) > 50


def test_generations_are_epochs(written):
    store, records = written
    generations, _, _ = fold(records)
    found = [
        (row["position"], row["group_epoch"], row["assignment_epoch"], row["reason"],
         row["member_id"], row["assignor"], row["moved"])
        for row in rows(store, "epochs")
    ]  # fmt: skip
    assert found == [
        (position, one.generation, one.generation, one.reason, one.member_id,
         one.assignor or None, one.moved if one.assignor else None)
        for position, one in generations
    ]  # fmt: skip
    clients = {row["member_id"]: row["client_id"] for row in rows(store, "epochs")}
    assert clients.pop("who went before", None) is None
    assert any(clients.values())


def test_groups_members_and_what_they_have(written):
    store, records = written
    _, _, last = fold(records)
    groups = {row["group_id"]: row for row in rows(store, "groups")}
    assert groups.keys() == last.keys()
    for group_id, record in last.items():
        row = groups[group_id]
        state = "Stable" if record.members else "Empty"
        assert (row["group_type"], row["state"], row["group_epoch"], row["members"]) == (
            "classic", state, record.generation, len(record.members),
        )  # fmt: skip
    members = {(row["group_id"], row["member_id"]): row for row in rows(store, "members")}
    assert members.keys() == {(g, one.member_id) for g, r in last.items() for one in r.members}
    for group_id, record in last.items():
        for one in record.members:
            row = members[group_id, one.member_id]
            assert tuple(row["subscribed_topic_names"]) == one.subscribed_topic_names
            assert [(r["topic"], r["first_partition"]) for r in row["assigned"]] == [
                (r.topic, r.first_partition) for r in one.assigned
            ]
    wanted = {
        (g, one.member_id, r.topic, r.first_partition)
        for g, record in last.items()
        for one in record.members
        for r in one.assigned
    }
    for view in ("current_assignments", "partition_owners", "target_assignments"):
        found = [
            (row["group_id"], row["member_id"], row["topic"], row["first_partition"])
            for row in rows(store, view)
            if row["member_id"] is not None
        ]
        assert (len(found), set(found)) == (len(wanted), wanted)


def test_of_one_group_and_from_a_snapshot_the_rows_are_the_same(written):
    store, _ = written
    views = ("groups", "members", "partition_owners", "target_assignments", "epochs")
    before = {view: frame(store, view) for view in views}
    for view in (*views, "assignment_history"):
        one = frame(store, view, group_id="alpha").to_pylist()
        assert one == [r for r in frame(store, view).to_pylist() if r["group_id"] == "alpha"]
    log = DeltaLog(store)
    log.claim("next", "", 1)
    write_snapshot(log, 2)
    assert {view: frame(store, view) for view in views} == before


def test_a_group_that_was_converted_and_back(written):
    store, _ = written
    history = frame(store, "assignment_history", group_id="moving").to_pylist()
    assert [(row["assignment_epoch"], row["reason"], row["partition_count"]) for row in history] == [
        (4, "member joined", 6), (4, "classic group converted", 6), (9, "consumer group converted", 6),
    ]  # fmt: skip
    (group,) = frame(store, "groups", group_id="moving").to_pylist()
    assert (group["group_type"], group["group_epoch"]) == ("classic", 9)


def test_explain_tells_what_members_got(written):
    store, records = written
    generations, _, _ = fold(records)
    first = next(one for _, one in generations if one.group_id == "alpha" and one.members)
    written = explain_epochs(LogReader(store), "alpha")
    row = next(row for row in written if row["group_epoch"] == first.generation)
    got = {(one["member_id"], one["topic"], p) for one in row["got"] for p in span(one)}
    assert got == {
        (m.member_id, r.topic, r.first_partition) for m in first.members for r in m.assigned
    }


def test_a_classic_group_is_described(written):
    store, records = written
    _, _, last = fold(records)
    state = LogReader(store).state()
    for group_id, record in last.items():
        found = describe_with_offsets(state, Config(), group_id)
        assert (found["group_state"], found["protocol_type"], found["group_epoch"]) == (
            "Stable" if record.members else "Empty", record.protocol_type, record.generation,
        )  # fmt: skip
        owned = {
            (one["member_id"], topic["topic_name"], partition)
            for one in found["members"]
            for topic in one["assignment"]["topic_partitions"]
            for partition in topic["partitions"]
        }
        assert owned == {
            (m.member_id, r.topic, r.first_partition) for m in record.members for r in m.assigned
        }


def span(one):
    return range(one["first_partition"], one["first_partition"] + one["partition_count"])
