"""Requests of the classic group protocol, and their answers.

A join or a sync may have to wait for others: its result then says WAITING, and a later result has
its answer among `completed`, beside the request's number. The runtime draws that number, and the
ids that a newcomer may get; the core draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from coordinator.errors import ErrorCode, GroupError

INT32_MAX = 2**31 - 1
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=32_767)]

CONSUMER = "consumer"
"""The protocol type of consumers, the only one whose bytes the coordinator reads."""
NO_GENERATION = -1
NAMED_SINCE = 5
"""The version of SyncGroup from which a sync names its protocol (KIP-559)."""


class Protocol(NamedTuple):
    """A way to assign that a member knows, by name, and what it tells the leader for it."""

    name: Text
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """JoinGroup (KIP-394, KIP-345, KIP-814).

    Attributes
    ----------
    request_id
        By which the runtime knows who waits; no two requests that wait have the same.
    drawn_id, drawn_consumer_id
        What a newcomer without an id is called: in a classic group, in a consumer group.
    protocols
        In order of preference; of two with the same name the first counts.
    knows_member_id
        Whether the request is one that comes back with the id it is given (version 4).
    knows_skipping
        Whether a leader can be told not to assign (version 9).
    """

    group_id: Text
    member_id: Text
    protocol_type: Text
    protocols: Sequence[Protocol]
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    request_id: int
    drawn_id: Text
    drawn_consumer_id: Text
    instance_id: Text | None = None
    client_id: Text = ""
    client_host: Text = ""
    knows_member_id: bool = True
    knows_skipping: bool = True

    def distinct_protocols(self) -> tuple[Protocol, ...]:
        """Return the protocols, those that count."""
        found: dict[str, Protocol] = {}
        for name, metadata in self.protocols:
            found.setdefault(name, Protocol(name, metadata))
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """SyncGroup; `assignments` by member id, the leader's; type and name None are not checked."""

    group_id: Text
    member_id: Text
    generation: Int32
    request_id: int
    assignments: Mapping[Text, bytes]
    instance_id: Text | None = None
    protocol_type: Text | None = None
    protocol_name: Text | None = None

    def check_protocol(self, protocol_type: str | None, protocol_name: str | None) -> None:
        """Refuse a sync that names another protocol than what it is about.

        Raises
        ------
        GroupError
            INCONSISTENT_GROUP_PROTOCOL.
        """
        named = ((self.protocol_type, protocol_type), (self.protocol_name, protocol_name))
        for given, wanted in named:
            if given is not None and wanted is not None and given != wanted:
                raise GroupError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"The request names protocol {given!r}, the group has {wanted!r}: join again.",
                )


def is_unnamed_sync(version: int, protocol_type: str | None, protocol_name: str | None) -> bool:
    """Whether a SyncGroup must name its protocol, and does not: looked at before all else (H-2)."""
    return version >= NAMED_SINCE and None in {protocol_type, protocol_name}


@dataclass(frozen=True, slots=True)
class ClassicHeartbeat:
    """Heartbeat: whether the member's generation is still the group's."""

    group_id: Text
    member_id: Text
    generation: Int32
    instance_id: Text | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """Who leaves: by member id, or by instance id alone (an administrator does so)."""

    member_id: Text
    instance_id: Text | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """LeaveGroup of one member or several."""

    group_id: Text
    members: Sequence[Leaver]


@dataclass(frozen=True, slots=True)
class DescribeClassicGroup:
    """DescribeGroups of one group."""

    group_id: Text


@dataclass(frozen=True, slots=True)
class GroupsLoaded:
    """The log was replayed: sessions begin anew, groups that became too large rebalance."""


ClassicEvent: TypeAlias = (
    JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup | DescribeClassicGroup | GroupsLoaded
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer comes later, among the `completed` of another result."""


WAITING = Waiting()


class JoinedMember(msgspec.Struct, frozen=True, gc=False):
    """A member as its leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResponse(msgspec.Struct, frozen=True, gc=False):
    """The answer to a JoinGroup; with an error only `member_id` means something."""

    member_id: str
    error_code: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncGroupResponse(msgspec.Struct, frozen=True, gc=False):
    """The answer to a SyncGroup."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    """Who left, in the order asked, and why not."""

    members: Sequence[tuple[Leaver, ErrorCode]]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: Sequence[DescribedMember]


Parked: TypeAlias = JoinGroupResponse | SyncGroupResponse
"""What a request that waited is answered."""
