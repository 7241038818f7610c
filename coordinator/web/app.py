"""The pages over HTTP: routes, headers, logins; what is slow runs in threads of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias, cast

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assignors import SpecError
from coordinator.display.printable import as_json, visible
from coordinator.storage.tables.table_io import BusyError
from coordinator.web import pages as shown
from coordinator.web import past_pages, plan_pages
from coordinator.web.access import Viewer, is_same_origin
from coordinator.web.api.routes import Api
from coordinator.web.detail_pages import DetailPages, audit_json, offsets_json
from coordinator.web.doctor_page import DoctorPage, doctor_json
from coordinator.web.errors import ForbiddenError, QueryError, explain
from coordinator.web.guard import HEADERS, NO_RIGHT, Respond, Site, challenge, pass_guarded, reply
from coordinator.web.live import PageEvents
from coordinator.web.pages import Query, Values
from coordinator.web.paging import TEXT_MAX, link
from coordinator.web.past_pages import PastPages
from coordinator.web.plan_form import read_decision, read_form
from coordinator.web.plan_pages import PlanPages
from coordinator.web.rendering import ASSETS_BY_PATH, render

Show: TypeAlias = Callable[[Query, Viewer], Values]
READERS = 2
"""Threads that read the store: no more than this many large pages take up processors at once."""
PARTS = {
    "nodes": ({"nodes": "nodes_now.html"}, "nodes"),
    "groups": (
        {"store": "store_now.html", "list": "groups_list.html", "as-of": "as_of.html"},
        "groups",
    ),
    "group": (
        {
            "when": "group_when.html",
            "now": "group_now.html",
            "members": "group_members.html",
            "as-of": "as_of.html",
        },
        "group",
    ),
}
"""The views that are live: the template of each part, by its id, and the method that shows them."""
FOREVER = "public, max-age=31536000, immutable"
logger = logging.getLogger("muster.web")


def make_app(site: Site) -> Starlette:
    """Return the pages as an ASGI application."""
    pages, past, plans = site.pages, PastPages(site.pages), PlanPages(site.pages)
    details, doctor = DetailPages(site.pages), DoctorPage(site.pages)
    routes = [
        _page(site, "/", "groups.html", pages.groups),
        _page(site, "/group", "group.html", pages.group),
        _page(site, "/nodes", "nodes.html", pages.nodes),
        _json(site, "/nodes.json", pages.nodes, shown.nodes_json),
        _json(site, "/groups.json", pages.groups_by_id, shown.groups_json),
        _json(site, "/group.json", pages.group, shown.group_json),
        _page(site, "/picture", "picture.html", past.picture),
        _page(site, "/loads", "loads.html", past.loads),
        _page(site, "/history", "history.html", past.history),
        _json(site, "/history.json", past.history, past_pages.history_json),
        _page(site, "/partition", "partition.html", past.partition),
        _json(site, "/partition.json", past.partition, past_pages.partition_json),
        _page(site, "/offsets", "offsets.html", details.offsets),
        _json(site, "/offsets.json", details.offsets, offsets_json),
        _page(site, "/member", "member.html", details.member),
        _page(site, "/doctor", "doctor.html", doctor.doctor),
        _json(site, "/doctor.json", doctor.doctor, doctor_json),
        _page(site, "/audit", "audit.html", details.audit),
        _json(site, "/audit.json", details.audit, audit_json),
        _page(site, "/plans", "plans.html", plans.plans),
        _json(site, "/plans.json", plans.plans, plan_pages.plans_json),
        _page(site, "/plan", "plan.html", plans.plan),
        _json(site, "/plan.json", plans.plan, plan_pages.plan_json),
        Route("/plan", guarded(site, partial(_decide, site, plans)), methods=["POST"]),
        Route("/live", guarded(site, partial(_follow, site), text=True)),
        Route("/static/{digest}/{name}", _serve_asset),
        Route("/healthz", _serve_health),
    ]
    handlers: Any = {
        HTTPStatus.NOT_FOUND: _no_page,
        HTTPStatus.METHOD_NOT_ALLOWED: _no_page,
        Exception: _failed,
    }
    zipped = Middleware(GZipMiddleware, minimum_size=2_000, compresslevel=4)
    api = Middleware(Api, site=site)
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=[zipped, api])
    app.router.redirect_slashes = False
    return app


def _page(site: Site, path: str, template: str, show: Show) -> Route:
    async def respond(request: Request, viewer: Viewer) -> Response:
        def work() -> bytes:
            return render(template, viewer=viewer, **show(request.query_params, viewer))

        return reply(await site.read(work))

    return Route(path, guarded(site, respond))


def _json(site: Site, path: str, show: Show, convert: Callable[[Values], Values]) -> Route:
    async def respond(request: Request, viewer: Viewer) -> Response:
        def work() -> str:
            return as_json(convert(show(request.query_params, viewer))) + "\n"

        return reply(await site.read(work), kind="application/json")

    return Route(path, guarded(site, respond, text=True))


def guarded(
    site: Site, respond: Respond, *, text: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that knows its viewer; what is refused becomes a page, or a line of text."""

    def refuse(code: HTTPStatus, why: str) -> Response:
        headers = challenge(site, code)
        if text:
            return reply(f"{visible(why)}\n", code, "text/plain; charset=utf-8", headers)
        return reply(render("error.html", store="", code=code, why=why), code, headers=headers)

    async def route(request: Request) -> Response:
        return await pass_guarded(site, request, respond, refuse)

    return route


async def _follow(site: Site, request: Request, viewer: Viewer) -> Response:
    """Return the stream of a view's parts."""
    query = dict(request.query_params)
    view = query.pop("view", "")
    if view not in PARTS:
        raise QueryError(f"view is {view[:TEXT_MAX]!r}: give one of {', '.join(PARTS)}")
    if site.hub.is_full:
        too_many = f"{site.hub.pages} pages are open: close some (web.connections_max)\n"
        return reply(too_many, HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8")
    if request.method == "HEAD":  # the stream has no end, and its head alone is not an open page
        return reply(b"", kind="text/event-stream")
    templates, name = PARTS[view]
    show: Show = getattr(site.pages, name)

    def make() -> tuple[dict[str, bytes], float]:
        begun = time.thread_time()
        values = show(query, viewer)
        parts = {part: render(template, **values) for part, template in templates.items()}
        return parts, time.thread_time() - begun

    def may_see() -> bool:
        return viewer.is_known() and (view != "group" or viewer.sees(query.get("id", "")))

    await site.read(show, query, viewer)  # a wrong address is refused at once
    # The list has the groups that one may see; a group is the same for all who may see it.
    whose = (viewer.principal, viewer.host) if view == "groups" else ()
    key = (view, tuple(sorted(query.items())), whose)
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return cast("Response", PageEvents(site.hub, key, lambda: site.read(make), may_see, raw))


async def _decide(site: Site, plans: PlanPages, request: Request, viewer: Viewer) -> Response:
    """Approve or reject a plan, and show it; refuse who may not before anything is read."""
    query = request.query_params
    group_id = shown.find_group(query, viewer)
    if not viewer.decides(group_id):
        raise ForbiddenError(NO_RIGHT)
    sent = request.headers
    origin, fetch_site = sent.get("origin"), sent.get("sec-fetch-site")
    if not is_same_origin(sent.get("host", ""), origin, fetch_site):
        raise ForbiddenError("This form was sent by another site.")
    action, reason = read_decision(await read_form(request))
    values = await site.read(plans.plan, query, viewer)
    plan_id = query["plan"]
    answer = site.decider.decide(
        action, group_id, plan_id, values["position"], viewer.principal, reason
    )
    try:
        await asyncio.wrap_future(answer)
    except (SpecError, BusyError) as error:
        refused = isinstance(error, SpecError)
        code = HTTPStatus.CONFLICT if refused else HTTPStatus.SERVICE_UNAVAILABLE
        values = await site.read(plans.plan, query, viewer, str(error))
        return reply(render("plan.html", viewer=viewer, **values), code)
    logger.info("%s: %s plan %s of group %s", viewer.principal, action, plan_id, group_id)
    to = link("/plan", {"id": group_id, "plan": plan_id})
    return reply(b"", HTTPStatus.SEE_OTHER, headers={"Location": to})


async def _serve_asset(request: Request) -> Response:
    asset = ASSETS_BY_PATH.get(request.url.path)
    if asset is None:
        return await _no_page(request)
    return reply(asset.body, kind=asset.kind, headers={"Cache-Control": FOREVER})


async def _serve_health(_request: Request) -> Response:
    return reply("ok\n", kind="text/plain; charset=utf-8")


async def _no_page(request: Request, error: Exception | None = None) -> Response:
    code = HTTPStatus(getattr(error, "status_code", HTTPStatus.NOT_FOUND))
    why = f"There is no page {request.url.path!r}."
    if code is not HTTPStatus.NOT_FOUND:
        why = f"{request.method} is not for {request.url.path!r}."
    return reply(render("error.html", store="", code=code, why=why), code)


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("no page %s", visible(request.url.path), exc_info=error)
    code = HTTPStatus.INTERNAL_SERVER_ERROR
    return reply(render("error.html", store="", code=code, why=explain(error)), code)
