"""Why Kafka raised an epoch or began a generation: what is inferred, against what Muster knew.

Muster plays the recorded walks, and its records, without their reasons, are explained as Kafka's.
"""

from collections import Counter

import msgspec
import pytest

from coordinator.core.reasons import SEPARATOR, Reason
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    TargetMember,
    TargetMetadata,
)
from coordinator.core.state.replay import replay
from coordinator.core.watched.follow import decide_watched
from coordinator.core.watched_events import KafkaWrote
from coordinator.trace.json_trace import JsonTrace
from tests.conftest import ROOT
from tests.support.longer import EVERY

from .recorded import WatchedGroups

GOLDEN = ROOT / "tests" / "golden" / "kafka-4.4.0"
WALKS = sorted([*GOLDEN.glob("traces/*.jsonl"), *GOLDEN.glob("classic/*.jsonl")])
WITH_REASONS = (GroupMetadata, ClassicGroupWritten)
GONE = {
    Reason.MEMBER_LEFT, Reason.SESSION_TIMEOUT, Reason.REBALANCE_TIMEOUT, Reason.JOIN_TIMEOUT,
    Reason.SYNC_TIMEOUT,
}  # fmt: skip
"""What `member left or timed out` may stand for."""
HEARD_OF = GONE | {Reason.MEMBER_JOINED, Reason.STATIC_MEMBER_RETURNED, Reason.MEMBER_JOINED_AGAIN}
"""What leaves no record where it is over before a generation is written."""


def explain(walk):
    """Yield the records of a walk that say why, or how much moved; and what is inferred."""
    trace = JsonTrace()
    for line in walk.read_text().splitlines():
        op = msgspec.json.decode(line)
        trace.run(op["op"] if isinstance(op.get("op"), dict) else op)
    watched = WatchedGroups()
    for batch in trace.player.processor.log.storage.batches:
        bare = [_bare(one) for one in batch.records]
        seen = watched.translator._seen_of(bare)
        event = KafkaWrote(tuple(bare), batch.at_ms, session_ms=45_000, seen_ms=seen)
        inferred = decide_watched(watched.state, watched.state.watched, event).records
        for known, found in zip(batch.records, inferred, strict=True):
            if isinstance(known, (*WITH_REASONS, TargetMetadata)):
                yield known, found
        for record in inferred:
            watched.translator._note_activity(record, batch.at_ms)
            replay(watched.state, record)


def _bare(record):
    """The record as Kafka writes it."""
    if isinstance(record, WITH_REASONS):
        return msgspec.structs.replace(record, reason="", member_id=None)
    if isinstance(record, TargetMetadata):
        return msgspec.structs.replace(record, moved=None)
    return record


def judge(known, found):
    """Return how an inferred reason relates to the one that Muster knew."""
    known, found = set(known.split(SEPARATOR)), set(found.split(SEPARATOR))
    if known == found:
        return "same"
    if Reason.MEMBER_GONE in found:
        rest = found - {Reason.MEMBER_GONE}
        if rest <= known and known - rest and known - rest <= GONE:
            return "member left or timed out"
    if Reason.UNKNOWN in found:
        return "not known"
    return "less" if found - {Reason.MEMBER_GONE} < known else "other"


@pytest.fixture(scope="module")
def played():
    return [pair for walk in WALKS[:: 1 if EVERY else 3] for pair in explain(walk)]


@pytest.fixture(scope="module")
def judged(played):
    pairs = [(k.reason, f.reason) for k, f in played if isinstance(k, WITH_REASONS) and k.reason]
    return Counter((judge(known, found), known, found) for known, found in pairs)


def test_most_reasons_are_those_that_muster_knew(judged):
    """At least 95 of 100; `member left or timed out` is right, and is counted by itself."""
    counts = Counter()
    for (verdict, *_), count in judged.items():
        counts[verdict] += count
    inferred = counts.total() - counts["member left or timed out"]
    assert counts["same"] >= 0.95 * inferred, counts
    assert counts["other"] <= 0.01 * inferred, counts


def test_what_is_left(judged):
    """What differs is of members that came and went between two generations, and little else."""
    odd = {
        (known, found)
        for verdict, known, found in judged
        if verdict == "other" and not set(known.split(SEPARATOR)) <= HEARD_OF
    }
    assert sorted(odd) == []


def test_no_member_that_timed_out_is_said_to_have_left(judged):
    """A guess is never shown as a fact."""
    wrong = [
        (known, found)
        for _, known, found in judged
        if Reason.MEMBER_LEFT in found.split(SEPARATOR)
        and Reason.MEMBER_LEFT not in known.split(SEPARATOR)
    ]
    assert wrong == []


def test_moves_are_those_that_muster_counted(played):
    """Of targets that have members' records beside them; one alone says nothing.

    What differs is of topics to which no member subscribes by then: Muster does not count them.
    """
    pairs = [
        (known.moved, found.moved)
        for known, found in played
        if isinstance(known, TargetMetadata) and found.moved is not None
    ]
    assert sum(known > 0 for known, _ in pairs) > 100
    assert all(known <= found for known, found in pairs)
    assert sum(known != found for known, found in pairs) <= 0.01 * len(pairs)


def test_a_reason_that_the_records_have_is_not_inferred():
    """A node of Muster's led the partition when it was written."""
    watched, group = WatchedGroups(), GroupMetadata("g", 3, 5, Reason.SESSION_TIMEOUT, "a")
    target = TargetMetadata("g", 3, 5, "weighted", 7)
    event = KafkaWrote((group, TargetMember("g", "b"), target), 1_000, session_ms=45_000)
    found = decide_watched(watched.state, watched.state.watched, event).records
    assert found == [*event.records]
