"""The classic group protocol on the wire, in every version, beside a second writer of its messages."""

from __future__ import annotations

import contextlib
import random
import struct
from dataclasses import replace

import pytest

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribedGroup,
    DescribedMember,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    Leaver,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.events import Result
from coordinator.core.state.groups import TopicView
from coordinator.core.validate_types import check_types
from coordinator.errors import ErrorCode, GroupError
from coordinator.wire.apis.classic_apis import CLASSIC_HANDLERS, NO_PROTOCOL_SINCE
from coordinator.wire.call import Cluster
from coordinator.wire.codec import (
    CLASSIC_VERSIONS,
    Api,
    Request,
    decode,
    decode_body,
    encode,
)
from coordinator.wire.decoder import WireError
from tests.support.classic_side import BEAT, HANDLED, JOIN, KNOWN, LEAVE, SYNC, WORDS, request_of
from tests.support.wire_client import read_response, request_frame

FLEXIBLE_SINCE = {
    Api.JOIN_GROUP: 6, Api.SYNC_GROUP: 4, Api.HEARTBEAT: 4, Api.LEAVE_GROUP: 4,
    Api.DESCRIBE_GROUPS: 5,
}  # fmt: skip
UUID_LETTERS = 36
CLUSTER = Cluster(7, "here", 9092, "muster", TopicView, lambda: True)


def versions_of(*apis):
    return [(api, v) for api in apis for v in range(KNOWN[api][0], KNOWN[api][1] + 1)]


class Writer:
    """Kafka's primitive types, written out of its guide to the protocol, without kio."""

    def __init__(self, api, version):
        self.version = version
        self.flexible = version >= FLEXIBLE_SINCE[api]
        self.data = b""

    def number(self, form, value):
        self.data += struct.pack(f">{form}", value)
        return self

    def length(self, value, form):
        if not self.flexible:
            return self.number(form, value)
        value += 1
        while value >= 128:
            self.data += bytes([value % 128 + 128])
            value //= 128
        self.data += bytes([value])
        return self

    def text(self, value):
        raw = None if value is None else value.encode()
        self.length(-1 if raw is None else len(raw), "h").data += raw or b""
        return self

    def bytes(self, value):
        self.length(len(value), "i").data += value
        return self

    def since(self, version, write):
        if self.version >= version:
            write()
        return self

    def many(self, values, write):
        self.length(len(values), "i")
        for value in values:
            write(value)
            self.tags()
        return self

    def tags(self):
        if self.flexible:
            self.data += b"\0"
        return self


def asked(api, version, write):
    """Return the request that these bytes are, as it is read here."""
    body = Writer(api, version)
    write(body)
    head = struct.pack(">hhih", api, version, 7, 4) + b"rack" + (b"\0" if body.flexible else b"")
    return decode(head + body.tags().data, versions=KNOWN)


def event_of(request):
    call = HANDLED[request.api](request, CLUSTER)
    (event,) = call.events
    return event


def answered(api, version, request, answer):
    """Return the bytes of a response behind its length and correlation id, and kio's message."""
    call = HANDLED[api](request, CLUSTER)
    frame = encode(request, call.respond([answer]))
    _, message = read_response(frame, api, version)
    flexible = version >= FLEXIBLE_SINCE[api]
    return frame[9 if flexible else 8 :], message


# What is asked -----------------------------------------------------------------------------------


@pytest.mark.behaviour("H-1", "H-10", "G-100", "W-41", "W-47", "W-53", "P-1")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.JOIN_GROUP))
@pytest.mark.parametrize("member_id", ["", "m1"])
def test_a_join_is_read(member_id, api, version):
    def write(out):
        out.text("g").number("i", 6_000)
        out.since(1, lambda: out.number("i", 60_000)).text(member_id)
        out.since(5, lambda: out.text("i1")).text("connect")
        out.many([("a", b"\0x"), ("b", b"")], lambda one: out.text(one[0]).bytes(one[1]))
        out.since(8, lambda: out.text("why"))

    request = replace(asked(api, version, write), client_host="/10.0.0.1")
    event = event_of(request)
    assert event == JoinGroup(
        group_id="g",
        member_id=member_id,
        protocol_type="connect",
        protocols=[Protocol("a", b"\0x"), Protocol("b", b"")],
        session_timeout_ms=6_000,
        rebalance_timeout_ms=60_000 if version else 6_000,
        request_id=0,
        drawn_id=event.drawn_id,
        drawn_consumer_id=event.drawn_consumer_id,
        instance_id="i1" if version >= 5 else None,
        client_id="rack",
        client_host="/10.0.0.1",
        knows_member_id=version >= 4,
        knows_skipping=version >= 9,
    )
    check_types(event)
    drawn = event.drawn_consumer_id
    if member_id:
        assert event.drawn_id == drawn == "", "who has an id needs none"
        return
    assert (len(drawn), event.drawn_id) == (
        UUID_LETTERS,
        f"{'i1' if version >= 5 else 'rack'}-{drawn}",
    )
    assert event_of(request).drawn_id != event.drawn_id, "each request draws its own"


def test_a_drawn_id_fits_into_a_text():
    """However long the name is that it begins with, and wherever it has to be cut."""
    for name, begins in (("", ""), ("x" * 32_767, "x" * 32_730), ("é" * 16_383, "é" * 16_365)):
        words = {"protocol_type": "consumer", "protocols": (), "session_timeout": 6_000}
        frame = request_frame(Api.JOIN_GROUP, 2, client_id=name, group_id="g", member_id="",
                              rebalance_timeout=1, **words)  # fmt: skip
        request = decode(frame[4:], versions=KNOWN)
        if request.unread:
            decode_body(request)
        event = event_of(request)
        assert event.drawn_id == f"{begins}-{event.drawn_consumer_id}"
        assert len(event.drawn_id.encode()) <= 32_767
        check_types(event)


@pytest.mark.behaviour("H-2", "G-100", "P-4")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.SYNC_GROUP))
def test_a_sync_is_read(api, version):
    def write(out):
        out.text("g").number("i", 4).text("m1")
        out.since(3, lambda: out.text("i1"))
        out.since(5, lambda: out.text("consumer").text("range"))
        given = [("m1", b"old"), ("m2", b""), ("m1", b"\xff\0")]
        out.many(given, lambda one: out.text(one[0]).bytes(one[1]))

    named = version >= 5
    event = event_of(asked(api, version, write))
    assert event == SyncGroup(
        group_id="g",
        member_id="m1",
        generation=4,
        request_id=0,
        assignments={"m1": b"\xff\0", "m2": b""},
        instance_id="i1" if version >= 3 else None,
        protocol_type="consumer" if named else None,
        protocol_name="range" if named else None,
    )
    check_types(event)


@pytest.mark.behaviour("H-2")
@pytest.mark.parametrize(("kind", "name"), [(None, None), ("consumer", None), (None, "range")])
def test_a_sync_of_version_5_must_name_its_protocol(kind, name):
    request = asked(
        Api.SYNC_GROUP, 5,
        lambda out: out.text("g").number("i", 4).text("m1").text(None).text(kind).text(name)
        .many([], None),
    )  # fmt: skip
    call = CLASSIC_HANDLERS[Api.SYNC_GROUP](request, None)
    assert not call.events
    _, message = read_response(encode(request, call.respond(())), Api.SYNC_GROUP, 5)
    assert (int(message.error_code), message.assignment) == (23, b"")


@pytest.mark.behaviour("H-2", "W-55")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.HEARTBEAT))
def test_a_heartbeat_is_read(api, version):
    def write(out):
        out.text("g").number("i", -5).text("m1").since(3, lambda: out.text(None))

    assert event_of(asked(api, version, write)) == ClassicHeartbeat("g", "m1", -5, None)


@pytest.mark.behaviour("H-2", "G-100")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.LEAVE_GROUP))
def test_a_leave_is_read(api, version):
    def write(out):
        out.text("g")
        if version < 3:
            out.text("m1")
            return
        leavers = [("m1", None), ("", "i2")]
        out.many(
            leavers,
            lambda one: out.text(one[0]).text(one[1]).since(5, lambda: out.text("why")),
        )

    event = event_of(asked(api, version, write))
    several = [Leaver("m1"), Leaver("", "i2")]
    assert event == LeaveGroup("g", several if version >= 3 else [Leaver("m1")])
    check_types(event)


# What is answered --------------------------------------------------------------------------------


@pytest.mark.behaviour("H-1", "W-54", "P-2", "P-6")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.JOIN_GROUP))
@pytest.mark.parametrize("leads", [True, False])
def test_the_answer_to_a_join_is_written(api, version, leads):
    members = [JoinedMember("m1", None, b"\0\1"), JoinedMember("m2", "i2", b"")] if leads else []
    answer = JoinGroupResponse(
        "m1", generation=2**31 - 1, protocol_type="consumer", protocol_name="range",
        leader="m1" if leads else "m2", skip_assignment=leads, members=members,
    )  # fmt: skip
    out = Writer(api, version)
    out.since(2, lambda: out.number("i", 0)).number("h", 0).number("i", 2**31 - 1)
    out.since(7, lambda: out.text("consumer")).text("range").text(answer.leader)
    out.since(9, lambda: out.number("b", leads)).text("m1")

    def write_member(one):
        out.text(one.member_id).since(5, lambda: out.text(one.instance_id)).bytes(one.metadata)

    out.many(members, write_member).tags()
    written, message = answered(api, version, request_of(api, version, **JOIN), Result([], answer))
    assert written == out.data
    assert message.member_id == "m1"


@pytest.mark.parametrize(("api", "version"), versions_of(Api.JOIN_GROUP))
def test_a_refused_join_says_why_and_who_was_meant(api, version):
    request = request_of(api, version, **JOIN)
    for answer, member_id in (
        (Result([], JoinGroupResponse("given", ErrorCode.MEMBER_ID_REQUIRED)), "given"),
        (GroupError(ErrorCode.NOT_COORDINATOR, "elsewhere"), "m1"),
    ):
        _, message = answered(api, version, request, answer)
        code = ErrorCode.NOT_COORDINATOR if member_id == "m1" else ErrorCode.MEMBER_ID_REQUIRED
        assert (int(message.error_code), message.member_id) == (code, member_id)
        unnamed = None if version >= NO_PROTOCOL_SINCE else ""
        assert (message.generation_id, message.protocol_name, message.leader) == (-1, unnamed, "")
        assert message.members == ()


@pytest.mark.behaviour("H-2", "P-5")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.SYNC_GROUP))
def test_the_answer_to_a_sync_is_written(api, version):
    request = request_of(api, version, **SYNC)
    out = Writer(api, version)
    out.since(1, lambda: out.number("i", 0)).number("h", 0)
    out.since(5, lambda: out.text("consumer").text("range")).bytes(b"\0\xff").tags()
    answer = SyncGroupResponse(ErrorCode.NONE, "consumer", "range", b"\0\xff")
    assert answered(api, version, request, Result([], answer))[0] == out.data
    out = Writer(api, version)
    out.since(1, lambda: out.number("i", 0)).number("h", 27)
    out.since(5, lambda: out.text(None).text(None)).bytes(b"").tags()
    for refused in (
        Result([], SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS)),
        GroupError(ErrorCode.REBALANCE_IN_PROGRESS, "now"),
    ):
        assert answered(api, version, request, refused)[0] == out.data


@pytest.mark.behaviour("H-5", "W-11", "W-56", "W-65")
@pytest.mark.parametrize(("api", "version"), versions_of(Api.HEARTBEAT))
def test_the_answer_to_a_heartbeat_is_written(api, version):
    request = request_of(api, version, **BEAT)
    for answer, code in (
        (Result([], ErrorCode.NONE), 0),
        (Result([], ErrorCode.REBALANCE_IN_PROGRESS), 27),
        (GroupError(ErrorCode.UNKNOWN_MEMBER_ID, "who"), 25),
        (GroupError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait"), 0),
    ):
        out = Writer(api, version)
        out.since(1, lambda out=out: out.number("i", 0)).number("h", code).tags()
        assert answered(api, version, request, answer)[0] == out.data


@pytest.mark.parametrize(("api", "version"), versions_of(Api.LEAVE_GROUP))
def test_the_answer_to_a_leave_is_written(api, version):
    request = request_of(api, version, **LEAVE)
    left = [(Leaver("m1"), ErrorCode.UNKNOWN_MEMBER_ID)]
    if version >= 3:
        left.append((Leaver("", "i2"), ErrorCode.NONE))
    out = Writer(api, version)
    out.since(1, lambda: out.number("i", 0)).number("h", 0 if version >= 3 else 25)

    def write_left(one):
        out.text(one[0].member_id).text(one[0].instance_id).number("h", one[1])

    out.since(3, lambda: out.many(left, write_left)).tags()
    assert answered(api, version, request, Result([], LeaveGroupResponse(left)))[0] == out.data
    _, message = answered(api, version, request, GroupError(ErrorCode.NOT_COORDINATOR, "gone"))
    assert int(message.error_code) == ErrorCode.NOT_COORDINATOR
    assert getattr(message, "members", ()) == ()


@pytest.mark.parametrize(("api", "version"), versions_of(Api.DESCRIBE_GROUPS))
def test_a_described_group_is_written(api, version):
    member = DescribedMember("m1", "i1", "rack", "/10.0.0.1", b"\0\1", b"\2")
    group = DescribedGroup("g", "Stable", "consumer", "range", [member])
    out = Writer(api, version)

    def write_member(one):
        out.text(one.member_id).since(4, lambda: out.text(one.instance_id))
        out.text(one.client_id).text(one.client_host).bytes(one.metadata).bytes(one.assignment)

    def write_group(_):
        out.number("h", 0).since(6, lambda: out.text(None)).text("g").text("Stable")
        out.text("consumer").text("range").many([member], write_member)
        out.since(3, lambda: out.number("i", -(2**31)))

    out.since(1, lambda: out.number("i", 0)).many([group], write_group).tags()
    request = request_of(api, version, **WORDS[api])
    assert answered(api, version, request, Result([], group))[0] == out.data


# Who is not served, and hostile bytes ------------------------------------------------------------


@pytest.mark.parametrize(("api", "version"), versions_of(*CLASSIC_VERSIONS))
def test_members_of_classic_groups_are_not_served_yet(api, version):
    frame = request_frame(api, version, **WORDS[api])
    with pytest.raises(WireError, match=f"API {api.value} is not served here"):
        decode(frame[4:])


@pytest.mark.parametrize(("api", "version"), versions_of(*CLASSIC_VERSIONS))
def test_a_request_cut_short_anywhere_is_refused(api, version):
    frame = request_frame(api, version, **WORDS[api])[4:]
    decode(frame, versions=KNOWN)
    for end in range(len(frame)):
        with pytest.raises(WireError):
            decode(frame[:end], versions=KNOWN)


@pytest.mark.parametrize("lie", [2**31 - 1, -2, -(2**31)])
@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP])
def test_a_number_of_elements_that_is_not_there_is_refused(api, lie):
    frame = request_frame(
        api, 3, **WORDS[api] | {"members": (), "assignments": (), "protocols": ()}
    )
    assert frame.endswith(bytes(4))
    with pytest.raises(WireError, match=f"{lie} elements are announced"):
        decode(frame[4:-4] + struct.pack(">i", lie), versions=KNOWN)


@pytest.mark.parametrize("lie", [2**31 - 1, -2, -(2**31)])
def test_a_length_that_is_not_there_is_refused(lie):
    frame = request_frame(Api.JOIN_GROUP, 5, **JOIN)[4:]
    assert frame.endswith(struct.pack(">i", 1) + b"\0")
    with pytest.raises(WireError, match=f"{lie} bytes are announced"):
        decode(frame[:-5] + struct.pack(">i", lie), versions=KNOWN)


def test_more_protocols_than_a_request_may_have_elements_are_refused():
    protocols = [{"name": str(n), "metadata": b""} for n in range(101)]
    for version in (2, 9):
        frame = request_frame(Api.JOIN_GROUP, version, **JOIN | {"protocols": protocols})[4:]
        with pytest.raises(
            WireError, match=r"more elements than are allowed \(server\.elements_max\)"
        ):
            decode(frame, 100, KNOWN)
        assert len(event_of(decode(frame, 101, KNOWN)).protocols) == 101


def test_garbage_is_an_event_or_refused():
    """What is read from any bytes can be asked, or is refused by its types, and nothing else."""
    rng = random.Random(13)
    frames = [request_frame(*one, **WORDS[one[0]])[4:] for one in versions_of(*CLASSIC_VERSIONS)]
    read = 0
    for _ in range(20_000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(8, len(frame))
            frame[at : at + rng.randrange(3)] = bytes(
                rng.choices((0, 1, 2, 127, 128, 255), k=rng.randrange(4))
            )
        with contextlib.suppress(WireError):
            request = decode(bytes(frame), versions=KNOWN)
            call = CLASSIC_HANDLERS[request.api](request, CLUSTER)
            with contextlib.suppress(GroupError):
                for event in call.events:
                    check_types(event)
                    read += 1
    assert read > 1_000


def test_a_long_request_is_read_later():
    frame = request_frame(Api.JOIN_GROUP, 9, **JOIN | {
        "protocols": [{"name": "range", "metadata": b"x" * (1 << 15)}],
    })[4:]  # fmt: skip
    request = decode(frame, versions=KNOWN)
    assert isinstance(request, Request)
    assert request.unread
    decode_body(request)
    assert event_of(request).protocols == [Protocol("range", b"x" * (1 << 15))]
