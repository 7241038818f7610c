"""Kafka's error codes, and the error that refuses a request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Self


class ErrorCode(IntEnum):
    """Kafka's error codes, and one of Muster's own.

    docs/reference/errors.md#what-to-do-about-an-error says what to do about each.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128
    INVALID_ASSIGNMENT = 1001
    """K-47; Kafka 4.4 has no such code, so this one is ours."""

    @property
    def retriable(self) -> bool:
        """Whether the caller may send the same request again (G-19)."""
        return self in _RETRIABLE


_RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class GroupError(Exception):
    """A request was refused, and nothing was written (but see `PartitionsRefusedError`).

    An error made from a code has the class for that code, as with OSError: `Fenced`,
    `UnavailableError`, or this one.

    Attributes
    ----------
    code
        The error code of the response.
    message
        The error message of the response.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __new__(cls, code: ErrorCode, message: str) -> Self:
        """Return an error of the class that its code has."""
        kind = _CLASSES.get(code, cls) if cls is GroupError else cls
        return super().__new__(kind, code, message)  # type: ignore[return-value]

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Copy the code as well, to another process."""
        return type(self), (self.code, self.message)

    @property
    def retriable(self) -> bool:
        """Whether the same request may be sent again as it is."""
        return self.code.retriable


class Fenced(GroupError):  # noqa: N818 - what Kafka calls it
    """The member or its epoch is outdated: its partitions may belong to another member."""


class PartitionsRefusedError(GroupError):
    """Some partitions of a request were refused; the others were processed.

    Attributes
    ----------
    code
        The error code of the first partition.
    partitions
        The error code of each partition that was refused, by (topic, partition).
    """

    def __init__(
        self, code: ErrorCode, message: str, partitions: Mapping[tuple[str, int], ErrorCode]
    ) -> None:
        super().__init__(code, message)
        self.partitions = dict(partitions)

    def __new__(
        cls, code: ErrorCode, message: str, _partitions: Mapping[tuple[str, int], ErrorCode]
    ) -> Self:
        """Return an error of this class, whichever its code is."""
        return super().__new__(cls, code, message)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Copy the partitions as well."""
        return type(self), (self.code, self.message, self.partitions)


class UnavailableError(GroupError):
    """The coordinator cannot answer now; the same request may be sent again."""


_CLASSES: dict[ErrorCode, type[GroupError]] = {
    **dict.fromkeys(_RETRIABLE, UnavailableError),
    ErrorCode.UNKNOWN_MEMBER_ID: Fenced,
    ErrorCode.FENCED_MEMBER_EPOCH: Fenced,
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.STALE_MEMBER_EPOCH: Fenced,
    ErrorCode.ILLEGAL_GENERATION: Fenced,
}


class IllegalStateError(AssertionError):
    """A bug in Muster: a record contradicts the state. The coordinator drops memory and stops."""


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it and the remedy."""
