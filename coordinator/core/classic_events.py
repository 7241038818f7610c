"""Requests of the classic group protocol, and their answers.

A join or a sync may have to wait for other members. Its result is then WAITING, and a later result
has the answer in `completed`, with the request's number. The runtime draws that number, and the ids
for a new member; the core must not draw any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from coordinator.core.bounded import FindVisible, Int32, Text
from coordinator.errors import ErrorCode, GroupError

CONSUMER = "consumer"
"""The protocol type of consumers, the only one whose bytes the coordinator parses."""
NO_GENERATION = -1
NAMED_SINCE = 5
"""The first version of SyncGroup that names its protocol (KIP-559)."""


class Protocol(NamedTuple):
    """The name of an assignment strategy that a member supports, and its metadata for it."""

    name: Text
    metadata: bytes


class JoinGroup(msgspec.Struct, frozen=True):
    """JoinGroup (KIP-394, KIP-345, KIP-814).

    Attributes
    ----------
    request_id
        Identifies the waiting request for the runtime; unique among waiting requests.
    drawn_id, drawn_consumer_id
        The id of a new member without an id: in a classic group, and in a consumer group.
    protocols
        In order of preference. If two have the same name, the first counts.
    client_software
        Its name and version, as the client says; "" if it does not.
    knows_member_id
        Whether the client joins again with the id that it is given (from version 4).
    knows_skipping
        Whether the answer can make a leader skip assigning (from version 9).
    find_visible
        As a heartbeat has it: in a consumer group, a join may have regular expressions resolved.
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
    client_software: Text = ""
    knows_member_id: bool = True
    knows_skipping: bool = True
    find_visible: FindVisible | None = None

    def distinct_protocols(self) -> tuple[Protocol, ...]:
        """Return the protocols, without repeated names."""
        found: dict[str, Protocol] = {}
        for name, metadata in self.protocols:
            found.setdefault(name, Protocol(name, metadata))
        return tuple(found.values())


class SyncGroup(msgspec.Struct, frozen=True):
    """SyncGroup. The leader sends `assignments`, by member id. Type and name may be None."""

    group_id: Text
    member_id: Text
    generation: Int32
    request_id: int
    assignments: Mapping[Text, bytes]
    instance_id: Text | None = None
    protocol_type: Text | None = None
    protocol_name: Text | None = None

    def check_protocol(self, protocol_type: str | None, protocol_name: str | None) -> None:
        """Refuse a sync that names another protocol than the group's.

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
                    f"The request names protocol {given!r}, the group has {wanted!r}: rejoin.",
                )


def is_unnamed_sync(version: int, protocol_type: str | None, protocol_name: str | None) -> bool:
    """Whether a SyncGroup must name its protocol but does not. This is checked first (H-2)."""
    return version >= NAMED_SINCE and (protocol_type is None or protocol_name is None)


class ClassicHeartbeat(msgspec.Struct, frozen=True):
    """Heartbeat: asks whether the member's generation is still the group's."""

    group_id: Text
    member_id: Text
    generation: Int32
    instance_id: Text | None = None


@dataclass(frozen=True, slots=True)
class Leaver:
    """A member that leaves, by member id, or by instance id alone (sent by an administrator)."""

    member_id: Text
    instance_id: Text | None = None


class LeaveGroup(msgspec.Struct, frozen=True):
    """LeaveGroup for one or several members."""

    group_id: Text
    members: Sequence[Leaver]


class DescribeClassicGroup(msgspec.Struct, frozen=True):
    """DescribeGroups for one group."""

    group_id: Text


@dataclass(frozen=True, slots=True)
class GroupsLoaded:
    """The log was replayed: sessions restart, and groups that are too large rebalance."""


ClassicEvent: TypeAlias = (
    JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup | DescribeClassicGroup | GroupsLoaded
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer comes later, in `completed` of another result."""


WAITING = Waiting()


class JoinedMember(msgspec.Struct, frozen=True, gc=False):
    """A member as listed for its leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResponse(msgspec.Struct, frozen=True, gc=False):
    """The answer to a JoinGroup. With an error, only `member_id` has a meaning."""

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
    """The answer to a LeaveGroup: an error code for each member, in the order of the request."""

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
"""The answer to a request that waited."""
