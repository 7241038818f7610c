"""The server over real sockets: nobody who breaks a rule, or takes too long, harms another."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import ssl
import struct
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import pytest
from wire_client import Client, read_response, request_frame, take_frame

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, ServerConfig
from coordinator.errors import ErrorCode
from coordinator.wire.codec import Api
from coordinator.wire.http import Pages
from coordinator.wire.sasl import Verifier
from coordinator.wire.serving import check, parse_address

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
        monkeypatch.setattr("coordinator.wire.serving.find_spec", lambda _: None)


def count(coordinator, name, **labels):
    return coordinator.metrics.registry.get_sample_value(name, labels) or 0.0


def until(condition, patience_s=10.0):
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def all_of(client, seconds=10):
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
        end = time.monotonic() + 3
        while time.monotonic() < end:
            with Client(address) as wrong:
                data = bytearray(b"".join(rng.choices(frames, k=4)))
                for _ in range(rng.randrange(1, 20)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                wrong.socket.sendall(data)
                wrong.socket.shutdown(socket.SHUT_WR)
                wrong.socket.settimeout(5)
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
def test_who_takes_too_long_is_closed_and_who_beats_is_not():
    with contextlib.ExitStack() as stack:
        coordinator, address = stack.enter_context(served(request_ms=1_000, idle_ms=3_000))
        names = ("member", "silent", "slow", "idle")
        member, silent, slow, idle = (stack.enter_context(Client(address)) for _ in names)
        for number, client in enumerate((idle, slow, member)):
            client.join(f"g{number}", "m", "clicks")
        slow.socket.sendall(struct.pack(">i", 100))
        end = time.monotonic() + 5
        while time.monotonic() < end:
            assert int(member.beat("g2", "m", 2).error_code) == 0
            with contextlib.suppress(ConnectionError):
                slow.socket.sendall(b"\0")
            time.sleep(0.3)
        assert all(client.is_closed() for client in (silent, slow, idle))
        assert count(coordinator, "wire_closed_total", reason="slow") == 2
        assert count(coordinator, "wire_closed_total", reason="idle") == 1


def test_who_does_not_read_is_closed_and_holds_little():
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


def test_incomplete_requests_hold_no_more_together_than_they_may():
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


# Addresses, TLS and logins -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A CA, and certificates of it for the server and for a client."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-out",
                f"{name}.pem", "-days", "2", "-extfile", "names", "-CAcreateserial")  # fmt: skip
    return folder


def tls_of(folder):
    return {"tls_certificate": f"{folder}/server.pem", "tls_key": f"{folder}/server.key"}


@pytest.mark.usefixtures("loop")
def test_tls(certificates):
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    with served(**tls_of(certificates)) as (_, address):
        with Client(address, trusting) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2
        with Client(address) as plain:
            plain.socket.sendall(request_frame(Api.LIST_GROUPS, 4))
            assert plain.is_closed() or True  # an alert, or the end; never an answer
        with pytest.raises(ssl.SSLError), Client(address, ssl.create_default_context()):
            pass


@pytest.mark.usefixtures("loop")
def test_clients_show_a_certificate_where_one_is_asked_for(certificates):
    asked = tls_of(certificates) | {"tls_client_ca": f"{certificates}/ca.pem"}
    without = ssl.create_default_context(cafile=certificates / "ca.pem")
    having = ssl.create_default_context(cafile=certificates / "ca.pem")
    having.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    with served(**asked) as (_, address):
        with Client(address, having) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2
        refused = (ssl.SSLError, ConnectionError, struct.error)
        with pytest.raises(refused), Client(address, without) as client:
            client.ask(Api.LIST_GROUPS, 4)


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "users.toml"
    verifier = Verifier.of("SCRAM-SHA-256", "secret", iterations=4096)
    file.write_text(f'[users]\nann = "{verifier}"\n')
    return str(file)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_logs_in_over_tls(certificates, users, mechanism):
    """As users configure it; a wrong password joins nobody."""
    from confluent_kafka import Consumer

    def joined(password, patience_s):
        config = {
            "bootstrap.servers": address, "group.id": "g", "group.protocol": "consumer",
            "security.protocol": "SASL_SSL", "ssl.ca.location": f"{certificates}/ca.pem",
            "sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": password,
            "log_level": "2",
        }  # fmt: skip
        consumer = Consumer(config)
        consumer.subscribe(["clicks"])
        end = time.monotonic() + patience_s
        while len(consumer.assignment()) < 4 and time.monotonic() < end:
            consumer.poll(0.05)
        found = len(consumer.assignment())
        consumer.close()
        return found

    login = {"sasl_mechanisms": (mechanism,), "sasl_users": users}
    with served(**tls_of(certificates), **login) as (coordinator, address):
        assert joined("Secret", 1.5) == 0
        assert coordinator.list_groups()["groups"] == []
        assert joined("secret", 20) == 4


def test_a_login_comes_first(users):
    with served(sasl_mechanisms=("PLAIN",), sasl_users=users, request_ms=1_000) as (c, address):
        with Client(address) as client:
            assert int(client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
            assert (
                int(client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0secret").error_code)
                == 0
            )
            assert client.join("g", "m1", "clicks").member_epoch == 2
            time.sleep(2.5)
            assert client.beat("g", "m1", 2).member_epoch == 2, "it has logged in: no hurry"
        with Client(address) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            wrong = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0Secret")
            assert int(wrong.error_code) == 58
            assert client.is_closed()
        with Client(address) as client:
            client.socket.sendall(request_frame(Api.LIST_GROUPS, 4))
            assert client.is_closed()
        with Client(address) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            assert client.is_closed(), "who dawdles over the login is closed"
        assert count(c, "wire_closed_total", reason="login") == 1
        assert count(c, "wire_closed_total", reason="slow") == 1


SAFE = ServerConfig(listen="127.0.0.1:0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": "0.0.0.0:9092"}, "0.0.0.0:9092 is open beyond this machine: configure TLS"),
        ({"listen": "192.0.2.1:9092"}, "or say --insecure"),
        ({"listen": "::1:9092", "tls_key": "x"}, "server.tls_certificate is missing"),
        ({"listen": "nonsense"}, "server.listen is 'nonsense': give host:port"),
        ({"listen": "127.0.0.1:65536"}, "give host:port"),
        ({"listen": "127.0.0.1:x"}, "give host:port"),
        ({"listen": ":9092"}, "give host:port"),
        ({"advertised": "nonsense"}, "server.advertised is 'nonsense'"),
        ({"http_listen": "nonsense"}, "server.http_listen is 'nonsense'"),
        ({"listen": "0.0.0.0:9092", "insecure": True}, "say with --advertised"),
        ({"tls_certificate": "nowhere.pem"}, "tls_certificate, tls_key or tls_client_ca cannot"),
        ({"sasl_mechanisms": ("PLAIN",)}, "server.sasl_users is missing"),
        ({"sasl_users": "x"}, "server.sasl_mechanisms is empty"),
        ({"sasl_mechanisms": ("GSSAPI",)}, "has 'GSSAPI': the known ones are PLAIN, SCRAM-SHA-256"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_is_right(changes, message):
    with pytest.raises(ConfigError) as error:
        check(replace(SAFE, **changes))
    assert message in str(error.value)


def test_beyond_this_machine_only_with_tls_and_a_login(certificates, users, caplog):
    open_to_all = replace(SAFE, listen="0.0.0.0:0", advertised="here:9092")
    with pytest.raises(ConfigError, match="open beyond"):
        check(replace(open_to_all, **tls_of(certificates)))
    with pytest.raises(ConfigError, match="open beyond"):
        check(replace(open_to_all, sasl_mechanisms=("PLAIN",), sasl_users=users))
    check(replace(
        open_to_all, sasl_mechanisms=("PLAIN",), sasl_users=users, **tls_of(certificates)
    ))  # fmt: skip
    assert not caplog.records
    check(replace(open_to_all, insecure=True))
    assert "anybody who reaches it may change every group" in caplog.text


def test_clients_are_told_the_advertised_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    config = Config(server=ServerConfig(listen=listen, advertised="elsewhere.example:7777"))
    with Coordinator.open(None, config=config) as coordinator, coordinator.serve() as serving:
        assert serving.address == "elsewhere.example:7777"
        with Client(listen) as client:
            answer = client.ask(Api.METADATA, 13, topics=None, **WORDS)
            assert [(b.host, b.port) for b in answer.brokers] == [("elsewhere.example", 7777)]


def test_an_address_that_is_taken():
    with (
        served() as (coordinator, address),
        pytest.raises(OSError, match=f"cannot listen on {address}"),
    ):
        coordinator.serve(address)


def test_ipv6():
    assert parse_address("[::1]:9092", "x") == ("::1", 9092)
    config = Config(server=ServerConfig(listen="[::1]:0"))
    with Coordinator.open(None, topics={"clicks": 4}, config=config) as coordinator:
        try:
            serving = coordinator.serve()
        except OSError:
            pytest.skip("no IPv6 here")
        with serving, Client(serving.address) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2


# The pages ---------------------------------------------------------------------------------------


def page(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_pages_tell_of_the_coordinator():
    pages = Pages("127.0.0.1:0")
    try:
        assert page(pages.address, "/healthz") == (200, "stands by\n")
        assert page(pages.address, "/readyz") == (503, "stands by\n")
        assert page(pages.address, "/metrics")[0] == 503
        with served() as (coordinator, address):
            pages.status, pages.registry = lambda: coordinator.status, coordinator.metrics.registry
            with Client(address) as client:
                client.join("g", "m1", "clicks")
            assert page(pages.address, "/readyz") == (200, "active\n")
            code, text = page(pages.address, "/metrics")
            assert code == 200
            assert 'consumer_group_count{state="stable"} 1.0' in text
            assert 'wire_requests_total{api="CONSUMER_GROUP_HEARTBEAT"} 1.0' in text
        assert page(pages.address, "/healthz") == (503, "closed\n")
        assert page(pages.address, "/readyz") == (503, "closed\n")
        assert page(pages.address, "/nothing")[0] == 404
    finally:
        pages.close()
