"""What each request passes before it is answered: the name it is sent to, and its login."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TypeAlias, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError
from starlette.requests import Request
from starlette.responses import Response

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.errors.status import Status
from coordinator.storage.record_log import LogError
from coordinator.storage.tables.table_io import BusyError
from coordinator.web.access import Viewer, WebAccess
from coordinator.web.errors import explain, explain_loss, status_of
from coordinator.web.live import Hub
from coordinator.web.pages import Pages
from coordinator.web.plan_decider import PlanDecider

T = TypeVar("T")
Respond: TypeAlias = Callable[[Request, Viewer], Awaitable[Response]]
Refuse: TypeAlias = Callable[[HTTPStatus, str], Response]
"""Returns the response that says why a request is refused."""
QUERY_MAX = 16_384
HTML = "text/html; charset=utf-8"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NO_LOGIN = "Log in as a user of the coordinator (server.sasl_users), or with a token ([oauth])."
NO_RIGHT = (
    "Plans are decided by those who log in and have ALTER_CONFIGS on the group (server.sasl_users, "
    "server.acls)."
)
FOREIGN_NAME = (
    "This page is open only to this machine, under the names localhost, 127.0.0.1 and [::1]. For "
    "other names, configure a login (server.sasl_users)."
)
logger = logging.getLogger("muster.web")


@dataclass(frozen=True, slots=True)
class Site:
    """What all routes need.

    Attributes
    ----------
    status
        Returns the status of the coordinator whose process this is; "" without one.
    config
        The settings that plans are made with.
    """

    pages: Pages
    access: WebAccess
    readers: ThreadPoolExecutor
    hub: Hub
    decider: PlanDecider
    status: Callable[[], str] = str
    config: Config = field(default_factory=Config)

    async def read(self, work: Callable[..., T], *values: object) -> T:
        """Do something slow in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *values)

    async def tell_loss(self) -> str:
        """Explain that a coordinator has lost its store; "" if it has not."""
        status = self.status()
        if status not in {Status.FENCED, Status.BROKEN}:
            return ""
        servers = await self.read(partial(self.pages.reader.find_servers, wall_ms(), fresh=True))
        return explain_loss(status, servers.holder)


async def pass_guarded(site: Site, request: Request, respond: Respond, refuse: Refuse) -> Response:
    """Answer a request of a viewer whom the site knows, or say why it is refused."""
    refused = _check_request(site, request)
    if refused is not None:
        return refuse(*refused)
    login = request.headers.get("authorization", "")
    client = request.client.host if request.client else ""
    viewer = await site.access.identify(login, client)
    if viewer is None:
        return refuse(HTTPStatus.UNAUTHORIZED, NO_LOGIN)
    if lost := await site.tell_loss():
        return refuse(HTTPStatus.SERVICE_UNAVAILABLE, lost)
    try:
        return await respond(request, viewer)
    except SpecError as error:
        return refuse(status_of(error), str(error))
    except (LogError, BusyError, OSError, DeltaError, pa.ArrowException) as error:
        logger.warning("no page: %s", error)
        return refuse(HTTPStatus.SERVICE_UNAVAILABLE, explain(error))


def _check_request(site: Site, request: Request) -> tuple[HTTPStatus, str] | None:
    """Return why a request is refused, from any sender."""
    if len(request.scope["query_string"]) > QUERY_MAX:
        return HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long."
    if not site.access.is_ours(request.headers.get("host", "")):
        return HTTPStatus.MISDIRECTED_REQUEST, FOREIGN_NAME
    return None


def challenge(site: Site, code: HTTPStatus) -> dict[str, str]:
    """Return the header that says how to log in, where a login is missing."""
    return {"WWW-Authenticate": site.access.challenge} if code is HTTPStatus.UNAUTHORIZED else {}


def reply(
    body: str | bytes,
    code: HTTPStatus = HTTPStatus.OK,
    kind: str = HTML,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response with the headers that all have, and more."""
    return Response(body, code, {**HEADERS, **(headers or {})}, media_type=kind)
