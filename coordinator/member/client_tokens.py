"""Tokens by which a client logs in (OAUTHBEARER): from a function, or by OAuth 2.0."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TypeAlias
from urllib.parse import quote, urlencode

from coordinator.config.safe_urls import is_safe_url
from coordinator.wire.oauth.tokens import SEPARATOR

GetToken: TypeAlias = Callable[[], str]
Login: TypeAlias = tuple[str, str, str] | GetToken
"""Mechanism, user and password; or a function that returns a token, called in a thread of its own
when a connection needs one."""
ASK_S = 10.0
ANSWER_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Gets a token from an authorization server (RFC 6749, 4.4), each time that it is called.

    Raises
    ------
    ValueError
        The URL is not `https`, nor on this machine: the secret is sent to it.
    """

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""

    def __post_init__(self) -> None:
        if not is_safe_url(self.url):
            raise ValueError(f"{self.url} is not an https URL: the secret would be sent openly")

    def __call__(self) -> str:
        """Return a new token.

        Raises
        ------
        OSError
            The server does not answer, or gives none.
        """
        from urllib.request import Request  # noqa: PLC0415 - takes 20 ms, and few have tokens

        from coordinator.wire.oauth.fetching import fetch  # noqa: PLC0415 - the same

        words = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = f"{quote(self.client_id, safe='')}:{quote(self.secret, safe='')}"
        asked = Request(self.url, urlencode(words).encode())  # noqa: S310 - see above
        secret = f"Basic {base64.b64encode(pair.encode()).decode()}"
        asked.add_unredirected_header("Authorization", secret)  # wherever the server sends us
        try:
            reply = json.loads(fetch(asked, ASK_S, ANSWER_MAX))
        except (ValueError, HTTPException) as error:
            raise OSError(f"{self.url} gives no token: {type(error).__name__}") from None
        token = reply.get("access_token") if isinstance(reply, dict) else None
        if not isinstance(token, str) or not token:
            raise OSError(f"{self.url} gives no token: its answer has no access_token")
        return token


def first_message(token: str) -> bytes:
    """Return what a client sends to log in with a token (RFC 7628).

    Raises
    ------
    ValueError
        It is not the text of a token.
    """
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the function of login returned no token: give the text of one")
    return f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}".encode()
