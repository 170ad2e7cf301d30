"""The page for analysts and curators, the JSON API, health and metrics as one application of ASGI.

No page has a script or a style but from its own files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from dpsql.display import style_sheet
from dpsql.errors import Error, Refusal, UsageError
from dpsql.server.gateway import Gateway
from dpsql.server.http import Guard
from dpsql.server.http_requests import SURFACE, RequestDispatch, choose_status
from dpsql.server.users import draw_text
from dpsql.server.web import pages
from dpsql.server.web.api import (
    OPERATIONS,
    PREFIX,
    answer_call,
    describe_api,
    document,
    identified,
    json_answer,
    problem_answer,
)
from dpsql.server.web.pages import (
    Handler,
    VisitorRequest,
    answer_visit,
    box,
    cookie_name,
    page,
    proven_form,
    set_cookie,
)

_STATIC = Path(__file__).parent / "static"
_FILES = {
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
_AN_HOUR = {"cache-control": "max-age=3600"}
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_OWN_NAMES = frozenset(["localhost", "127.0.0.1", "::1"])
Endpoint = Callable[[Request], Awaitable[Response]]


def application(gateway: Gateway, *, secure: bool) -> Starlette:
    """Return the application over a gateway; `secure` says that browsers reach it by TLS, and by nothing else.

    The server that runs it must pass on the real address of the peer, not one that a header names.
    """
    dispatch = RequestDispatch(gateway=gateway, secure=secure)
    described = document()

    async def send_document(_: Request) -> Response:
        return json_answer(described)

    async def send_api_page(_: Request) -> Response:
        return page("api.html", describe_api(described), headers=_AN_HOUR)

    async def health(_: Request) -> Response:
        is_closed = gateway.service.is_closed
        return PlainTextResponse("stopping" if is_closed else "ok", status_code=503 if is_closed else 200)

    routes = [
        *(Route(path, _page(dispatch, act)) for path, act in _PAGES.items()),
        *(Route(path, _page(dispatch, act), methods=["POST"]) for path, act in _ACTIONS.items()),
        *(Route(path, _page(dispatch, act, curators_only=True)) for path, act in _CURATOR_PAGES.items()),
        *(
            Route(path, _page(dispatch, act, curators_only=True), methods=["POST"])
            for path, act in _CURATOR_ACTIONS.items()
        ),
        Route("/login", partial(_login_form, dispatch)),
        Route("/login", partial(_login, dispatch), methods=["POST"]),
        Route("/api/openapi.json", send_document),
        Route("/api/docs", send_api_page),
        *(
            Route(PREFIX + each.path, partial(answer_call, dispatch, operation=each), methods=[each.method])
            for each in OPERATIONS
        ),
        Route("/healthz", health),
        Route("/metrics", partial(_metrics, dispatch)),
        *(Route(f"/static/{name}", _file((_STATIC / name).read_bytes(), kind=kind)) for name, kind in _FILES.items()),
        Route("/static/sheet.css", _file(style_sheet().encode(), kind=_FILES["page.css"])),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, telemetry=gateway.telemetry, surface=SURFACE, secure=secure)],
        exception_handlers={HTTPException: _http_problem},
    )


def _file(body: bytes, *, kind: str) -> Endpoint:
    async def send(_: Request) -> Response:
        return Response(body, media_type=kind, headers=_AN_HOUR)

    return send


async def _metrics(dispatch: RequestDispatch, request: Request) -> Response:
    try:
        user = await identified(dispatch, request)
    except Error as error:
        return problem_answer(error)
    # whether a proxy forwarded the request, or the browser used another name for this machine
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    is_forwarded = any(name in request.headers for name in _FORWARDED) or host.strip("[]") not in _OWN_NAMES
    address = "" if request.client is None else request.client.host
    if dispatch.gateway.may_see_metrics(user, address=address, is_forwarded=is_forwarded):
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(dispatch.gateway.telemetry.metrics(), media_type=kind)
    hint = "Log in as a curator, or ask from this machine itself."
    return problem_answer(Refusal("curators-only", "Metrics are for curators.", hint=hint))


def _page(dispatch: RequestDispatch, handler: Handler, *, curators_only: bool = False) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await answer_visit(dispatch, request, handler=handler, curators_only=curators_only)

    return endpoint


async def _login_form(dispatch: RequestDispatch, request: Request) -> Response:
    return _login_page(dispatch, request)


async def _login(dispatch: RequestDispatch, request: Request) -> Response:
    """Begin a visit under a new token."""
    try:
        form = await proven_form(dispatch, request, token=request.cookies.get(cookie_name(dispatch), ""))
        address = "" if request.client is None else request.client.host
        user = await dispatch.login(form.get("name", ""), form.get("password", ""), address=address)
    except Error as error:
        return _login_page(dispatch, request, error=error)
    response = RedirectResponse("/", status_code=303)
    # A token that another site or person put into the browser before the login does not become that of the visit.
    set_cookie(dispatch, response, token=dispatch.begin(user))
    return response


async def _logout(asks: VisitorRequest) -> Response:
    asks.dispatch.visits.end(asks.token)
    response = RedirectResponse("/login", status_code=303)
    name, secure = cookie_name(asks.dispatch), asks.dispatch.secure
    response.delete_cookie(name, httponly=True, samesite="strict", secure=secure, path="/")
    return response


def _login_page(dispatch: RequestDispatch, request: Request, *, error: Error | None = None) -> Response:
    # The form for the login has a proof too, so that the browser needs a token before there is a visit.
    token = request.cookies.get(cookie_name(dispatch), "") or draw_text(32)  # the browser's own, or a new one
    proof = dispatch.visits.proof(token)
    status = 200 if error is None else choose_status(error)
    response = page("login.html", {"proof": proof, "box": error and box(error)}, status=status)
    set_cookie(dispatch, response, token=token)
    return response


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer for a path or a method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    told: Error = UsageError("no-such-page", "There is nothing here.", hint="See /, or /api/openapi.json.")
    if status == 405:  # noqa: PLR2004 - the status of HTTP
        told = UsageError("no-such-method", "This path needs another HTTP method.", hint="See /api/openapi.json.")
    if request.url.path.startswith("/api"):
        return problem_answer(told)
    return page("alone.html", {"box": box(told)}, status=choose_status(told))


_PAGES: Mapping[str, Handler] = {
    "/": pages.home,
    "/history": pages.history,
    "/answers": pages.stored,
    "/answers.{format:str}": pages.download,
    "/help": pages.describe_language,
    "/tables": pages.tables,
}
_ACTIONS: Mapping[str, Handler] = {
    "/ask": pages.ask,
    "/preview": pages.preview,
    "/complete": pages.complete,
    "/replay": pages.replay,
    "/logout": _logout,
}
_CURATOR_PAGES: Mapping[str, Handler] = {
    "/curator/spending": pages.spending,
    "/curator/policy": pages.policy,
    "/curator/ledger": pages.ledger,
    "/curator/published": pages.published,
    "/curator/refusals": pages.refusals,
}
_CURATOR_ACTIONS: Mapping[str, Handler] = {
    "/curator/verify": pages.verify,
    "/curator/grant": pages.grant,
    "/curator/publish": pages.publish,
}
