"""Tokens of an authorization server: which let a client in, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from coordinator.config import ConfigError, OAuthConfig
from coordinator.wire.listener import load_access
from coordinator.wire.oauth.tokens import (
    ASK_AGAIN_S,
    KEYS_BYTES_MAX,
    KEYS_MAX,
    WAIT_S,
    TokenError,
    TokenKeys,
    TokenRules,
    parse_keys,
)
from tests.oauth.made_tokens import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    KEYS,
    NOW,
    OTHER_KEY,
    RSA_KEY,
    SAFE,
    Publisher,
    pieces,
    published,
    token,
    token_settings,
)
from tests.support.members import wait_for


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return token_settings(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def rules(settings):
    return TokenRules(settings, lambda: NOW)


@pytest.mark.parametrize("key_id", KEYS)
def test_a_token_names_a_principal(rules, key_id):
    found = rules.check(token(key_id))
    assert (found.name, found.ends) == ("ann", NOW + 600)


def test_other_claims_may_name_the_principal_and_scopes(settings):
    ours = TokenRules(
        replace(settings, principal="azp", scopes=("lag", "groups")), lambda: NOW
    )  # fmt: skip
    assert ours.check(token(azp="job")).name == "job"
    assert ours.check(token(azp="job", scope=None, scp=["groups", "lag"])).name == "job"
    for scopes in ("groups", "", None, ["lag"], 7, "groupslag"):
        with pytest.raises(TokenError, match="lacks the scope"):
            ours.check(token(azp="job", scope=scopes))
    with pytest.raises(TokenError, match="'azp' is not a name"):
        ours.check(token())


def secret_of_public_key():
    """Return the public key, as text: to one who takes any algorithm, a secret."""
    return RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def hmac_by_public_key():
    text = pieces({"alg": "HS256", "kid": "rsa"}, CLAIMS).rstrip(".")
    signature = hmac.digest(secret_of_public_key(), text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


REFUSED = {
    "no algorithm": (lambda: pieces({"alg": "none", "kid": "rsa"}, CLAIMS), "its algorithm"),
    "no algorithm, other case": (lambda: pieces({"alg": "nOnE"}, CLAIMS), "its algorithm"),
    "a shared secret": (hmac_by_public_key, "its algorithm"),
    "a list of algorithms": (lambda: pieces({"alg": ["RS256"]}, CLAIMS), "algorithm"),
    "a header that must be understood": (
        lambda: token(headers={"crit": ["x"], "x": 1}), "not a JSON Web Token"
    ),
    "its claims elsewhere": (lambda: token(headers={"b64": False}), "refused"),
    "a place of its own for keys": (
        lambda: token(key=OTHER_KEY, headers={"jku": "http://127.0.0.1:1/"}), "no key"
    ),
    "an algorithm of another key": (
        lambda: pieces({"alg": "ES256", "kid": "rsa"}, CLAIMS, b"x" * 64), "no key"
    ),
    "another key of this id": (lambda: token(key=OTHER_KEY), "no key"),
    "an unknown key": (lambda: token("new", key=OTHER_KEY), "no key"),
    "no id, and another key": (lambda: token("", key=OTHER_KEY), "no key"),
    "a key of its own": (
        lambda: token("mine", headers={"jwk": json.loads(published(mine=(OTHER_KEY, "RS256")))
                                       ["keys"][0]}, key=OTHER_KEY), "no key"
    ),
    "changed": (lambda: token()[:-8] + "AAAAAAAA", "no key"),
    "expired": (lambda: token(exp=NOW - 31), "expired"),
    "without an end": (lambda: token(exp=None), "exp"),
    "an end that is none": (lambda: token(exp="tomorrow"), "not a number|refused"),
    "an end that is true": (lambda: token(exp=True), "not a number|refused"),
    "an endless end": (lambda: token(exp=2**70), "not a number"),
    "of later": (lambda: token(nbf=NOW + 31), "not valid yet"),
    "issued later": (lambda: token(iat=NOW + 31), "not valid yet"),
    "another issuer": (lambda: token(iss="https://login.example.evil"), "refused"),
    "no issuer": (lambda: token(iss=None), "refused"),
    "for others": (lambda: token(aud=["others"]), "refused"),
    "for anyone": (lambda: token(aud=None), "refused"),
    "without a name": (lambda: token(sub=None), "not a name"),
    "an empty name": (lambda: token(sub=""), "not a name"),
    "a name of lines": (lambda: token(sub="ann\nUser:root"), "not a name"),
    "a long name": (lambda: token(sub="a" * 256), "not a name"),
    "nothing": (lambda: "", "not a JSON Web Token"),
    "garbage": (lambda: "a.b.c", "not a JSON Web Token"),
    "five parts": (lambda: "a.b.c.d.e", "not a JSON Web Token"),
    "deep": (lambda: pieces({"alg": "RS256"}, {}).replace("e30", base64.urlsafe_b64encode(
        b"[" * 100_000).decode()), "no key|not a JSON"),
    "huge": (lambda: token(pad="x" * 1_000_000)[:-4] + "AAAA", "no key|refused"),
}  # fmt: skip
"""Made when it is needed, and what the refusal says."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_lets_no_one_in(rules, what):
    make, said = REFUSED[what]
    text = make()
    with pytest.raises(TokenError, match=said) as refused:
        rules.check(text)
    assert len(str(refused.value)) < 200
    assert not text or text not in str(refused.value)


def test_clocks_may_differ_a_little(rules):
    assert rules.check(token(exp=NOW - 29))
    assert rules.check(token(nbf=NOW + 29, iat=NOW + 29))


def test_one_of_several_audiences_is_enough(rules):
    assert rules.check(token(aud=["others", AUDIENCE]))


# Keys --------------------------------------------------------------------------------------------


@pytest.fixture
def publisher():
    with Publisher(published(rsa=KEYS["rsa"])) as server:
        yield server


def test_keys_are_replaced_and_asked_for_no_more_often_than_every_ten_seconds(publisher):
    clock = [0.0]
    keys = TokenKeys(publisher.url, 3_600, lambda: clock[0])
    assert (publisher.asked, len(keys.find("rsa"))) == (1, 1)
    publisher.text = published(ec=KEYS["ec"])
    for _ in range(5):  # anyone may send a token of an unknown key
        with pytest.raises(TokenError, match="no key"):
            keys.find("ec")
    assert publisher.asked == 1
    clock[0] = ASK_AGAIN_S
    assert len(keys.find("ec")) == 1
    with pytest.raises(TokenError, match="no key"):
        keys.find("rsa")  # it is no longer published
    assert publisher.asked == 2


def test_keys_are_read_again_as_they_age_and_stay_where_that_fails(publisher, caplog):
    clock = [0.0]
    keys = TokenKeys(publisher.url, 60, lambda: clock[0])
    clock[0] = 61
    publisher.text = published(ec=KEYS["ec"])
    assert keys.find("ec")
    clock[0], publisher.status = 122, 500
    assert keys.find("ec")
    wait_for(lambda: "the keys of oauth.jwks stay as they were" in caplog.text)
    assert publisher.asked == 3


def test_no_login_of_a_known_key_waits_for_a_silent_server(publisher, caplog):
    """One thread checks all logins: who sent unknown keys held up everyone for 5 of 10 seconds."""
    clock = [0.0]
    keys = TokenKeys(publisher.url, 3_600, lambda: clock[0], ask_s=3.0)
    publisher.pause_s, clock[0] = 6.0, ASK_AGAIN_S
    began = time.monotonic()
    with pytest.raises(TokenError, match="no key"):
        keys.find("unknown")
    clock[0] += WAIT_S  # further ones do not wait, nor ask
    for _ in range(20):
        with pytest.raises(TokenError, match="no key"):
            keys.find("unknown")
        assert keys.find("rsa")
    assert WAIT_S <= time.monotonic() - began < WAIT_S + 1.5
    wait_for(lambda: "stay as they were" in caplog.text)
    assert publisher.asked == 2


@pytest.mark.parametrize("head", ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nX: ", "HT"])
def test_an_answer_that_comes_a_byte_at_a_time_is_given_up(caplog, head):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            with suppress(OSError), listening.accept()[0] as taken:
                taken.sendall(head.encode())
                while True:
                    taken.sendall(b" ")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/certs"
        TokenKeys(url, 60, ask_s=0.3)
    assert re.search("cannot be read: .*(takes too long|timed out)", caplog.text)


def test_a_token_of_the_next_key_waits_until_it_is_read(publisher):
    """Each client of a server logs in at once with the new key."""
    clock = [0.0]
    keys = TokenKeys(publisher.url, 3_600, lambda: clock[0])
    publisher.text, publisher.pause_s = published(ec=KEYS["ec"]), 0.2
    clock[0] = ASK_AGAIN_S
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(keys.find, ["ec"] * 8))
    assert [len(one) for one in found] == [1] * 8
    assert publisher.asked == 2


def test_a_key_that_was_withdrawn_lets_no_one_in_once_the_keys_are_read(publisher, settings):
    clock = [0.0]
    keys = TokenKeys(publisher.url, 60, lambda: clock[0])
    rules = TokenRules(settings, lambda: NOW, keys)
    publisher.text = published(rsa=(OTHER_KEY, "RS256"))  # of the same id
    assert rules.check(token()).name == "ann"
    clock[0] = 61
    rules.check(token())
    wait_for(lambda: publisher.asked == 2 and keys._reading is None)
    with pytest.raises(TokenError, match="no key"):
        rules.check(token())
    assert rules.check(token(key=OTHER_KEY)).name == "ann"


def test_a_server_starts_while_the_keys_cannot_be_read(publisher, caplog):
    clock, publisher.status = [0.0], 503
    keys = TokenKeys(publisher.url, 60, lambda: clock[0])
    assert "no token can be checked until oauth.jwks can be read" in caplog.text
    with pytest.raises(TokenError):
        keys.find("rsa")
    clock[0], publisher.status = ASK_AGAIN_S, 200
    assert keys.find("rsa")


def test_keys_that_lead_elsewhere_or_never_end_are_refused(publisher, caplog):
    publisher.status, publisher.headers = 302, {"Location": "http://keys.example.invalid/"}
    TokenKeys(publisher.url, 60)
    publisher.status, publisher.headers, publisher.text = 200, {}, b" " * (KEYS_BYTES_MAX + 1)
    TokenKeys(publisher.url, 60)
    assert f"has more than {KEYS_BYTES_MAX} bytes" in caplog.text
    assert caplog.text.count("no token can be checked") == 2
    assert "leads to http://keys.example.invalid/" in caplog.text


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        ("http://keys.example/certs", None, "give a file, an https URL"),
        ("ftp://keys.example/certs", None, "give a file, an https URL"),
        ("", b"{}", "not a JSON Web Key Set"),
        ("", b"[", "not a JSON Web Key Set"),
        ("", b'{"keys": 5}', "has no public key"),
        ("", b'{"keys": [5, {"kty": "oct", "k": "AAAA"}]}', "has no public key"),
        ("", b'{"keys": [{"kty": "RSA", "n": "AQAB", "use": "enc"}]}', "has no public key"),
        ("", b'{"keys": [{"kty": "RSA"}]}', "has no public key"),
        ("", json.dumps({"keys": [{"kty": "EC"}] * (KEYS_MAX + 1)}).encode(), "more than 100"),
        ("missing", None, "cannot be read"),
    ],
)
def test_keys_that_are_none_are_refused_at_the_start(tmp_path, source, text, said):
    file = tmp_path / "jwks.json"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(ConfigError, match=said):
        TokenKeys(str(tmp_path / source) if source == "missing" else source or str(file), 60)


def test_a_key_signs_only_as_it_says():
    (key,) = json.loads(published(rsa=KEYS["rsa"]))["keys"]
    keys = parse_keys(json.dumps({"keys": [key | {"alg": "PS256"}]}).encode())
    (found,) = keys
    assert found.algorithm_name == "PS256"


def test_keys_of_one_id_are_all_tried():
    ours, other = published(rsa=KEYS["rsa"]), published(rsa=(OTHER_KEY, "RS256"))
    (of_curves,) = json.loads(published(ec=KEYS["ec"]))["keys"]
    listed = [of_curves | {"kid": "rsa"}]
    listed += [json.loads(one)["keys"][0] for one in (other, ours)]
    assert [key.key_type for key in parse_keys(as_set(listed))] == ["EC", "RSA", "RSA"]
    assert all(rules_of(listed).check(token(key=key)).name == "ann" for key in (RSA_KEY, OTHER_KEY))
    with pytest.raises(TokenError, match="no key"):
        rules_of(listed[:2]).check(token())


def as_set(listed):
    return json.dumps({"keys": listed}).encode()


def rules_of(listed):
    class Known(TokenKeys):
        def __init__(self):
            self._keys = parse_keys(as_set(listed))

        def find(self, key_id):
            return self._of(key_id)

    return TokenRules(OAuthConfig(jwks="-", issuer=ISSUER, audience=AUDIENCE), lambda: NOW, Known())


P384 = ec.generate_private_key(ec.SECP384R1())
FEW_BITS = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
(OURS,) = json.loads(published(rsa=KEYS["rsa"]))["keys"]
ODD = {
    "a curve of no name": {"kty": "EC", "crv": 5, "x": "a", "y": "b"},
    "numbers for text": {"kty": "RSA", "n": 5, "e": 5},
    "nothing in it": {"kty": "RSA", "n": "", "e": ""},
    "a list for a type": {"kty": ["RSA"]},
    "a list for a curve": {"kty": "OKP", "crv": [], "x": ""},
    "a key that signs nothing": {"kty": "OKP", "crv": "X25519", "x": "eHh4" * 10 + "eHg"},
    "a million bits": {"kty": "RSA", "n": "A" * 200_000, "e": "AQAB", "kid": "rsa"},
    "too few bits": json.loads(published(few=(FEW_BITS, "RS256")))["keys"][0],
    "a key to encrypt": OURS | {"key_ops": ["encrypt"], "kid": "few"},
    "a key for a shared secret": OURS | {"alg": "HS256", "kid": "few"},
    "an id that is none": OURS | {"kid": ["few"]},
}


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("what", ODD)
def test_an_odd_key_takes_no_other_with_it_and_lets_no_one_in(what):
    ours = rules_of([ODD[what], OURS])
    assert ours.check(token()).name == "ann"
    for text in (token("few", key=FEW_BITS), token("few", key=RSA_KEY)):
        with pytest.raises(TokenError, match="no key"):
            ours.check(text)


def test_an_algorithm_of_another_curve_or_padding_is_refused():
    curve = rules_of(json.loads(published(ec=(P384, "ES384")))["keys"])
    text = pieces({"alg": "ES256", "kid": "ec"}, CLAIMS).rstrip(".")
    first, second = decode_dss_signature(P384.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    signature = b"".join(one.to_bytes(48, "big") for one in (first, second))
    with pytest.raises(TokenError, match="curve"):
        curve.check(f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")
    with pytest.raises(TokenError, match="no key"):
        curve.check(pieces({"alg": "ES384", "kid": "ec"}, CLAIMS, bytes(96)))
    only = rules_of([OURS | {"alg": "PS256"}])
    with pytest.raises(TokenError, match="no key"):
        only.check(token())


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jwks", "issuer", "audience", "principal"])
def test_settings_that_are_missing_are_named(settings, name):
    with pytest.raises(ConfigError, match=f"oauth.{name} is empty"):
        load_access(SAFE, replace(settings, **{name: ""}))


def test_users_of_passwords_need_a_mechanism_of_passwords(settings):
    with pytest.raises(ConfigError, match="only OAUTHBEARER, which reads no"):
        load_access(replace(SAFE, sasl_users="users.toml"), settings)
    with pytest.raises(ConfigError, match="sasl_users is missing"):
        load_access(replace(SAFE, sasl_mechanisms=("OAUTHBEARER", "PLAIN")), settings)
    with pytest.raises(ConfigError, match="acls is missing"):
        load_access(replace(SAFE, acls=""), settings)
