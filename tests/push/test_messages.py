"""What is said to workers: the reference has it as the code does; what they answer is checked."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import TopicPartition
from coordinator.push import messages
from coordinator.push.messages import LostError, encode_request, read_registration, read_report
from tests.conftest import ROOT

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PAGE = ROOT / "docs/reference/push.md"


def openapi():
    (found,) = re.findall(
        r"^```json\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return json.loads(found)


@pytest.mark.parametrize("name", ["Registration", "Progress", "Consumed"])
def test_the_reference_has_the_fields_of_answers(name):
    found = openapi()["components"]["schemas"][name]
    fields = msgspec.structs.fields(getattr(messages, name))
    assert list(found["properties"]) == [field.name for field in fields]
    assert found["required"] == [field.name for field in fields if field.required]


def test_the_reference_has_the_fields_of_requests():
    found = openapi()["components"]["schemas"]["Request"]
    asked = json.loads(encode_request("s", 9, {P1: None, P0: 7}))
    assert list(found["properties"]) == found["required"] == list(asked)
    assert [list(place) for place in asked["partitions"]] == [
        found["properties"]["partitions"]["items"]["required"]
    ] * 2
    assert [place["offset"] for place in asked["partitions"]] == [7, None]


def test_what_counts_of_a_report():
    rows = [("t", 0, 7), ("t", 1, 2), ("t", 2, 1), ("u", 0, 1)]
    body = msgspec.json.encode({"offsets": [messages.Consumed(*row) for row in rows], "more": 1})
    assert read_report("ping", body, {P0: 7, P1: 3}) == ({P0: 7}, 3)
    assert read_report("ping", b"{}", {P0: 7}) == ({}, 0)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"group_id": ""}, {"group_id": "g"}, {"group_id": "g", "topics": "t"},
        {"group_id": "g", "topics": [""]}, {"group_id": "g", "topics": ["t"] * 10_001},
        {"group_id": "g", "topics": ["t"], "rebalance_timeout_ms": 0},
        {"group_id": "g" * 40_000, "topics": ["t"]}, {"group_id": 1, "topics": ["t"]},
    ],
    ids=lambda body: str(body)[:60],
)  # fmt: skip
def test_what_is_no_registration(body):
    with pytest.raises(LostError, match="register") as caught:
        read_registration(json.dumps(body).encode())
    assert caught.value.reason == "wrong answer"


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["offsets", "topic", "partition", "offset", "group_id"]), inner),
    max_leaves=10,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_answer_is_read_or_lost(body):
    for read in (read_registration, lambda found: read_report("stop", found, {P0: None})):
        with suppress(LostError):
            read(body)
