"""SASL OAUTHBEARER (RFC 7628): tokens that an authorization server signs, as JWT (RFC 7519).

A token is checked here, and by no other server: its signature against the published keys, its
issuer, audience, times and scopes. One of the claims is the name of the principal.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.config import ConfigError, OAuthConfig
from coordinator.config.safe_urls import is_safe_url
from coordinator.extras import require

if TYPE_CHECKING:
    from jwt import PyJWK

OAUTHBEARER = "OAUTHBEARER"
ALGORITHMS = {
    "RSA": {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
    "EC": {"ES256", "ES384", "ES512"},
    "OKP": {"EdDSA"},
}
"""By type of key. A secret that both sides know is no key here: a server that checks could sign."""
ASK_AGAIN_S = 10.0
"""How soon keys are asked for again, because a token names an unknown one: anyone can send such."""
ASK_S = 5.0
WAIT_S = 1.0
"""How long a login waits for keys that are being read: one thread checks all logins, and anyone can
name an unknown key."""
KEYS_BYTES_MAX = 1 << 20
KEYS_MAX = 100
"""A token that names no key, or one of many, is tried with each: 0.5 ms of CPU."""
RSA_BITS_MIN = 2_048
"""RFC 7518, 3.3."""
NAME_MAX = 255
SEPARATOR = "\x01"
logger = logging.getLogger("muster.wire")


class TokenError(Exception):
    """A token that does not let anyone in; the message says why, and nothing of the token."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a valid token says.

    Attributes
    ----------
    name
        Of the principal.
    ends
        When it expires, in seconds since 1970.
    """

    name: str
    ends: float


class TokenKeys:
    """The public keys of an authorization server, read again as they age and when one is unknown.

    Parameters
    ----------
    source
        A file with a JSON Web Key Set (RFC 7517), or the `https` URL of it.
    refresh_s
        How old it may be.
    clock
        Seconds, from any beginning.
    ask_s
        How long a server may take.
    """

    def __init__(
        self,
        source: str,
        refresh_s: float,
        clock: Callable[[], float] = time.monotonic,
        ask_s: float = ASK_S,
    ) -> None:
        self._source, self._refresh_s, self._clock = source, refresh_s, clock
        self._ask_s = ask_s
        self._is_url = "://" in source
        self._keys: list[PyJWK] = []
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._beginning = threading.Lock()
        self._reading: threading.Event | None = None
        if self._is_url and not is_safe_url(source):
            raise ConfigError(
                f"oauth.jwks is {source}: give a file, an https URL, or http on this machine: who "
                "could change the answer could log in as anyone"
            )
        self._tried_at = clock()
        try:
            self._read()
        except TokenError as error:
            if not self._is_url:
                raise ConfigError(f"oauth.jwks {source}: {error}") from None
            logger.warning("no token can be checked until oauth.jwks can be read: %s", error)

    def find(self, key_id: str | None) -> list[PyJWK]:
        """Return the keys that a token may be signed with: of this id, or all if it names none.

        Raises
        ------
        TokenError
            There are none.
        """
        found = self._of(key_id)
        self._begin_if_due(known=bool(found))
        reading, tried_at = self._reading, self._tried_at
        if not found and reading is not None and tried_at is not None:
            reading.wait(max(tried_at + WAIT_S - self._clock(), 0.0))
        found = found or self._of(key_id)
        if not found:
            raise TokenError("no key of oauth.jwks has signed it")
        return found

    def _of(self, key_id: str | None) -> list[PyJWK]:
        if key_id is None:
            return list(self._keys)
        return [key for key in self._keys if key.key_id == key_id]

    def _is_due(self, *, known: bool) -> bool:
        """Whether the keys are to be read: they are old, or do not have one that is asked for."""
        now = self._clock()
        if self._tried_at is not None and now - self._tried_at < ASK_AGAIN_S:
            return False
        return not known or self._read_at is None or now - self._read_at >= self._refresh_s

    def _begin_if_due(self, *, known: bool) -> None:
        """Begin to read the keys, in a thread: who has a known key waits for no server."""
        with self._beginning:
            if self._reading is None and self._is_due(known=known):
                self._tried_at = self._clock()
                self._reading = threading.Event()
                threading.Thread(target=self._read_again, name="muster-keys", daemon=True).start()

    def _read_again(self) -> None:
        reading = self._reading
        assert reading is not None
        try:
            self._read()
        except TokenError as error:
            logger.warning("the keys of oauth.jwks stay as they were: %s", error)
        except Exception:
            logger.exception("the keys of oauth.jwks stay as they were")
        finally:
            self._reading = None
            reading.set()

    def _read(self) -> None:
        text = _fetch(self._source, self._ask_s) if self._is_url else _read_file(self._source)
        self._keys = parse_keys(text)
        self._read_at = self._tried_at


def parse_keys(text: bytes) -> list[PyJWK]:
    """Return the keys of a JSON Web Key Set that tokens may be signed with.

    Raises
    ------
    TokenError
        It is not one, or has no such key.
    """
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - of an extra

    try:
        tree = json.loads(text)
        listed = tree["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise TokenError('it is not a JSON Web Key Set: {"keys": [...]}') from None
    listed = listed if isinstance(listed, list) else []
    if len(listed) > KEYS_MAX:
        raise TokenError(f"it has {len(listed)} keys, more than {KEYS_MAX}")
    found = []
    for one in listed:
        if not isinstance(one, dict) or not _is_to_sign(one):
            continue
        try:
            key = PyJWK(one)
        except (PyJWTError, ValueError, TypeError) as error:
            logger.warning("a key of oauth.jwks is left out: %s", type(error).__name__)
            continue
        if one["kty"] == "RSA" and key.key.key_size < RSA_BITS_MIN:
            logger.warning("a key of oauth.jwks is left out: of RSA, it has too few bits")
        else:
            found.append(key)
    if not found:
        raise TokenError("it has no public key that signs tokens (RSA, EC or Ed25519)")
    return found


def _is_to_sign(key: Mapping[str, Any]) -> bool:
    """Whether a key is one of those that sign tokens, as far as it says what it is for."""
    uses, kind = key.get("key_ops", ["verify"]), key.get("kty")
    is_for_it = key.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses
    return is_for_it and isinstance(kind, str) and kind in ALGORITHMS


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TokenError(f"it cannot be read: {error}") from None


def _fetch(url: str, ask_s: float) -> bytes:
    from urllib.request import Request  # noqa: PLC0415 - takes 20 ms, and few have tokens

    from coordinator.wire.oauth.fetching import fetch  # noqa: PLC0415 - the same

    try:
        return fetch(Request(url), ask_s, KEYS_BYTES_MAX)  # noqa: S310 - is_safe_url
    except (OSError, ValueError, HTTPException) as error:
        raise TokenError(f"{url} cannot be read: {error}") from None


class TokenRules:
    """Checks tokens by the settings `[oauth]`.

    Raises
    ------
    ConfigError
        A setting is missing, or the keys cannot be used.
    MissingExtraError
        What checks signatures is not installed.
    """

    def __init__(
        self,
        config: OAuthConfig,
        now: Callable[[], float] = time.time,
        keys: TokenKeys | None = None,
    ) -> None:
        for name in ("jwks", "issuer", "audience", "principal"):
            if not getattr(config, name):
                raise ConfigError(
                    f"oauth.{name} is empty: {OAUTHBEARER} needs it, for a token that is meant for "
                    "another server must not let anyone in here"
                )
        require(f"server.sasl_mechanisms with {OAUTHBEARER}", "oauth")
        self._config, self._now = config, now
        self.skew_s = config.clock_skew_ms / 1000
        self._keys = keys or TokenKeys(config.jwks, config.refresh_ms / 1000)

    def check(self, text: str) -> Token:
        """Check a token.

        Raises
        ------
        TokenError
            It is not valid.
        """
        try:
            return self._check(text)
        except TokenError:
            raise
        except Exception:  # a token is anyone's text, and what reads it is not all ours
            logger.exception("a token could not be checked")
            raise TokenError("it cannot be read") from None

    def _check(self, text: str) -> Token:
        from jwt import PyJWTError, get_unverified_header  # noqa: PLC0415 - of an extra

        try:
            header = get_unverified_header(text)
        except (PyJWTError, ValueError, RecursionError):
            raise TokenError("it is not a JSON Web Token") from None
        key_id, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(algorithm, str) or not any(algorithm in of for of in ALGORITHMS.values()):
            raise TokenError("its algorithm is none that a published key has")
        claims = self._verify(text, algorithm, None if key_id is None else str(key_id))
        self._check_times(claims)
        _check_scopes(claims, self._config.scopes)
        name = claims.get(self._config.principal)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
            raise TokenError(f"its claim {self._config.principal!r} is not a name")
        return Token(name, float(claims["exp"]))

    def _verify(self, text: str, algorithm: str, key_id: str | None) -> dict[str, Any]:
        """Return the claims of a token that one of the keys has signed, for us."""
        import jwt  # noqa: PLC0415 - of an extra

        why = "no key of oauth.jwks has signed it"
        for key in self._keys.find(key_id):
            if algorithm not in _algorithms_of(key):
                continue
            try:
                return jwt.decode(
                    text,
                    key.key,
                    algorithms=[algorithm],
                    audience=self._config.audience,
                    issuer=self._config.issuer,
                    options={
                        "require": ["exp", "iss", "aud"],
                        # by our clock, which a test can set
                        "verify_exp": False, "verify_nbf": False, "verify_iat": False,
                    },
                )  # fmt: skip
            except jwt.InvalidSignatureError:
                continue
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
                why = f"it is refused: {error}"
        raise TokenError(why)

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        skew, now = self.skew_s, self._now()
        times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
        if not all(_is_time(value) for value in times.values()):
            raise TokenError("a time in it is not a number of seconds since 1970")
        if times["exp"] + skew <= now:
            raise TokenError("it has expired")
        if max(times.get("nbf", 0), times.get("iat", 0)) - skew > now:
            raise TokenError("it is not valid yet: compare the clocks of both servers")


def _is_time(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < 1 << 53  # type: ignore[operator] # looked at before


def _algorithms_of(key: PyJWK) -> set[str]:
    """Return what may be signed with a key: what it says, else what its type allows."""
    algorithm = key._jwk_data.get("alg")  # noqa: SLF001 - without it the library names a guess
    of_type = ALGORITHMS[key.key_type or ""]
    return of_type & {algorithm} if algorithm else of_type


def _check_scopes(claims: Mapping[str, Any], wanted: tuple[str, ...]) -> None:
    has = claims.get("scope", claims.get("scp", ""))
    if isinstance(has, str):
        has = has.split()
    missing = sorted(set(wanted) - {one for one in has if isinstance(one, str)}) if isinstance(
        has, list
    ) else sorted(wanted)  # fmt: skip
    if missing:
        raise TokenError(f"it lacks the scope {missing[0]!r}")


def parse_bearer(message: bytes) -> tuple[str, str]:
    """Return the token and the authorization id ("" without one) of a client's first message.

    Raises
    ------
    TokenError
        It is not one of RFC 7628.
    """
    try:
        head, *pairs = message.decode().split(SEPARATOR)
    except UnicodeDecodeError:
        raise TokenError("it is not UTF-8") from None
    gs2 = head.split(",")
    if len(gs2) != 3 or gs2[0] != "n" or gs2[2] or pairs[-2:] != ["", ""]:  # noqa: PLR2004 - RFC
        raise TokenError("the message is not one of OAUTHBEARER")
    named = gs2[1].removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    if gs2[1] and not (gs2[1].startswith("a=") and named):
        raise TokenError("the message is not one of OAUTHBEARER")
    fields = [pair.partition("=") for pair in pairs[:-2]]
    given = [value for name, _, value in fields if name == "auth"]
    if len(given) != 1:
        raise TokenError("the message needs one key auth")
    scheme, _, token = given[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise TokenError("the key auth is not: Bearer TOKEN")
    return token.strip(), named


def check_message(message: bytes, rules: TokenRules, name: str = "") -> Token | TokenError:
    """Return the token in a client's first message, or why it is refused; this may take long.

    Parameters
    ----------
    name
        Of the principal whose session goes on; "" at the first login.
    """
    try:
        text, acts_as = parse_bearer(message)
        token = rules.check(text)
    except TokenError as error:
        return error
    if acts_as not in {"", token.name}:
        return TokenError("the authorization id is not the token's name")
    if name not in {"", token.name}:
        return TokenError(f"it is not a token of {name}, whose session this is")
    return token
