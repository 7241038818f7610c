"""The server over real sockets: a client that breaks a rule, or is slow, harms no other."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from coordinator import Coordinator
from coordinator.cli.service import look_at_health
from coordinator.config import Config, LeaseConfig, ServerConfig
from coordinator.errors import ErrorCode
from coordinator.http.page_server import PageServer
from coordinator.wire.apis.group_apis import brings_much, encode_noted
from coordinator.wire.codec import Api
from tests.support.members import state_of
from tests.support.wire_client import Client, read_response, request_frame, take_frame

WORDS = {"include_topic_authorized_operations": False}


@contextmanager
def served(topics=None, **server):
    """Serve a coordinator in memory on a free port."""
    config = Config(server=ServerConfig(listen="127.0.0.1:0", **server))
    opened = Coordinator.open(None, topics=topics or {"clicks": 4}, config=config)
    with opened as coordinator, coordinator.serve() as serving:
        yield coordinator, serving.address


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request, monkeypatch):
    """Both event loops."""
    if request.param == "asyncio":
        monkeypatch.setattr("coordinator.wire.listener.find_spec", lambda _: None)


def count(coordinator, name, **labels):
    return coordinator.metrics.registry.get_sample_value(name, labels) or 0.0


def until(condition, patience_s=60.0):
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def all_of(client, seconds=60):
    client.socket.settimeout(seconds)
    data = b""
    while piece := client.socket.recv(1 << 16):
        data += piece
    return data


@pytest.mark.usefixtures("loop")
def test_a_member_joins_beats_and_leaves():
    with served() as (coordinator, address), Client(address) as client:
        assert client.join("g", "m1", "clicks").member_epoch == 2
        for _ in range(50):
            assert client.beat("g", "m1", 2).member_epoch == 2
        (group,) = coordinator.consumer_group_describe("g")
        assert group["members"][0]["client_host"] == "/127.0.0.1"
        assert client.beat("g", "m1", -1).member_epoch == -1
        assert count(coordinator, "wire_requests_total", api="CONSUMER_GROUP_HEARTBEAT") == 52
        assert count(coordinator, "wire_connections") == 1


@pytest.mark.usefixtures("loop")
def test_the_software_of_a_member_s_client_is_in_the_log():
    """As it says (KIP-511), if it is one that Kafka takes; another one is no reason to rebalance."""
    with served() as (coordinator, address):

        def known():
            return state_of(coordinator).groups["g"].members["m1"].meta.client_software

        for name, version, wanted in (
            ("librdkafka", "2.10.0", "librdkafka 2.10.0"),
            ("<script>", "1", "librdkafka 2.10.0"),
            (None, None, "librdkafka 2.10.0"),
            ("apache-kafka-java", "4.0.0", "apache-kafka-java 4.0.0"),
        ):
            with Client(address) as client:
                words = {"client_software_name": name, "client_software_version": version}
                if name is not None:
                    client.ask(Api.API_VERSIONS, 3, **words)
                epoch = client.join("g", "m1", "clicks").member_epoch
                assert (epoch, known()) == (2, wanted)


def test_pipelined_requests_are_answered_in_order_however_many():
    with served(in_flight_max=4) as (_, address), Client(address) as client:
        kinds = {
            Api.LIST_GROUPS: (4, {}),
            Api.METADATA: (13, {"topics": None} | WORDS),
            Api.CONSUMER_GROUP_HEARTBEAT: (
                1, {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None},
            ),
        }  # fmt: skip
        rng = random.Random(3)
        asked = [rng.choice(list(kinds)) for _ in range(500)]
        frames = [request_frame(a, kinds[a][0], n, **kinds[a][1]) for n, a in enumerate(asked)]
        client.socket.sendall(b"".join(frames))
        for number, api in enumerate(asked):
            found, _ = read_response(take_frame(client.socket), api, kinds[api][0])
            assert found == number


def fetch(client, number, wait_ms):
    frame = request_frame(
        Api.FETCH, 12, number, topics=(), max_wait=wait_ms, min_bytes=1, forgotten_topics_data=()
    )
    client.socket.sendall(frame)


def test_a_fetch_waits_unless_another_request_comes_behind_it():
    with served() as (_, address), Client(address) as client:
        began = time.monotonic()
        fetch(client, 1, 300)
        assert read_response(take_frame(client.socket), Api.FETCH, 12)[0] == 1
        assert time.monotonic() - began > 0.29
        fetch(client, 2, 60_000)
        fetch(client, 3, 60_000)
        client.socket.sendall(request_frame(Api.LIST_GROUPS, 4, 4))
        for number, (api, version) in enumerate([(Api.FETCH, 12)] * 2 + [(Api.LIST_GROUPS, 4)], 2):
            assert read_response(take_frame(client.socket), api, version)[0] == number
        fetch(client, 5, 60_000)


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -1),
    struct.pack(">ihhi", 8, 0, 9, 1),
    struct.pack(">ihhi", 8, 3, 99, 1),
    struct.pack(">ihhihi", 14, 3, 0, 1, -1, 2**31 - 1),
    struct.pack(">i", 0),
    request_frame(Api.METADATA, 13, topics=None, **WORDS)[:-1] + b"\xff",
]


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_ends_its_own_connection_and_no_other(garbage):
    with served() as (coordinator, address), Client(address) as member, Client(address) as wrong:
        member.join("g", "m1", "clicks")
        assert int(wrong.ask(Api.LIST_GROUPS, 4).error_code) == 0
        wrong.socket.sendall(garbage)
        assert wrong.is_closed()
        assert member.beat("g", "m1", 2).member_epoch == 2
        assert count(coordinator, "wire_closed_total", reason="refused") == 1


def test_random_bytes_never_harm_a_member():
    rng = random.Random(11)
    frames = [
        request_frame(Api.METADATA, 13, topics=[{"name": "clicks", "topic_id": None}], **WORDS),
        request_frame(Api.FIND_COORDINATOR, 4, coordinator_keys=["g", "h"]),
        request_frame(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m9", member_epoch=0,
            rebalance_timeout=1, subscribed_topic_names=["clicks"], topic_partitions=(),
        ),
    ]  # fmt: skip
    with served() as (_, address), Client(address) as member:
        member.join("g", "m1", "elsewhere")
        for _ in range(300):
            with Client(address) as wrong:
                data = bytearray(b"".join(rng.choices(frames, k=4)))
                for _ in range(rng.randrange(1, 20)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                wrong.socket.sendall(data)
                wrong.socket.shutdown(socket.SHUT_WR)
                wrong.socket.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    while wrong.socket.recv(1 << 16):
                        pass
        epoch = member.beat(
            "g",
            "m1",
            0,
            rebalance_timeout=9,
            subscribed_topic_names=["elsewhere"],
            topic_partitions=(),
        ).member_epoch
        assert epoch > 0


@pytest.mark.usefixtures("loop")
def test_slow_and_idle_connections_are_closed():
    with contextlib.ExitStack() as stack:
        coordinator, address = stack.enter_context(served(request_ms=1_000, idle_ms=3_000))
        joined = []
        for number in range(3):  # each joins at once: until its first request, it is a slow one
            joined.append(client := stack.enter_context(Client(address)))
            client.join(f"g{number}", "m", "clicks")
        idle, slow, member = joined
        silent = stack.enter_context(Client(address))
        slow.socket.sendall(struct.pack(">i", 1 << 20))

        def closed():
            assert int(member.beat("g2", "m", 2).error_code) == 0
            with contextlib.suppress(ConnectionError):
                slow.socket.sendall(b"\0")
            found = [count(coordinator, "wire_closed_total", reason=r) for r in ("slow", "idle")]
            return found == [2, 1]

        until(closed)
        assert all(client.is_closed() for client in (silent, slow, idle))
        assert int(member.beat("g2", "m", 2).error_code) == 0


def test_a_client_that_does_not_read_is_closed():
    topics = {f"topic-{n}": 50 for n in range(200)}
    with served(topics, request_ms=1_000) as (coordinator, address), Client(address) as deaf:
        frame = request_frame(Api.METADATA, 13, topics=None, **WORDS)
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        deaf.socket.settimeout(2)
        with contextlib.suppress(OSError):
            deaf.socket.sendall(frame * 100_000)
        until(lambda: count(coordinator, "wire_closed_total", reason="does not read") == 1)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown_mib < 200, "each answer is 300 KB, 100,000 were asked for"


def test_a_client_that_pauses_gets_every_answer_when_it_reads_again():
    with served({f"topic-{n}": 50 for n in range(200)}) as (_, address), Client(address) as client:
        for number in range(40):
            client.socket.sendall(request_frame(Api.METADATA, 13, number, topics=None, **WORDS))
        time.sleep(0.3)  # the first of 12 MB fill all buffers
        for number in range(40):
            correlation_id, body = read_response(take_frame(client.socket), Api.METADATA, 13)
            assert (correlation_id, len(body.topics)) == (number, 200)


@pytest.mark.parametrize(
    ("api", "version", "words"),
    [
        (Api.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False}),
        (Api.METADATA, 13, {"topics": None} | WORDS),
    ],
    ids=["in the loop", "in another thread"],
)
def test_an_answer_that_cannot_be_encoded_closes_its_own_connection(
    monkeypatch, caplog, api, version, words
):
    with (
        served({f"topic-{n}": 50 for n in range(200)}) as (coordinator, address),
        Client(address) as member,
        Client(address) as other,
    ):
        member.join("g", "m", "topic-1")
        with monkeypatch.context() as planted:
            planted.setattr("coordinator.wire.server.encode_noted", lambda *_: 1 / 0)
            other.socket.sendall(request_frame(api, version, **words))
            assert other.is_closed()
        assert count(coordinator, "wire_closed_total", reason="failed") == 1
        assert member.beat("g", "m", 2).member_epoch == 2
    assert any("no answer to" in line for line in caplog.messages)


def test_an_unknown_version_of_api_versions_is_answered_in_the_form_of_0():
    with served() as (_, address), Client(address) as client:
        asked = struct.pack(">hhih", Api.API_VERSIONS, 99, 5, 4) + b"test"
        client.socket.sendall(struct.pack(">i", len(asked)) + asked)
        number, body = read_response(take_frame(client.socket), Api.API_VERSIONS, 0)
        assert (number, int(body.error_code)) == (5, ErrorCode.UNSUPPORTED_VERSION)
        served_to = {api.api_key: api.max_version for api in body.api_keys}
        assert served_to[Api.API_VERSIONS] == 4
        assert client.join("g", "m1", "clicks").member_epoch == 2, "the connection stays open"


def test_incomplete_requests_are_bounded_in_memory():
    with served(buffer_bytes_max=1 << 20) as (coordinator, address), Client(address) as member:
        member.join("g", "m1", "clicks")
        piece = struct.pack(">i", 1 << 20) + bytes(300_000)
        greedy = [Client(address) for _ in range(4)]
        for client in greedy:
            client.socket.sendall(piece)
        until(lambda: count(coordinator, "wire_closed_total", reason="memory") >= 1)
        assert member.beat("g", "m1", 2).member_epoch == 2
        for client in greedy:
            client.socket.close()
        until(lambda: count(coordinator, "wire_connections") == 1)
        with Client(address) as again:
            again.socket.sendall(piece)
            assert member.beat("g", "m1", 2).member_epoch == 2, "what was held is free again"


def test_connections_beyond_the_limit_are_closed_at_once():
    with served(connections_max=3) as (coordinator, address):
        clients = [Client(address) for _ in range(3)]
        for number, client in enumerate(clients):
            client.join("g", f"m{number}", "elsewhere")
        with Client(address) as other:
            assert other.is_closed()
        clients.pop().socket.close()
        until(lambda: count(coordinator, "wire_connections") == 2)
        with Client(address) as other:
            assert int(other.ask(Api.LIST_GROUPS, 4).error_code) == 0
        for client in clients:
            client.socket.close()
        assert count(coordinator, "wire_closed_total", reason="full") == 1


def test_many_connections_at_once():
    """As many as this process may have files for, up to 2,000 in a quick test."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = min(2_000, hard // 2 - 200)
    with served() as (coordinator, address):
        clients = [Client(address) for _ in range(most)]
        until(lambda: count(coordinator, "wire_connections") == most)
        with Client(address) as member:
            assert member.join("g", "m1", "clicks").member_epoch == 2
        for client in clients:
            client.socket.close()
        until(lambda: count(coordinator, "wire_connections") == 0)


def test_no_other_waits_while_an_answer_of_very_many_topics_is_written(monkeypatch):
    others_answered, names = threading.Event(), [f"t{number:04}" for number in range(1_500)]

    def wait_and_encode(request, call, answers):
        assert not brings_much(answers) or others_answered.wait(60)
        return encode_noted(request, call, answers)

    monkeypatch.setattr("coordinator.wire.server.encode_noted", wait_and_encode)
    with (
        served(dict.fromkeys(names, 1)) as (_, address),
        Client(address) as one,
        Client(address) as other,
    ):
        joins = {"rebalance_timeout": 60_000, "topic_partitions": ()}
        words = {"group_id": "large", "member_id": "m", "member_epoch": 0} | joins
        asked = request_frame(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, subscribed_topic_names=names, **words
        )
        one.socket.sendall(asked)
        assert other.join("g", "m1", "t0000").member_epoch == 2
        others_answered.set()
        _, answer = read_response(take_frame(one.socket), Api.CONSUMER_GROUP_HEARTBEAT, 1)
    assert sum(len(t.partitions) for t in answer.assignment.topic_partitions) == len(names)


def test_a_client_that_vanishes_while_it_is_answered():
    with served() as (coordinator, address):
        for _ in range(50):
            client = Client(address)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.socket.sendall(request_frame(Api.LIST_GROUPS, 4) * 20)
            client.socket.close()
        until(lambda: count(coordinator, "wire_connections") == 0)
        with Client(address) as client:
            assert int(client.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_a_closed_coordinator_answers_with_a_code_and_a_closed_server_not_at_all():
    config = Config(server=ServerConfig(listen="127.0.0.1:0"))
    coordinator = Coordinator.open(None, topics={"clicks": 4}, config=config)
    with coordinator.serve() as serving, Client(serving.address) as client:
        client.join("g", "m1", "clicks")
        coordinator.close()
        code = int(client.beat("g", "m1", 2).error_code)
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        serving.close()
        assert client.is_closed()
        serving.close()
        with pytest.raises(ConnectionError):
            Client(serving.address)


def test_two_servers_of_one_coordinator():
    with (
        served() as (coordinator, address), coordinator.serve() as other,
        Client(address) as one, Client(other.address) as two,
    ):  # fmt: skip
        one.join("g", "m1", "clicks")
        two.join("g", "m2", "clicks")
        assert len(coordinator.consumer_group_describe("g")[0]["members"]) == 2


# The pages ---------------------------------------------------------------------------------------


def page(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_zombie_is_not_ready_once_check_ms_have_passed(tmp_path):
    """It is asked nothing and does not renew its lease: only the question makes it look."""
    idle = LeaseConfig(ttl_ms=600_000, renew_ms=300_000, check_ms=200)
    pages = PageServer(ServerConfig(http_listen="127.0.0.1:0"))
    try:
        with Coordinator.open(tmp_path / "s", config=Config(lease=idle)) as zombie:
            pages.status, pages.confirm = lambda: zombie.status, zombie.confirm_status
            assert page(pages.address, "/readyz") == (200, "active\n")
            with Coordinator.open(tmp_path / "s", takeover="force") as successor:
                time.sleep(idle.check_ms / 1000)
                assert page(pages.address, "/readyz") == (503, "fenced\n")
                assert page(pages.address, "/healthz") == (503, "fenced\n")
                assert successor.confirm_status() == "active"
            assert successor.confirm_status() == "closed"
    finally:
        pages.close()


@pytest.mark.parametrize("first", ["/healthz", "/metrics"])
def test_a_zombie_says_so_at_the_first_page_that_it_is_asked_for(tmp_path, first):
    """Not as it was when it was stopped: no other client asks it, and no renewal is due."""
    idle = LeaseConfig(ttl_ms=600_000, renew_ms=300_000, check_ms=200)
    pages = PageServer(ServerConfig(http_listen="127.0.0.1:0"))
    try:
        with Coordinator.open(tmp_path / "s", config=Config(lease=idle)) as zombie:
            pages.status, pages.registry = lambda: look_at_health(zombie), zombie.metrics.registry
            assert page(pages.address, "/healthz") == (200, "active\n")
            with Coordinator.open(tmp_path / "s", takeover="force"):
                time.sleep(idle.check_ms / 1000)
                answered = page(pages.address, first)
                if first == "/healthz":
                    assert answered == (503, "fenced\n")
                else:
                    assert "\nfenced 1.0\n" in answered[1]
    finally:
        pages.close()


def test_health_is_served_though_the_log_cannot_be_looked_at():
    with Coordinator.open(None) as coordinator:
        held = threading.Event()
        coordinator._loop.call(held.wait)
        assert look_at_health(coordinator) == "active"
        held.set()


def test_a_coordinator_that_does_not_answer_is_not_ready():
    with Coordinator.open(None) as coordinator:
        held = threading.Event()
        coordinator._loop.call(held.wait)
        assert coordinator.confirm_status(0.05) == "busy"
        held.set()
        assert coordinator.confirm_status() == "active"


def test_the_http_pages_show_the_coordinators_status():
    pages = PageServer(ServerConfig(http_listen="127.0.0.1:0"))
    try:
        assert page(pages.address, "/healthz") == (200, "stands by\n")
        assert page(pages.address, "/readyz") == (503, "stands by\n")
        assert page(pages.address, "/metrics")[0] == 503
        with served() as (coordinator, address):
            pages.status, pages.registry = lambda: coordinator.status, coordinator.metrics.registry
            pages.confirm = coordinator.confirm_status
            with Client(address) as client:
                client.join("g", "m1", "clicks")
            assert page(pages.address, "/readyz") == (200, "active\n")
            pages.remark = lambda: "topics cannot be read since noon"
            ready = (200, "active\ntopics cannot be read since noon\n")
            assert page(pages.address, "/readyz") == ready
            assert page(pages.address, "/healthz") == (200, "active\n")
            code, text = page(pages.address, "/metrics")
            assert code == 200
            assert 'consumer_group_count{state="stable"} 1.0' in text
            assert 'wire_requests_total{api="CONSUMER_GROUP_HEARTBEAT"} 1.0' in text
        assert page(pages.address, "/healthz") == (503, "closed\n")
        pages.remark = lambda: ""
        assert page(pages.address, "/readyz") == (503, "closed\n")
        assert page(pages.address, "/nothing")[0] == 404
    finally:
        pages.close()
