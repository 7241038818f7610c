"""`muster trace` on lines that are no trace: an answer or a TraceError, never anything else."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.trace.fields import TraceError
from coordinator.trace.json_trace import ANY, OPERATIONS, JsonTrace, run_lines
from tests.support.longer import EVERY

SETUP = [
    {"op": "config", "now": 1_000_000, "props": {"group.consumer.assignment.interval.ms": 0}},
    {"op": "topics", "set": {"a": 3}},
    {"member": "m1", "epoch": 0, "owned": {}, "rebalance_timeout_ms": 9, "subscribed": ["a"]},
]

WRONG = {
    "not JSON": ("{", "line 4: not JSON"),
    "half a line": ('{"op": "rel', "not JSON"),
    "a list": ("[]", "give one operation per line"),
    "a number": ("7", "give one operation per line"),
    "nothing": ("null", "give one operation per line"),
    "too deep": ("[" * 100_000, "line 4"),
    "a huge number": ('{"op": "advance", "ms": ' + "9" * 5_000 + "}", "line 4"),
    "NaN": ('{"op": "advance", "ms": NaN}', "ms is nan"),
    "unknown op": ('{"op": "leap"}', "unknown op 'leap'"),
    "op is no text": ('{"op": 3}', "unknown op 3"),
    "op is null": ('{"op": null}', "unknown op None"),
    "unknown field": ('{"op": "describe", "grup": "g"}', "describe has 'grup'"),
    "a field of another op": ('{"op": "reload", "ms": 3}', "reload has 'ms'"),
    "the clock goes back": ('{"op": "advance", "ms": -1}', "clock cannot go back"),
    "the clock goes back first": ('{"op": "describe", "advance_ms": -5}', "clock cannot go back"),
    "half a ms": ('{"op": "advance", "ms": 0.5}', "ms is 0.5"),
    "true ms": ('{"op": "advance", "ms": true}', "ms is True"),
    "ms without end": ('{"op": "advance", "ms": 99999999999999999999}', "ms"),
    "now is text": ('{"op": "config", "now": "today"}', "now is 'today'"),
    "props is a list": ('{"op": "config", "props": [1]}', "give an object"),
    "a wrong setting": ('{"op": "config", "props": {"group.consumer.max.size": 0}}', "max.size is 0"),
    "topics is a list": ('{"op": "topics", "set": [1]}', "set is [1]"),
    "a count that is no number": ('{"op": "topics", "set": {"a": "6"}}', "topic 'a'"),
    "ids is a list": ('{"op": "topics", "set": {"a": 1}, "ids": ["x"]}', "give an object"),
    "an id that is a number": ('{"op": "topics", "set": {"a": 1}, "ids": {"a": 5}}', "topic 'a'"),
    "delete is a number": ('{"op": "topics", "delete": 5}', "delete is 5"),
    "delete has a list": ('{"op": "topics", "delete": [[1]]}', "delete is [[1]]"),
    "offsets is a list": ('{"op": "commit", "offsets": [1]}', "give {topic: {partition"),
    "offsets of a list": ('{"op": "commit", "offsets": {"a": [1]}}', "give {topic: {partition"),
    "a partition that is no number": ('{"op": "commit", "offsets": {"a": {"x": 1}}}', "give {topic: {partition"),
    "no valid text": ('{"member": "\\ud800", "epoch": 0}', "cannot be written"),
    "a leap in time": ('{"op": "advance", "ms": 9999999999999}', "cannot move"),
    "the end of time": ('{"op": "config", "now": 999999999999999999}', "the clock would be at"),
    "before 1970": ('{"op": "config", "now": -1}', "the clock would be at"),
    "more partitions than can be listed": ('{"op": "topics", "set": {"a": 2000000000}}', "at most 1000000"),
    "settings is a list": ('{"op": "group_config", "props": [1]}', "give an object"),
}  # fmt: skip


def lines(*ops):
    return [json.dumps(op) for op in ops]


@pytest.mark.parametrize(("line", "words"), WRONG.values(), ids=WRONG)
def test_what_is_no_operation_is_refused_with_its_line(line, words):
    trace = JsonTrace()
    answers = run_lines([*lines(*SETUP), line], trace)
    assert [next(answers)["now"] for _ in SETUP] == [1_000_000] * 3
    with pytest.raises(TraceError) as refused:
        next(answers)
    assert words in str(refused.value)
    assert "line 4" in str(refused.value)


REFUSED = {
    "epoch is text": {"member": "m1", "epoch": "2"},
    "no epoch": {"member": "m1"},
    "member is a number": {"member": 1, "epoch": 2},
    "subscribed is a text": {"member": "m1", "epoch": 2, "subscribed": "a"},
    "owned is a list": {"member": "m1", "epoch": 2, "owned": ["a"]},
    "owned below 0": {"member": "m1", "epoch": 2, "owned": {"a": [-1]}},
    "half an epoch": {"member": "m1", "epoch": 2.5},
    "an epoch too large": {"member": "m1", "epoch": 2**31},
    "a number beyond 64 bits": {"member": "m1", "epoch": 10**20},
}


@pytest.mark.parametrize("op", REFUSED.values(), ids=REFUSED)
def test_a_request_that_a_member_could_send_is_answered_as_the_coordinator_would(op):
    """What is wrong with the request itself is an answer of the trace, not its end."""
    *_, answer = run_lines(lines(*SETUP, op), JsonTrace(records=True))
    assert answer["response"]["error"] == "INVALID_REQUEST"


def test_blank_lines_are_skipped_and_recorded_lines_replayed():
    recorded = json.dumps({"op": SETUP[1], "answer": {"now": 0}})
    answers = list(run_lines(["\n", recorded, "  "], JsonTrace()))
    assert answers[0]["topics"]["a"]["partitions"] == 3
    assert len(answers) == 1


# Anything at all ---------------------------------------------------------------------------------

texts = st.text(max_size=4) | st.sampled_from(
    ["g", "m1", "m2", "a", "b", "i1", "range", "sticky", "[", "a.*"]
)
numbers = st.integers() | st.integers(-3, 5) | st.floats(allow_nan=True) | st.just(2**63)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FITTING = {
    "epoch": st.integers(-3, 6),
    "ms": st.integers(0, 100_000),
    "advance_ms": st.integers(0, 50_000),
    "owned": st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 5), max_size=3)),
    "subscribed": st.lists(st.sampled_from(["a", "b", "x"]), max_size=3),
    "offsets": st.dictionaries(st.sampled_from(["a", "x"]), st.dictionaries(st.sampled_from(["0", "1"]), st.integers(-1, 9))),
    "set": st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 6), max_size=3),
    "delete": st.lists(st.sampled_from(["a", "b", "x"]), max_size=2),
    "rebalance_timeout_ms": st.integers(-1, 10_000),
}  # fmt: skip


@st.composite
def operations(draw):
    """An operation: now and then right, now and then with fields that fit, or do not."""
    kind = draw(st.sampled_from(sorted(OPERATIONS)) | scalars)
    op = {} if draw(st.booleans()) and kind == "heartbeat" else {"op": kind}
    known = (
        sorted(OPERATIONS.get(kind, OPERATIONS["heartbeat"]) | ANY - {"op"})
        if isinstance(kind, str)
        else ["ms"]
    )
    for field in draw(st.lists(st.sampled_from(known) | texts, max_size=8, unique=True)):
        op[field] = draw(FITTING.get(field, texts) if draw(st.integers(0, 4)) else json_values)
    return op


@settings(max_examples=150 if EVERY else 50)
@given(st.lists(operations(), max_size=12), st.booleans())
def test_any_operations(ops, records):
    trace = JsonTrace(records=records)
    for op in [*SETUP, *ops]:
        try:
            answer = trace.run(op)
        except TraceError:
            continue
        json.dumps(answer)
    trace.close()


@settings(max_examples=100 if EVERY else 40)
@given(st.lists(json_values.map(json.dumps) | st.text(max_size=20), max_size=4))
def test_any_lines(found):
    with contextlib.suppress(TraceError):
        json.dumps(list(run_lines(found, JsonTrace())))
