"""The API over HTTP: which operation answers a request, entity tags, problems."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.api.openapi import make_document
from coordinator.api.operations import BASE, OPERATIONS, Operation
from coordinator.api.parameters import parse_path, parse_query
from coordinator.api.problems import MEDIA_TYPE, make_problem
from coordinator.display.printable import as_json, visible
from coordinator.web.access import Viewer
from coordinator.web.api import plans, reads
from coordinator.web.api.asking import Answer, Ask, Handler
from coordinator.web.errors import explain
from coordinator.web.guard import Site, challenge, pass_guarded, reply

ROOT = b"/api"
JSON = "application/json"
HEADERS = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
"""A cache asks whether the answer that it keeps still holds."""
TAG = re.compile(r'"[^"]*"')
HANDLERS: dict[str, Handler] = {
    "getDocument": lambda _ask: Answer("", make_document),
    "listGroups": reads.list_groups,
    "getGroup": reads.get_group,
    "listMembers": reads.list_members,
    "listOwnership": reads.list_ownership,
    "listHistory": reads.list_history,
    "listEpochs": reads.list_epochs,
    "listEvents": reads.list_events,
    "listRebalances": reads.list_rebalances,
    "listWaits": reads.list_waits,
    "explainPartition": reads.explain_one,
    "listOffsets": reads.list_offsets,
    "listPlans": plans.list_plans,
    "getPlan": plans.get_plan,
    "listFindings": reads.list_findings,
    "listAudit": reads.list_audit,
    "listNodes": reads.list_nodes,
    "listShards": reads.list_shards,
}
"""What answers each operation that reads."""
SHOWN = {"makePlan", "makeRollback"}
"""Operations that compute a plan; others that are sent something decide about one."""
logger = logging.getLogger("muster.web")


class Api:
    """Answers requests for the API, and leaves the others to the pages.

    It stands before the router, which would take `%2F` in an id for a slash of the path.
    """

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope.get("raw_path") or scope.get("path", "").encode()
        if scope["type"] != "http" or not (path == ROOT or path.startswith(ROOT + b"/")):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, path)
        except Exception as error:
            logger.exception("no answer to %s", visible(request.url.path))
            answer = self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, explain(error))
        await answer(scope, receive, send)

    async def _answer(self, request: Request, path: bytes) -> Response:
        async def respond(request: Request, viewer: Viewer) -> Response:
            found = _find_operations(path)
            if not found:
                why = f"There is no {visible(request.url.path)!r}: {BASE}/openapi.json has all."
                return self._refuse(HTTPStatus.NOT_FOUND, why)
            method = "GET" if request.method == "HEAD" else request.method
            if method not in found:
                allowed = ", ".join(sorted({*found, *(["HEAD"] if "GET" in found else [])}))
                why = f"{method} is not for this path: use {allowed}."
                return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, why, {"Allow": allowed})
            operation, names = found[method]
            given = parse_query(request.scope["query_string"], operation.parameters)
            ask = Ask(operation, self._site.pages, viewer, path, names, given, self._site.config)
            if operation.body is not None:
                return await self._write(ask, request)
            return await self._read(ask, request.headers.get("if-none-match", ""))

        return await pass_guarded(self._site, request, respond, self._refuse)

    async def _read(self, ask: Ask, known: str) -> Response:
        """Answer an operation that only reads, unless its answer is known."""

        def work() -> tuple[str, str | None]:
            answer = HANDLERS[ask.operation.name](ask)
            tag = ask.make_tag(answer.stamp)
            return tag, None if is_known(tag, known) else shape(ask.operation, answer.make())

        tag, body = await self._site.read(work)
        headers = HEADERS | {"ETag": tag}
        if body is None:
            return reply(b"", HTTPStatus.NOT_MODIFIED, JSON, headers)
        return reply(body, kind=JSON, headers=headers)

    async def _write(self, ask: Ask, request: Request) -> Response:
        """Answer an operation that shows a plan, or decides about one."""
        ask = replace(ask, body=await plans.read_request(ask, request))
        if ask.operation.name in SHOWN:
            values = await self._site.read(plans.make_shown_plan, ask)
        else:
            values = await plans.decide(ask, self._site)
        return reply(shape(ask.operation, values), kind=JSON)

    def _refuse(
        self, code: HTTPStatus, why: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        problem = as_json(msgspec.to_builtins(make_problem(code, why))) + "\n"
        more = challenge(self._site, code) | dict(headers or {})
        if code is HTTPStatus.SERVICE_UNAVAILABLE:
            more["Retry-After"] = "5"
        return reply(problem, code, MEDIA_TYPE, more)


def _find_operations(path: bytes) -> dict[str, tuple[Operation, dict[str, str]]]:
    """Return the operations of a path by their methods, each with the names in the path."""
    base = f"{BASE}/".encode()
    parts = parse_path(path.removeprefix(base)) if path.startswith(base) else None
    if parts is None:
        return {}
    found = ((one, one.match(parts)) for one in OPERATIONS)
    return {one.method: (one, names) for one, names in found if names is not None}


def is_known(tag: str, known: str) -> bool:
    """Whether a header If-None-Match names a tag; tags are compared as weak ones."""
    return known.strip() == "*" or tag.removeprefix("W/") in TAG.findall(known)


def shape(operation: Operation, values: object) -> str:
    """Return values as the JSON of an operation's answer: what its schema says, and no more."""
    answer = msgspec.convert(values, operation.answer)
    return as_json(msgspec.to_builtins(answer)) + "\n"
