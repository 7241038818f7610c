"""Sums of rows: equal where a snapshot says what a state does, and only there."""

from __future__ import annotations

import random

import msgspec
import pyarrow as pa
import pytest

from coordinator.core.state.state_records import StateRecords
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.state_loader import load_state
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.verify.data_files import read_pieces
from coordinator.verify.row_sums import RowSums
from tests.faults.damage import live
from tests.support.classic_stories import classic_log
from tests.support.lives import claimed, life


def sums_of(*tables):
    sums = RowSums()
    for table in tables:
        sums.add(table)
    return sums


def check_snapshot(store):
    """Compare the rows of a new snapshot with the state that it was made of."""
    log = claimed(store)
    state, _, position = load_state(log)
    log.snapshot(StateRecords(state), position, 9)
    table = read_table_files(f"{store}/snapshots")
    found = RowSums()
    for file in table.files.values():
        if int(file.partition["snapshot_position"]) == position:
            for piece in read_pieces(table.path(file), file):
                found.add(piece)
    made = RowSums()
    made.add_records(StateRecords(state).runs())
    assert made == found
    assert sum(found.counts.values()) > 3


def test_a_snapshot_has_the_sums_of_its_state(tmp_path):
    check_snapshot(live(tmp_path).store)


def test_a_snapshot_of_classic_groups_has_the_sums_of_its_state(tmp_path):
    classic_log(tmp_path)
    check_snapshot(tmp_path)


ROWS = encode_records(life(2), 1, 5, 1)


def test_order_place_and_absent_columns_do_not_count():
    order = random.Random(1).sample(range(len(ROWS)), len(ROWS))
    again = encode_records(life(2), 40, 6, 2).take(pa.array(order))
    assert sums_of(again) == sums_of(ROWS)
    assert sums_of(ROWS.slice(0, 4), ROWS.slice(4)) == sums_of(ROWS)
    more = ROWS.append_column("offset", pa.nulls(len(ROWS), pa.int64()))
    assert sums_of(more) == sums_of(ROWS)


def test_each_value_counts():
    seen = [sums_of(ROWS)]
    for record in life(2):
        for name in record.__struct_fields__:
            value = getattr(record, name)
            others = {
                str: lambda value: value + "x",
                int: lambda value: value + 1,
                tuple: lambda value: value + value[-1:] if value else value,
            }
            other = others.get(type(value), lambda value: value)(value)
            if other != value:
                seen.append(
                    sums_of(
                        encode_records([msgspec.structs.replace(record, **{name: other})], 1, 5, 1)
                    )
                )
                seen.append(sums_of(encode_records([record], 1, 5, 1)))
                assert seen[-1] != seen[-2], name
    assert len(seen) > 40


@pytest.mark.parametrize(
    ("one", "other"),
    [([[1, 2]], [[2, 1]]), ([[1], [2]], [[1, 2], []]), ([[]], [None]), ([[0]], [[]])],
)
def test_lists_differ_by_order_length_and_absence(one, other):
    tables = [
        pa.table({"kind": ["k"] * len(rows), "group_id": ["g"] * len(rows), "list": rows})
        for rows in (one, other)
    ]
    assert sums_of(tables[0]) != sums_of(tables[1])
