"""What a gateway reads of a request that it sends on: its head, and whether an answer comes."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from kio.index import load_request_schema

from coordinator.wire.apis.config_apis import GROUP
from coordinator.wire.codec import LENGTH, Api
from coordinator.wire.decoder import Reader, WireError, client_id_reader, compact_text, legacy_text

GROUP_KEY = 0
"""The kind of coordinator that groups have."""
FLEXIBLE_PRODUCE_SINCE, TRANSACTIONAL_SINCE = 9, 3
KINDS_SINCE, KIND_FIRST_SINCE = 1, 4
"""Of FindCoordinator: the versions with a kind, and with the kind in front of the key."""
HEAD_MAX = 1 << 17
"""Bytes of a request in which that is found: before it are two texts, and tags."""
HEAD_END = LENGTH.size + 8
_ACKS, _KIND, _COUNT = struct.Struct(">h"), struct.Struct(">b"), struct.Struct(">i")


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

    def find(end: int, text: Reader) -> bool:
        if version >= TRANSACTIONAL_SINCE:
            _, end = text(data, end)
        return bool(_ACKS.unpack_from(data, end)[0])

    return _find(data, at, version >= FLEXIBLE_PRODUCE_SINCE, find)


def is_about_groups(data: bytes, at: int, api: int, version: int) -> bool | None:
    """Whether Muster answers a request of an API that the cluster has, too.

    It does where the kind of coordinator is that of groups, or the first resource is a group. None
    while too little of it is there.

    Raises
    ------
    WireError
        It is no such request.
    """
    flexible = _is_flexible(api, version)

    def find(end: int, text: Reader) -> bool:
        if api == Api.FIND_COORDINATOR:
            if version < KINDS_SINCE:
                return True
            if version < KIND_FIRST_SINCE:
                _, end = text(data, end)
            return bool(_KIND.unpack_from(data, end)[0] == GROUP_KEY)
        if api == Api.LIST_CONFIG_RESOURCES and version == 0:
            return False  # it lists those of clients' metrics alone
        count, size = (data[end] - 1, 1) if flexible else (*_COUNT.unpack_from(data, end), 4)
        return bool(count) and bool(_KIND.unpack_from(data, end + size)[0] == GROUP)

    return _find(data, at, flexible, find)


def _find(data: bytes, at: int, flexible: bool, find: Any) -> bool | None:  # noqa: ANN401, FBT001
    """Look behind a request's header; None where that, or what is looked for, is not whole."""
    try:
        _, end = client_id_reader(flexible=flexible)(data, at + HEAD_END)
        found: bool = find(end, compact_text if flexible else legacy_text)
    except (struct.error, IndexError, UnicodeDecodeError, WireError):
        (length,) = LENGTH.unpack_from(data, at)
        if len(data) - at >= min(LENGTH.size + length, HEAD_MAX):
            raise WireError("a request whose beginning cannot be read") from None
        return None
    return found


@cache
def _is_flexible(api: int, version: int) -> bool:
    message: Any = load_request_schema(api, version)
    return bool(message.__flexible__)
