"""Kafka's messages by API and version: kio's, and those that it lacks."""

from __future__ import annotations

from typing import Any

from kio import index

from coordinator.wire.messages.txn_offset_commit import REQUEST, RESPONSE

TXN_OFFSET_COMMIT = 28
REQUESTS: dict[tuple[int, int], Any] = {(TXN_OFFSET_COMMIT, 6): REQUEST}
RESPONSES: dict[tuple[int, int], Any] = {(TXN_OFFSET_COMMIT, 6): RESPONSE}


def load_request_schema(api: int, version: int) -> Any:  # noqa: ANN401 - a class as kio has them
    """Return the class of a request."""
    return REQUESTS.get((api, version)) or index.load_request_schema(api, version)


def load_response_schema(api: int, version: int) -> Any:  # noqa: ANN401 - as above
    """Return the class of a response."""
    return RESPONSES.get((api, version)) or index.load_response_schema(api, version)
