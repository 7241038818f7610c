"""Logins with tokens: how long a session lasts, how it goes on, and what a client is answered."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from coordinator.config import Config, ConfigError
from coordinator.errors import GroupError
from coordinator.history import frame
from coordinator.member.client_settings import read_access
from coordinator.member.client_tokens import ClientCredentials
from coordinator.member.member import Member
from coordinator.runtime.coordinator import Coordinator
from coordinator.web.access import WebAccess
from coordinator.wire.codec import Api
from coordinator.wire.connection import Connection
from coordinator.wire.decoder import WireError
from coordinator.wire.oauth.token_login import REFUSAL, TokenLogin
from coordinator.wire.oauth.tokens import TokenError, TokenRules, parse_bearer
from coordinator.wire.sasl import Users, Verifier
from tests.oauth.made_tokens import (
    NOW,
    OTHER_KEY,
    SAFE,
    Publisher,
    current,
    token,
    token_settings,
)
from tests.support.members import wait_for
from tests.support.wire_client import Client, read_response, request_frame


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return token_settings(tmp_path_factory.mktemp("keys"))


# Messages ----------------------------------------------------------------------------------------


def message(text, acts_as="", scheme="Bearer", more=""):
    head = f"n,{'a=' if acts_as else ''}{acts_as},"
    return f"{head}\x01auth={scheme} {text}\x01{more}\x01".encode()


def test_messages_of_the_rfc_are_read():
    assert parse_bearer(message("abc")) == ("abc", "")
    assert parse_bearer(message("abc", "a=2Cn", "bearer")) == ("abc", "a,n")
    assert parse_bearer(message("abc", more="host=x\x01traceId=1\x01")) == ("abc", "")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"n,,", b"n,,\x01\x01", b"y,,\x01auth=Bearer a\x01\x01", b"p=tls,,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01", b"n,a=,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer a\x01", b"\xff", b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", b"\x01", b"n,,x\x01auth=Bearer a\x01\x01",
    ],
)  # fmt: skip
def test_other_messages_are_refused(raw):
    with pytest.raises(TokenError):
        parse_bearer(raw)


class Side:
    """A client of a connection, at a time that a test sets."""

    def __init__(self, settings, users=None):
        self.now = NOW
        rules = TokenRules(settings, lambda: self.now)
        named = ("OAUTHBEARER", *(["PLAIN"] if users else []))
        self.connection = Connection(
            "/h", 1 << 20, 10,
            TokenLogin(lambda: users or Users({}), named, rules=rules, now=lambda: self.now),
        )  # fmt: skip

    def ask(self, api, version, **fields):
        self.connection.receive(request_frame(api, version, 1, **fields))
        asked = self.connection.next_request()
        if asked is not None and asked.check is not None:
            self.connection.log_in(asked, asked.check())
        data = self.connection.take_answers()
        return asked if not data else read_response(data, api, version)[1]

    def is_served(self):
        """Send a request, and have it answered."""
        self.connection.receive(request_frame(Api.METADATA, 1, 1, topics=None))
        self.connection.next_request().frame = b"answer"
        return self.connection.take_answers() == b"answer"

    def send(self, text, mechanism="OAUTHBEARER", **how):
        shaken = self.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)
        if int(shaken.error_code):
            return shaken
        raw = text if isinstance(text, bytes) else message(text, **how)
        return self.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=raw)


def lifetime(answer):
    """Return seconds; kio has a timedelta."""
    return answer.session_lifetime.total_seconds()


def test_a_session_lasts_as_long_as_its_token_and_goes_on_with_the_next(settings):
    side = Side(settings)
    answer = side.send(token())
    assert (int(answer.error_code), lifetime(answer)) == (0, 600)
    assert side.connection.session.principal == "User:ann"
    assert side.connection.user is None  # the users' file does not know it
    side.now += 500
    assert side.is_served()
    assert lifetime(side.send(token(exp=NOW + 900))) == 400
    side.now = NOW + 929
    assert side.is_served()
    side.now = NOW + 930
    with pytest.raises(WireError, match="METADATA after the session ended"):
        side.is_served()


def test_a_session_goes_on_after_its_end_where_the_client_logs_in_first(settings):
    side = Side(settings)
    side.send(token())
    side.now += 700
    assert int(side.send(token(exp=NOW + 1_000)).error_code) == 0
    assert side.is_served()


@pytest.mark.parametrize(
    "changed", [{"sub": "bob"}, {"exp": NOW + 100}, {"key": OTHER_KEY}], ids=["who", "old", "key"]
)
def test_a_session_goes_on_only_as_the_same_principal(settings, changed):
    side = Side(settings)
    side.send(token())
    side.now += 200
    assert side.send(token(**changed)).auth_bytes == REFUSAL
    assert side.connection.session.principal == "User:ann"
    refused = side.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert int(refused.error_code) == 58
    assert side.connection.login_failed


def test_a_session_of_a_token_goes_on_by_no_other_mechanism(settings):
    users = Users({"ann": {"SCRAM-SHA-256": Verifier.of("SCRAM-SHA-256", "secret")}})
    side = Side(settings, users)
    side.send(token())
    assert int(side.send(b"\0ann\0secret", "PLAIN").error_code) == 33
    assert side.connection.login_failed
    plain = Side(settings, users)
    assert int(plain.send(b"\0ann\0secret", "PLAIN").error_code) == 0
    assert plain.connection.user == "ann"


def test_a_refused_client_gets_the_reason_with_its_second_message(settings):
    side = Side(settings)
    answer = side.send(token(exp=NOW - 60))
    assert (int(answer.error_code), answer.auth_bytes) == (0, REFUSAL)
    assert not side.connection.login_failed
    answer = side.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert int(answer.error_code) == 58
    assert answer.error_message == "Authentication failed: the token is refused: it has expired."
    assert side.connection.login_failed


def test_who_acts_as_another_is_refused(settings):
    assert Side(settings).send(token(), acts_as="bob").auth_bytes == REFUSAL
    assert int(Side(settings).send(token(), acts_as="ann").error_code) == 0


def test_nothing_is_served_between_two_logins(settings):
    side = Side(settings)
    side.send(token())
    side.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
    with pytest.raises(WireError, match="METADATA before the client has logged in"):
        side.is_served()


# Clients -----------------------------------------------------------------------------------------


@pytest.fixture
def served(settings, tmp_path):
    acls = tmp_path / "acls.toml"
    acls.write_text(
        "".join(
            f"[[acls]]\nprincipal = 'User:ann'\nresource_type = '{kind}'\nresource_name = '*'\n"
            "operations = ['ALL']\n"
            for kind in ("GROUP", "TOPIC")
        )
    )
    server = replace(SAFE, acls=str(acls), audit_ms=50)
    config = Config(server=server, oauth=settings)
    with (
        Coordinator.open(tmp_path / "store", topics={"clicks": 2}, config=config) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        yield coordinator, serving.address


def test_a_raw_client_joins_with_a_token(served):
    _, address = served
    with Client(address) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message(current()))
        assert int(client.join("g", "m1", "clicks").error_code) == 0


def test_librdkafka_joins_with_tokens_and_renews_them(served, monkeypatch):
    """Its tokens live for 3 s, and it logs in again on the same connection."""
    coordinator, address = served
    given, prolonged = [], []
    again = TokenLogin.again
    monkeypatch.setattr(
        TokenLogin, "again", lambda self: prolonged.append(again(self)) or prolonged[-1]
    )

    def give(_config):
        ends = time.time() + 3
        given.append(ends)
        return current(exp=ends), ends

    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "g", "group.protocol": "consumer",
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": give,
        }
    )  # fmt: skip
    consumer.subscribe(["clicks"])
    until = time.monotonic() + 20
    while time.monotonic() < until and not (any(prolonged) and consumer.assignment()):
        consumer.poll(0.05)
    assert any(prolonged)
    assert len(consumer.assignment()) == 2
    (described,) = coordinator.consumer_group_describe("g")
    assert len(described["members"]) == 1
    consumer.close()


def test_pages_take_tokens_until_they_expire(settings, tmp_path):
    acls = tmp_path / "acls.toml"
    acls.write_text("super_users = ['User:ann']")
    server = replace(SAFE, acls=str(acls), sasl_mechanisms=("OAUTHBEARER", "PLAIN"))
    with pytest.raises(ConfigError, match="sasl_users is missing"):
        WebAccess(Config(server=server, oauth=settings), "127.0.0.1:0")
    server = replace(server, sasl_mechanisms=("OAUTHBEARER",))
    access = WebAccess(Config(server=server, oauth=settings), "127.0.0.1:0")

    def see(login):
        return asyncio.run(access.identify(login, "127.0.0.1"))

    assert access.challenge == 'Bearer realm="muster"'
    viewer = see(f"Bearer {current()}")
    assert (viewer.principal, viewer.sees_all, viewer.is_known()) == ("User:ann", True, True)
    assert viewer.decides("g")
    assert not replace(viewer, ends=time.time() - 1).is_known()
    for wrong in ("", "Basic YW5uOmE=", "Bearer ", f"Bearer {token(exp=1)}", f"Token {current()}"):
        assert see(wrong) is None
    (failed,) = access.logins.take()
    assert failed.settings["count"] == "2"
    for _ in range(20):
        see("Bearer x")
    assert see(f"Bearer {current()}") is None, "its address guessed too often"
    access.close()


@pytest.mark.parametrize(
    ("before", "changed"),
    [
        (None, {"exp": 1}),
        (None, {"key": OTHER_KEY}),
        ("ann", {"sub": "bob"}),
        ("ann", {"key": OTHER_KEY}),
    ],
    ids=["expired", "another key", "then as another", "then by another key"],
)
def test_a_refused_token_is_audited(served, tmp_path, before, changed):
    _, address = served
    with Client(address) as client:
        if before:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
            client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message(current(sub=before)))
            assert int(client.join("g", "m1", "clicks").error_code) == 0
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message(current(**changed)))
        client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
        assert client.is_closed()
    until = time.monotonic() + 10
    while not (found := frame(tmp_path / "store", "audit")).num_rows and time.monotonic() < until:
        time.sleep(0.05)
    assert found["action"].to_pylist() == ["login_failed"]


# Members -----------------------------------------------------------------------------------------


def test_a_member_sends_tokens_and_stays_with_the_next(served, monkeypatch):
    coordinator, address = served
    given, prolonged, again = [], [], TokenLogin.again
    monkeypatch.setattr(
        TokenLogin, "again", lambda self: prolonged.append(again(self)) or prolonged[-1]
    )

    def get_token():
        given.append(current(exp=time.time() + 2))
        return given[-1]

    with Member(
        address, group_id="g", topics="clicks", login=get_token, heartbeat_interval_ms=100
    ) as member:
        wait_for(lambda: len(member.owned) == 2)
        (before,) = coordinator.consumer_group_describe("g")[0]["members"]
        wait_for(lambda: any(prolonged), 20)
        member.commit({("clicks", 0): 7})
        (after,) = coordinator.consumer_group_describe("g")[0]["members"]
    assert len(given) >= 2
    assert (before["member_id"], before["member_epoch"]) == (
        after["member_id"], after["member_epoch"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (lambda: token(exp=1), "the token is refused: it has expired"),
        (lambda: "two words", "returned no token"),
        (lambda: None, "returned no token"),
    ],
    ids=["expired", "words", "none"],
)
def test_a_member_whose_token_is_refused_says_why(served, login, said):
    _, address = served
    with (
        Member(address, group_id="g", topics="clicks", login=login) as refused,
        pytest.raises((GroupError, ValueError), match=said),
    ):
        refused.run(lambda *_: None)


def settings_of(url, **changed):
    prefix = "sasl.oauthbearer"
    found = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        f"{prefix}.token.endpoint.url": url, f"{prefix}.client.id": "jo b",
        f"{prefix}.client.secret": "se:cret", f"{prefix}.scope": "groups",
    }  # fmt: skip
    return found | {f"{prefix}.{name}": value for name, value in changed.items()}


@pytest.mark.parametrize("place", ["http://127.0.0.1:{}/other", "http://elsewhere.invalid/"])
def test_a_secret_goes_to_no_server_that_its_own_one_names(place):
    with Publisher(b'{"access_token": "abc"}') as elsewhere, Publisher(b"") as own:
        own.status = 302
        own.headers = {"Location": place.format(elsewhere.server_address[1])}
        credentials = ClientCredentials(own.url, "jo", "secret")
        with suppress(OSError):
            credentials()
        assert [secret is not None for secret, _ in own.posted] == [True]
        assert elsewhere.logins == [None] * ("127" in place)


def test_settings_of_a_client_get_tokens_of_a_server():
    with Publisher(json.dumps({"access_token": "abc", "expires_in": 60}).encode()) as server:
        _, login = read_access(settings_of(server.url), "nodes.kafka")
        assert [login(), login()] == ["abc", "abc"]
        basic = base64.b64encode(b"jo%20b:se%3Acret").decode()
        assert (
            server.posted == [(f"Basic {basic}", b"grant_type=client_credentials&scope=groups")] * 2
        )
        assert "se:cret" not in repr(login)
        for text in (b"{}", b"[", b'{"access_token": 5}', b"[]"):
            server.text = text
            with pytest.raises(OSError, match="gives no token"):
                login()
        server.status = 401
        with pytest.raises(OSError, match="401"):
            login()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"token.endpoint.url": "http://login.example/token"}, "is not an https URL"),
        ({"token.endpoint.url": ""}, "token.endpoint.url is missing"),
        ({"client.secret": ""}, "client.secret is missing"),
        ({"method": "default"}, "method is not oidc"),
    ],
)
def test_settings_that_get_no_token_are_refused(changed, said):
    with pytest.raises(ConfigError, match=said):
        read_access(settings_of("https://login.example/token", **changed), "watch.kafka")
