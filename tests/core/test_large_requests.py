"""Which requests take long by themselves, and how a commit is cut."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coordinator.core.events import (
    CommittedOffset,
    Heartbeat,
    InstallAssignment,
    OffsetCommit,
    OffsetFetch,
    PrepareAssignment,
    RegexesResolved,
    TopicsReported,
)
from coordinator.core.large_requests import LARGE, cut, join, weigh
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import TargetMember
from coordinator.core.state.target_assignment import StoredTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.errors import ErrorCode, GroupError
from tests.support.coordinator_core import Core
from tests.support.fingerprint import fingerprint

NAMES = [f"t{number:04}" for number in range(1_500)]


def commit(topics, each=1, group="g", **fields):
    offsets = {
        name: {at: CommittedOffset(at, f"{name}-{at}") for at in range(each)} for name in topics
    }
    return OffsetCommit(group, "", -1, offsets, **fields)


@pytest.mark.parametrize("most", [1, 3, 4, 5, 100])
def test_pieces_commit_what_the_whole_does(most):
    whole = commit(["a", "b", "c"], 4)
    pieces = cut(whole, most)
    assert all(sum(map(len, piece.offsets.values())) <= most for piece in pieces)
    assert len(pieces) == -(-12 // most)
    found = []
    for events in ([whole], pieces):
        core = Core()
        answer = join(events, [core.run(event) for event in events])
        found.append((fingerprint(core.state), list(answer.response.items())))
    assert found[0] == found[1]


def test_a_piece_that_is_refused_is_refused_by_partition():
    pieces = cut(commit(["a", "b"], 2), 3)
    refused = GroupError(ErrorCode.STALE_MEMBER_EPOCH, "too late")
    found = join(pieces, [Core().run(pieces[0]), refused])
    assert found.response == {"a": {0: 0, 1: 0}, "b": {0: 0, 1: ErrorCode.STALE_MEMBER_EPOCH}}
    assert join(pieces, [refused, refused]) is refused


def test_to_prepare_a_computation_weighs_what_the_group_has():
    core = Core()
    prepare = PrepareAssignment("g", "c")
    assert weigh(core.state, prepare) == 1
    for number in range(3):
        core.run(
            Heartbeat(
                "g", f"m{number}", 0, rebalance_timeout_ms=1_000,
                subscribed_topic_names=("a",), topic_partitions={},
            )
        )  # fmt: skip
    assert weigh(core.state, prepare) == 4


def test_what_is_about_very_many_topics_is_large_and_what_is_of_wrong_types_is_not():
    many = {name: [0] for name in NAMES}
    spans = tuple((TopicKey(name, name), 0, 1) for name in NAMES)
    larges = [
        commit(NAMES),
        OffsetFetch("g", many),
        Heartbeat("g", "m", 3, topic_partitions=many),
        Heartbeat("g", "m", 0, subscribed_topic_names=NAMES),
        RegexesResolved("g", {"t.*": NAMES}, 1, 1),
        TargetCandidate("g", 1, "uniform", changes=[TargetMember("g", "m", spans)]),
        TopicsReported(many, gone=()),
        TargetCandidate("g", 1, stored=StoredTarget("g", 1, "run", 1, 0, 2, len(NAMES))),
        InstallAssignment("g", "c", 1, pa.table({"member_id": NAMES})),
    ]
    assert all(weigh(State(), event) > LARGE for event in larges)
    wrong = [
        Heartbeat("g", "m", 3, topic_partitions=7),
        Heartbeat(["g"], "m", 3),
        OffsetCommit("g", "", -1, 7),
        OffsetCommit("g", "", -1, {"t": 7}),
    ]
    assert {weigh(State(), event) for event in [*wrong, OffsetFetch("g"), commit(["t"])]} == {1}
