"""The pages of health and metrics: who may see what, and what visitors may use up."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Gauge

from coordinator.config import ConfigError, ServerConfig
from coordinator.http.page_server import (
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEAD_S,
    PageServer,
)
from coordinator.wire.access import HttpLogins
from coordinator.wire.sasl import Users
from tests.wire.test_access import certificates, tls_of

__all__ = ["certificates"]
ANYWHERE = "0.0.0.0:0"


@contextmanager
def pages_of(listen="127.0.0.1:0", head_s=HEAD_S, **settings):
    pages = PageServer(ServerConfig(http_listen=listen, **settings), head_s=head_s)
    pages.status = lambda: "active"
    pages.registry = CollectorRegistry()
    Gauge("of_group", "It names a group.", registry=pages.registry).set(1)
    try:
        yield pages
    finally:
        pages.close()


def connected(pages, source="127.0.0.1"):
    port = int(pages.address.rsplit(":", 1)[1])
    return socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))


def asked(pages, text, tls=None, source="127.0.0.1"):
    """Return the status code and all that came."""
    plain = connected(pages, source)
    with tls.wrap_socket(plain, server_hostname="localhost") if tls else plain as sock:
        sock.sendall(text if isinstance(text, bytes) else text.encode())
        data = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := sock.recv(1 << 16):
                data += piece
    return int(data.split()[1]) if data else None, data.decode()


def get(pages, path, login=None, name="localhost", **more):
    head = "" if login is None else f"authorization: Basic {base64.b64encode(login).decode()}\r\n"
    return asked(pages, f"GET {path} HTTP/1.1\r\nHost: {name}\r\n{head}\r\n", **more)


def test_half_requests_do_not_block_probes():
    with pages_of(head_s=1.0) as pages, contextlib.ExitStack() as closing:
        assert get(pages, "/healthz")[0] == 200
        before = threading.active_count()
        half = [closing.enter_context(connected(pages, "127.0.0.2")) for _ in range(200)]
        for sock in half:
            with contextlib.suppress(ConnectionError):
                sock.sendall(b"GET /healthz HTT")
        assert get(pages, "/healthz") == (200, get(pages, "/healthz")[1])
        assert threading.active_count() <= before
        began = time.monotonic()
        for sock in half:
            with contextlib.suppress(ConnectionError):
                assert sock.recv(10) == b""
        assert time.monotonic() - began < 30
        assert get(pages, "/readyz", source="127.0.0.2")[0] == 200
    assert CONNECTIONS_PER_ADDRESS_MAX < CONNECTIONS_MAX


@pytest.mark.parametrize("count", [12, 49, 120])
def test_silent_connections_of_the_prober_s_own_address_starve_no_probe(count):
    """Behind one address there may be a kubelet and others on its node."""
    with pages_of(head_s=30.0) as pages, contextlib.ExitStack() as closing:
        for _ in range(count):
            closing.enter_context(connected(pages))
        assert [get(pages, "/healthz")[0] for _ in range(20)] == [200] * 20
        others = [f"127.0.0.{number}" for number in range(2, 14)]
        for source in others * 6:
            closing.enter_context(connected(pages, source))
        assert [get(pages, "/healthz")[0] for _ in range(20)] == [200] * 20


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("POST /metrics HTTP/1.1\r\n\r\n", 405),
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 404),
        ("HEAD /healthz HTTP/1.1\r\n\r\n", 200),
        ("GET /healthz?verbose=1 HTTP/1.0\n\n", 200),
        ("GET /healthz HTTP/1.1\r\nX: " + "y" * 10_000, 431),
        (b"\xff\xfe\x00 \x00\r\n\r\n", 405),
    ],
)
def test_odd_requests_are_refused(text, code):
    with pages_of() as pages:
        found, said = asked(pages, text)
        assert found == code
        assert not said.partition("\r\n\r\n")[2] or not str(text).startswith("HEAD")


def test_metrics_beyond_this_machine_need_a_login(caplog):
    with pages_of(ANYWHERE) as pages:
        assert get(pages, "/healthz")[0] == get(pages, "/readyz")[0] == 200
        code, said = get(pages, "/metrics")
        assert code == 403
        assert "configure server.http_users" in said
        assert "of_group" not in said
    assert "listens beyond this machine without a login" in caplog.text
    caplog.clear()
    with pages_of(ANYWHERE, insecure=True) as pages:
        assert "of_group" in get(pages, "/metrics")[1]
    assert "without a login: anyone who can reach it sees the groups" in caplog.text


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("localhost", True), ("localhost:9404", True), ("127.0.0.1:9404", True), ("[::1]", True),
        ("[::1]:9404", True), ("127.3.2.1", True), ("", True), ("evil.example", False),
        ("evil.example:9404", False), ("localhost.evil.example", False), ("10.1.2.3:9404", False),
        ("127.0.0.1:9404@evil.example", False), ("localhost:", False),
    ],
)  # fmt: skip
def test_metrics_on_loopback_are_for_names_of_loopback(name, ours):
    """A site that gives its name this address does not see them; probes ask by any name."""
    with pages_of() as pages:
        code, said = get(pages, "/metrics", name=name)
        assert (code, "of_group" in said) == ((200, True) if ours else (421, False))
        assert get(pages, "/healthz", name=name)[0] == get(pages, "/readyz", name=name)[0] == 200
        assert asked(pages, "GET /metrics HTTP/1.0\r\n\r\n")[0] == 200  # that is no browser


def test_metrics_with_a_login_have_any_name(users):
    with pages_of(http_users=users, scram_iterations=4096) as pages:
        assert get(pages, "/metrics", b"ann:se:cret", name="muster.example")[0] == 200
    with pages_of(ANYWHERE, insecure=True) as pages:
        assert get(pages, "/metrics", name="muster.example")[0] == 200


@pytest.fixture
def users(tmp_path):
    file = tmp_path / "users.toml"
    file.write_text('[users]\nann = "se:cret"\n')
    return str(file)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", ANYWHERE])
def test_metrics_are_shown_after_a_login(users, listen):
    with pages_of(listen, http_users=users, scram_iterations=4096) as pages:
        assert "of_group" in get(pages, "/metrics", b"ann:se:cret")[1]
        for login in (None, b"ann:secret", b"bob:se:cret", b"ann", b"", b"\xff\xff:x"):
            code, said = get(pages, "/metrics", login)
            assert code == 401
            assert "WWW-Authenticate: Basic" in said
            assert "of_group" not in said
        wrong = "GET /metrics HTTP/1.1\r\nAuthorization: Basic %%%\r\n\r\n"
        assert asked(pages, wrong)[0] == 401
        assert get(pages, "/healthz")[0] == 200


def test_the_pages_over_tls(certificates):
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")
    asks_clients = {"tls_client_ca": f"{certificates}/ca.pem"}
    with pages_of(http_tls=True, **tls_of(certificates), **asks_clients) as pages:
        assert get(pages, "/healthz", tls=trusting)[0] == 200
        assert get(pages, "/healthz")[0] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"http_users": "nowhere.toml"}, "server.http_users nowhere.toml cannot be read"),
        ({"http_tls": True}, "server.http_tls is on, but server.tls_certificate is empty"),
    ],
)
def test_bad_http_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        PageServer(ServerConfig(http_listen="127.0.0.1:0", **settings))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *[(status, 200) for status in ("active", "loading", "failed", "stands by")],
        *[(status, 503) for status in ("stuck", "broken", "fenced", "closed")],
    ],
)
def test_a_process_that_cannot_go_on_is_not_healthy(status, code):
    """Loading again and failing once are not that: `Coordinator.health` says "stuck" in time."""
    with pages_of() as pages:
        pages.status = lambda: status
        found, text = get(pages, "/healthz")
        assert found == code
        assert text.rstrip().endswith(status)


def test_wrong_logins_are_logged_audited_and_bounded(tmp_path, monkeypatch, caplog):
    """Eighty guesses left no trace, and a guesser had as many as the machine can hash."""
    (tmp_path / "users.toml").write_text('[users]\nann = "secret"\n')
    looked, records = [], []
    right = Users.check_password
    monkeypatch.setattr(
        Users, "check_password", lambda *asked: looked.append(asked[1]) or right(*asked)
    )
    with pages_of(http_users=str(tmp_path / "users.toml")) as pages:
        pages.audit = records.extend
        for number in range(80):
            code, said = get(pages, "/metrics", b"ann:guess%d" % number)
            assert (code, "of_group" in said) == (401, False)
        assert 10 <= len(looked) < 40
        assert get(pages, "/metrics", b"ann:secret")[0] == 401, "a right guess is no other"
        assert get(pages, "/metrics", b"ann:secret", source="127.0.0.2")[0] == 200
        assert get(pages, "/metrics", b"ann:secret")[0] == 200, "known by now"
        assert get(pages, "/healthz")[0] == 200
    assert caplog.text.count("a login over HTTP from 127.0.0.1 as 'ann' was wrong") == 1
    (found,) = records
    assert (found.reason, found.owner, found.client_host) == (
        "login_failed", "User:ann", "127.0.0.1"
    )  # fmt: skip
    assert int(found.settings["count"]) == len(looked) - 1


def test_guesses_count_by_network_as_connections_do():
    """One host may have every address of its /64."""
    wrong = HttpLogins(lambda: 0.0)
    for number in range(11):
        wrong.note("ann", f"2001:db8::{number:x}")
    assert wrong.is_held_back("2001:db8::ffff")
    assert wrong.is_held_back("2001:db8::1")
    assert not wrong.is_held_back("2001:db8:0:1::1")
    for number in range(11):
        wrong.note("ann", f"10.0.0.{number}")
    assert not wrong.is_held_back("10.0.0.1")
    assert {one.client_host for one in wrong.take()} >= {"2001:db8::1", "10.0.0.1"}
