"""Rows of partitions, each once in a Delta table, however many write them how often."""

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
    """A member that owns what the test says."""

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
    with pytest.raises(Fenced, match="t-0: not, or no longer, owned by this member"):
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


def test_other_partitions_are_in_no_writers_way(path):
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


def restore(path, version):
    DeltaTable(str(path)).restore(version)


def test_rows_that_restore_took_away_are_written_when_they_are_given_again(path):
    member = Holder(P0, P1)
    table = ExactlyOnceTable(member, path)
    for offset in (0, 2, 4):
        table.write(P0, offset, rows(P0, offset, offset + 1))
    table.write(P1, 0, rows(P1, 0))
    restore(path, 2)
    for again in (table, ExactlyOnceTable(Holder(P0, P1), path)):
        assert again.positions([P0, P1]) == {P0: 4, P1: 0}
        assert (again.next_offset(P0), again.next_offset(P1)) == (4, 0)  # whatever was committed
    assert table.write(P0, 0, rows(P0, 0, 1, 2, 3, 4, 5)) == 6
    assert values(path, P0) == [0, 1, 2, 3, 4, 5]
    assert ExactlyOnceTable(Holder(P0, P1), path).positions([P0, P1]) == {P0: 6, P1: 0}
    assert table.write(P0, 4, rows(P0, 4, 5)) == 6
    assert table.write(P1, 0, rows(P1, 0)) == 1
    assert values(path, P0) == [0, 1, 2, 3, 4, 5]
    assert values(path, P1) == [0]


def test_a_member_that_wrote_on_learns_what_restore_took_away(path):
    """It goes on from the offset that it gets, as always: no row is left out."""
    table = ExactlyOnceTable(Holder(P0), path)
    offset = table.write(P0, 0, rows(P0, 0, 1))
    offset = table.write(P0, offset, rows(P0, 2, 3))
    restore(path, 1)
    offset = table.write(P0, offset, rows(P0, 4, 5))
    assert offset == 2
    assert table.write(P0, offset, rows(P0, 2, 3, 4, 5)) == 6
    assert values(path, P0) == [0, 1, 2, 3, 4, 5]
    assert table.write(P0, 9, rows(P0, 9)) == 10  # offsets may have gaps


def test_a_table_that_was_restored_again_and_again_or_to_before_a_restore(path):
    def write(*given):
        return ExactlyOnceTable(Holder(P0), path).write(P0, given[0], rows(P0, *given))

    for value in range(4):
        write(value)  # version value + 1
    restore(path, 2)  # version 5: rows 0, 1
    assert write(0, 1, 2) == 3  # version 6
    restore(path, 4)  # version 7: rows 0 to 3
    assert write(2, 3) == 4
    assert values(path, P0) == [0, 1, 2, 3]
    restore(path, 6)  # version 8: rows 0 to 2
    assert ExactlyOnceTable(Holder(P0), path).positions([P0]) == {P0: 3}
    assert write(0, 1, 2, 3, 4) == 5
    assert values(path, P0) == [0, 1, 2, 3, 4]
    restore(path, 8)
    restore(path, 8)
    assert write(2, 3) == 4
    assert values(path, P0) == [0, 1, 2, 3]


def test_a_restore_is_known_when_the_log_has_forgotten_it(path):
    table = ExactlyOnceTable(Holder(P0), path)
    table.write(P0, 0, rows(P0, 0, 1, 2))
    restore(path, 0)
    table.write(P0, 0, rows(P0, 0))
    DeltaTable(str(path)).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    again = ExactlyOnceTable(Holder(P0), path)
    assert again.positions([P0]) == {P0: 1}
    assert again.write(P0, 0, rows(P0, 0, 1, 2)) == 3
    assert values(path, P0) == [0, 1, 2]


def test_a_commit_does_not_come_past_a_restore_unseen(path):
    table = ExactlyOnceTable(Holder(P0), path)
    table.write(P0, 0, rows(P0, 0, 1))

    class Stopped(Holder):
        looks = 0

        @property
        def owned(self):
            self.looks += 1
            if self.looks == 1:
                restore(path, 0)
            return frozenset([P0])

        @owned.setter
        def owned(self, _):
            pass

    table._member = Stopped()
    assert table.write(P0, 2, rows(P0, 2, 3)) == 0
    assert table.write(P0, 0, rows(P0, 0, 1, 2, 3)) == 4
    assert values(path, P0) == [0, 1, 2, 3]
