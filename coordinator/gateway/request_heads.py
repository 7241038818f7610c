"""What a gateway reads of a request that it sends on: its head, and whether an answer comes."""

from __future__ import annotations

import struct
from typing import Any

from coordinator.wire.apis.config_apis import GROUP
from coordinator.wire.codec import LENGTH, Api, Request, decode_body
from coordinator.wire.decoder import Reader, WireError, client_id_reader, compact_text, legacy_text

GROUP_KEY = 0
"""The kind of coordinator that groups have."""
FLEXIBLE_PRODUCE_SINCE, TRANSACTIONAL_SINCE = 9, 3
PRODUCE_HEAD_MAX = 1 << 17
"""Bytes of a Produce in which its acks are found: two texts are before them."""
_ACKS = struct.Struct(">h")
_HEAD_END = LENGTH.size + 8


def wants_answer(data: bytes, at: int, version: int) -> bool | None:
    """Whether a Produce wants an answer; None while too little of it is there.

    Parameters
    ----------
    at
        Where its length begins.

    Raises
    ------
    WireError
        It is no Produce.
    """
    flexible = version >= FLEXIBLE_PRODUCE_SINCE
    text: Reader = compact_text if flexible else legacy_text
    try:
        _, end = client_id_reader(flexible=flexible)(data, at + _HEAD_END)
        if version >= TRANSACTIONAL_SINCE:
            _, end = text(data, end)
        (acks,) = _ACKS.unpack_from(data, end)
    except (struct.error, IndexError, UnicodeDecodeError, WireError):
        (length,) = LENGTH.unpack_from(data, at)
        if len(data) - at >= min(LENGTH.size + length, PRODUCE_HEAD_MAX):
            raise WireError("a Produce whose acks cannot be read") from None
        return None
    return bool(acks)


def is_about_groups(request: Request) -> bool:
    """Whether Muster answers a request of an API that the cluster has, too.

    Raises
    ------
    WireError
        It is no such request.
    """
    if request.unread:  # a long one
        decode_body(request)
    body: Any = request.body
    if request.api is Api.FIND_COORDINATOR:
        return bool(getattr(body, "key_type", GROUP_KEY) == GROUP_KEY)
    if request.api is Api.LIST_CONFIG_RESOURCES:
        return set(getattr(body, "resource_types", ())) == {GROUP}
    return {one.resource_type for one in body.resources} == {GROUP}
