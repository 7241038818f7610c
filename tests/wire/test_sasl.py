"""Who may log in, and how: PLAIN and SCRAM, against verifiers of this room and of RFC 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys

import pytest

from coordinator.config import ConfigError
from coordinator.wire.codec import VERSIONS, Api
from coordinator.wire.connection import Connection
from coordinator.wire.decoder import WireError
from coordinator.wire.sasl import HASHES, MECHANISMS, Login, ScramExchange, Users, Verifier
from coordinator.wire.session import subject_of
from tests.conftest import ROOT
from tests.support.wire_client import read_response, request_frame

SCRAM = tuple(HASHES)


@pytest.fixture(scope="module")
def users():
    strong = [str(Verifier.of(mechanism, "böse,=", iterations=4096)) for mechanism in SCRAM]
    return Users({
        "ann": {m: Verifier.of(m, "secret", iterations=4096) for m in SCRAM},
        "o=ne,two": {v.mechanism: v for v in map(Verifier.parse, strong)},
    })  # fmt: skip


class Side:
    """A client that logs in, then asks something."""

    def __init__(self, users, mechanisms=MECHANISMS):
        self.connection = Connection("/h", 10_000, 10, Login(lambda: users, mechanisms))

    def ask(self, api, version, **fields):
        self.connection.receive(request_frame(api, version, 1, **fields))
        asked = self.connection.next_request()
        if asked is not None and asked.check is not None:
            self.connection.log_in(asked, asked.check())
        data = self.connection.take_answers()
        return asked if not data else read_response(data, api, version)[1]

    def shake(self, mechanism):
        return self.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)

    def say(self, message):
        return self.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)

    def plain(self, name, password, acts_as=""):
        assert int(self.shake("PLAIN").error_code) == 0
        return self.say(f"{acts_as}\0{name}\0{password}".encode())

    def scram(self, mechanism, name, password, nonce="abc"):
        """Log in as RFC 5802 says, in its own words; returns the last answer, checked."""
        assert int(self.shake(mechanism).error_code) == 0
        kind = HASHES[mechanism]
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={escaped},r={nonce}"
        first = self.say(f"n,,{bare}".encode()).auth_bytes.decode()
        said = dict(part.split("=", 1) for part in first.split(","))
        salt, rounds = base64.b64decode(said["s"]), int(said["i"])
        salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, rounds)
        final = f"c=biws,r={said['r']}"
        words = f"{bare},{first},{final}".encode()
        key = hmac.digest(salted, b"Client Key", kind)
        signature = hmac.digest(hashlib.new(kind, key).digest(), words, kind)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        answer = self.say(f"{final},p={proof.decode()}".encode())
        if int(answer.error_code) == 0:
            server = hmac.digest(hmac.digest(salted, b"Server Key", kind), words, kind)
            assert answer.auth_bytes == b"v=" + base64.b64encode(server)
        return answer


def test_the_exchange_of_rfc_7677(monkeypatch):
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = Verifier.of("SCRAM-SHA-256", "pencil", salt, 4096)
    scram = ScramExchange(Users({"user": {"SCRAM-SHA-256": known}}), "SCRAM-SHA-256")
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    monkeypatch.setattr("coordinator.wire.sasl.secrets.token_urlsafe", lambda _: nonce)
    said = scram.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert said == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert scram.final(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(("name", "password"), [("ann", "secret"), ("o=ne,two", "böse,=")])
@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram(users, mechanism, name, password):
    side = Side(users)
    assert int(side.scram(mechanism, name, password).error_code) == 0
    assert side.connection.authenticated
    asked = side.ask(Api.LIST_GROUPS, 4)
    assert asked.request.api is Api.LIST_GROUPS
    assert asked.request.session.principal == f"User:{name}"


@pytest.mark.parametrize(("name", "password"), [("ann", "secret"), ("o=ne,two", "böse,=")])
def test_plain(users, name, password):
    for acts_as in ("", name):
        side = Side(users)
        assert side.connection.session.principal == "User:ANONYMOUS"
        assert int(side.plain(name, password, acts_as).error_code) == 0
        assert side.connection.authenticated
        assert side.connection.session.principal == f"User:{name}"


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "Secret"), ("ann", ""), ("bob", "secret"), ("", "")]
)
def test_an_unknown_user_looks_like_a_wrong_password(users, name, password):
    plain, other = Side(users).plain(name, password), Side(users).plain("nobody", "x")
    assert (int(plain.error_code), plain.error_message) == (58, other.error_message)
    side = Side(users)
    side.plain(name, password)
    assert side.connection.login_failed
    assert side.connection.session.principal == "User:ANONYMOUS"
    side.connection.receive(request_frame(Api.LIST_GROUPS, 4))
    assert side.connection.next_request() is None, "nothing after it is looked at"
    if name:
        refused = Side(users).scram("SCRAM-SHA-256", name, password or "x")
        assert (int(refused.error_code), refused.error_message) == (58, other.error_message)


def test_authorization_id_must_equal_authentication_id(users):
    assert int(Side(users).plain("ann", "secret", "bob").error_code) == 58
    side = Side(users)
    side.shake("SCRAM-SHA-256")
    answer = side.say(b"n,a=bob,n=ann,r=abc")
    assert (
        answer.error_message
        == "Authentication failed: authorization id must equal authentication id."
    )


def test_an_unknown_user_has_a_stable_salt(users):
    """Else asking twice would tell who is a user."""
    said = []
    for _ in range(2):
        side = Side(users)
        side.shake("SCRAM-SHA-512")
        said.append(side.say(b"n,,n=nobody,r=abc").auth_bytes.split(b",")[1:])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "message",
    [b"", b"n", b"n,,", b"n,,n=,r=a", b"n,,r=a", b"p=tls,,n=ann,r=a", b"n,,m=x,n=ann,r=a", b"\xff",
     b"n,,n=ann", b"=,=,=", bytes(range(128, 228))],
)  # fmt: skip
def test_an_invalid_first_message_is_refused(users, message):
    side = Side(users)
    side.shake("SCRAM-SHA-256")
    assert int(side.say(message).error_code) == 58
    assert side.connection.login_failed


@pytest.mark.parametrize(
    "final",
    ["", "c=biws", "c=biws,r=abc,p=AAAA", "c=eSws,r={r},p=AAAA", "c=biws,r={r},p=%", "c=biws,r={r}",
     "c=biws,r={r},p=", "c=biws,r={r},p=" + "A" * 43 + "="],
)  # fmt: skip
def test_an_invalid_proof_is_refused(users, final):
    side = Side(users)
    side.shake("SCRAM-SHA-256")
    first = side.say(b"n,,n=ann,r=abc").auth_bytes.decode()
    nonce = first.split(",")[0].removeprefix("r=")
    assert int(side.say(final.format(r=nonce).encode()).error_code) == 58


def test_nothing_is_served_before_the_login(users):
    side = Side(users)
    words = {"client_software_name": "x", "client_software_version": "1"}
    assert side.ask(Api.API_VERSIONS, 3, **words).request.api is Api.API_VERSIONS
    with pytest.raises(WireError, match="METADATA before the client has logged in"):
        side.ask(Api.METADATA, 13, topics=None, include_topic_authorized_operations=False)
    assert int(Side(users).say(b"\0ann\0secret").error_code) == 58, "without a handshake"


def test_only_what_is_configured_is_offered(users):
    side = Side(users, ("SCRAM-SHA-512",))
    answer = side.shake("PLAIN")
    assert (int(answer.error_code), answer.mechanisms) == (33, ("SCRAM-SHA-512",))
    assert side.connection.login_failed


def test_the_file_of_users(tmp_path):
    verifier = Verifier.of("SCRAM-SHA-256", "strong", iterations=4096)
    file = tmp_path / "users.toml"
    file.write_text(f'[users]\nann = "weak"\n"b,o=b" = "{verifier}"\ncid = ["{verifier}"]\n')
    users = Users.read(str(file))
    assert users.check_password("ann", "weak")
    assert users.check_password("b,o=b", "strong")
    assert users.check_password("cid", "strong")
    assert not users.check_password("cid", "weak")
    assert users.verifier("b,o=b", "SCRAM-SHA-256") == verifier
    assert users.verifier("ann", "SCRAM-SHA-512").matches("weak")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[users", "cannot be read"),
        ("ann = 'x'", "has no table [users]"),
        ("[users]", "has no table [users]"),
        ("[users]\nann = 5", "5: give a password, a verifier, or a list"),
        ("[users]\nann = []", "give a password"),
        ("[users]\nann = 'SCRAM-SHA-256$x'", "is not a verifier: make one with muster user"),
        ("[users]\nann = 'SCRAM-SHA-1$4096:AAAA$AAAA:AAAA'", "is not a verifier"),
        ("[users]\nann = 'SCRAM-SHA-256$4096:AAAA$AAAA:AAAA'", "is not a verifier"),
        ("[users]\nann = 'SCRAM-SHA-256$99999999:AAAA$AAAA:AAAA'", "is not a verifier"),
    ],
)
def test_an_invalid_users_file_is_refused(tmp_path, text, message):
    file = tmp_path / "users.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        Users.read(str(file))
    assert message in str(error.value)
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        Users.read(str(tmp_path / "nowhere.toml"))


GOLDEN = ROOT / "tests/golden/subjects/java.jsonl"
NAMES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
USUAL = next(one for one in NAMES if one["what"] == "usual")


def der(tag, content):
    size = len(content)
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, *((size,) if size < 128 else (128 + len(digits), *digits))]) + content


def certificate(subject, version=b"\xa0\3\2\1\2"):
    """Return what is before a subject in a certificate, the subject, and something after it."""
    before = version + der(2, b"\1") + der(0x30, b"") + der(0x30, b"") + der(0x30, b"")
    return der(0x30, der(0x30, before + subject + der(0x30, b"x" * 300)))


def test_a_subject_is_written_as_java_writes_it():
    """Kafka makes principals of it: another letter is another principal."""
    found = {one["what"]: subject_of(certificate(bytes.fromhex(one["subject"]))) for one in NAMES}
    assert len(found) == len(NAMES) > 100
    assert found == {one["what"]: one["java_25"] for one in NAMES}


@pytest.mark.parametrize(
    ("subject", "name"), [(bytes.fromhex(USUAL["subject"]), USUAL["java_17"]), (der(0x30, b""), "")]
)
@pytest.mark.parametrize("version", [b"", b"\xa0\3\2\1\2"])
def test_the_subject_of_a_certificate_is_a_principal(subject, name, version):
    shown = subject_of(certificate(subject, version))
    connection = Connection("/1.2.3.4", 10_000, 10, subject=shown)
    assert (shown, connection.session.principal) == (name, f"User:{name}")


@pytest.mark.parametrize("shown", [None, b"", b"\x30\x80\x30\x80\0\0\0\0", b"\x30"])
def test_without_a_readable_certificate_a_client_is_anonymous(shown):
    connection = Connection("/1.2.3.4", 10_000, 10, subject=subject_of(shown))
    assert connection.session.principal == "User:ANONYMOUS"
    assert connection.session.host == "1.2.3.4"


def test_a_handshake_of_version_0_is_offered_and_refused(users):
    """librdkafka 2.0 does not log in where there is none, and then asks for version 1.

    Who asks for version 0 would go on with bytes that are in no request.
    """
    assert VERSIONS[Api.SASL_HANDSHAKE] == (0, 1)
    side = Side(users)
    answer = side.ask(Api.SASL_HANDSHAKE, 0, mechanism="PLAIN")
    assert (int(answer.error_code), answer.mechanisms) == (35, MECHANISMS)
    side.connection.receive(b"\0\0\0\x0b\0ann\0secret")
    assert side.connection.next_request() is None
    assert side.connection.login_failed


ELSEWHERE = """
import sys
from coordinator.wire.sasl import HASHES, Users
users = Users.read(sys.argv[1])
for name in sys.argv[2:]:
    print(*(users.verifier(name, mechanism).salt.hex() for mechanism in HASHES))
"""


def test_an_unknown_name_is_answered_as_a_user_would_be(tmp_path):
    """Neither of two mechanisms, of two processes, nor of two readings tells that there is none."""
    strong = [str(Verifier.of(m, "strong", iterations=4096)) for m in SCRAM]
    file, names = tmp_path / "users.toml", ["ann", "bob", "nobody"]

    def salts():
        found = Users.read(str(file))
        return [[found.verifier(name, m).salt.hex() for m in SCRAM] for name in names]

    for secret in ("", 'secret = "0123456789abcdefghij"\n'):
        file.write_text(f'{secret}[users]\nann = "weak"\nbob = {strong}\n')
        before = salts()
        assert all(len(set(found)) == len(SCRAM) for found in before)
        assert salts() == before
        words = [sys.executable, "-c", ELSEWHERE, str(file), *names]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        ann, bob, nobody = (line.split() for line in said.splitlines())
        assert bob == before[1]
        assert (ann == before[0]) is (nobody == before[2]) is bool(secret)
    file.write_text('secret = "short"\n[users]\nann = "weak"\n')
    with pytest.raises(ConfigError, match="secret: give a text of 18 random characters or more"):
        Users.read(str(file))


def test_a_wrong_password_of_an_unknown_name_costs_what_one_of_a_user_does(monkeypatch):
    """PLAIN hashes as the user's verifier does; there may be none with SHA-256."""
    users = Users({"ann": {"SCRAM-SHA-512": Verifier.of("SCRAM-SHA-512", "x", iterations=5000)}})
    seen = []
    monkeypatch.setattr(
        Verifier, "matches", lambda self, _: seen.append((self.mechanism, self.iterations))
    )
    for name in ("ann", "nobody", "somebody"):
        assert not users.check_password(name, "wrong")
    assert seen == [("SCRAM-SHA-512", 5000)] * 3
