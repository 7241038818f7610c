"""Rows of partitions, each once in a Delta table, whoever writes them how often."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from coordinator import Coordinator, ExactlyOnceTable, Fenced, Member, TopicPartition
from coordinator.member.exactly_once import app_id
from tests.member.runs import PATIENCE_S

SCHEMA = pa.schema([("at", pa.string()), ("value", pa.int64())])
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Holder:
    """A member that owns what it is told."""

    group_id = "g"

    def __init__(self, *owned):
        self.owned, self.offsets = frozenset(owned), {}

    def committed(self, partition):
        return self.offsets.get(partition)

    def commit_later(self, offsets):
        self.offsets.update(offsets)


@pytest.fixture
def path(tmp_path):
    DeltaTable.create(str(tmp_path / "out"), SCHEMA)
    return tmp_path / "out"


def rows(partition, *values):
    return pa.table({"at": [str(partition)] * len(values), "value": values}, schema=SCHEMA)


def values(path, partition):
    found = DeltaTable(str(path)).to_pyarrow_table()
    return sorted(found.filter(pa.compute.equal(found["at"], str(partition)))["value"].to_pylist())


def test_a_repeat_writes_nothing_and_an_overlap_only_what_is_new(path):
    member = Holder(P0)
    table = ExactlyOnceTable(member, path)
    assert table.next_offset(P0) == 0
    assert table.write(P0, 0, rows(P0, 0, 1, 2)) == 3
    version = DeltaTable(str(path)).version()
    assert table.write(P0, 0, rows(P0, 0, 1, 2)) == 3
    assert table.write(P0, 1, rows(P0, 1)) == 3
    assert table.write(P0, 3, rows(P0)) == 3
    assert DeltaTable(str(path)).version() == version
    assert table.write(P0, 1, rows(P0, 1, 2, 3, 4)) == 5
    assert values(path, P0) == [0, 1, 2, 3, 4]
    assert member.offsets == {P0: 5}
    assert ExactlyOnceTable(Holder(P0), path).next_offset(P0) == 5  # whose commit was lost


def test_who_does_not_own_a_partition_writes_nothing(path):
    table = ExactlyOnceTable(Holder(P1), path)
    with pytest.raises(Fenced, match="t-0: not owned by this member"):
        table.write(P0, 0, rows(P0, 0))
    assert DeltaTable(str(path)).version() == 0


def test_a_zombie_that_checked_in_time_writes_no_row_again(path):
    """It looked whether it owns the partition, was stopped, and commits after the next owner."""
    zombie = ExactlyOnceTable(Holder(P0), path)
    zombie.write(P0, 0, rows(P0, 0, 1))
    owner = Holder(P0)

    class Stopped(Holder):
        @property
        def owned(self):
            ExactlyOnceTable(owner, path).write(P0, 2, rows(P0, 2, 3, 4))
            self.seen = getattr(self, "seen", 0) + 1
            return frozenset([P0] if self.seen == 1 else [])

        @owned.setter
        def owned(self, _):
            pass

    zombie._member = Stopped()
    with pytest.raises(Fenced):
        zombie.write(P0, 2, rows(P0, 2, 3, 4, 5, 6))
    assert values(path, P0) == [0, 1, 2, 3, 4]


def test_other_partitions_are_in_nobodys_way(path):
    members = [Holder(TopicPartition("t", n)) for n in range(4)]

    def work(member):
        (place,) = member.owned
        table, offset = ExactlyOnceTable(member, path), 0
        while offset < 12:
            offset = table.write(place, offset, rows(place, *range(offset, offset + 3)))

    threads = [threading.Thread(target=work, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(values(path, TopicPartition("t", n)) == list(range(12)) for n in range(4))


def test_two_that_believe_to_own_a_partition_write_each_row_once(path):
    """Nobody is fenced here: Delta alone keeps them apart."""

    def work():
        table, offset = ExactlyOnceTable(Holder(P0), path), 0
        while offset < 30:
            offset = table.write(P0, offset, rows(P0, *range(offset, offset + 3)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values(path, P0) == list(range(30))


def test_the_transaction_is_of_the_group_and_the_partition(path):
    write_deltalake(
        str(path), rows(P0), mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("g/t-0", 6)]),
    )  # fmt: skip
    table = ExactlyOnceTable(Holder(P0, P1), path)
    assert table.positions([P0, P1]) == {P0: 7, P1: 0}
    assert app_id("a/b", TopicPartition("c", 1)) != app_id("a", TopicPartition("b/c", 1))


def test_rows_that_do_not_fit_are_refused_whole(path):
    table = ExactlyOnceTable(Holder(P0), path)
    with pytest.raises(DeltaError):
        table.write(P0, 0, pa.table({"other": [1]}))
    assert table.next_offset(P0) == 0


def test_a_member_of_a_coordinator_writes_and_commits(path):
    with Coordinator.open(None, topics={"t": 1}) as coordinator:
        with Member(coordinator, group_id="g", topics="t") as member:
            member.wait_for_change(PATIENCE_S)
            table = ExactlyOnceTable(member, path)
            assert table.write(("t", 0), table.next_offset(P0), rows(P0, 7)) == 1
        with Member(coordinator, group_id="g", topics="t") as member:
            member.wait_for_change(PATIENCE_S)
            assert member.committed(P0) == 1  # before the first one left
        with pytest.raises(Fenced):
            table.write(P0, 1, rows(P0, 8))
