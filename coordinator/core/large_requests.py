"""Requests that take long by themselves: a round takes few of them, and others come in between.

How long a step takes follows from how much it is about: the topics that a member has or will have,
the offsets of a commit, the rows of a target. A commit of very many is cut into pieces, each a step
and a batch of its own, since others would wait for the whole; the answer says of each partition
what became of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

import msgspec

from coordinator.core.events import (
    JOIN,
    Answer,
    CommittedOffset,
    Event,
    Heartbeat,
    InstallAssignment,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    RegexesResolved,
    Result,
    TopicsReported,
    TxnOffsetCommit,
)
from coordinator.core.state.groups import State
from coordinator.core.state.records import TargetMember
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.errors import ErrorCode, GroupError

Offsets: TypeAlias = Mapping[str, Mapping[int, CommittedOffset]]
LARGE = 1_000
"""Requests that weigh more wait in a queue of their own."""
OFFSET_WEIGHT = 5
"""A steady heartbeat weighs 1: an offset takes twice as long, and is a row of the log besides."""
OFFSETS_A_PIECE = 2_000
"""So many are committed in about twenty milliseconds."""


def weigh(state: State, event: Event) -> int:
    """Return about how long a step takes, at least 1: a steady heartbeat. Any thread may ask."""
    try:
        return _weigh(state, event)
    except (TypeError, AttributeError):
        return 1  # of the wrong types: it will be refused


def _weigh(state: State, event: Event) -> int:
    about = 0
    if isinstance(event, Heartbeat):
        about = _count_topics(state, event)
    elif isinstance(event, OffsetCommit):
        about = OFFSET_WEIGHT * (_count_offsets(event) - 1)
    elif isinstance(event, TxnOffsetCommit):
        about = OFFSET_WEIGHT * (_count_offsets(event.commit) - 1)
    elif isinstance(event, OffsetFetch | OffsetDelete):
        about = len(event.topics or ())
    elif isinstance(event, RegexesResolved):
        about = sum(map(len, (event.topics or {}).values()))
    elif isinstance(event, TargetCandidate):
        about = sum(len(one.spans) for one in event.changes if isinstance(one, TargetMember))
        about += 0 if event.stored is None else event.stored.ranges
    elif isinstance(event, InstallAssignment):
        about = event.ranges.num_rows
    elif isinstance(event, PrepareAssignment):
        about = _count_members(state, event.group_id)
    elif isinstance(event, TopicsReported):
        about = len(event.topics) + len(event.gone or ())
    return 1 + about


def _count_topics(state: State, event: Heartbeat) -> int:
    """Return how many topics or ranges a request has, and beyond one those of the member."""
    sent = len(event.topic_partitions or ()) + len(event.subscribed_topic_names or ())
    group = state.groups.get(event.group_id)
    member = None if group is None else group.members.get(event.member_id)
    if group is None or member is None:
        return sent
    target = group.targets.count_ranges(event.member_id)
    return sent + max(0, len(member.current.assigned) - 1, target - 1)


def _count_members(state: State, group_id: str) -> int:
    group = state.groups.get(group_id)
    return 0 if group is None else len(group.members)


def _count_offsets(event: OffsetCommit) -> int:
    return sum(map(len, event.offsets.values()))


def _cut_offsets(offsets: Offsets, most: int) -> Iterator[Offsets]:
    places = (
        (topic, partition, offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    )
    while piece := list(islice(places, most)):
        found: dict[str, dict[int, CommittedOffset]] = {}
        for topic, partition, offset in piece:
            found.setdefault(topic, {})[partition] = offset
        yield found


def cut(event: OffsetCommit, most: int = OFFSETS_A_PIECE) -> Sequence[OffsetCommit]:
    """Return a commit as it is, or one of very many offsets as several, in its order."""
    try:
        few = _count_offsets(event) <= most
    except (TypeError, AttributeError):
        few = True  # of the wrong types: it will be refused
    if few:
        return [event]
    return [
        msgspec.structs.replace(event, offsets=piece) for piece in _cut_offsets(event.offsets, most)
    ]


def join(pieces: Sequence[OffsetCommit], answers: Sequence[Answer]) -> Answer:
    """Return the one answer to what was cut: of a piece that was refused, each of its partitions.

    If all were refused, so is the whole.
    """
    if len(answers) == 1 or all(isinstance(answer, GroupError) for answer in answers):
        return answers[0]
    found: dict[str, dict[int, ErrorCode]] = {}
    for piece, answer in zip(pieces, answers, strict=True):
        for topic, partitions in piece.offsets.items():
            codes = (
                dict.fromkeys(partitions, answer.code)
                if isinstance(answer, GroupError)
                else answer.response[topic]  # type: ignore[index] # a commit's
            )
            found.setdefault(topic, {}).update(codes)
    return Result(response=found)


def joins(event: Event) -> bool:
    """Whether a member joins by this: it may have a target computed, so others pass it."""
    return type(event) is Heartbeat and event.member_epoch == JOIN
