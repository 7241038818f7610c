"""The page about `step` and `replay`: its loop runs, and the table knows every kind of event."""

import inspect
import textwrap
from typing import get_args

import pytest

from coordinator import core
from coordinator.config import Config
from coordinator.core.events import Event, Heartbeat, Result
from coordinator.core.state.groups import State
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import HANDLERS, step
from coordinator.errors import ErrorCode, GroupError
from tests.support.fingerprint import fingerprint

LOOP = textwrap.dedent(inspect.getdoc(core).partition("::\n\n")[2].partition("\n\n")[0])
JOIN = Heartbeat(
    "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",), topic_partitions=()
)
UNKNOWN = Heartbeat("g", "nobody", 5)


class Log:
    def __init__(self, records=(), *, fails=False):
        self.records, self.fails = list(records), fails

    def read(self):
        return list(self.records)

    def append(self, records):
        if self.fails:
            raise OSError("no space left")
        self.records += records


def drive(log, *batches):
    """Run the page's loop; return its state and what left, in order."""
    left = []
    names = {
        "State": State, "replay": replay, "step": step, "Result": Result, "GroupError": GroupError,
        "config": Config(), "now_ms": lambda: 1, "log": log, "batches": lambda: batches,
        "start": lambda timers, _tasks: left.append(("timers", len(timers))),
        "answer": lambda response: left.append(("answer", response)),
    }  # fmt: skip
    try:
        exec(LOOP, names)
    except OSError as error:
        left.append(("error", str(error)))
    return names["state"], left


def test_the_loop_of_the_page_answers_after_it_appended():
    log = Log()
    state, left = drive(log, [JOIN, UNKNOWN], [Heartbeat("g", "m", 2)])
    assert [kind for kind, _ in left] == ["timers", "answer"] * 3
    joined, refused, again = (said for kind, said in left if kind == "answer")
    assert (joined.member_id, joined.member_epoch) == ("m", 2)
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert again.member_epoch == 2
    recovered, _ = drive(Log(log.records))
    assert fingerprint(recovered) == fingerprint(state)
    assert "g" in recovered.groups


def test_nothing_leaves_the_loop_of_the_page_when_the_append_fails():
    _, left = drive(Log(fails=True), [JOIN])
    assert left == [("error", "no space left")]


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_each_kind_of_event_has_its_handler(kind):
    assert callable(HANDLERS[kind])


def test_the_table_knows_no_event_that_is_none():
    assert set(HANDLERS) == set(get_args(Event))
