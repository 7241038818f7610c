"""`muster trace` answers the classic group protocol as Kafka 4.4.0 did, file by file."""

from __future__ import annotations

import pytest

from coordinator.trace.fields import TraceError
from coordinator.trace.json_trace import JsonTrace
from coordinator.trace.requests import read_requests
from tests.support.traces.golden import (
    check_answers,
    files_for_a_store,
    golden_files,
)

RANGE = [{"name": "range", "metadata": {"topics": ["a"]}}]
DIFFERENT = {"upgrade-delay"}
"""Kafka's own coordinator fails there; docs/design/coordinator.md says what ours does."""
PLAYED = [file for file in golden_files("classic") if file.stem not in DIFFERENT]
STORED = files_for_a_store(PLAYED, walks={"walk-1007", "walk-1029"})
"""Those walks fail over most often."""


@pytest.mark.parametrize("file", PLAYED, ids=lambda f: f.stem)
def test_answers_as_kafka(file):
    check_answers(file)


@pytest.mark.parametrize("file", STORED, ids=lambda f: f.stem)
def test_answers_as_kafka_on_a_delta_store(file, tmp_path):
    """The same, every answer durable first, `reload` really reopens the store."""
    check_answers(file, tmp_path / "store")


def test_a_group_whose_first_generation_waits_is_converted_all_the_same():
    """Kafka fails there, after it has sent the joins off (`upgrade-delay`)."""
    trace = JsonTrace()
    *_, joined = [
        trace.run(op)
        for op in (
            {"op": "topics", "set": {"a": 6}},
            {"op": "join_group", "instance_id": "i", "protocols": RANGE},
            {
                "member": "m",
                "epoch": 0,
                "owned": {},
                "rebalance_timeout_ms": 9,
                "subscribed": ["a"],
            },
        )
    ]
    assert joined["response"]["member_epoch"] == 2
    (released,) = joined["completed"]
    assert released["response"]["error"] == "REBALANCE_IN_PROGRESS"
    again = trace.run(
        {"op": "join_group", "member_id": "$001", "instance_id": "i", "protocols": RANGE}
    )
    assert again["response"]["generation"] == 2
    trace.run({"op": "reload"})
    described = trace.run({"op": "describe"})["group"]
    assert [member["memberType"] for member in described["members"]] == [0, 1]


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"op": "join_group", "protocols": "range"}, "protocols is 'range'"),
        ({"op": "join_group", "protocols": [{"name": "x", "metadata": "?"}]}, "is not base64"),
        ({"op": "join_group", "protocols": [{"metadata": {"topics": 3}}]}, "is not a subscription"),
        ({"op": "sync_group", "protocol_name": "x", "assignments": [1]}, "assignments is [1]"),
        (
            {"op": "sync_group", "protocol_name": "x", "assignments": {"m": {"a": "x"}}},
            "is not an assignment",
        ),
        ({"op": "leave_group", "members": ["m"]}, "members is ['m']"),
        ({"op": "describe_groups", "groups": "g"}, "groups is 'g'"),
        ({"op": "offset_commit", "offsets": {"a": [1]}}, "give {topic: {partition: offset}}"),
    ],
)
def test_what_is_no_operation_of_the_classic_protocol(op, words):
    with pytest.raises(TraceError) as refused:
        JsonTrace().run(op)
    assert words in str(refused.value)


def test_a_join_without_a_known_id_is_of_a_version_without_skipping():
    trace = JsonTrace()
    trace.run({"op": "config"})
    op = {"op": "join_group", "require_known_member_id": False, "protocols": RANGE}
    for given in ({}, {"supports_skipping_assignment": True}):
        (join,) = read_requests(op | given, trace.player, 1)
        assert (join.knows_member_id, join.knows_skipping) == (False, False)
    (join,) = read_requests(op | {"require_known_member_id": True}, trace.player, 1)
    assert join.knows_skipping
