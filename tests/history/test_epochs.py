"""Epochs in the views: their key, the codes of their reasons, and when they were reached."""

from __future__ import annotations

import pytest

from coordinator.core.reasons import OTHER, SEPARATOR, Reason, codes_of
from coordinator.core.state.records import GroupMetadata, OffsetCommitted, Tombstone
from coordinator.display.times import format_time
from coordinator.history import frame
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import LogReader
from coordinator.storage.record_log import Batch
from tests.support.classic_stories import converted
from tests.support.stories import NOON, many_groups, shipping, stored


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One log of many groups."""
    return many_groups(
        range(3, 31, 9), ["batching", "coordinator"], tmp_path_factory.mktemp("store")
    )


def test_an_epoch_has_a_key(store, tmp_path):
    """Also where a group was deleted and recreated, or went on under the other protocol."""
    recreated = [
        GroupMetadata("again", 2, 0, "member joined", "m"),
        Tombstone(GroupMetadata.kind, "again"),
        Tombstone(GroupMetadata.kind, "again"),
        GroupMetadata("again", 2, 0, "member joined", "m"),
    ]
    batches = [Batch(0, NOON, 1, records) for records in ([], recreated, converted())]
    keys = ["group_id", "incarnation", "group_epoch"]
    for one in (store, stored(batches, tmp_path)):
        found = [tuple(row.values()) for row in frame(one, "epochs").select(keys).to_pylist()]
        assert len(set(found)) == len(found) > 4
        owned = frame(one, "assignment_history").to_pylist()
        assert {(r["group_id"], r["incarnation"], r["assignment_epoch"]) for r in owned} <= {*found}
        newest = dict(zip([key[0] for key in found], found, strict=True))
        groups = [row for row in frame(one, "groups").to_pylist() if row["group_epoch"]]
        assert {tuple(row[name] for name in keys) for row in groups} <= {*newest.values()} != set()
    assert [key for key in found if key[0] == "again"] == [("again", 1, 2), ("again", 2, 2)]
    assert {key[1] for key in found if key[0] == "moving"} == {1, 2, 3}


def test_an_id_that_only_has_offsets_has_no_incarnation(tmp_path):
    offset = OffsetCommitted("alone", "clicks", "c1", 0, 5)
    gone = [GroupMetadata("alone", 2, 0, "member left"), Tombstone(GroupMetadata.kind, "alone")]
    store = stored([Batch(0, NOON, 1, records) for records in ([], [*gone, offset])], tmp_path)
    (row,) = frame(store, "groups").to_pylist()
    assert (row["incarnation"], row["group_epoch"]) == (None, None)


def test_reasons_have_codes(store):
    found = frame(store, "epochs").to_pylist() + frame(store, "assignment_history").to_pylist()
    codes = {row["reason"]: row["reason_codes"] for row in found}
    codes |= {row["until_reason"]: row["until_reason_codes"] for row in found if "until" in row}
    assert codes["topics changed (orders grew from 6 to 8 partitions)"] == ["topics_changed"]
    assert ["member_joined", "member_left"] in codes.values()
    assert {text for text, known in codes.items() if not known or OTHER in known} <= {None}


def test_every_reason_has_a_code_of_its_own():
    assert all(SEPARATOR not in reason for reason in Reason)
    assert {codes_of(reason.replace("{}", "x")) for reason in Reason} == {
        (reason.code,) for reason in Reason
    }
    assert codes_of("plan 3f9c applied, member left, member left") == (
        "plan_applied",
        "member_left",
    )
    assert codes_of("") == ()
    assert codes_of("who knows") == (OTHER,)


def test_an_epoch_is_reached_when_all_members_have(tmp_path):
    """A member that gives up nothing holds the epoch back until its time is over."""
    store = stored(shipping().batches, tmp_path)
    positions = range(2, LogReader(store).position + 1)
    waited = {row["reached_at"] for p in positions for row in epochs_of(store, p)[1:2]}
    assert waited == {None, clock(1)}
    assert [row["reached_at"] for row in epochs_of(store)] == [clock(-1), clock(1), clock(1)]
    for at in map(clock, (-1, 0, 1)):
        (group,) = frame(store, "groups", as_of=at).to_pylist()
        assert (group["state"] == "Stable") == (epochs_of(store, at)[-1]["reached_at"] is not None)


def epochs_of(store, as_of=None):
    return to_json_rows(frame(store, "epochs", as_of=as_of))


def clock(minutes):
    return format_time(NOON + minutes * 60_000)
