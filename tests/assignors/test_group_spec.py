"""Bad input is refused whole, with a message that names the value and the remedy; fuzzed."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor
from assignors.parse import parse_json_object, parse_json_objects, parse_json_rows
from tests.support import twins
from tests.support.longer import EVERY


def group(**changes):
    spec = {
        "topics": {"a": 4, "b": 3},
        "members": {
            "m1": {"subscribed": ["a", "b"], "owned": {"a": [0, 1, 2, 3]}},
            "m2": {"subscribed": ["a", "b"]},
        },
    }
    return spec | changes


def member(**fields):
    return group(members={"m1": {"subscribed": ["a"]} | fields})


REFUSED = {
    "no topics": ({"members": {}}, "'topics' is missing"),
    "no members": ({"topics": {}}, "'members' is missing"),
    "unknown field at the top": (
        group(max_moves=3),
        "unknown field 'max_moves': the fields of a group are id, assignor, topics, members",
    ),
    "topics no object": (group(topics=[]), "topics is [], expected an object"),
    "members no object": (group(members=[1]), "members is [1], expected an object"),
    "negative count": (group(topics={"a": -1}), "topic 'a' has partition count -1"),
    "fractional count": (group(topics={"a": 1.5}), "partition count 1.5: give a whole number"),
    "count as text": (group(topics={"a": "4"}), "partition count '4'"),
    "boolean count": (group(topics={"a": True}), "partition count True"),
    "null count": (group(topics={"a": None}), "partition count None"),
    "too large count": (group(topics={"a": 2**30 + 1}), f"from 0 to {2**30}"),
    "too large group": (
        group(topics={"a": 2**30, "b": 1}, members={"m": {"subscribed": ["a", "b"]}}),
        f"subscribes to {2**30 + 1} partitions (largest topic: 'a')",
    ),
    "member no object": (group(members={"m": 1}), "member 'm' is 1, expected an object"),
    "unknown field": (member(own={}), "unknown field 'own': the fields are subscribed, owned"),
    "no subscription": (group(members={"m": {}}), "member 'm': subscribed is missing"),
    "subscription text": (member(subscribed="a"), "member 'm1': subscribed is 'a'"),
    "subscription of numbers": (member(subscribed=[1]), "topic 1 is a number: expected text"),
    "unknown topic": (
        member(subscribed=["zz"]),
        "member 'm1' subscribes to topic 'zz', which is not in topics: add it",
    ),
    "owned of unknown topic": (member(owned={"zz": [0]}), "owns partitions of topic 'zz'"),
    "owned no object": (member(owned=[0]), "owned of member 'm1' is [0]"),
    "owned no list": (member(owned={"a": 0}), "topic 'a': found 0; expected a list"),
    "owned outside": (member(owned={"a": [4]}), "partition 4 of topic 'a', which has 4"),
    "owned negative": (member(owned={"a": [-1]}), "found -1; expected a list"),
    "owned fractional": (member(owned={"a": [0.5]}), "found 0.5"),
    "owned text": (member(owned={"a": ["0"]}), "found '0'"),
    "owned boolean": (member(owned={"a": [True]}), "found True"),
    "range of booleans": (member(owned={"a": [[False, True]]}), "found [False, True]"),
    "partition beyond int32": (member(owned={"a": [2**31 - 1]}), "found 2147483647; expected"),
    "range beyond int32": (member(owned={"a": [[2**31 - 1, 1]]}), "found [2147483647, 1]"),
    "partitions and ranges": (member(owned={"a": [[0, 1], 2]}), "found [0, 1]; expected a list"),
    "owned false": (member(owned=False), "owned of member 'm1' is False"),
    "subscription null": (member(subscribed=None), "member 'm1': subscribed is missing"),
    "owned twice": (member(owned={"a": [1, 1]}), "partition 1 of topic 'a' twice"),
    "overlapping ranges": (member(owned={"a": [[0, 3], [2, 1]]}), "partition 2 of topic 'a' twice"),
    "range of nothing": (member(owned={"a": [[0, 0]]}), "found [0, 0]"),
    "range of three": (member(owned={"a": [[0, 1, 2]]}), "found [0, 1, 2]"),
    "instance id no text": (member(instance_id=7), "member 'm1': instance_id is 7"),
    "rack no text": (member(rack=[]), "member 'm1': rack is []"),
    "rack no Unicode": (member(rack="\ud800"), "member 'm1': rack is '\\ud800', expected text"),
    "lone surrogate": (group(members={"\ud800": {"subscribed": []}}), "not valid Unicode"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_specs_are_refused(name):
    spec, message = REFUSED[name]
    with pytest.raises(SpecError) as error:
        GroupSpec.from_dict(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one JSON object with topics and members, got 0"),
        ("x", "not JSON: Expecting value: line 1 column 1"),
        ("[]", "line 1: expected a JSON object with topics and members, got a list"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": "\x01"}', "not JSON: Invalid control character"),
        ('{"a": 1}\x0c', "not JSON: Expecting value"),
        ('[{"a": 1}]', "got a list"),
        ('{"m": 1, "m": 2}', "'m' appears twice in one object"),
        ("{}\n{}", "expected one JSON object with topics and members, got 2"),
        ("{}\n\n 7", "line 3: expected a JSON object"),
        ("{}\n{", "not JSON: Expecting property name"),
        (b"\xff", "not UTF-8"),
        ("[" * 100_000, "too deep"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_text_that_is_no_spec(text, message):
    with pytest.raises(SpecError) as error:
        parse_json_object(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": NaN}]', "NaN is not a JSON number"),
        ('[{"a": 1, "a": 2}]', "'a' appears twice in one object"),
        ('[{"a": 1}, 7]', "row 1: expected a JSON object, got a number: 7"),
        ('[{"a": "\x01"}]', "not JSON: Invalid control character"),
        ("[{}] {}", "not JSON: Extra data"),
        ("[" * 100_000, "too deep"),
    ],
)
def test_text_that_is_no_rows(text, message):
    with pytest.raises(SpecError) as error:
        parse_json_rows(text)
    assert message in str(error.value)


def test_many_objects_in_one_text():
    assert parse_json_objects('\ufeff {"a": 1}\n\n{\n"b": 2}{"c": 3}\n'.encode()) == [
        (1, {"a": 1}),
        (3, {"b": 2}),
        (4, {"c": 3}),
    ]


def test_an_owner_that_is_no_member_has_left():
    members = pa.table({"member_id": ["m"], "subscribed": [["a"]]})
    topics = pa.table({"topic": ["a"], "partitions": [4]})
    owned = pa.table(
        {"member_id": ["gone", "gone"], "topic": ["a", "zz"], "first_partition": [2, 0], "partition_count": [9, 1]}
    )  # fmt: skip
    found = GroupSpec.from_arrow(members, topics, owned)
    assert found.orphan_count() == 4
    assert found.released.owner.to_pylist() == ["gone"]
    assert found.released.count.tolist() == [2]


MEMBERS = pa.table({"member_id": ["m1", "m2"], "subscribed": [["a"], ["a"]]})
TOPICS = pa.table({"topic": ["a"], "partitions": [4]})
OWNED = pa.table(
    {"member_id": ["m1"], "topic": ["a"], "first_partition": [0], "partition_count": [2]}
)
TABLES_REFUSED = {
    "no column": (MEMBERS.drop(["subscribed"]), TOPICS, OWNED, "column 'subscribed' is missing (found member_id)"),
    "column twice": (MEMBERS.append_column("member_id", pa.array(["m3", "m4"])), TOPICS, OWNED, "members: column 'member_id' is there twice: leave one of them out"),
    "list of numbers": (MEMBERS.set_column(1, "subscribed", pa.array([[1], [2]])), TOPICS, OWNED, "is list<item: int64>, expected list<string>"),
    "id of numbers": (MEMBERS.set_column(0, "member_id", pa.array([1, 2])), TOPICS, OWNED, "column 'member_id' is int64, expected string"),
    "null id": (MEMBERS.set_column(0, "member_id", pa.array(["m", None])), TOPICS, OWNED, "column 'member_id' has a null"),
    "null subscription": (MEMBERS.set_column(1, "subscribed", pa.array([["a"], None])), TOPICS, OWNED, "column 'subscribed' has a null"),
    "null topic": (MEMBERS.set_column(1, "subscribed", pa.array([["a"], [None]])), TOPICS, OWNED, "lists a null topic"),
    "member twice": (pa.concat_tables([MEMBERS, MEMBERS]), TOPICS, OWNED, "member 'm1' appears twice"),
    "topic twice": (MEMBERS, pa.concat_tables([TOPICS, TOPICS]), OWNED, "topic 'a' appears twice"),
    "float count": (MEMBERS, TOPICS.set_column(1, "partitions", pa.array([4.0])), OWNED, "column 'partitions' is double, expected an integer type"),
    "negative count": (MEMBERS, TOPICS.set_column(1, "partitions", pa.array([-4])), OWNED, "partition count -4"),
    "huge count": (MEMBERS, TOPICS.set_column(1, "partitions", pa.array([2**64 - 1], pa.uint64())), OWNED, "column 'partitions'"),
    "unknown topic": (MEMBERS, TOPICS.set_column(0, "topic", pa.array(["b"])), None, "member 'm1' subscribes to topic 'a'"),
    "owned unknown topic": (MEMBERS, TOPICS, OWNED.set_column(1, "topic", pa.array(["b"])), "member 'm1' owns partitions of topic 'b'"),
    "owned count 0": (MEMBERS, TOPICS, OWNED.set_column(3, "partition_count", pa.array([0])), "partition_count 0"),
    "owned first -1": (MEMBERS, TOPICS, OWNED.set_column(2, "first_partition", pa.array([-1])), "first_partition -1"),
    "owned far away": (MEMBERS, TOPICS, OWNED.set_column(2, "first_partition", pa.array([2**40])), "first_partition 1099511627776 and partition_count 2: give a first partition from 0 to 2147483647"),
    "owned outside": (MEMBERS, TOPICS, OWNED.set_column(3, "partition_count", pa.array([5])), "partition 4 of topic 'a', which has 4"),
    "owned twice": (MEMBERS, TOPICS, pa.concat_tables([OWNED, OWNED]), "partition 0 of topic 'a' twice"),
    "unknown column of members": (MEMBERS.append_column("group_id", pa.array(["g", "h"])), TOPICS, OWNED, "members: unknown column 'group_id': the columns are member_id, instance_id, rack, subscribed, capacity"),
    "unknown column of topics": (MEMBERS, TOPICS.append_column("weight", pa.array([2])), OWNED, "topics: unknown column 'weight': the columns are topic, partitions, topic_id, racks; leave"),
    "unknown column of owned": (MEMBERS, TOPICS, OWNED.append_column("day", pa.array([2])), "owned: unknown column 'day': the columns are member_id, topic, first_partition, partition_count;"),
    "no table": ([1], TOPICS, OWNED, "members: expected an Arrow table, got a list"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES_REFUSED)
def test_tables_refused(name):
    members, topics, owned, message = TABLES_REFUSED[name]
    with pytest.raises(SpecError) as error:
        GroupSpec.from_arrow(members, topics, owned)
    assert message in str(error.value)


def test_any_text_type_and_integer_type_will_do():
    members = pa.table(
        {
            "member_id": pa.array(["m1", "m2"]).dictionary_encode(),
            "subscribed": pa.array([["a"], []], pa.large_list(pa.large_string())),
            "rack": pa.nulls(2),
        }
    )
    topics = pa.table(
        {"topic": pa.array(["a"], pa.string_view()), "partitions": pa.array([4], pa.uint8())}
    )
    ranges = get_assignor("uniform").assign(GroupSpec.from_arrow(members, topics))
    assert ranges.loads().tolist() == [4, 0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
@settings(max_examples=300 if EVERY else 80)
def test_any_json_is_accepted_or_refused(value):
    """Nothing else ever escapes, and the message is one line."""
    try:
        GroupSpec.from_dict(value)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - acceptance is fine too


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=300 if EVERY else 80)
def test_a_damaged_spec_is_accepted_or_refused(seed, data):
    """One value anywhere in a good spec is replaced by any other."""
    spec = json.loads(json.dumps(twins.random_spec(seed)))
    place, path = spec, []
    while isinstance(place, dict | list) and place:
        key = data.draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
        )
        path.append((place, key))
        place = place[key]
        if data.draw(st.booleans()):
            break
    if path:
        path[-1][0][path[-1][1]] = data.draw(json_values)
    try:
        found = GroupSpec.from_dict(spec)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - acceptance is fine too
        return
    subscribed = {topic for one in spec["members"].values() for topic in one["subscribed"]}
    assigned = get_assignor("uniform").assign(found).loads().sum()
    assert assigned == sum(spec["topics"][topic] for topic in subscribed)


@given(st.text(max_size=30) | st.binary(max_size=30))
@settings(max_examples=300 if EVERY else 80)
def test_text_that_is_no_group_is_refused_in_one_line(text):
    with pytest.raises(SpecError, match=r"\A.+\Z"):
        GroupSpec.from_json(text)


PIECES = (b'"', b"}", b",", b"NaN", b"\xff", b"\\ud800", b" ")


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=300 if EVERY else 80)
def test_damaged_text_is_refused_in_one_line_or_is_the_group_that_json_reads(seed, data):
    """Bytes are cut out of a good spec, or put into it; what is left may be another good one."""
    text = json.dumps(twins.random_spec(seed)).encode()
    at = data.draw(st.integers(0, 2**32)) % (len(text) + 1)  # evenly, not mostly at the ends
    cut, put = data.draw(st.integers(0, 3)), data.draw(st.just(b"") | st.sampled_from(PIECES))
    damaged = text[:at] + put + text[at + cut :]
    try:
        found = GroupSpec.from_json(damaged)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - acceptance is fine too
        assert cut or put, "a good spec is accepted"
        return
    assert found.to_arrow() == GroupSpec.from_dict(json.loads(damaged)).to_arrow()


def test_a_subscription_given_twice_counts_once():
    found = GroupSpec.from_dict({"topics": {"a": 2}, "members": {"m": {"subscribed": ["a", "a"]}}})
    assert found.class_topics.tolist() == [0]


def test_numpy_and_ranges_are_welcome_in_python():
    owned = {"a": np.array([0, 1]), "b": range(2)}
    found = GroupSpec.from_dict(group(members={"m": {"subscribed": ["a", "b"], "owned": owned}}))
    assert found.count.tolist() == [2, 2]
    assert "1 members in 1 classes, 2 topics, 7 partitions" in repr(found)


def test_rows_after_a_byte_order_mark():
    assert parse_json_rows('\ufeff[{"a": 1}]'.encode()) == [{"a": 1}]
