"""Where a server listens and who gets in: addresses, TLS and logins."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ConfigError, PushConfig, ServerConfig
from coordinator.push.push import PushAccess
from coordinator.wire.access import ReloadingFile
from coordinator.wire.codec import Api
from coordinator.wire.listener import load_access, parse_address
from coordinator.wire.sasl import Users, Verifier
from tests.support.wire_client import Client, request_frame
from tests.wire.test_server import WORDS, count, loop, served, until

__all__ = ["loop"]


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


ANN = """
[[acls]]
principal = "User:{}"
operations = ["READ"]
resource_type = "{}"
resource_name = "*"
"""


@pytest.fixture
def acls(tmp_path):
    """Access lists by which ann, and who has the client's certificate, may be a member."""
    file = tmp_path / "acls.toml"
    names = ("ann", "CN=client")
    file.write_text("".join(ANN.format(n, kind) for n in names for kind in ("GROUP", "TOPIC")))
    return str(file)


@pytest.mark.usefixtures("loop")
def test_clients_show_a_certificate_where_one_is_asked_for(certificates, acls):
    asked = tls_of(certificates) | {"tls_client_ca": f"{certificates}/ca.pem", "acls": acls}
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
def test_librdkafka_logs_in_over_tls(certificates, users, acls, mechanism):
    """As users configure it; a wrong password lets no member join."""
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

    login = {"sasl_mechanisms": (mechanism,), "sasl_users": users, "acls": acls}
    with served(**tls_of(certificates), **login) as (coordinator, address):
        assert joined("Secret", 1.5) == 0
        assert coordinator.list_groups()["groups"] == []
        assert joined("secret", 60) == 4


def test_a_login_comes_first(users, acls):
    login = {"sasl_mechanisms": ("PLAIN",), "sasl_users": users, "acls": acls}
    with served(**login, request_ms=2_000) as (c, address):
        with Client(address) as client:
            assert int(client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 0
            assert (
                int(client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0secret").error_code)
                == 0
            )
            assert client.join("g", "m1", "clicks").member_epoch == 2
            with Client(address) as later:
                later.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
                assert later.is_closed(), "who dawdles over the login is closed"
            assert client.beat("g", "m1", 2).member_epoch == 2, "it has logged in: no hurry"
        with Client(address) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            wrong = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0ann\0Secret")
            assert int(wrong.error_code) == 58
            assert client.is_closed()
        with Client(address) as client:
            client.socket.sendall(request_frame(Api.LIST_GROUPS, 4))
            assert client.is_closed()
        assert count(c, "wire_closed_total", reason="login") == 1
        assert count(c, "wire_closed_total", reason="slow") == 1


SAFE = ServerConfig(listen="127.0.0.1:0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": "0.0.0.0:9092"}, "0.0.0.0:9092 listens beyond this machine: configure TLS"),
        ({"listen": "192.0.2.1:9092"}, "or pass --insecure"),
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
        ({"sasl_mechanisms": ("PLAIN",), "sasl_users": "x"}, "server.acls is missing: without it"),
        ({"acls": "nowhere.toml"}, "server.acls nowhere.toml cannot be read"),
        ({"sasl_mechanisms": ("GSSAPI",)}, "has 'GSSAPI': the known ones are PLAIN, SCRAM-SHA-256"),
    ],
)
def test_bad_security_settings_are_refused_with_the_remedy(changes, message):
    with pytest.raises(ConfigError) as error:
        load_access(replace(SAFE, **changes))
    assert message in str(error.value)


def test_an_open_address_needs_tls_and_a_login(certificates, users, acls, caplog):
    open_to_all = replace(SAFE, listen="0.0.0.0:0", advertised="here:9092", acls=acls)
    with pytest.raises(ConfigError, match="listens beyond"):
        load_access(replace(open_to_all, **tls_of(certificates)))
    with pytest.raises(ConfigError, match="listens beyond"):
        load_access(replace(open_to_all, sasl_mechanisms=("PLAIN",), sasl_users=users))
    load_access(replace(
        open_to_all, sasl_mechanisms=("PLAIN",), sasl_users=users, **tls_of(certificates)
    ))  # fmt: skip
    assert not caplog.records
    load_access(replace(open_to_all, insecure=True))
    assert "anyone who can reach it may change every group" in caplog.text


@pytest.fixture
def folder():
    """A folder that everybody may read, as those of pytest are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        made = Path(path)
        made.chmod(0o755)
        yield made


SCRAM = str(Verifier.of("SCRAM-SHA-256", "secret", b"salt" * 4, 4096))


@pytest.mark.parametrize(
    ("users", "mode", "folder_mode", "warned"),
    [
        ('ann = "secret"', 0o644, 0o755, True),
        (f'ann = "{SCRAM}"\nbob = "secret"', 0o604, 0o711, True),
        ('ann = "secret"', 0o640, 0o755, False),
        ('ann = "secret"', 0o644, 0o750, False),
        (f'ann = "{SCRAM}"', 0o644, 0o755, False),
    ],
)
def test_passwords_that_everybody_can_read_are_warned_of_once(
    folder, acls, caplog, users, mode, folder_mode, warned
):
    file = folder / "users.toml"
    file.write_text(f"[users]\n{users}\n")
    file.chmod(mode)
    folder.chmod(folder_mode)
    login = {"sasl_mechanisms": ("PLAIN",), "sasl_users": str(file), "scram_iterations": 4096}
    for _ in range(2):  # a server that stands by, and the one that follows it
        assert load_access(ServerConfig(acls=acls, **login)).reload(always=True)
    text = f"server.sasl_users {file} has secrets that every user of this machine can read: chmod"
    assert caplog.text.count(text) == warned
    assert caplog.text.count("chmod") == warned


def test_other_secrets_that_everybody_can_read_are_warned_of(folder, certificates, caplog):
    for name in ("server.pem", "server.key"):
        shutil.copy(certificates / name, folder / name)
    (folder / "token").write_text("word")
    for name in ("server.key", "token"):
        (folder / name).chmod(0o644)
    load_access(ServerConfig(**tls_of(folder)))
    PushAccess(PushConfig(token_file=f"{folder}/token"))
    for setting, name in (("server.tls_key", "server.key"), ("push.token_file", "token")):
        assert caplog.text.count(f"{setting} {folder}/{name} has secrets that every user") == 1


def test_clients_get_the_advertised_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    config = Config(server=ServerConfig(listen=listen, advertised="elsewhere.example:7777"))
    with Coordinator.open(None, config=config) as coordinator, coordinator.serve() as serving:
        assert serving.address == "elsewhere.example:7777"
        with Client(listen) as client:
            answer = client.ask(Api.METADATA, 13, topics=None, **WORDS)
            assert [(b.host, b.port) for b in answer.brokers] == [("elsewhere.example", 7777)]


def test_an_address_in_use_is_refused():
    with (
        served() as (coordinator, address),
        pytest.raises(OSError, match=f"cannot listen on {address}"),
    ):
        coordinator.serve(address)


@contextmanager
def served_over_ipv6(**settings):
    """Serve a coordinator of 4 partitions at an IPv6 address; skip where there is no IPv6."""
    config = Config(server=ServerConfig(**settings))
    with Coordinator.open(None, topics={"clicks": 4}, config=config) as coordinator:
        try:
            serving = coordinator.serve()
        except OSError:
            pytest.skip("no IPv6 here")
        with serving:
            yield coordinator, serving.address


def test_ipv6():
    assert parse_address("[::1]:9092", "x") == ("::1", 9092)
    with served_over_ipv6(listen="[::1]:0") as (_, address), Client(address) as client:
        assert client.join("g", "m1", "clicks").member_epoch == 2


# Files that change ------------------------------------------------------------------------------


def logged_in(address, name="ann", password="secret"):
    """Return a client that has logged in, or whom the server refused."""
    client = Client(address)
    client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    words = f"\0{name}\0{password}".encode()
    client.refusal = int(client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=words).error_code)
    return client


def may_join(client):
    return int(client.join("g", "m1", "clicks").error_code) == 0


@pytest.fixture
def rereading(tmp_path, acls):
    """A server with two users whose files are looked at often."""
    users = tmp_path / "users.toml"
    users.write_text("[users]\nann = 'secret'\nbob = 'secret'\n")
    login = {"sasl_mechanisms": ("PLAIN",), "sasl_users": str(users), "acls": acls}
    with served(**login, reread_ms=20) as (coordinator, address):
        yield coordinator, address, users, Path(acls)


def write_at_once(file, text):
    """Write a file in one step: half of it is a change of its own to one who reads meanwhile."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


def test_access_lists_are_reloaded(rereading, caplog):
    _, address, _, acls = rereading
    with logged_in(address) as client:
        assert may_join(client)
        text = acls.read_text()
        acls.write_text(text.replace("User:ann", "User:bob"))
        until(lambda: not may_join(client))
        write_at_once(acls, "[[acls]]\nprincipal = 'ann'")
        until(lambda: "the previous content stays in force" in caplog.text)
        assert not may_join(client)
        assert caplog.text.count("stays in force") == 1, "once for each change"
        acls.unlink()
        until(lambda: caplog.text.count("stays in force") == 2)
        assert not may_join(client)
        acls.write_text(text)
        until(lambda: may_join(client))


def test_users_are_reloaded(rereading, caplog):
    coordinator, address, users, _ = rereading
    with logged_in(address, "bob") as bob, logged_in(address) as ann:
        users.write_text("[users]\nann = 'other'\n")
        until(lambda: logged_in(address).refusal)
        assert logged_in(address, password="other").refusal == 0
        assert logged_in(address, "bob").refusal
        assert bob.is_closed(), "who was removed does not stay"
        assert may_join(ann), "the connection of one whose password changed does"
        users.write_text("[users")
        until(lambda: "the previous content stays in force" in caplog.text)
        assert logged_in(address, password="other").refusal == 0
    assert coordinator.status == "active"


def test_certificates_are_reloaded(certificates, tmp_path, caplog):
    now = {
        name: shutil.copy(certificates / name, tmp_path) for name in ("server.pem", "server.key")
    }
    trusting = ssl.create_default_context(cafile=certificates / "ca.pem")

    def subject():
        with Client(address, trusting) as client:
            return client.socket.getpeercert()["subject"]

    tls = {"tls_certificate": now["server.pem"], "tls_key": now["server.key"]}
    with served(**tls, reread_ms=20) as (_, address), Client(address, trusting) as before:
        assert subject() == ((("commonName", "server"),),)
        shutil.copy(certificates / "client.pem", now["server.pem"])
        until(lambda: "the previous content stays in force" in caplog.text)
        assert subject() == ((("commonName", "server"),),), "without its key it is none"
        shutil.copy(certificates / "client.key", now["server.key"])
        until(lambda: subject() == ((("commonName", "client"),),))
        assert may_join(before), "connections stay as they are"


def test_scram_iterations_are_bounded(tmp_path):
    file = tmp_path / "users.toml"
    file.write_text("[users]\nann = 'secret'\n")
    users = Users.read(str(file), 5_000)
    assert users.verifier("ann", "SCRAM-SHA-256").iterations == 5_000
    assert users.verifier("nobody", "SCRAM-SHA-256").iterations == 5_000, "else it tells"
    salts = {Users.read(str(file)).verifier("nobody", "SCRAM-SHA-256").salt for _ in range(2)}
    assert len(salts) == 1, "reading the file again must not tell either"
    few = str(Verifier.of("SCRAM-SHA-256", "secret", iterations=4_095))
    file.write_text(f"[users]\nann = '{few}'\n")
    with pytest.raises(ConfigError, match="has 4095 iterations: make one with 4096 to 1000000"):
        Users.read(str(file))
    with pytest.raises(ConfigError, match="scram_iterations is 4095: give 4096 to 1000000"):
        load_access(replace(SAFE, scram_iterations=4_095))


def test_a_file_that_could_not_be_read_is_tried_again(tmp_path, caplog):
    """Nothing tells of rights that come back, or of a disk that answers again."""
    file, denied = tmp_path / "f.toml", [False]
    file.write_text("1")

    def read():
        if denied[0]:
            raise ConfigError(f"server.acls {file} cannot be read: Permission denied")
        return file.read_text()

    kept = ReloadingFile("server.acls", [str(file)], read)
    file.write_text("12")
    denied[0] = True
    assert [kept.reload(), kept.reload()] == [False, False]
    assert caplog.text.count("Permission denied") == 1
    denied[0] = False
    assert kept.reload()
    assert kept.value == "12"
    assert not kept.reload()


def test_a_half_written_file_is_not_loaded(tmp_path, caplog):
    file, during = tmp_path / "f.toml", [lambda: None]
    file.write_text("1")

    def read():
        found = file.read_text()
        during.pop()()
        return found

    kept = ReloadingFile("server.acls", [str(file)], read)
    file.write_text("")
    assert not kept.reload()
    assert "is empty: perhaps it is still being written" in caplog.text
    during = [lambda: None, lambda: file.write_text("12345")]
    file.write_text("123")
    assert not kept.reload()
    assert kept.value == "1"
    assert kept.reload()
    assert kept.value == "12345"


def test_a_file_behind_a_changed_link_is_reloaded(rereading, tmp_path):
    """As Kubernetes replaces what it mounts: by links."""
    _, address, _, acls = rereading
    other = tmp_path / "other.toml"
    other.write_text(acls.read_text().replace("User:ann", "User:bob"))
    link = tmp_path / "link"
    link.symlink_to(other)
    with logged_in(address) as client:
        assert may_join(client)
        link.replace(acls)
        until(lambda: not may_join(client))


def test_an_ipv4_client_of_an_ipv6_socket_has_an_ipv4_host():
    """Kafka, too, writes its address so, and lists of hosts and limits go by it."""
    settings = {"advertised": "127.0.0.1:0", "insecure": True, "connections_per_address_max": 1}
    with (
        served_over_ipv6(listen="[::]:0", **settings) as (coordinator, address),
        Client(address) as client,
    ):
        client.join("g", "m1", "clicks")
        (group,) = coordinator.consumer_group_describe("g")
        assert group["members"][0]["client_host"] == "/127.0.0.1"
