"""Quotas: a client over its limit is throttled; the number of groups is bounded."""

from __future__ import annotations

import select
import time

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, QuotasConfig, ServerConfig, parse
from coordinator.core.events import ConfigureGroup, Heartbeat, OffsetCommit
from coordinator.errors import GroupError
from coordinator.wire.acceptor import network_of
from coordinator.wire.codec import Api
from coordinator.wire.connection import REQUESTS_BEFORE_LOGIN_MAX
from coordinator.wire.quotas import BURST_S, CLIENTS_MAX, THROTTLE_S_MAX, Quotas
from tests.support.members import log_of
from tests.support.wire_client import Client, read_response, request_frame, take_frame
from tests.wire.test_access import logged_in
from tests.wire.test_audit import audited
from tests.wire.test_server import count, until

POLICY_VIOLATION = 44


def served(server=None, **quotas):
    server = ServerConfig(listen="127.0.0.1:0", **(server or {}))
    config = Config(server=server, quotas=QuotasConfig(**quotas))
    return Coordinator.open(None, topics={"clicks": 4}, config=config)


def test_a_client_within_its_quota_never_waits():
    quotas = Quotas(QuotasConfig(requests_per_s_max=10))
    assert [quotas.charge("c", 1, 50, now / 10) for now in range(1000)] == [0] * 1000


def test_a_client_beyond_its_quota_waits_until_it_is_within():
    quotas = Quotas(QuotasConfig(requests_per_s_max=10))
    burst = int(10 * BURST_S)
    assert [quotas.charge("c", 1, 0, 5.0) for _ in range(burst)] == [0] * burst
    assert quotas.charge("c", 1, 0, 5.0) == 100
    assert quotas.charge("c", 4, 0, 5.0) == 500
    assert quotas.charge("other", 1, 0, 5.0) == 0
    assert quotas.charge("c", 0, 0, 5.4) == 100
    assert quotas.charge("c", 1, 0, 5.6) == 0
    assert quotas.charge("c", 10_000, 0, 6.0) == THROTTLE_S_MAX * 1000


def test_some_clients_have_quotas_of_their_own():
    quotas = Quotas(QuotasConfig(bytes_per_s_max=10, bytes_per_s={"User:ann": 1000, "free": 0}))
    assert quotas.charge("User:bob", 1, 110, 0.0) == 1000
    assert quotas.charge("User:ann", 1, 11_000, 0.0) == 1000
    assert quotas.charge("free", 1, 10**9, 0.0) == 0


def test_client_ids_that_come_and_go_take_no_more_memory():
    quotas = Quotas(QuotasConfig(requests_per_s_max=10))
    for number in range(CLIENTS_MAX + 100):
        quotas.charge(f"c{number}", 1, 0, 0.0)
    assert len(quotas._requests._buckets) == CLIENTS_MAX


def test_long_client_ids_take_no_more_memory():
    quotas = Quotas(QuotasConfig(requests_per_s_max=10, bytes_per_s_max=10))
    for number in range(100):
        quotas.charge(f"{number}{'x' * 1_000_000}", 1, 0, 0.0)
    assert sum(map(len, quotas._requests._buckets)) <= 100 * 255


def test_a_throttled_client_is_answered_and_muted():
    with (
        served(requests_per_s={"test": 4}) as coordinator, coordinator.serve() as serving,
        Client(serving.address) as greedy, Client(serving.address) as other,
    ):  # fmt: skip
        epoch = greedy.join("g", "m1", "clicks").member_epoch
        burst = int(4 * BURST_S) + 5
        greedy.socket.sendall(b"".join(request_frame(Api.LIST_GROUPS, 4) for _ in range(burst)))
        throttled = [
            read_response(take_frame(greedy.socket), Api.LIST_GROUPS, 4)[1].throttle_time
            for _ in range(burst)
        ]
        waited = [one.total_seconds() for one in throttled if one]
        assert waited
        assert max(waited) <= 0.3
        began = time.monotonic()
        answer = greedy.beat("g", "m1", epoch)
        assert answer.member_epoch == epoch
        assert answer.throttle_time.total_seconds() > 0
        greedy.beat("g", "m1", epoch)
        assert time.monotonic() - began > 0.2
        frame = request_frame(Api.LIST_GROUPS, 4, client_id="elsewhere")
        other.socket.sendall(frame)
        answer = read_response(take_frame(other.socket), Api.LIST_GROUPS, 4)[1]
        assert answer.throttle_time.total_seconds() == 0
        assert count(coordinator, "wire_throttled_total") >= len(waited)


def test_large_answers_are_charged_too():
    with (
        served(bytes_per_s={"test": 1_000}) as coordinator, coordinator.serve() as serving,
        Client(serving.address) as greedy,
    ):  # fmt: skip
        names = [f"a-group-that-is-not-there-{n}" for n in range(300)]
        words = {"group_ids": names, "include_authorized_operations": False}
        first = greedy.ask(Api.CONSUMER_GROUP_DESCRIBE, 1, **words)
        assert first.throttle_time.total_seconds() == 0
        greedy.socket.sendall(request_frame(Api.LIST_GROUPS, 4, 2))
        assert select.select([greedy.socket], [], [], 0.5)[0] == []


# Around a quota ------------------------------------------------------------------------------------


@pytest.fixture
def login(tmp_path):
    """Settings of a server where ann and bob log in, and may do everything."""
    users, acls = tmp_path / "users.toml", tmp_path / "acls.toml"
    users.write_text("[users]\nann = 'secret'\nbob = 'secret'\n")
    acls.write_text("super_users = ['User:ann', 'User:bob']\n")
    return {"sasl_mechanisms": ("PLAIN",), "sasl_users": str(users), "acls": str(acls)}


class Attack:
    """Counts answers, and how many a quota allows meanwhile."""

    def __init__(self, rate):
        self.rate = rate
        self.began = time.monotonic()
        self.answers = 0

    def ask(self, client, patience_s=0.05, client_id="test"):
        client.socket.sendall(request_frame(Api.LIST_GROUPS, 4, client_id=client_id))
        client.socket.settimeout(patience_s)
        try:
            self.answers += take_frame(client.socket) != b""
        except TimeoutError:
            return False
        return True

    @property
    def allowed(self):
        return self.rate * (BURST_S + time.monotonic() - self.began) + 1


@pytest.mark.parametrize("by_login", [True, False])
def test_a_client_that_reconnects_has_no_new_quota(login, by_login):
    """The throttle time mutes a connection: what counts is who is behind it."""
    quotas = {"requests_per_s": {"User:ann": 1, "test": 1}}
    settings = (login if by_login else {}) | {"audit_ms": 1}
    with served(settings, **quotas) as coordinator, coordinator.serve() as here:
        log = log_of(coordinator)
        attack = Attack(1)
        for _ in range(60):
            client = logged_in(here.address) if by_login else Client(here.address)
            with client:
                attack.ask(client)
        assert 0 < attack.answers <= attack.allowed
        assert count(coordinator, "wire_throttled_total") > 0
        who = "User:ann" if by_login else "User:ANONYMOUS"
        until(lambda: ("client_throttled", who) in {(e.reason, e.owner) for e in audited(log)})
        with logged_in(here.address, "bob") if by_login else Client(here.address) as other:
            assert attack.ask(other, 20, "bob"), "others have their own"


def test_many_connections_of_a_client_share_its_quota(login):
    with served(login, requests_per_s={"User:ann": 7}) as coordinator, coordinator.serve() as here:
        attack = Attack(7)
        clients = [logged_in(here.address) for _ in range(30)]
        for client in clients:
            client.socket.sendall(request_frame(Api.LIST_GROUPS, 4) * 9)
        waiting = [client.socket for client in clients]
        while time.monotonic() - attack.began < 4:
            for sock in select.select(waiting, [], [], 0.1)[0]:
                take_frame(sock)
                attack.answers += 1
            assert attack.answers <= attack.allowed
        assert attack.answers > 0
        for client in clients[1:]:
            client.socket.close()
        assert attack.ask(clients[0], 20), "a client that is gone holds up no other"
        clients[0].socket.close()


def test_a_refused_request_that_waited_holds_up_no_other(login):
    """A timer asks for what waited: what goes wrong there must end that connection alone."""
    with served(login, requests_per_s={"User:ann": 5}) as coordinator, coordinator.serve() as here:
        greedy, refused, later = (logged_in(here.address) for _ in range(3))
        with greedy, refused, later:
            greedy.socket.sendall(request_frame(Api.LIST_GROUPS, 4) * int(6 * BURST_S))
            until(lambda: count(coordinator, "wire_throttled_total") > 0)
            words = {"transactional_id": None, "acks": 0, "timeout": 0, "topic_data": ()}
            refused.socket.sendall(request_frame(Api.PRODUCE, 9, **words))
            seen = count(coordinator, "wire_throttled_total")
            until(lambda: count(coordinator, "wire_throttled_total") > seen)
            assert Attack(5).ask(later, 30), "who comes behind it is answered"
            assert refused.is_closed()
        assert count(coordinator, "wire_closed_total", reason="refused") == 1
        assert count(coordinator, "wire_closed_total", reason="failed") == 0


def test_logins_are_charged(login):
    """Who logs in again and again pays for it with the requests of its other connections."""
    with served(login, requests_per_s={"User:ann": 1}) as coordinator, coordinator.serve() as here:
        for _ in range(5):  # the quota allows five requests; it fills up again as time passes
            for _ in range(int(BURST_S)):
                logged_in(here.address).socket.close()
            with logged_in(here.address) as client:
                Attack(1).ask(client, 1)
            if count(coordinator, "wire_throttled_total"):
                break
        else:
            pytest.fail("fifty logins, and no request had to wait")


def test_strangers_cannot_use_up_the_quota_of_a_user(login):
    """Before a login the client id is anybody's word, also a principal's name."""
    with served(login, requests_per_s={"User:ann": 1}) as coordinator, coordinator.serve() as here:
        frame = request_frame(Api.API_VERSIONS, 0, client_id="User:ann")
        for _ in range(10):
            with Client(here.address) as stranger:
                stranger.socket.sendall(frame * REQUESTS_BEFORE_LOGIN_MAX)
                for _ in range(REQUESTS_BEFORE_LOGIN_MAX):
                    assert take_frame(stranger.socket)
        with logged_in(here.address) as client:
            assert Attack(1).ask(client, 5)
        assert count(coordinator, "wire_throttled_total") == 0


def test_who_does_not_log_in_is_closed_after_some_requests(login):
    with served(login) as coordinator, coordinator.serve() as here:
        with Client(here.address) as stranger:
            for _ in range(REQUESTS_BEFORE_LOGIN_MAX):
                stranger.ask(Api.API_VERSIONS, 0)
            stranger.socket.sendall(request_frame(Api.API_VERSIONS, 0))
            assert stranger.is_closed()
        with Client(here.address) as stranger:
            stranger.socket.sendall((1 << 19).to_bytes(4))
            assert stranger.is_closed(), "nor does it fill the memory with what it does not send"
        until(lambda: count(coordinator, "wire_closed_total", reason="refused") == 2)


def test_an_address_opens_so_many_connections_a_second():
    with served(connections_per_s_max=2) as coordinator, coordinator.serve() as here:
        began = time.monotonic()
        for _ in range(100):
            with Client(here.address) as client:
                Attack(0).ask(client, 20)
        most = 2 * (BURST_S + time.monotonic() - began) + 1
        refused = count(coordinator, "wire_closed_total", reason="rate")
        assert refused > 0
        assert 0 < 100 - refused <= most
    free = served(connections_per_s_max=1, connections_per_s={"127.0.0.1": 0})
    with free as coordinator, coordinator.serve() as here:
        for _ in range(30):
            with Client(here.address) as client:
                client.ask(Api.LIST_GROUPS, 4)


def test_addresses_of_one_ipv6_network_count_as_one():
    """A host has 2 ** 64 of them."""
    assert (
        network_of("2001:db8:0:1::7") == network_of("2001:db8:0:1:ffff::8") == "2001:db8:0:1::/64"
    )
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("10.0.0.2") != network_of("10.0.0.1")
    assert network_of("nonsense%eth0") == "nonsense%eth0"


def test_the_number_of_groups_is_limited():
    config = Config(quotas=QuotasConfig(groups_max=2))
    with Coordinator.open(None, topics={"clicks": 4}, config=config) as coordinator:

        def ask(event):
            (answer,) = coordinator.submit([event]).result(30)
            return answer.code if isinstance(answer, GroupError) else 0

        def join(group, member="m"):
            return ask(
                Heartbeat(
                    group, member, 0, rebalance_timeout_ms=60_000,
                    subscribed_topic_names=("clicks",), topic_partitions={},
                )
            )  # fmt: skip

        def commit(group):
            return ask(OffsetCommit(group, "", -1, {"clicks": {0: (5, "")}}))

        def configure(group):
            return ask(ConfigureGroup(group, {"consumer.session.timeout.ms": "50000"}))

        for create in (commit, configure, join):
            assert [create(group) for group in "abcab"] == [0, 0, POLICY_VIOLATION, 0, 0]
        assert join("a", "m2") == 0
        assert ask(ConfigureGroup("b", {})) == 0
        assert configure("c") == 0


def test_negative_quotas_are_refused():
    with pytest.raises(ConfigError, match=r"quotas.requests_per_s is .*give 0 or more"):
        parse('[quotas]\nrequests_per_s = {"User:ann" = -1}', "x")
