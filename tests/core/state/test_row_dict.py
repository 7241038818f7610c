"""A dict of rows is as a dict of the same values, however it changes; so are its copies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state.groups import State
from coordinator.core.state.member_rows import MemberRows
from coordinator.core.state.records import MemberMetadata, Tombstone
from coordinator.core.state.replay import replay, replay_all
from coordinator.core.state.row_dict import (
    BLOCK,
    NO_ROW,
    MemberIndex,
    RowDict,
    RowValues,
    SortedIds,
    list_keys_of_one,
)
from coordinator.core.state.rows.member_table import MemberDict, count_all_owned, list_field
from coordinator.core.state.shared_dict import SHARED_LEAST, GrowingSet, SharedDict

KEYS = st.sampled_from([f"m{number}" for number in range(8)])
CHANGES = st.lists(st.tuples(st.sampled_from(["set", "del", "pop"]), KEYS), max_size=12)


class Doubled(RowValues[int]):
    def value(self, key, row):  # noqa: ARG002 - others need it
        return 2 * row


def index_of(*ids):
    index = MemberIndex()
    assert index.add(pa.array(ids, pa.string()))
    return index


def change(found, changes, number):
    for at, (what, key) in enumerate(changes):
        if what == "set":
            found[key] = number + at
        elif what == "pop":
            found.pop(key, None)
        elif key in found:
            del found[key]


@given(count=st.integers(0, 6), before=CHANGES, after=CHANGES, others=CHANGES, fold=st.sets(KEYS))
def test_it_is_as_a_dict(count, before, after, others, fold):
    index = index_of(*[f"m{number}" for number in range(count)])
    found = RowDict(Doubled(index))
    twin = dict(found)
    change(found, before, 100)
    change(twin, before, 100)
    copy, copy_twin = found.copy(), twin.copy()
    for one, changes in ((found, after), (twin, after), (copy, others), (copy_twin, others)):
        change(one, changes, 200)
    for key in fold:  # a value that is what its row says
        if (
            found.find_row(key) is None
            and key in found.own
            and key in index.places
            and key not in found.gone
        ):
            found[key] = twin[key] = 2 * index.places[key]
            found.fold([key])
            assert found.find_row(key) == index.places[key]
    found.tidy()
    for one, expected in ((found, twin), (copy, copy_twin)):
        assert list(one.items()) == list(expected.items())
        assert (list(one.values()), len(one)) == (list(expected.values()), len(expected))
        assert {key: one.get(key) for key in expected} == expected
        rows, own = one.list_in_order()
        values = [own.get(at, 2 * row) for at, row in enumerate(rows.tolist())]
        assert values == list(expected.values())
        assert one.list_keys().to_pylist() == list(expected)
        asked = [*index.places, "m8", *(f"m{at}" for at in range(8))]
        rows = [*index.places.values(), *[NO_ROW] * 9]
        places = one.find_keys(pa.array(asked, pa.string()), np.array(rows, dtype=np.int64))
        order = {key: at for at, key in enumerate(expected)}
        assert [max(at, NO_ROW) for at in places.tolist()] == [order.get(k, NO_ROW) for k in asked]
        there = [key for key in index.places if key in one and key not in one.own]
        assert one.list_rows().tolist() == [index.places[key] for key in there]
        looked_up = one.look_up([*index.places, "m9"])
        assert {key for key, row in zip(index.places, looked_up, strict=False) if row >= 0} == {
            *there
        }
    assert (found == copy) == (twin == copy_twin)
    assert set(list_keys_of_one(found, copy)) == twin.keys() ^ copy_twin.keys()
    assert set(list_keys_of_one(found, copy_twin)) == twin.keys() ^ copy_twin.keys()


def test_copies_of_very_many_changes_cost_what_came_since():
    """What changed, and what was removed, is shared with copies too, once it is much."""
    ids = [f"m{number}" for number in range(25_000)]
    found = RowDict(Doubled(index_of(*ids)))
    twin = dict(found)
    copies = []
    for turn in range(4):
        for one in (found, twin):
            some = ids[turn * 5_000 : (turn + 1) * 5_000]
            change(one, [("set", key) for key in [*some, f"n{turn}"]], turn)
            change(one, [("del", key) for key in ids[turn + 1 : 20_000 : 7]], turn)
        copies.append((found.copy(), twin.copy()))
        for one in copies[-1]:
            change(one, [("set", "other"), ("pop", ids[-1 - turn]), ("set", ids[1])], 9)
        assert found.own.copy() is not found.own
    changed = len(found.own) + len(found.gone)
    assert changed > 20_000
    assert isinstance(found.own, SharedDict)
    assert isinstance(found.gone, GrowingSet)
    for one, expected in (*copies, (found, twin)):
        assert list(one.items()) == list(expected.items())
        assert one.list_keys().to_pylist() == list(expected)
        assert len(one) == len(expected)


def test_an_index_finds_ids_in_any_order_each_once():
    index = index_of("b", "a", "c")
    assert index.find(pa.array(["b", "a"])).tolist() == [0, 1]
    assert index.find(pa.array(["c", "b"])).tolist() == [2, 0]
    assert index.find(pa.array(["c", "c"])) is None
    assert index.find(pa.array(["c", "d"])) is None
    assert index.look_up(["d", "c"]).tolist() == [NO_ROW, 2]
    assert index.list_by_id().tolist() == [1, 0, 2]
    assert index_of("a", "b").list_by_id().tolist() == [0, 1]
    assert index_of().list_by_id().tolist() == []


def test_no_one_comes_twice_nor_once_a_copy_is_based_on_it():
    index = index_of("a", "b")
    assert not index.add(pa.array(["c", "c"]))
    assert not index.add(pa.array(["c", "b"]))
    assert index.add(pa.array(["c"]))
    RowDict(Doubled(index)).copy()
    assert not index.add(pa.array(["d"]))
    assert (list(index.places), index.ids.to_pylist()) == (["a", "b", "c"], ["a", "b", "c"])


def rows_of(metas):
    hosts = list(dict.fromkeys(meta.client_host for meta in metas))
    one = np.zeros(len(metas), np.int32)
    alike = [[value] for value in (None, None, "", hosts, ("a",), "", -1, None, None, "")]
    columns = [(values, one) for values in alike]
    columns[3] = (hosts, np.array([hosts.index(meta.client_host) for meta in metas], np.int32))
    return MemberRows("g", pa.array([meta.member_id for meta in metas]), columns)


@pytest.mark.parametrize("size", [1, 2, 6])
def test_members_come_in_several_runs(size):
    metas = [
        MemberMetadata("g", f"m{n}", client_host=f"h{n % 3}", subscribed_topic_names=("a",))
        for n in range(6)
    ]
    state = State()
    for at in range(0, 6, size):
        replay_all(state, rows_of(metas[at : at + size]))
    group = state.groups["g"]
    assert isinstance(group.members, MemberDict)
    assert list(group.metas.values()) == metas
    assert [member.serial for member in group.members.values()] == [1, 2, 3, 4, 5, 6]
    assert group.lists[("a",)].members == 6


def test_a_field_of_all_members_is_in_their_order():
    metas = [
        MemberMetadata("g", f"m{n}", client_host=f"h{n % 3}", subscribed_topic_names=("a",))
        for n in range(6)
    ]
    state = State()
    replay_all(state, rows_of(metas))
    replay(state, Tombstone(MemberMetadata.kind, "g", "m1"))
    replay(state, MemberMetadata("g", "m3", client_host="there", subscribed_topic_names=("a",)))
    replay(state, MemberMetadata("g", "m1", client_host="last", subscribed_topic_names=("a",)))
    found = list_field(state.groups["g"].metas, "client_host")
    assert found == ["h0", "h2", "there", "h1", "h2", "last"]
    assert count_all_owned(state.groups["g"].members) == [0] * 6


def test_to_count_what_members_own_changes_nothing_of_them():
    state = State()
    replay_all(state, rows_of([MemberMetadata("g", f"m{n}") for n in range(6)]))
    for number in range(SHARED_LEAST):
        replay(state, MemberMetadata("g", f"n{number}"))
    replay(state, Tombstone(MemberMetadata.kind, "g", "m1"))
    members = state.groups["g"].members
    own, gone = members.own, members.gone
    assert len(count_all_owned(members)) == len(members) == SHARED_LEAST + 5
    assert (members.own is own, members.gone is gone) == (True, True), "any thread may ask"
    assert not members.rows.index.frozen


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_ids_of_a_sorted_column_are_found_and_no_others(count):
    begins = ("a\U0001f600", "é", "a")
    texts = sorted({f"{begins[n % 3]}{n * 2:05}" for n in range(count)})
    ids = SortedIds(pa.array(texts, pa.string()))
    assert [ids.find(text) for text in texts] == list(range(count))
    near = [other for text in texts for other in (f"{text} ", text[:-1])]
    assert {ids.find(text) for text in ["", "\x00", "zz", "\U0010ffff", *near]} == {None}
