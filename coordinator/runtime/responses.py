"""Answers as plain values, with Kafka's names in snake case.

An answer always carries `error_code` and `error_message`; nothing is raised for what a coordinator
answers until `raise_for_error` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from coordinator.core.events import HeartbeatResponse, Result
from coordinator.core.partition_spans import Spans, partitions_by
from coordinator.core.records import OffsetCommitted
from coordinator.errors import ErrorCode, GroupError


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a ConsumerGroupHeartbeat.

    Attributes
    ----------
    error_code, error, error_message
        Kafka's code, its name, and the sentence beside it; 0, "NONE" and None when all is well.
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
        """Return the answer, if it is one; else raise its error.

        Raises
        ------
        GroupError
            The heartbeat was refused; Fenced when the member is not in the group any more.
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
    """The answer to a request about a group, as a dict with Kafka's fields in snake case."""

    def raise_for_error(self) -> Self:
        """Return the answer, if nothing of it was refused; else raise the first error.

        Raises
        ------
        GroupError
            The request was refused, or one of its partitions; the message names it.
        """
        if self.get("error_code"):
            code = ErrorCode(self["error_code"])
            raise GroupError(code, self.get("error_message") or code.name)
        for topic, partitions in self.get("topics", {}).items():
            for partition, code in partitions.items():
                if isinstance(code, int) and code:
                    raise GroupError(
                        ErrorCode(code), f"{topic}-{partition}: {ErrorCode(code).name}"
                    )
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


class SteadyAnswer(NamedTuple):
    """The answer to steady heartbeats next to each other, whosever they are."""

    member_epoch: int
    heartbeat_interval_ms: int


def heartbeat_answers(
    member_ids: Sequence[str], answers: Sequence[Result | GroupError | SteadyAnswer]
) -> list[HeartbeatAnswer]:
    """Return the answers to heartbeats of these members, in their order."""
    return [
        HeartbeatAnswer(0, "NONE", None, member_id, answer[0], answer[1])
        if isinstance(answer, SteadyAnswer)
        else heartbeat_answer(answer)
        for member_id, answer in zip(member_ids, answers, strict=True)
    ]


def plain_answer(shape: Callable[[Any], dict[str, object]]) -> Callable[[object], GroupAnswer]:
    """Return what makes an answer a dict with its error beside it."""

    def answer(found: object) -> GroupAnswer:
        if isinstance(found, GroupError):
            return GroupAnswer(
                error_code=int(found.code), error=found.code.name, error_message=found.message
            )
        assert isinstance(found, Result)
        return GroupAnswer(
            {"error_code": 0, "error": "NONE", "error_message": None, **shape(found.response)}
        )

    return answer


def read_offsets(topics: Mapping[str, Mapping[int, object]]) -> Mapping[str, Any]:
    """Return offsets as (offset, metadata), whichever way they are given."""
    if not isinstance(topics, Mapping) or not all(isinstance(p, Mapping) for p in topics.values()):
        return topics  # to be refused by its type
    return {
        topic: {
            partition: (found, "") if isinstance(found, int) else found
            for partition, found in partitions.items()
        }
        for topic, partitions in topics.items()
    }


def commit_response(found: Mapping[str, Mapping[int, ErrorCode]]) -> dict[str, object]:
    """Return the outcome of each partition."""
    return {
        "topics": {
            topic: {partition: int(code) for partition, code in partitions.items()}
            for topic, partitions in found.items()
        }
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
