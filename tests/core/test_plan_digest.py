"""Digests of a plan's inputs: by columns, alike for alike groups, different for others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.plans.input_digest import hash_columns
from coordinator.core.plans.inputs import describe_inputs
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import MemberMetadata
from coordinator.core.state.target_assignment import Targets, WholeTarget
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis

texts = st.lists(st.none() | st.text(alphabet="aé\x1f", max_size=3), max_size=4)


@given(st.lists(texts, max_size=3), st.lists(texts, max_size=3))
def test_columns_that_differ_have_other_digests(one, other):
    assert (hash_columns(one) == hash_columns(other)) == (one == other)


def test_a_slice_is_hashed_as_what_it_has():
    whole = pa.array(["a", None, "bc", "", "d"])
    assert hash_columns([whole.slice(1, 3)]) == hash_columns([[None, "bc", ""]])
    assert hash_columns([np.arange(4)[::2]]) == hash_columns([np.array([0, 2])])
    assert hash_columns([np.arange(2)]) != hash_columns([np.arange(2, dtype=np.float64)])


KEYS = [TopicKey("a", "id-a"), TopicKey("b", "id-b"), TopicKey("unused", "id-c")]


def basis(targets, members=("m1", "m2")):
    metas = {one: MemberMetadata("g", one, subscribed_topic_names=("a",)) for one in members}
    found = AssignorInput(metas, targets, [])
    return Basis("g", 3, "uniform", {}, AssignorOptions("uniform"), found, assignment_epoch=3)


def digest(targets):
    return describe_inputs(basis(targets))["target"]


def test_a_target_has_one_digest_however_it_is_kept():
    rows = pa.table(
        {
            "member_id": ["m1", "m1", "m2"], "topic": ["a", "b", "a"],
            "topic_id": ["id-a", "id-b", "id-a"],
            "first_partition": pa.array([0, 0, 2], pa.int32()),
            "partition_count": pa.array([2, 4, 2], pa.int32()),
        }
    )  # fmt: skip
    whole = Targets(WholeTarget.of(rows))
    single = Targets()
    for member in ("m2", "m1"):
        single[member] = whole[member]
    unused = whole.copy()
    unused.whole.keys.append(KEYS[2])
    assert digest(single) == digest(whole) == digest(unused)
    single["m2"] = ((KEYS[0], 2, 5),)
    assert digest(single) != digest(whole)
    assert describe_inputs(basis(Targets()))["target"].endswith(" none")


@pytest.mark.parametrize("change", ["member_id", "instance_id", "rack_id", "client_id"])
def test_whatever_a_plan_depends_on_of_a_member_is_in_the_digest(change):
    one = basis(Targets())
    other = basis(Targets())
    meta = other.input.metas.pop("m2")
    values = {name: getattr(meta, name) for name in meta.__struct_fields__} | {change: "x"}
    other.input.metas[values["member_id"]] = MemberMetadata(**values)
    assert describe_inputs(one)["members"] != describe_inputs(other)["members"]
