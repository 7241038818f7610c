"""What clients may use up: connections, from their first packet on."""

from __future__ import annotations

import contextlib
import os
import ssl
import time

import pytest
from test_wire_access import certificates, tls_of
from test_wire_server import count, loop, served, until
from wire_client import Client

from coordinator.config import ConfigError, ServerConfig
from coordinator.wire import acceptor
from coordinator.wire.codec import Api
from coordinator.wire.serving import check

__all__ = ["certificates", "loop"]


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("loop")
def test_silent_connections_take_no_more_than_their_number(certificates):
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    limits = {"connections_max": 10, "handshake_ms": 1_500}
    with served(**tls_of(certificates), **limits) as (coordinator, address):
        before = open_files()
        with contextlib.ExitStack() as closing:
            silent = [closing.enter_context(Client(address)) for _ in range(40)]
            until(lambda: count(coordinator, "wire_closed_total", reason="full") == 30)
            assert open_files() - before < 40 + 10 + 5  # far less than two of each
            assert count(coordinator, "wire_connections") == 10
            assert all(client.is_closed() for client in silent), "those in their handshake, too"
            until(lambda: count(coordinator, "wire_closed_total", reason="handshake") == 10)
        until(lambda: count(coordinator, "wire_connections") == 0)
        with Client(address, trusting) as client:
            assert client.join("g", "m1", "clicks").member_epoch == 2


@pytest.mark.usefixtures("loop")
def test_a_server_ends_in_the_middle_of_handshakes(certificates):
    with contextlib.ExitStack() as closing:
        with served(**tls_of(certificates)) as (coordinator, address):
            silent = [closing.enter_context(Client(address)) for _ in range(5)]
            until(lambda: count(coordinator, "wire_connections") == 5)
        assert all(client.is_closed() for client in silent)
        until(lambda: count(coordinator, "wire_connections") == 0)


@pytest.mark.usefixtures("loop")
def test_connections_of_one_address_are_limited():
    with served(connections_per_address_max=2) as (coordinator, address):
        with Client(address) as one, Client(address) as two, Client(address) as three:
            assert three.is_closed()
            assert count(coordinator, "wire_closed_total", reason="address") == 1
            assert int(one.ask(Api.LIST_GROUPS, 4).error_code) == 0
            assert int(two.ask(Api.LIST_GROUPS, 4).error_code) == 0
        until(lambda: count(coordinator, "wire_connections") == 0)
        with Client(address) as again:
            assert int(again.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_the_last_file_descriptors_are_kept_for_the_log(monkeypatch):
    monkeypatch.setattr(acceptor, "files_limit", lambda: open_files() + 120)
    with served() as (coordinator, address), contextlib.ExitStack() as closing:
        most = acceptor.files_limit() - acceptor.files_kept() // 2
        clients = [closing.enter_context(Client(address)) for _ in range(60)]
        until(lambda: count(coordinator, "wire_closed_total", reason="files") > 0)
        assert clients[-1].is_closed()
        assert count(coordinator, "wire_connections") < most


def test_when_descriptors_run_out_the_server_waits_for_some(monkeypatch):
    monkeypatch.setattr(acceptor, "PAUSE_S", 0.05)
    real, failing = acceptor.Acceptor._accept, [True]

    class Without:
        """A socket that the system has no descriptor for."""

        def __init__(self, sock):
            self.sock = sock

        def accept(self):
            raise OSError(24, "Too many open files")

        def __getattr__(self, name):
            return getattr(self.sock, name)

    def accept(self):
        sock = self._socket
        if failing:
            self._socket = Without(sock)
        try:
            real(self)
        finally:
            self._socket = sock

    monkeypatch.setattr(acceptor.Acceptor, "_accept", accept)
    with served() as (_, address), Client(address) as client:
        time.sleep(0.2)
        failing.clear()
        assert int(client.ask(Api.LIST_GROUPS, 4).error_code) == 0


def test_a_handshake_needs_some_time():
    with pytest.raises(ConfigError, match="handshake_ms is 0: give 1 or more"):
        check(ServerConfig(handshake_ms=0))
