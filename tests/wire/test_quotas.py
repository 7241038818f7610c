"""Quotas: a client over its limit is throttled; the number of groups is bounded."""

from __future__ import annotations

import select
import time

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, QuotasConfig, ServerConfig, parse
from coordinator.core.events import ConfigureGroup, Heartbeat, OffsetCommit
from coordinator.errors import GroupError
from coordinator.wire.codec import Api
from coordinator.wire.quotas import BURST_S, CLIENTS_MAX, THROTTLE_S_MAX, Quotas
from tests.support.wire_client import Client, read_response, request_frame, take_frame
from tests.wire.test_server import count

POLICY_VIOLATION = 44


def served(**quotas):
    server = ServerConfig(listen="127.0.0.1:0")
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


def test_a_throttled_client_is_told_and_muted():
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
        taken = read_response(take_frame(greedy.socket), Api.LIST_GROUPS, 4)[1]
        assert taken.throttle_time.total_seconds() > 1
        greedy.socket.sendall(request_frame(Api.LIST_GROUPS, 4, 3))
        assert select.select([greedy.socket], [], [], 0.5)[0] == []


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
