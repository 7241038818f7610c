"""The login of a connection that may be one with a token, and goes on with the next (KIP-368)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from kio.schema.errors import ErrorCode

from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.oauth.tokens import OAUTHBEARER, Token, TokenError, TokenRules, check_message
from coordinator.wire.sasl import Login, LoginError

REFUSAL = b'{"status":"invalid_token"}'
"""As Kafka's: the client shows it to its user, and sends one more message to get the error."""


@dataclass(slots=True)
class TokenLogin(Login):
    """As `Login`; with a token the session ends when that does, unless the client sends another.

    Attributes
    ----------
    rules
        Of tokens.
    now
        Seconds since 1970.
    """

    rules: TokenRules = field(kw_only=True)
    now: Callable[[], float] = time.time
    _token: Token | None = None
    _before: Token | None = None
    """The one by which this connection was let in before."""

    @property
    def user(self) -> str | None:
        """The user of the users' file who has logged in: with a token, none."""
        return self.name if self.done and self._token is None else None

    @property
    def has_ended(self) -> bool:
        """Whether the token has expired."""
        return self._token is not None and self.now() >= self._token.ends + self.rules.skew_s

    def again(self) -> Login | None:
        """Return the login by which the session goes on, as the same principal."""
        if self._token is None:
            return None
        return TokenLogin(
            self.users, (OAUTHBEARER,), rules=self.rules, now=self.now,
            name=self.name, _before=self._token,
        )  # fmt: skip

    def find_check(self, request: Request) -> Callable[[], object] | None:
        """Return the check that an answer needs; None where it needs none."""
        if request.api is Api.SASL_HANDSHAKE or self._steps != [self._take_token]:
            return Login.find_check(self, request)
        name = self._before.name if self._before else ""
        return partial(check_message, request.body.auth_bytes, self.rules, name)

    def answer(self, request: Request, found: object = None) -> Values:
        """Answer a SaslHandshake or a SaslAuthenticate."""
        reply = Login.answer(self, request, found)
        if self.done and self._token is not None:
            left_ms = int((self._token.ends - self.now()) * 1000)
            reply = {**reply, "session_lifetime": max(left_ms, 1)}  # 0 would be: without end
        return reply

    def _handshake(self, mechanism: str) -> Values:
        if mechanism != OAUTHBEARER or self._steps:
            return Login._handshake(self, mechanism)  # noqa: SLF001 - its own, without super
        self._steps = [self._take_token]
        return {"error_code": ErrorCode.none, "mechanisms": self.mechanisms}

    def _take_token(self, _message: bytes) -> bytes:
        found = self._found
        if isinstance(found, Token):
            self.name, self._token = found.name, found
            return b""
        assert isinstance(found, TokenError), found
        self._steps = [partial(_refuse, found)]
        return REFUSAL


def _refuse(error: TokenError, _message: bytes) -> NoReturn:
    raise LoginError(f"the token is refused: {error}")
