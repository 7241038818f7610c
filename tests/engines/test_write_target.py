"""Targets that this process writes to the table of targets: what is read from there is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, get_assignor
from coordinator import Coordinator
from coordinator.config import Config, LogConfig
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.span_columns import TopicKeys
from coordinator.core.state.target_assignment import WholeTarget
from coordinator.engines.stored_target import read_stored_target
from coordinator.engines.write_target import compute_and_write, list_rows, make_whole
from coordinator.errors import GroupError
from coordinator.storage.record_log import LostTarget
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.target_table import load_target, targets_path
from tests.storage.test_store_modes import wrong
from tests.support.longer import EVERY
from tests.support.members import AT_ONCE, join
from tests.support.table_engine import runs_of, target_basis

CONFIG = Config(kafka=AT_ONCE, log=LogConfig(fsync=True))
COLUMNS = ("bounds", "topic", "first", "end")


@st.composite
def specs(draw):
    """Some members are static, and come first; some own nothing; ids sort by code points."""
    topics = draw(st.dictionaries(st.sampled_from("abé☃\U0001f600"), st.integers(0, 9)))
    some = st.lists(st.sampled_from(sorted(topics)), unique=True) if topics else st.just([])
    ids = st.text("mz\x00é\uffff\U0001f600", max_size=2)
    one = st.fixed_dictionaries({"subscribed": some})
    static = st.integers(0, 99).map(lambda n: f"i{n}")
    members = draw(st.dictionaries(ids, one, max_size=6))
    for name in members:
        if draw(st.booleans()):
            members[name]["instance_id"] = f"{draw(static)}-{len(members)}-{name}"
    return {"topics": topics, "members": members}


@given(specs())
@settings(max_examples=200 if EVERY else 60)
def test_a_whole_target_is_what_its_rows_say(spec):
    group = GroupSpec.from_dict(spec)
    ranges = get_assignor("uniform").assign(group)
    keys = TopicKeys([TopicKey(name, f"id of {name}") for name in group.topics.to_pylist()])
    made = make_whole(ranges, keys)
    read = WholeTarget.of(list_rows(made))
    assert made.member_ids.equals(read.member_ids)
    assert made.keys == read.keys
    for column in COLUMNS:
        assert np.array_equal(getattr(made, column), getattr(read, column)), column
        assert getattr(made, column).dtype == getattr(read, column).dtype, column
    owned = ranges.to_dict(lists=False)
    for member in owned:
        had = {}
        for key, first, end in made.spans(member):
            had.setdefault(key.name, []).append([first, end - first])
        assert had == owned[member]


@pytest.fixture
def store(tmp_path):
    """A store with a group of three members, one of them static."""
    path = tmp_path / "store"
    with Coordinator.open(path, topics={"a": 7, "b": 2}, config=CONFIG) as coordinator:
        join(coordinator, "m2", topics=["a", "b"])
        join(coordinator, "m1", topics=["a", "b"], instance_id="z")
        join(coordinator, "m0", topics=["b"])
    return path


def written(store, run_id="run", say=lambda _stage, _rows: None):
    asked = target_basis(store, run_id)
    return asked, compute_and_write(asked, CONFIG, say)


def test_a_target_is_written_as_it_is_read(store):
    said = []
    asked, target = written(store, say=lambda stage, rows: said.append((stage, rows)))
    assert [stage for stage, _ in said] == ["assigning", "writing"]
    read = read_stored_target(store, replace(target, whole=None), asked.input)
    for column in COLUMNS:
        assert np.array_equal(getattr(target.whole, column), getattr(read.whole, column))
    assert target.whole.member_ids.equals(read.whole.member_ids)
    assert target.whole.keys == read.whole.keys
    assert (target.stored.members, target.stored.ranges) == (3, len(target.whole))
    assert runs_of(store) == ["run"] * len(target.whole)
    assert wrong(store, 0o700) == {}


def test_a_repeated_computation_writes_nothing(store):
    _, first = written(store)
    _, again = written(store)
    assert again.stored == first.stored
    assert runs_of(store) == ["run"] * first.stored.ranges


def test_a_group_without_partitions_has_a_target_without_rows(tmp_path):
    with Coordinator.open(tmp_path, topics={"a": 0}, config=CONFIG) as coordinator:
        join(coordinator, "m1", topics=["a"])
    asked, target = written(tmp_path)
    assert (len(target.whole), target.stored.ranges) == (0, 0)
    assert len(load_target(tmp_path, target.stored)) == 0
    assert asked.input.metas.keys() == {"m1"}


def test_rows_that_are_gone_are_missed(store):
    _, target = written(store)
    disk, table = files_at(targets_path(store)), targets_path(store)
    for name in disk.names_below(table):
        if name.startswith("run-"):
            disk.remove(f"{table}/{name}")
    with pytest.raises(LostTarget):
        load_target(store, target.stored)


def test_an_invalid_assignment_is_refused_before_anything_is_written(store, monkeypatch):
    asked = target_basis(store, "run")

    class Half:
        def assign(self, group):
            ranges = get_assignor("uniform").assign(group)
            return replace(ranges, count=ranges.count - (ranges.count > 1))

    monkeypatch.setattr(type(asked.options), "make_assignor", lambda _: Half())
    with pytest.raises(GroupError, match="partitions have no owner"):
        compute_and_write(asked, CONFIG, lambda _stage, _rows: None)
    assert not files_at(str(store)).exists(targets_path(store))
