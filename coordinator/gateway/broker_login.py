"""A login that passes through the gateway to the broker, and whose it is once the broker agrees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from coordinator.wire.codec import Api, Request, Values
from coordinator.wire.sasl import (
    HASHES,
    MECHANISMS,
    PLAIN,
    LoginError,
    parse_plain,
    read_scram_first,
)


class BrokerLogin:
    """The login of one connection.

    Its name is known from PLAIN and SCRAM alone, where Kafka's own principal is the name that logs
    in. With other mechanisms the broker makes the principal of what it alone can read.

    Attributes
    ----------
    name
        Who has logged in; "" before.
    failed
        That nothing more can come of it: close the connection.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mechanism = ""
        self._claimed = ""
        self._steps = 0
        self._until: float | None = None
        self.name = ""
        self.failed = False

    @property
    def done(self) -> bool:
        """Whether the broker has agreed, and for now."""
        return bool(self.name) and (self._until is None or self._clock() < self._until)

    def refuse(self, request: Request) -> Values | None:
        """Take a request to log in; return why it is refused here, None to send it on."""
        body: Any = request.body
        if request.api is Api.SASL_HANDSHAKE:
            self._mechanism, self._steps, self._claimed = body.mechanism, 0, ""
            if request.version == 0:  # behind it come bytes without any frame
                self.failed = True
                return {"error_code": ErrorCode.unsupported_version, "mechanisms": MECHANISMS}
            if self._mechanism not in MECHANISMS:
                self.failed = True
                code = ErrorCode.unsupported_sasl_mechanism
                return {"error_code": code, "mechanisms": MECHANISMS}
            return None
        try:
            self._read(bytes(body.auth_bytes))
        except (LoginError, UnicodeDecodeError) as error:
            self.failed = True
            return {
                "error_code": ErrorCode.sasl_authentication_failed,
                "error_message": f"Authentication failed at the gateway: {error}.",
                "auth_bytes": b"",
            }
        return None

    def _read(self, message: bytes) -> None:
        self._steps += 1
        if self._steps > 1:
            return
        if self._mechanism == PLAIN:
            self._claimed, _ = parse_plain(message)
        elif self._mechanism in HASHES:
            first = read_scram_first(message)
            if first.bare != f"n={first.fields['n']},r={first.fields['r']}":
                raise LoginError("SCRAM with extensions, as of delegation tokens, is not passed on")
            self._claimed = first.name
        if not self._claimed:
            raise LoginError("the message names no user, or two")
        if self.name and self.name != self._claimed:
            raise LoginError("another user may not log in on the same connection")

    def take_answer(self, api: Api, answer: Any) -> None:  # noqa: ANN401 - kio's message
        """Take what the broker says to a request that was sent on."""
        if int(answer.error_code):
            self._mechanism = ""
            self._claimed = ""
            return
        last = 1 if self._mechanism == PLAIN else 2
        if api is Api.SASL_AUTHENTICATE and self._claimed and self._steps == last:
            self.name = self._claimed
            lifetime = getattr(answer, "session_lifetime", timedelta()).total_seconds()
            self._until = self._clock() + lifetime if lifetime else None
