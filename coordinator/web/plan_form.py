"""The form that decides a plan: read whole, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from coordinator.api.plans import REASON_MAX
from coordinator.web.errors import LargeError, QueryError
from coordinator.web.paging import TEXT_MAX

BYTES_MAX = 16_384
BODY_S = 10.0
"""How long a browser may take to send a form."""
FIELDS_MAX = 10


async def read_body(request: Request, bytes_max: int, name: str, within_s: float = BODY_S) -> bytes:
    """Return what was sent with a request.

    Raises
    ------
    QueryError
        It was not sent in time. LargeError, a subclass: it is too long.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for piece in request.stream():
                body += piece
                if len(body) > bytes_max:
                    raise LargeError(f"the {name} is longer than {bytes_max:,} bytes")
    except (TimeoutError, ClientDisconnect):
        raise QueryError(f"the {name} was not sent within {within_s:g} s") from None
    return bytes(body)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that a browser has sent.

    Raises
    ------
    QueryError
        It is too long, not a form, or was not sent in time.
    """
    body = await read_body(request, BYTES_MAX, "form")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:  # UnicodeDecodeError is one
        raise QueryError(f"the form cannot be read: {error}") from None
    return dict(fields)


def read_decision(form: Mapping[str, str]) -> tuple[Literal["approve", "reject"], str]:
    """Return what a form asks, and the reason that it gives.

    Raises
    ------
    QueryError
        It asks for something else, or the reason is too long.
    """
    action, reason = form.get("action", ""), form.get("reason", "")
    if len(reason) > REASON_MAX:
        raise QueryError(f"the reason has {len(reason):,} characters: give {REASON_MAX:,} at most")
    match action:
        case "approve" | "reject":
            return action, reason
        case _:
            raise QueryError(f"action is {action[:TEXT_MAX]!r}: give approve or reject")
