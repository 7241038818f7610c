"""Answers as plain values, with Kafka's names in snake case.

A method that asks one thing raises what is refused. One that asks many returns an answer for each,
which carries its error; `raise_for_error` raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from coordinator.core.events import HeartbeatResponse, Result
from coordinator.core.state.partition_spans import Spans, partitions_by
from coordinator.core.state.records import OffsetCommitted
from coordinator.errors import ErrorCode, GroupError, PartitionsRefusedError


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a ConsumerGroupHeartbeat.

    Attributes
    ----------
    error_code, error, error_message
        Kafka's code, its name, and its message; 0, "NONE" and None on success.
    ranges
        What the member may use now, as ((topic, topic id), first, end); None: as before.
    """

    error_code: int
    error: str
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    ranges: Spans | None = None

    def raise_for_error(self) -> Self:
        """Return the answer, or raise its error.

        Raises
        ------
        GroupError
            The heartbeat was refused; Fenced if the member is no longer in the group.
        """
        if self.error_code:
            raise GroupError(ErrorCode(self.error_code), self.error_message or self.error)
        return self

    @property
    def assignment(self) -> dict[str, list[int]] | None:
        """The partitions that the member may use now, by topic; None: as before (G-42, G-43)."""
        if self.ranges is None:
            return None
        return partitions_by(lambda topic: topic.name, self.ranges)


class GroupAnswer(dict[str, Any]):
    """The answer to a request about a group, as a dict with Kafka's fields in snake case.

    One of several answers has its error in `error_code` and `error_message`; 0 and None on success.
    """

    def raise_for_error(self) -> Self:
        """Return the answer, or raise its error.

        Raises
        ------
        GroupError
            The request was refused.
        """
        if self.get("error_code"):
            code = ErrorCode(self["error_code"])
            raise GroupError(code, self.get("error_message") or code.name)
        return self


class _Answer(Protocol):
    """What may be refused."""

    def raise_for_error(self) -> object:
        """Raise the error, if it is one."""


T = TypeVar("T", bound=_Answer)


class Answers(list[T]):
    """The answers to several requests, one for each, in order; some may be refused."""

    def raise_for_error(self) -> Self:
        """Return the answers, if nothing was refused; else raise the first error.

        Raises
        ------
        GroupError
            A request was refused. The others were processed.
        """
        for answer in self:
            answer.raise_for_error()
        return self


def heartbeat_answer(answer: Result | GroupError) -> HeartbeatAnswer:
    """Return the answer to a heartbeat."""
    if isinstance(answer, GroupError):
        return HeartbeatAnswer(int(answer.code), answer.code.name, answer.message)
    response = answer.response
    assert isinstance(response, HeartbeatResponse)
    return HeartbeatAnswer(
        0,
        "NONE",
        None,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        response.assignment,
    )


def heartbeat_answers(
    member_ids: Sequence[str], answers: Sequence[Result | GroupError | HeartbeatResponse]
) -> Answers[HeartbeatAnswer]:
    """Return the answers to heartbeats of these members, in their order.

    A response without a result is that of steady heartbeats, whosever they are.
    """
    return Answers(
        HeartbeatAnswer(
            0, "NONE", None, member_id, answer.member_epoch, answer.heartbeat_interval_ms
        )
        if isinstance(answer, HeartbeatResponse)
        else heartbeat_answer(answer)
        for member_id, answer in zip(member_ids, answers, strict=True)
    )


def group_answer(
    group_id: str, answer: Result | GroupError, shape: Callable[[Any], dict[str, object]]
) -> GroupAnswer:
    """Return what was answered about one of several groups, with its error beside it."""
    if isinstance(answer, GroupError):
        return GroupAnswer(
            group_id=group_id, error_code=int(answer.code), error_message=answer.message
        )
    fields = {"group_id": group_id, "error_code": 0, "error_message": None}
    return GroupAnswer({**fields, **shape(answer.response)})


def refuse_partitions(found: Mapping[str, Mapping[int, ErrorCode]]) -> None:
    """Raise what was refused of a request whose partitions are refused one by one."""
    refused = {
        (topic, partition): code
        for topic, partitions in found.items()
        for partition, code in partitions.items()
        if code
    }
    if refused:
        (topic, partition), code = next(iter(refused.items()))
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        words = f"{topic}-{partition}{more}: {code.name}; the other partitions were processed"
        raise PartitionsRefusedError(code, words, refused)


def read_offsets(topics: Mapping[str, Mapping[int, object]]) -> Mapping[str, Any]:
    """Return offsets as (offset, metadata, leader epoch), whichever way they are given."""
    if not isinstance(topics, Mapping) or not all(isinstance(p, Mapping) for p in topics.values()):
        return topics  # to be refused by its type
    return {
        topic: {
            partition: (found, "") if isinstance(found, int) else found
            for partition, found in partitions.items()
        }
        for topic, partitions in topics.items()
    }


def fetch_response(found: Mapping[str, Mapping[int, OffsetCommitted | None]]) -> dict[str, object]:
    """Return offsets and metadata; −1 where nothing is committed."""
    return {
        "topics": {
            topic: {
                partition: {
                    "committed_offset": -1 if record is None else record.offset,
                    "metadata": "" if record is None else record.metadata,
                }
                for partition, record in partitions.items()
            }
            for topic, partitions in found.items()
        }
    }


def as_list(names: Sequence[str] | str) -> list[str]:
    """Return one name or several as a list."""
    return [names] if isinstance(names, str) else list(names)
