"""Lives of classic groups in messages, decided by a coordinator in memory."""

from __future__ import annotations

import contextlib
import threading

import pytest

from coordinator import Coordinator
from coordinator.config import Config, QuotasConfig, ServerConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.errors import ErrorCode
from coordinator.wire.acls import parse_acls
from coordinator.wire.authorization import authorize_request
from coordinator.wire.codec import CLASSIC_VERSIONS, Api, encode
from tests.support.classic_side import BEAT, JOIN, KNOWN, SYNC, WORDS, Classic, request_of
from tests.support.members import processor_of, state_of
from tests.support.wire_client import Client, read_response, request_frame, take_frame
from tests.support.wire_side import NONE
from tests.wire.test_server import until


@pytest.mark.parametrize("join", range(10))
def test_two_members_join_sync_beat_and_leave(join):
    """With the versions of the other APIs that clients of this JoinGroup send, or some of them."""
    side = Classic(clicks=4)
    sync, beat, leave = min(join, 5), min(join, 4), min(join, 5)

    def enter(member_id):
        found = side.say(Api.JOIN_GROUP, join, **JOIN | {"member_id": member_id})
        if not isinstance(found, int) and int(found.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
            assert join >= 4
            found = side.say(Api.JOIN_GROUP, join, **JOIN | {"member_id": found.member_id})
        return found

    first = enter("")
    side.processor.tick()  # the initial delay of 0 ms
    alone = side.hear()[first]
    assert (int(alone.error_code), alone.generation_id, alone.protocol_name) == (NONE, 1, "range")
    assert (alone.leader, len(alone.members)) == (alone.member_id, 1)
    words = SYNC | {"member_id": alone.member_id, "generation_id": 1}
    done = side.say(
        Api.SYNC_GROUP, sync,
        **words | {"assignments": [{"member_id": alone.member_id, "assignment": b"all"}]},
    )  # fmt: skip
    assert (int(done.error_code), done.assignment) == (NONE, b"all")

    second = enter("")
    words = BEAT | {"member_id": alone.member_id, "generation_id": 1}
    assert int(side.say(Api.HEARTBEAT, beat, **words).error_code) == ErrorCode.REBALANCE_IN_PROGRESS
    leader = enter(alone.member_id)
    follower = side.hear()[second]
    assert leader.leader == follower.leader == leader.member_id == alone.member_id
    assert [one.member_id for one in leader.members] == [leader.member_id, follower.member_id]
    assert (follower.generation_id, follower.members) == (2, ())

    words = SYNC | {"generation_id": 2}
    waits = side.say(Api.SYNC_GROUP, sync, **words | {"member_id": follower.member_id})
    given = [{"member_id": follower.member_id, "assignment": b"half"}]
    led = side.say(
        Api.SYNC_GROUP, sync, **words | {"member_id": leader.member_id, "assignments": given}
    )
    assert (led.assignment, side.hear()[waits].assignment) == (b"", b"half")

    (group,) = side.say(Api.DESCRIBE_GROUPS, 6, **WORDS[Api.DESCRIBE_GROUPS]).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    assert {one.member_id: one.member_assignment for one in group.members} == {
        leader.member_id: b"", follower.member_id: b"half",
    }  # fmt: skip
    for member in (leader.member_id, follower.member_id):
        words = {"group_id": "g", "member_id": member, "members": [{"member_id": member}]}
        assert int(side.say(Api.LEAVE_GROUP, leave, **words).error_code) == NONE
    again = side.say(Api.LEAVE_GROUP, leave, **words)
    code = again.members[0].error_code if leave >= 3 else again.error_code
    assert int(code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_groups_are_listed_by_state_and_type():
    side = Classic(clicks=4)
    side.join("m1", "clicks")  # g, a consumer group
    side.say(Api.JOIN_GROUP, 3, **JOIN | {"group_id": "c", "member_id": ""})

    def listed(version, **words):
        found = side.ask(Api.LIST_GROUPS, version, **words).groups
        return [(one.group_id, one.protocol_type, getattr(one, "group_type", "")) for one in found]

    classic, consumer = ("c", "consumer", "classic"), ("g", "consumer", "consumer")
    assert listed(5) == [classic, consumer]
    assert listed(5, types_filter=["Classic"]) == [classic]
    assert listed(5, types_filter=["consumer"]) == [consumer]
    assert [one[0] for one in listed(4, states_filter=["preparingrebalance"])] == ["c"]
    assert listed(5, states_filter=["Stable"], types_filter=["classic"]) == []
    words = WORDS[Api.DESCRIBE_GROUPS] | {"groups": ["c"]}
    (group,) = side.say(Api.DESCRIBE_GROUPS, 6, **words).groups
    assert (group.group_state, group.protocol_data, len(group.members)) == (
        "PreparingRebalance", "", 1,
    )  # fmt: skip


@pytest.mark.behaviour("H-38", "G-151")
def test_who_waits_is_answered_when_another_takes_the_store_over():
    side = Classic(clicks=4)
    first = side.say(Api.JOIN_GROUP, 2, **JOIN | {"member_id": ""})
    side.processor.fence("by another")
    found = side.hear()[first]
    assert int(found.error_code) == ErrorCode.NOT_COORDINATOR


# On sockets --------------------------------------------------------------------------------------


NO_QUOTAS = QuotasConfig()


@contextlib.contextmanager
def served(delay_ms=0, quotas=NO_QUOTAS, **settings):
    """Serve a coordinator that takes members of classic groups."""
    server = ServerConfig(listen="127.0.0.1:0", **settings)
    kafka = kafka_config({"group.initial.rebalance.delay.ms": delay_ms})
    config = Config(server=server, kafka=kafka, quotas=quotas)
    opened = Coordinator.open(None, topics={"clicks": 4}, config=config)
    with opened as coordinator, coordinator.serve() as serving:
        yield coordinator, serving.address


NEVER = 3_600_000
NEW = JOIN | {"member_id": ""}


@pytest.mark.parametrize("join", range(2, 10))
def test_a_protocol_whose_name_is_empty_is_one(join):
    side = Classic(clicks=4)
    words = JOIN | {"protocols": [{"name": "", "metadata": b"said"}]}
    found = side.say(Api.JOIN_GROUP, join, **words | {"member_id": ""})
    if not isinstance(found, int):
        found = side.say(Api.JOIN_GROUP, join, **words | {"member_id": found.member_id})
    side.processor.tick()
    alone = side.hear()[found]
    assert (int(alone.error_code), alone.protocol_name) == (NONE, "")
    assert [one.metadata for one in alone.members] == [b"said"]


def send_join(client, **words):
    client.socket.sendall(request_frame(Api.JOIN_GROUP, 3, 1, **NEW | words))


def joined(client):
    return read_response(take_frame(client.socket), Api.JOIN_GROUP, 3)[1]


def members_of(coordinator):
    group = state_of(coordinator).classic.get("g")
    return len(group.members) if group else 0


def test_two_clients_are_members_of_one_group():
    with served() as (_, address), Client(address) as first, Client(address) as second:
        words = {"client_software_name": "x", "client_software_version": "1"}
        offered = {one.api_key: (one.min_version, one.max_version)
                for one in first.ask(Api.API_VERSIONS, 3, **words).api_keys}  # fmt: skip
        assert CLASSIC_VERSIONS.items() <= offered.items()
        leader = first.ask(Api.JOIN_GROUP, 3, **NEW)
        assert leader.generation_id == 1
        send_join(second)
        beat = BEAT | {"member_id": leader.member_id, "generation_id": 1}
        until(lambda: int(first.ask(Api.HEARTBEAT, 3, **beat).error_code) != NONE)
        again = first.ask(Api.JOIN_GROUP, 3, **JOIN | {"member_id": leader.member_id})
        follower = joined(second)
        assert (again.generation_id, follower.generation_id, len(again.members)) == (2, 2, 2)
        words = SYNC | {"generation_id": 2}
        second.socket.sendall(
            request_frame(Api.SYNC_GROUP, 3, 2, **words | {"member_id": follower.member_id})
        )
        given = [{"member_id": follower.member_id, "assignment": b"half"}]
        words |= {"member_id": leader.member_id, "assignments": given}
        assert first.ask(Api.SYNC_GROUP, 3, **words).assignment == b""
        frame = take_frame(second.socket)
        assert read_response(frame, Api.SYNC_GROUP, 3)[1].assignment == b"half"


def test_the_software_of_a_classic_member_s_client_is_in_the_log_of_a_consumer_group():
    metadata = write_subscription(Subscription(1, ("clicks",)))
    protocols = ({"name": "range", "metadata": metadata},)
    with served() as (coordinator, address), Client(address) as client:
        client.join("g", "m1", "clicks")
        words = {"client_software_name": "librdkafka", "client_software_version": "1.9.0"}
        client.ask(Api.API_VERSIONS, 3, **words)
        found = client.ask(Api.JOIN_GROUP, 3, **NEW | {"protocols": protocols})
        members = state_of(coordinator).groups["g"].members
        assert members[found.member_id].meta.client_software == "librdkafka 1.9.0"


def test_an_answer_that_fails_after_its_wait_ends_one_connection_alone():
    """Those whose answers come in the same turn are answered."""
    with served() as (coordinator, address), Client(address) as first:
        leader = first.ask(Api.JOIN_GROUP, 3, **NEW)
        with Client(address) as second, Client(address) as third:
            for client in (second, third):
                send_join(client)
            until(lambda: members_of(coordinator) == 3)
            waiting = coordinator._loop._later._futures
            until(lambda: len(waiting) == 2)
            waiting[min(waiting)].set_exception(ValueError("planted"))
            assert take_frame(second.socket) == b""  # the connection ends
            first.ask(Api.JOIN_GROUP, 3, **JOIN | {"member_id": leader.member_id})
            assert joined(third).generation_id == 2


def test_a_waiting_client_holds_up_no_other_and_hears_of_a_fail_over():
    with (
        served(NEVER) as (coordinator, address),
        Client(address) as first,
        Client(address) as other,
    ):
        send_join(first)
        until(lambda: members_of(coordinator) == 1)
        assert int(other.ask(Api.LIST_GROUPS, 4).error_code) == NONE
        processor = processor_of(coordinator)
        coordinator._loop.call(lambda: processor.fence("by a test")).result(60)
        assert int(joined(first).error_code) == ErrorCode.NOT_COORDINATOR


def test_a_client_that_goes_while_it_waits_disturbs_no_other():
    with served(NEVER) as (coordinator, address), Client(address) as other:
        with Client(address) as first:
            send_join(first)
            until(lambda: members_of(coordinator) == 1)
        until(lambda: coordinator.metrics.registry.get_sample_value("wire_connections", {}) == 1)
        assert int(other.ask(Api.LIST_GROUPS, 4).error_code) == NONE
        assert coordinator.status == "active"


def test_what_waits_counts_among_the_requests_of_a_connection():
    with served(NEVER, in_flight_max=2) as (coordinator, address), Client(address) as client:
        for _ in range(4):
            send_join(client)
        until(lambda: members_of(coordinator) == 2)
        with Client(address) as other:  # others have had their turn by now
            assert int(other.ask(Api.LIST_GROUPS, 4).error_code) == NONE
        assert members_of(coordinator) == 2


def test_what_waits_counts_among_the_bytes_that_are_held():
    protocols = [{"name": "range", "metadata": bytes(10_000)}]
    with served(NEVER, buffer_bytes_max=50_000) as (_, address), Client(address) as client:
        ends = threading.Thread(target=client.is_closed)
        ends.start()
        for _ in range(8):
            with contextlib.suppress(OSError):
                send_join(client, protocols=protocols)
        ends.join(60)
        assert not ends.is_alive(), "the connection is closed"


# Who may, and commits ----------------------------------------------------------------------------

ACLS = """
[[acls]]
principal = "User:alice"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "g"
"""


@pytest.mark.behaviour("H-3")
@pytest.mark.parametrize("api", CLASSIC_VERSIONS)
def test_a_member_needs_read_of_its_group(api):
    side = Classic(clicks=4)
    side.acls = parse_acls(ACLS, "acls.toml")
    for version in range(CLASSIC_VERSIONS[api][1] + 1):
        for user, allowed in (("alice", True), ("bob", False)):
            request = request_of(api, version, **WORDS[api])
            request.session.principal = f"User:{user}"
            call = authorize_request(request, side.cluster)
            assert bool(call.events) == allowed
            if not allowed:
                _, answer = read_response(encode(request, call.respond(())), api, version)
                assert int(answer.error_code) == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.behaviour("G-120", "W-57")
@pytest.mark.parametrize("version", range(2, 11))
def test_a_member_of_any_kind_commits_as_its_protocol_lets_it(version):
    side = Classic(clicks=4)
    side.cluster = side.cluster_with(versions=KNOWN)
    first = side.say(Api.JOIN_GROUP, 3, **NEW)
    side.processor.tick()
    member_id = side.hear()[first].member_id
    words = SYNC | {"member_id": member_id, "generation_id": 1}
    assert int(side.say(Api.SYNC_GROUP, 3, **words).error_code) == NONE
    assert side.commit(version, {0: 5}, member_id, 1) == {0: NONE}
    assert side.commit(version, {0: 6}, member_id, 2) == {0: ErrorCode.ILLEGAL_GENERATION}
    side.say(Api.LEAVE_GROUP, 1, group_id="g", member_id=member_id)
    epoch = side.join("m1", "clicks").member_epoch
    code = NONE if version >= 9 else ErrorCode.UNSUPPORTED_VERSION
    assert side.commit(version, {0: 7}, "m1", epoch) == {0: code}


# Hostile -----------------------------------------------------------------------------------------

QUOTAS = QuotasConfig(groups_max=20, parked_requests_max=50, classic_bytes_max=300_000)
LOADS, TOO_MANY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.POLICY_VIOLATION
REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
MANY = {"protocols": [{"name": f"p{n}", "metadata": b""} for n in range(2_000)]}
LARGE = {"protocols": [{"name": "range", "metadata": bytes(150_000)}]}
FLOODS = {
    "joins that wait": (3, [{}] * 50, [{}] * 20, {LOADS}),
    "ids that are never used": (5, [], [{}] * 700, {REQUIRED, LOADS}),
    "groups of one": (5, [], [{"group_id": f"g{n}"} for n in range(40)], {REQUIRED, TOO_MANY}),
    "thousands of protocols": (3, [MANY], [MANY] * 3, {LOADS}),
    "large metadata": (3, [LARGE], [LARGE] * 3, {LOADS}),
}
"""By kind: the version of JoinGroup, joins that wait, more of them, and the errors that these get."""


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_refused_at_its_limit_and_others_go_on(flood):
    version, waits, asked, errors = FLOODS[flood]
    with (
        served(NEVER, quotas=QUOTAS) as (coordinator, address),
        Client(address) as honest, Client(address) as first, Client(address) as second,
    ):  # fmt: skip
        epoch = honest.join("honest", "m", "clicks").member_epoch
        for fields in waits:
            first.socket.sendall(request_frame(Api.JOIN_GROUP, version, 1, **NEW | fields))
        until(lambda: members_of(coordinator) == len(waits))
        found = set()
        for fields in asked:
            found.add(int(second.ask(Api.JOIN_GROUP, version, **NEW | fields).error_code))
        assert found == errors
        assert int(honest.beat("honest", "m", epoch).error_code) == NONE, "others go on"
        state, parked = state_of(coordinator), processor_of(coordinator).parked
        assert state.classic_bytes <= QUOTAS.classic_bytes_max
        assert len(state.classic) <= QUOTAS.groups_max
        assert len(parked.waiting) == len(waits) <= QUOTAS.parked_requests_max


def test_who_is_gone_before_its_join_waits_leaves_nothing_of_it():
    """The coordinator answers that it waits when the connection has ended."""
    with served(NEVER, quotas=QUOTAS) as (coordinator, address):
        for number in range(1, 11):
            with Client(address) as client:
                send_join(client)
            until(lambda n=number: members_of(coordinator) == n)
        until(lambda: not coordinator._inner._later._futures)


def test_who_closes_while_its_join_waits_counts_until_its_time_is_over_as_in_kafka():
    """Kafka does not look at connections either: a client that comes back is another member."""
    with served(NEVER, quotas=QUOTAS) as (coordinator, address):
        for number in range(1, QUOTAS.parked_requests_max + 1):
            with Client(address) as client:
                send_join(client)
                until(lambda n=number: members_of(coordinator) == n)
        until(lambda: not coordinator._inner._later._futures)  # nothing of the requests is kept
        assert len(processor_of(coordinator).parked.waiting) == QUOTAS.parked_requests_max
        with Client(address) as client:
            send_join(client)
            assert int(joined(client).error_code) == LOADS, "newcomers try again"
