"""Where clients log in: at the gateway, or at the brokers; groups are answered after that alone."""

import time

import pytest

from coordinator.config import Config, ConfigError, GatewayConfig, ServerConfig
from coordinator.gateway.broker_login import BrokerLogin
from coordinator.gateway.gateway import check_access, read_settings
from coordinator.wire.codec import VERSIONS, Api, decode
from coordinator.wire.sasl import Login
from tests.gateway.test_gateway import places, raw
from tests.gateway.world import gateway_of
from tests.support.wire_client import Client, request_frame, take_frame

KAFKA = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "gateway",
    "sasl.password": "secret",
}
PASSED = {"login": "kafka", "kafka": KAFKA}
ACLS = """
[[acls]]
principal = "User:ann"
operations = ["ALL"]
resource_type = "GROUP"
resource_name = "g"
[[acls]]
principal = "User:ann"
operations = ["DESCRIBE"]
resource_type = "TOPIC"
resource_name = "clicks"
"""


def log_in(client, name="ann", password="secret", mechanism="PLAIN"):
    """Log in; the error code of the last answer."""
    answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)
    if not int(answer.error_code):
        said = f"\0{name}\0{password}".encode()
        answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=said)
    return int(answer.error_code)


def with_user(folder):
    """The settings of a gateway where ann logs in."""
    (folder / "users.toml").write_text('[users]\nann = "pass"\n')
    (folder / "acls.toml").write_text(ACLS)
    words = {"sasl_users": str(folder / "users.toml"), "acls": str(folder / "acls.toml")}
    words |= {"cluster": {"with_login": True}, "gateway": {"kafka": KAFKA}}
    return words | {"sasl_mechanisms": ("PLAIN",)}


def test_clients_log_in_here_and_the_gateway_does_at_the_brokers(tmp_path):
    with gateway_of(**with_user(tmp_path)) as (kafka, _, address):
        with Client(address) as client:
            assert log_in(client, password="pass") == 0
            assert places(client).keys() == {1}
            assert client.join("g", "m1", "clicks").member_epoch == 2
        with Client(address) as client:
            assert log_in(client) == 58
            assert client.is_closed()
        with Client(address) as client:  # what would go to the cluster does not, before a login
            client.socket.sendall(raw(19, 2, 1, b""))
            assert client.is_closed()
        assert set(kafka.brokers[1].logins) == {"gateway"}
        assert not any(key == 19 for key, *_ in kafka.brokers[1].heard)


def test_nothing_goes_to_the_cluster_after_the_end_of_a_session(tmp_path, monkeypatch):
    """As with a token, which ends while the connection stays."""
    ended = []
    monkeypatch.setattr(Login, "has_ended", property(lambda _: bool(ended)))
    with gateway_of(**with_user(tmp_path)) as (kafka, _, address), Client(address) as client:
        assert log_in(client, password="pass") == 0
        assert places(client).keys() == {1}
        ended.append(True)
        client.socket.sendall(raw(19, 2, 1, b""))
        assert client.is_closed()
        assert not any(key == 19 for key, *_ in kafka.brokers[1].heard)


def test_logins_are_passed_on_and_their_names_are_muster_s_principals(tmp_path):
    acls = tmp_path / "acls.toml"
    acls.write_text(ACLS)
    words = {"cluster": {"with_login": True}, "gateway": PASSED, "acls": str(acls)}
    with gateway_of(**words) as (kafka, _, address):
        for name, epoch, code in (("ann", 2, 0), ("bob", 0, 30)):
            with Client(address) as client:
                assert log_in(client, name) == 0
                found = client.join("g", f"m-{name}", "clicks")
                assert (found.member_epoch, int(found.error_code)) == (epoch, code)
                assert places(client).keys() == {1}
                assert name in kafka.brokers[1].logins


@pytest.mark.parametrize(
    "sent",
    [
        raw(19, 2, 1, b""),
        request_frame(Api.LIST_GROUPS, 4, 1, states_filter=()),
        request_frame(Api.METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False),
    ],
)  # fmt: skip
def test_nothing_is_answered_before_the_broker_has_agreed(sent):
    with gateway_of(cluster={"with_login": True}, gateway=PASSED) as (_, _coordinator, address):
        with Client(address) as client:
            client.socket.sendall(sent)
            assert client.is_closed()
        with Client(address) as client:
            assert log_in(client, password="wrong") == 58
            client.socket.sendall(sent)
            assert client.is_closed()
        for password in ("wrong", "secret"):  # in the same breath as a login, which is not over
            with Client(address) as client:
                message = f"\0ann\0{password}".encode()
                client.socket.sendall(
                    request_frame(Api.SASL_HANDSHAKE, 1, 1, mechanism="PLAIN")
                    + request_frame(Api.SASL_AUTHENTICATE, 2, 2, auth_bytes=message)
                    + sent
                )
                assert [take_frame(client.socket)[7] for _ in range(2)] == [1, 2]
                assert bool(take_frame(client.socket)) == (password == "secret")


def test_a_session_that_is_over_is_closed():
    """KIP-368: the broker would close it at the next request, which may be one for Muster."""
    words = {"cluster": {"with_login": True, "session_ms": 200}, "gateway": PASSED}
    with gateway_of(**words) as (_, _coordinator, address), Client(address) as client:
        assert log_in(client) == 0
        assert not int(client.ask(Api.LIST_GROUPS, 4, states_filter=()).error_code)
        assert log_in(client) == 0
        time.sleep(0.3)
        client.socket.sendall(request_frame(Api.LIST_GROUPS, 4, 1, states_filter=()))
        assert client.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "message", "code"),
    [
        ("OAUTHBEARER", b"", 33),
        ("GSSAPI", b"", 33),
        ("PLAIN", b"root\0ann\0secret", 58),
        ("PLAIN", b"ann\0secret", 58),
        ("PLAIN", b"\0\xff\0secret", 58),
        ("PLAIN", b"\0\0secret", 58),
        ("SCRAM-SHA-256", b"n,,n=ann,r=x,tokenauth=true", 58),
        ("SCRAM-SHA-256", b"n,,n=ann,r=x,n=bob", 58),
        ("SCRAM-SHA-256", b"n,,n=ann,n=bob,r=x", 58),
        ("SCRAM-SHA-256", b"n,a=bob,n=ann,r=x", 58),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=ann,r=x", 58),
    ],
)
def test_logins_that_leave_in_doubt_who_it_is_are_not_passed_on(mechanism, message, code):
    with gateway_of(cluster={"with_login": True}, gateway=PASSED) as (kafka, _, address):
        with Client(address) as client:
            answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)
            if code == 58:
                answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)
            assert int(answer.error_code) == code
            assert client.is_closed()
        assert not any(message and message in body for *_, body in kafka.brokers[1].heard)


def test_another_user_may_not_log_in_on_the_same_connection():
    words = {"cluster": {"with_login": True}, "gateway": PASSED}
    with gateway_of(**words) as (_, _coordinator, address), Client(address) as client:
        assert log_in(client) == 0
        assert log_in(client, "bob") == 58
        assert client.is_closed()


def asked(api, version, **words):
    return decode(request_frame(api, version, **words)[4:], versions=VERSIONS)


class Said:
    def __init__(self, code=0):
        self.error_code = code


def test_scram_is_over_after_the_broker_s_second_word_alone():
    login = BrokerLogin(lambda: 0.0)
    assert login.refuse(asked(Api.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512")) is None
    login.take_answer(Api.SASL_HANDSHAKE, Said())
    for message, said, done in ((b"n,,n=a=2Cb=3D,r=x", 0, False), (b"c=biws,r=xy,p=aa", 0, True)):
        assert login.refuse(asked(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)) is None
        assert not login.done
        login.take_answer(Api.SASL_AUTHENTICATE, Said(said))
        assert login.done == done
    assert login.name == "a,b="


def test_a_refusal_of_the_broker_is_one():
    login = BrokerLogin(lambda: 0.0)
    login.refuse(asked(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN"))
    login.take_answer(Api.SASL_HANDSHAKE, Said(33))
    assert login.refuse(asked(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0x")) is not None
    assert login.failed
    assert not login.done


@pytest.mark.parametrize(
    ("server", "gateway", "words"),
    [
        (
            {"sasl_mechanisms": ("PLAIN",), "sasl_users": "u.toml", "acls": "a.toml"},
            PASSED,
            "log in here",
        ),
        ({"listen": "192.0.2.1:9092"}, {}, "--insecure"),
        ({}, PASSED, "server.acls is missing"),
        ({"listen": "192.0.2.1:9092", "acls": "conf/acls.toml"}, PASSED, "--insecure"),  # no TLS
    ],
)
def test_logins_that_contradict_each_other_are_refused(server, gateway, words):
    config = Config(server=ServerConfig(**server), gateway=GatewayConfig(**gateway))
    with pytest.raises(ConfigError, match=words):
        check_access(config)


def test_clients_without_a_login_that_get_the_rights_of_the_gateway_are_warned_of(caplog):
    check_access(Config(gateway=GatewayConfig(kafka=KAFKA)))
    assert "have all rights of the gateway's user in Kafka" in caplog.text


@pytest.mark.parametrize(
    ("gateway", "words"),
    [
        ({"login": "kafka"}, "has no login"),
        ({"kafka": {"sasl.mechanism": "PLAIN", "what": "x"}}, "gateway.kafka has 'what'"),
        (
            {"kafka": {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}},
            "gateway.kafka: sasl",
        ),
    ],
)
def test_settings_of_the_cluster_that_cannot_be_used_are_named(gateway, words):
    with pytest.raises(ConfigError, match=words):
        read_settings("127.0.0.1:9092", GatewayConfig(**gateway))
