"""What went wrong with a request, as a document of RFC 9457: `application/problem+json`."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

import msgspec

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:muster:problem:"


class Kind(StrEnum):
    """The kinds of problems: the ends of their types."""

    INVALID = "invalid-request"
    LOGIN = "login-required"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    METHOD = "method-not-allowed"
    REFUSED = "refused"
    LARGE = "too-large"
    MEDIA = "not-json"
    MISDIRECTED = "foreign-name"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"


KINDS = {
    HTTPStatus.BAD_REQUEST: Kind.INVALID,
    HTTPStatus.UNAUTHORIZED: Kind.LOGIN,
    HTTPStatus.FORBIDDEN: Kind.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Kind.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: Kind.METHOD,
    HTTPStatus.CONFLICT: Kind.REFUSED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Kind.LARGE,
    HTTPStatus.REQUEST_URI_TOO_LONG: Kind.LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Kind.MEDIA,
    HTTPStatus.MISDIRECTED_REQUEST: Kind.MISDIRECTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: Kind.FAILED,
    HTTPStatus.SERVICE_UNAVAILABLE: Kind.UNAVAILABLE,
}
"""The kind of problem that each status says."""
MEANINGS = {
    Kind.INVALID: "a parameter or the body is wrong: `detail` names it, its value and what to give",
    Kind.LOGIN: "log in: with a name and a password, or with a token",
    Kind.FORBIDDEN: "you lack the right, or another site sent the request",
    Kind.NOT_FOUND: "there is no such thing, or you may not see it",
    Kind.METHOD: "the path exists; the header `Allow` has its methods",
    Kind.REFUSED: "the coordinator refused the plan: `detail` says why; nothing was changed",
    Kind.LARGE: "the address or the body is too long",
    Kind.MEDIA: "send `Content-Type: application/json`",
    Kind.MISDIRECTED: "without logins the API answers only to names of this machine",
    Kind.FAILED: "a fault of Muster's: its log has the trace",
    Kind.UNAVAILABLE: "the store cannot be read now, or no coordinator answered: try again",
}
"""What each kind says, for the documentation."""


class Problem(msgspec.Struct, kw_only=True):
    """A problem; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str


def make_problem(status: HTTPStatus, detail: str) -> Problem:
    """Return the problem of a status."""
    return Problem(
        type=PREFIX + KINDS[status], title=status.phrase, status=int(status), detail=detail
    )
