"""Decode requests from frames and encode responses, for each API and version served.

Messages are kio's; nothing here says what one means. A response is given as its fields by name, in
the words of its newest version; the asked version takes those that it has, so that no class
per version is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cache
from typing import Any

from kio.schema.index import api_key_map

from coordinator.core.events import HeartbeatResponse
from coordinator.wire import quirks
from coordinator.wire.conversation import Conversation
from coordinator.wire.decoder import (
    ONE_BYTE_LENGTH,
    Body,
    Reader,
    TooManyError,
    WireError,
    client_id_reader,
    compact_text,
    entity_reader,
    field_shape,
    legacy_text,
    read_whole,
)
from coordinator.wire.encoder import EncodedList, EncodedPart, EntityWriter, Values, entity_writer
from coordinator.wire.messages import load_request_schema, load_response_schema
from coordinator.wire.session import Session

__all__ = [
    "CLASSIC_VERSIONS",
    "VERSIONS",
    "Api",
    "EncodedList",
    "EncodedPart",
    "Request",
    "Values",
    "append_parts",
    "decode",
    "decode_body",
    "encode",
    "encode_part",
    "encode_steady_classic_heartbeat",
    "encode_steady_heartbeat",
    "name_request",
]

HEAD = struct.Struct(">hhi")
"""What every request begins with: API, version, correlation id."""
LENGTH = struct.Struct(">i")
STEADY_HEAD = struct.Struct(">iibihbB")
"""Length, correlation id, tags, throttle time, error, its message, length of the member id."""
STEADY_TAIL = struct.Struct(">iibb")
"""Member epoch, heartbeat interval, no assignment, tags."""
FLEXIBLE_HEARTBEAT_SINCE = 4
"""The version of Heartbeat from which there are tags."""
STEADY_CLASSIC = (">iih", ">iiih", ">iiih", ">iiih", ">iibihb")
"""By version: length, correlation id; then tags, throttle time, the error, and tags again."""
DECODED_AT_ONCE_BYTES = 1 << 14
"""Bytes of a request that are read in about a millisecond; a longer one can wait."""


class Api(IntEnum):
    """The APIs that we know, with Kafka's keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81


LARGE = {
    Api.METADATA,
    Api.LIST_GROUPS,
    Api.OFFSET_FETCH,
    Api.CONSUMER_GROUP_DESCRIBE,
}
"""APIs whose responses may be so large that writing one takes a while."""

VERSIONS: dict[Api, tuple[int, int]] = {
    Api.PRODUCE: quirks.PRODUCE_VERSIONS,
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.METADATA: quirks.METADATA_VERSIONS,
    Api.OFFSET_COMMIT: (2, 10),
    Api.OFFSET_FETCH: (1, 10),
    Api.FIND_COORDINATOR: (0, 6),
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: quirks.HANDSHAKE_VERSIONS,
    Api.API_VERSIONS: (0, 4),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.ALTER_CONFIGS: (0, 2),
    Api.DESCRIBE_LOG_DIRS: (1, 5),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.DELETE_GROUPS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    Api.OFFSET_DELETE: (0, 0),
    Api.DESCRIBE_QUORUM: (0, 2),
    Api.DESCRIBE_CLUSTER: (0, 2),
    Api.LIST_TRANSACTIONS: (0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
    Api.LIST_CONFIG_RESOURCES: (0, 1),
}
"""The lowest and highest version of each API that is served."""
CLASSIC_VERSIONS: dict[Api, tuple[int, int]] = {
    Api.JOIN_GROUP: (0, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
}
"""Those of members of classic groups, which are served where `server.classic_protocol` says so."""
SERVED = VERSIONS | CLASSIC_VERSIONS
BEGIN_WITH_GROUP = {
    Api.OFFSET_COMMIT,
    Api.JOIN_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.SYNC_GROUP,
    Api.OFFSET_DELETE,
    Api.CONSUMER_GROUP_HEARTBEAT,
}
"""APIs whose requests begin with a group's id."""


@dataclass(slots=True)
class Request:
    """A request as it came.

    Attributes
    ----------
    body
        kio's message; None for an unknown version of ApiVersions, and while it is not read.
    conversation
        What is remembered of the heartbeats before it.
    session
        Who asks.
    throttle_ms
        How long the client is not listened to after it.
    unread
        The bytes of a long request that `decode_body` has yet to read; none of others.
    group_ids
        The groups that a piece of ListGroups is about; None: all.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str = ""
    body: Any = None
    client_host: str = ""
    conversation: Conversation = field(default_factory=Conversation)
    session: Session = field(default_factory=Session)
    throttle_ms: int = 0
    unread: bytes = b""
    group_ids: Sequence[str] | None = None

    def with_correlation_id(self, correlation_id: int) -> Request:
        """Return the same request, asked once more."""
        return Request(
            self.api,
            self.version,
            correlation_id,
            self.client_id,
            self.body,
            self.client_host,
            self.conversation,
            self.session,
        )

    def with_items(self, name: str, items: Sequence[Any]) -> Request:
        """Return the same request, asking only for these elements of a list of its body."""
        return replace(self, body=replace(self.body, **{name: tuple(items)}))


def decode(
    frame: bytes,
    elements_max: int | None = None,
    versions: Mapping[Api, tuple[int, int]] = VERSIONS,
) -> Request:
    """Read a request, of a long one only who asks what.

    An ApiVersions of a version that is not ours has no body.

    Parameters
    ----------
    elements_max
        How many elements all its arrays may have, but for those of partitions' numbers.
    versions
        What is served: the lowest and highest version of each API.

    Raises
    ------
    WireError
        An API or a version that we do not serve, or bytes that are not a request.
    """
    if len(frame) < HEAD.size:
        raise WireError(f"a request of {len(frame)} bytes is cut short")
    key, version, correlation_id = HEAD.unpack_from(frame)
    if key not in versions:
        name = api_key_map.get(key, "unknown").upper()
        raise WireError(f"API {key} is not served here ({name})")
    api = Api(key)
    least, most = versions[api]
    if not least <= version <= most:
        if api is Api.API_VERSIONS:
            return Request(api, version, correlation_id)
        raise WireError(f"{api.name} version {version} is not served here: {least} to {most} are")
    read_client_id, _ = _readers(api, version)
    client_id, at = read_whole(read_client_id, frame, HEAD.size)
    request = Request(api, version, correlation_id, client_id or "")
    unread = Body(memoryview(frame)[at:])
    if elements_max is not None:
        unread.elements = elements_max
    request.unread = unread
    if len(frame) <= DECODED_AT_ONCE_BYTES:
        decode_body(request)
    return request


def decode_body(request: Request) -> None:
    """Read what is unread of a request.

    Raises
    ------
    WireError
        Its bytes are not such a request, or one with too many elements.
    """
    _, read = _readers(request.api, request.version)
    try:
        request.body, _ = read_whole(read, request.unread)
    except TooManyError as error:
        raise WireError(f"{_name(request.api, request.version, request.unread)} {error}") from None
    request.unread = b""


def name_request(start: bytes) -> str:
    """Return what a request is and of which group, from its first bytes."""
    try:
        key, version, _ = HEAD.unpack_from(start)
        api = Api(key)
        least, most = SERVED[api]
        if not least <= version <= most:
            return "a request"
        _, at = _readers(api, version)[0](start, HEAD.size)
    except (struct.error, LookupError, ValueError, WireError):
        return "a request"
    return _name(api, version, start, at)


def _name(api: Api, version: int, body: bytes, at: int = 0) -> str:
    """Return what a request is and of which group, from the first bytes of its body."""
    if api not in BEGIN_WITH_GROUP:
        return f"a request {api.name}"
    flexible: bool = load_request_schema(api, version).__flexible__
    try:
        group_id, _ = (compact_text if flexible else legacy_text)(body, at)
    except (struct.error, LookupError, ValueError, WireError):
        return f"a request {api.name}"
    return f"a request {api.name} of group {group_id!r}"


def encode(request: Request, values: Values) -> bytes:
    """Return the frame of a response."""
    if request.throttle_ms:
        values = {**values, "throttle_time": request.throttle_ms}
    version = request.version
    if request.api is Api.API_VERSIONS and request.body is None:
        version = 0  # all that an older or newer client is sure to read
    write_header, write_body = _writers(request.api, version)
    out = bytearray(LENGTH.size)
    write_header(out, {"correlation_id": request.correlation_id})
    write_body(out, values)
    LENGTH.pack_into(out, 0, len(out) - LENGTH.size)
    return bytes(out)


def encode_part(api: Api, version: int, name: str, values: Values) -> EncodedPart:
    """Return one element of an array of a response, ready to be put into many responses."""
    out = bytearray()
    _part_writer(api, version, name)(out, values)
    return EncodedPart(out)


def encode_steady_heartbeat(request: Request, response: HeartbeatResponse) -> bytes | None:
    """Return the frame of a heartbeat's response that brings no assignment; None for another.

    This and the next are the messages written by hand, exactly as kio does, because they are most
    of all messages.
    """
    member_id = (response.member_id or "").encode()
    size = len(member_id)
    if response.assignment is not None or not 0 < size < ONE_BYTE_LENGTH:
        return None
    length = STEADY_HEAD.size + size + STEADY_TAIL.size - LENGTH.size
    head = STEADY_HEAD.pack(length, request.correlation_id, 0, request.throttle_ms, 0, 0, size + 1)
    tail = STEADY_TAIL.pack(response.member_epoch, response.heartbeat_interval_ms, -1, 0)
    return head + member_id + tail


def encode_steady_classic_heartbeat(request: Request) -> bytes:
    """Return the frame of a classic heartbeat's response without an error."""
    pack, size = _steady_classic(request.version)
    number, throttle_ms = request.correlation_id, request.throttle_ms
    if request.version == 0:
        return pack(size, number, 0)
    if request.version < FLEXIBLE_HEARTBEAT_SINCE:
        return pack(size, number, throttle_ms, 0)
    return pack(size, number, 0, throttle_ms, 0, 0)


@cache
def _steady_classic(version: int) -> tuple[Callable[..., bytes], int]:
    """Return what packs such a response, and how long it says that it is."""
    form = struct.Struct(STEADY_CLASSIC[version])
    return form.pack, form.size - LENGTH.size


@cache
def _readers(api: Api, version: int) -> tuple[Reader, Reader]:
    message: Any = load_request_schema(api, version)
    flexible: bool = message.__header_schema__.__flexible__
    return client_id_reader(flexible=flexible), entity_reader(message)


@cache
def _writers(api: Api, version: int) -> tuple[EntityWriter, EntityWriter]:
    message: Any = load_response_schema(api, version)
    return entity_writer(message.__header_schema__), entity_writer(message)


def append_parts(request: Request, name: str, parts: Sequence[Any], out: EncodedList) -> None:
    """Write elements of an array of a response behind those that are written."""
    write = _part_writer(request.api, request.version, name)
    for values in parts:
        write(out.data, values)
    out.count += len(parts)


@cache
def _part_writer(api: Api, version: int, name: str) -> EntityWriter:
    message: Any = load_response_schema(api, version)
    (part,) = (part for part in fields(message) if part.name == name)
    return entity_writer(field_shape(part).kind)
