"""Table functions: what groups had at an epoch, and would have without a member."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assignors import SpecError
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import LoadsNoted
from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from tests.support.stories import billing, depot, shipping, stored


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    batches = [batch for story in (billing, shipping, depot) for batch in story().batches]
    return stored(batches, tmp_path_factory.mktemp("stories") / "store")


def owners(rows):
    """Return the owner of each partition."""
    return {
        (row["topic"], row["topic_id"], row["first_partition"] + at): row["member_id"]
        for row in rows
        for at in range(row["partition_count"])
    }


def call(store, function, **arguments):
    return frame(store, function, group_id="billing", **arguments).to_pylist()


def test_the_assignment_of_an_epoch_is_that_before_the_next_one(store):
    epochs = frame(store, "epochs", group_id="billing").to_pylist()
    for row, after in zip(epochs, [*epochs[1:], None], strict=True):
        as_of = None
        if after is not None:
            as_of = LogReader(store).moment_of(after["position"])[0] - 1
        then = frame(store, "partition_owners", group_id="billing", as_of=as_of).to_pylist()
        found = call(store, "assignment_at", epoch=row["group_epoch"])
        assert owners(found) == owners(then)
        loads = {
            one["member_id"]: one["partitions"]
            for one in call(store, "loads_at", epoch=row["group_epoch"])
        }
        counts = list(owners(then).values())
        assert loads == {member: counts.count(member) for member in loads}
        assert set(counts) - {None} <= loads.keys()


def test_two_epochs_compared(store):
    numbers = [row["group_epoch"] for row in frame(store, "epochs", group_id="billing").to_pylist()]
    for one in numbers[::2]:
        for other in numbers[1::3]:
            former, later = (owners(call(store, "assignment_at", epoch=e)) for e in (one, other))
            found = call(store, "compare_epochs", epoch=one, other_epoch=other)
            changed = {
                key: later.get(key)
                for key in former.keys() | later.keys()
                if former.get(key) != later.get(key)
            }
            assert owners(found) == changed
            before = owners([row | {"member_id": row["former_member_id"]} for row in found])
            assert before == {key: former.get(key) for key in changed}


def test_who_would_own_what_without_a_member(store):
    now = owners(frame(store, "partition_owners", group_id="depot").to_pylist())
    found = frame(store, "owners_if", group_id="depot", without="d1, d1").to_pylist()
    then = owners(found)
    assert then.keys() == now.keys()
    assert set(then.values()) == {"d2"}
    assert owners([row | {"member_id": row["former_member_id"]} for row in found]) == now


def test_weights_are_those_in_force(store, tmp_path):
    rows = frame(store, "loads_at", group_id="billing", epoch=3).to_pylist()
    assert {row["weight"] for row in rows} == {None}
    batches = depot().batches
    noted = LoadsNoted("depot", weights=(TopicWeights("crates", (1.0, 2.0, -1.0, 8.0)),))
    weighed = [*batches[:-1], replace(batches[-1], records=[*batches[-1].records, noted])]
    weighed = stored(weighed, tmp_path / "store")
    newest = max(frame(weighed, "epochs")["group_epoch"].to_pylist())
    found = frame(weighed, "loads_at", group_id="depot", epoch=newest).to_pylist()
    weights = dict(enumerate((1.0, 2.0, 0.0, 8.0)))
    wanted = {row["member_id"]: 0.0 for row in found}
    for (_, _, partition), member in owners(frame(weighed, "partition_owners").to_pylist()).items():
        wanted[member] += weights[partition]
    assert {row["member_id"]: row["weight"] for row in found} == wanted


@pytest.mark.parametrize(("function", "arguments", "why"), [
    ("assignment_at", {}, "assignment_at needs group_id, epoch, and was given group_id"),
    ("assignment_at", {"epoch": "5"}, "epoch of assignment_at is '5': give a whole number"),
    ("loads_at", {"epoch": 5, "to": 6}, "was given group_id, epoch, to"),
    ("compare_epochs", {"epoch": 3, "other_epoch": 99}, "group 'billing' had no epoch 99"),
    ("owners_if", {"without": "nobody"}, "nobody"),
    ("epochs", {"epoch": 3}, "view 'epochs' takes no epoch"),
    ("owners_if", {"without": "ann,"}, "without 'ann,' names no member: give ids"),
    ("epoch", {}, "unknown view 'epoch': the views are .*, and the functions assignment_at, "),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused_by_name(store, function, arguments, why):
    with pytest.raises(SpecError, match=why):
        call(store, function, **arguments)
