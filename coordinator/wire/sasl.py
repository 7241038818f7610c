"""SASL: PLAIN and SCRAM (RFC 5802), before any other API is served.

Users are in a file, by name: a password, or better what SCRAM needs to check one (`muster user`
makes it), which cannot be used to log in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from coordinator.config import ConfigError
from coordinator.wire.codec import Api, Request, Values

T = TypeVar("T")
PLAIN = "PLAIN"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *HASHES)
ITERATIONS_MIN, ITERATIONS, ITERATIONS_MAX = 4_096, 8_192, 1_000_000
"""The least is RFC 7677's and Kafka's: clients refuse fewer."""
SALT_BYTES, NONCE_BYTES = 18, 24
SECRET = os.urandom(SALT_BYTES)
"""Of this process: of salts, where the users' file has none, and of what is remembered."""


def check_iterations(iterations: int, name: str) -> int:
    """Return a number of iterations that verifiers may have.

    Raises
    ------
    ConfigError
        Too few to protect a password, or too many to wait for.
    """
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"{name} is {iterations}: give {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return iterations


def scram_keys(mechanism: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Return the client key and the server key of a password (RFC 5802)."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    return hmac.digest(salted, b"Client Key", name), hmac.digest(salted, b"Server Key", name)


class LoginError(Exception):
    """The client is not who it says, or does not speak the mechanism."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What SCRAM needs to check a password; written `SCRAM-SHA-256$iterations:salt$stored:server`.

    Attributes
    ----------
    stored_key, server_key
        As in RFC 5802: the first checks the client, the second shows that we know it.
    """

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(
        cls, mechanism: str, password: str, salt: bytes = b"", iterations: int = ITERATIONS
    ) -> Verifier:
        """Make the verifier of a password."""
        name = HASHES[mechanism]
        salt = salt or os.urandom(SALT_BYTES)
        client_key, server_key = scram_keys(mechanism, password, salt, iterations)
        stored_key = hashlib.new(name, client_key).digest()
        return cls(mechanism, iterations, salt, stored_key, server_key)

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Read what `str` writes.

        Raises
        ------
        ConfigError
            It is not a verifier.
        """
        try:
            mechanism, middle, keys = text.split("$")
            iterations, salt = middle.split(":")
            stored, server = keys.split(":")
            found = cls(mechanism, int(iterations), *map(_decode, (salt, stored, server)))
            size = hashlib.new(HASHES[mechanism]).digest_size
        except (ValueError, KeyError, LoginError):
            raise ConfigError(
                f"{text[:24]!r}… is not a verifier: make one with muster user"
            ) from None
        if len(found.stored_key) != size:
            raise ConfigError(f"{text[:24]!r}… is not a verifier: make one with muster user")
        if not ITERATIONS_MIN <= found.iterations <= ITERATIONS_MAX:
            raise ConfigError(
                f"{text[:24]!r}… has {found.iterations} iterations: "
                f"make one with {ITERATIONS_MIN} to {ITERATIONS_MAX} (muster user)"
            )
        return found

    def __str__(self) -> str:
        salt, stored, server = map(_encode, (self.salt, self.stored_key, self.server_key))
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"

    def matches(self, password: str) -> bool:
        """Whether this is the password."""
        other = Verifier.of(self.mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)


class Users:
    """Who may log in.

    Parameters
    ----------
    verifiers
        By user and mechanism.
    secret
        What salts are made of, also those of unknown names: it outlives the process.
    have_passwords
        Whether some verifiers were made of passwords: a reader of the file may log in.
    """

    def __init__(
        self,
        verifiers: Mapping[str, Mapping[str, Verifier]],
        secret: bytes = SECRET,
        *,
        have_passwords: bool = False,
    ) -> None:
        self.have_passwords = have_passwords
        self._verifiers = verifiers
        self._secret = secret
        self._first = sorted(
            (first.mechanism, first.iterations)
            for first in (next(iter(known.values())) for known in verifiers.values())
        )
        self._iterations = sorted(
            verifier.iterations for known in verifiers.values() for verifier in known.values()
        )
        self._right: dict[str, bytes] = {}

    def __contains__(self, name: object) -> bool:
        """Whether there is such a user."""
        return name in self._verifiers

    @classmethod
    def read(
        cls, path: str, iterations: int = ITERATIONS, setting: str = "server.sasl_users"
    ) -> Users:
        """Read the users' file: {name: password, verifier, or list of verifiers}.

        Parameters
        ----------
        iterations
            Of the verifiers that are made of passwords.
        setting
            What names the file.

        Raises
        ------
        ConfigError
            It cannot be read, or is not such a file.
        """
        try:
            tree = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{setting} {path} cannot be read: {error}") from None
        users = tree.get("users")
        if not isinstance(users, dict) or not users:
            raise ConfigError(f"{path} has no table [users]: give names with passwords")
        try:
            secret = _read_secret(tree)
            found = {
                name: _read_verifiers(name, value, iterations, secret)
                for name, value in users.items()
            }
            return cls(found, secret, have_passwords=any(map(_is_password, users.values())))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def verifier(self, name: str, mechanism: str) -> Verifier:
        """Return a user's verifier; for an unknown user one that no password matches."""
        found = self._verifiers.get(name, {}).get(mechanism)
        if found is not None:
            return found
        size = hashlib.new(HASHES[mechanism]).digest_size
        # As many iterations as one of the users has: another number would reveal an unknown name.
        iterations = self._draw(self._iterations or [ITERATIONS], name)
        salt = _make_salt(self._secret, mechanism, name)
        return Verifier(mechanism, iterations, salt, os.urandom(size), os.urandom(size))

    def _draw(self, among: Sequence[T], name: str) -> T:
        """Return for a user that there is not what one of those has that there are."""
        digest = hmac.digest(self._secret, name.encode(), "sha256")
        return among[int.from_bytes(digest) % len(among)]

    def is_remembered(self, name: str, password: str) -> bool:
        """Whether this password was verified before; a new check takes long."""
        seen = hmac.digest(SECRET, password.encode(), "sha256")
        return hmac.compare_digest(self._right.get(name, b""), seen)

    def check_password(self, name: str, password: str) -> bool:
        """Whether this is the user's password; a verified one is remembered."""
        if self.is_remembered(name, password):
            return True
        known = self._verifiers.get(name)
        if known:
            verifier = next(iter(known.values()))
        else:  # takes as long as that of a user
            drawn, iterations = self._draw(self._first or [("SCRAM-SHA-256", ITERATIONS)], name)
            verifier = replace(self.verifier(name, drawn), iterations=iterations)
        if not verifier.matches(password):
            return False
        self._right[name] = hmac.digest(SECRET, password.encode(), "sha256")
        return True


def _read_secret(tree: Mapping[str, object]) -> bytes:
    """Return what salts are made of: the file's `secret`, else something of this process.

    With it they are the same after a restart and on a stand-by. A salt that changes when those of
    the users do not would reveal that the user does not exist.
    """
    given = tree.get("secret")
    if given is None:
        return SECRET
    if not isinstance(given, str) or len(given) < SALT_BYTES:
        raise ConfigError(f"secret: give a text of {SALT_BYTES} random characters or more")
    return hashlib.sha256(given.encode()).digest()


def _make_salt(secret: bytes, mechanism: str, name: str) -> bytes:
    return hmac.digest(secret, f"{mechanism} {name}".encode(), "sha256")[:SALT_BYTES]


def _read_verifiers(
    user: str, value: object, iterations: int, secret: bytes
) -> dict[str, Verifier]:
    """Return verifiers by mechanism; those of a password are made now."""
    if isinstance(value, str) and _is_password(value):
        return {
            name: Verifier.of(name, value, _make_salt(secret, name, user), iterations)
            for name in HASHES
        }
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or not texts:
        raise ConfigError(f"{value!r}: give a password, a verifier, or a list of verifiers")
    found = [Verifier.parse(text) for text in texts]
    return {verifier.mechanism: verifier for verifier in found}


def _is_password(value: object) -> bool:
    """Whether what stands for a user is a password, and no verifier."""
    return isinstance(value, str) and not value.startswith("SCRAM-SHA-")


@dataclass(slots=True)
class Login:
    """The login of one connection: handshake, then authenticate once or twice.

    Attributes
    ----------
    users
        Those there are now: one that is removed meanwhile does not get in.
    done, failed
        Neither while it is under way.
    name
        Who the client says it is; true once `done`.
    """

    users: Callable[[], Users]
    mechanisms: Sequence[str]
    done: bool = False
    failed: bool = False
    name: str = ""
    _found: object = None
    _steps: list[Callable[[bytes], bytes]] = field(default_factory=list)
    """What to call with the client's next messages."""

    @property
    def user(self) -> str | None:
        """The user who has logged in; None before."""
        return self.name if self.done else None

    @property
    def has_ended(self) -> bool:
        """Whether the client must log in again: never, with a password."""
        return False

    def again(self) -> Login | None:
        """Return the login by which a session with an end goes on; None where it has none."""
        return None

    def find_check(self, request: Request) -> Callable[[], object] | None:
        """Return the password check that an answer needs; None where it needs none."""
        if request.api is Api.SASL_HANDSHAKE or self._steps != [self._plain]:
            return None
        try:
            name, password = parse_plain(request.body.auth_bytes)
        except (LoginError, UnicodeDecodeError):
            return None
        users = self.users()
        return (
            None
            if users.is_remembered(name, password)
            else partial(users.check_password, name, password)
        )

    def answer(self, request: Request, found: object = None) -> Values:
        """Answer a SaslHandshake or a SaslAuthenticate.

        Parameters
        ----------
        found
            What the check of `find_check` found; None where there was none.
        """
        if request.api is Api.SASL_HANDSHAKE:
            if request.version == 0:  # behind it come bytes without any frame
                self.failed = True
                code = ErrorCode.unsupported_version
                return {"error_code": code, "mechanisms": self.mechanisms}
            return self._handshake(request.body.mechanism)
        self._found = found
        step = self._steps.pop(0) if self._steps else _refuse_too_early
        try:
            reply = step(request.body.auth_bytes)
        except (LoginError, UnicodeDecodeError) as error:
            self.failed = True
            message = str(error) if isinstance(error, LoginError) else "not UTF-8"
            return {
                "error_code": ErrorCode.sasl_authentication_failed,
                "error_message": f"Authentication failed: {message}.",
                "auth_bytes": b"",
            }
        self.done = not self._steps
        return {"error_code": 0, "error_message": None, "auth_bytes": reply}

    def _handshake(self, mechanism: str) -> Values:
        if self._steps:
            self.failed = True
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
        served = mechanism in self.mechanisms
        self.failed = not served
        if mechanism == PLAIN:
            self._steps = [self._plain]
        elif served:
            scram = ScramExchange(self.users(), mechanism)
            self._steps = [partial(self._scram_first, scram), partial(self._scram_final, scram)]
        code = ErrorCode.none if served else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": code, "mechanisms": self.mechanisms}

    def _scram_first(self, scram: ScramExchange, message: bytes) -> bytes:
        reply = scram.first(message)
        self.name = scram.name
        return reply

    def _scram_final(self, scram: ScramExchange, message: bytes) -> bytes:
        reply = scram.final(message)
        self._refuse_removed()
        return reply

    def _plain(self, message: bytes) -> bytes:
        self.name, password = parse_plain(message)
        right = self._found
        if right is None:
            right = self.users().check_password(self.name, password)
        if not right:
            raise LoginError("wrong name or password")
        self._refuse_removed()
        return b""

    def _refuse_removed(self) -> None:
        if self.name not in self.users():
            raise LoginError("wrong name or password")


def parse_plain(message: bytes) -> tuple[str, str]:
    """Read PLAIN (RFC 4616): name and password; no name where the authorization id differs."""
    parts = message.decode().split("\0")
    if len(parts) != 3:  # noqa: PLR2004 - authorisation id, name, password
        raise LoginError("PLAIN is: authorisation id, name, password, with NUL between them")
    acts_as, name, password = parts
    return name if acts_as in {"", name} else "", password


def _refuse_too_early(_message: bytes) -> bytes:
    raise LoginError("SaslHandshake comes first")


class ScramFirst(NamedTuple):
    """The first message of SCRAM (RFC 5802)."""

    binding: str
    acts_as: str
    bare: str
    fields: dict[str, str]
    name: str


def read_scram_first(message: bytes) -> ScramFirst:
    """Read the client's first message.

    Raises
    ------
    LoginError
        It is none, or asks for what is not served.
    """
    text = message.decode()
    binding, acts_as, bare = ([*text.split(",", 2), "", ""])[:3]
    fields = _parse_fields(bare)
    name = fields.get("n", "").replace("=2C", ",").replace("=3D", "=")
    if binding not in {"n", "y"} or not name or not fields.get("r") or "m" in fields:
        raise LoginError("the first message is not one of SCRAM without channel binding")
    if acts_as not in {"", f"a={fields['n']}"}:
        raise LoginError("authorization id must equal authentication id")
    return ScramFirst(binding, acts_as, bare, fields, name)


class ScramExchange:
    """One exchange of SCRAM; `name` is who the client says it is."""

    def __init__(self, users: Users, mechanism: str) -> None:
        self._users = users
        self._mechanism = mechanism
        self.name = ""
        self._begun = ""
        self._nonce = ""
        self._verifier: Verifier | None = None

    def first(self, message: bytes) -> bytes:
        """Take the client's first message; answer salt and iterations."""
        binding, acts_as, bare, fields, name = read_scram_first(message)
        self.name = name
        self._verifier = self._users.verifier(name, self._mechanism)
        self._nonce = fields["r"] + secrets.token_urlsafe(NONCE_BYTES)
        salt, iterations = _encode(self._verifier.salt), self._verifier.iterations
        server_first = f"r={self._nonce},s={salt},i={iterations}"
        self._bound = _encode(f"{binding},{acts_as},".encode())
        self._begun = f"{bare},{server_first}"
        return server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Verify the client's proof, and return the server's signature."""
        assert self._verifier is not None
        bare, _, proof = message.decode().rpartition(",p=")
        fields = _parse_fields(bare)
        if fields.get("r") != self._nonce or fields.get("c") != self._bound:
            raise LoginError("the last message does not belong to the first")
        name, known = HASHES[self._mechanism], self._verifier
        signed = f"{self._begun},{bare}".encode()
        signature = hmac.digest(known.stored_key, signed, name)
        given = _decode(proof)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=False))
        if len(given) != len(signature) or not hmac.compare_digest(
            hashlib.new(name, key).digest(), known.stored_key
        ):
            raise LoginError("wrong name or password")
        return b"v=" + _encode(hmac.digest(known.server_key, signed, name)).encode()


def _parse_fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginError("not base64") from None
