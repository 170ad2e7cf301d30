"""The page, the API, health and metrics as one application of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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
from dpsql.server.http_requests import Guard, choose_status
from dpsql.server.web import analyst_pages, curator_pages
from dpsql.server.web.api import OPERATIONS, answer_call, identified, json_answer, problem_answer
from dpsql.server.web.openapi import PREFIX, document, render_api_page
from dpsql.server.web.requests import (
    SURFACE,
    Handler,
    RequestDispatch,
    VisitorRequest,
    answer,
    box,
    cookie_name,
    page,
    plain_page,
    proof_for,
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
Endpoint = Callable[[Request], Awaitable[Response]]


def application(gateway: Gateway, *, secure: bool) -> Starlette:
    """Return the application over a gateway; `secure` says that browsers reach it by TLS, and by nothing else.

    The server that runs it must pass on the real address of the peer, not one that a header names.
    """
    dispatch = RequestDispatch(gateway=gateway, secure=secure)
    return Starlette(
        routes=[*_pages(dispatch), *_curators(dispatch), *_api(dispatch), *_operated(dispatch), *_static()],
        middleware=[Middleware(Guard, telemetry=gateway.telemetry, surface=SURFACE, secure=secure)],
        exception_handlers={HTTPException: _http_problem},
    )


def _pages(dispatch: RequestDispatch) -> list[Route]:
    return [
        Route("/", _page(dispatch, analyst_pages.home)),
        Route("/ask", _page(dispatch, analyst_pages.ask), methods=["POST"]),
        Route("/preview", _page(dispatch, analyst_pages.preview), methods=["POST"]),
        Route("/complete", _page(dispatch, analyst_pages.complete), methods=["POST"]),
        Route("/history", _page(dispatch, analyst_pages.history)),
        Route("/answers", _page(dispatch, analyst_pages.stored)),
        Route("/answers.{format:str}", _page(dispatch, analyst_pages.download)),
        Route("/help", _page(dispatch, analyst_pages.describe_language)),
        Route("/replay", _page(dispatch, analyst_pages.replay), methods=["POST"]),
        Route("/tables", _page(dispatch, analyst_pages.tables)),
        Route("/login", partial(_login_form, dispatch)),
        Route("/login", partial(_login, dispatch), methods=["POST"]),
        Route("/logout", _page(dispatch, _logout), methods=["POST"]),
    ]


def _curators(dispatch: RequestDispatch) -> list[Route]:
    shown = {
        "spending": curator_pages.spending,
        "policy": curator_pages.policy,
        "ledger": curator_pages.ledger,
        "refusals": curator_pages.refusals,
    }
    done = {"verify": curator_pages.verify, "grant": curator_pages.grant}
    return [
        *(Route(f"/curator/{name}", _page(dispatch, act, curators_only=True)) for name, act in shown.items()),
        *(
            Route(f"/curator/{name}", _page(dispatch, act, curators_only=True), methods=["POST"])
            for name, act in done.items()
        ),
    ]


def _api(dispatch: RequestDispatch) -> list[Route]:
    described = document()

    async def openapi(_: Request) -> Response:
        return json_answer(described)

    async def readable(_: Request) -> Response:
        return render_api_page(described)

    return [
        Route("/api/openapi.json", openapi),
        Route("/api/docs", readable),
        *(
            Route(
                PREFIX + operation.path, partial(answer_call, dispatch, operation=operation), methods=[operation.method]
            )
            for operation in OPERATIONS
        ),
    ]


def _operated(dispatch: RequestDispatch) -> list[Route]:
    async def health(_: Request) -> Response:
        state = "stopping" if dispatch.gateway.service.is_closed else "ok"
        return PlainTextResponse(state, status_code=200 if state == "ok" else 503)

    async def metrics(request: Request) -> Response:
        try:
            user = await identified(dispatch, request)
        except Error as error:
            return problem_answer(error)
        address = "" if request.client is None else request.client.host
        if dispatch.gateway.may_see_metrics(user, address=address, is_forwarded=_is_forwarded(request)):
            return PlainTextResponse(
                dispatch.gateway.telemetry.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8"
            )
        hint = "Log in as a curator, or ask from this machine itself."
        return problem_answer(Refusal("curators-only", "Metrics are for curators.", hint=hint))

    return [Route("/healthz", health), Route("/metrics", metrics)]


def _static() -> list[Route]:
    def file(body: bytes, kind: str) -> Endpoint:
        async def send(_: Request) -> Response:
            return Response(body, media_type=kind, headers=_AN_HOUR)

        return send

    files = {name: ((_STATIC / name).read_bytes(), kind) for name, kind in _FILES.items()}
    files["sheet.css"] = style_sheet().encode(), _FILES["page.css"]
    return [Route(f"/static/{name}", file(body, kind)) for name, (body, kind) in files.items()]


def _page(dispatch: RequestDispatch, handler: Handler, *, curators_only: bool = False) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await answer(dispatch, request, handler=handler, curators_only=curators_only)

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
    set_cookie(dispatch, response, token=dispatch.begin(user))
    return response


async def _logout(asks: VisitorRequest) -> Response:
    asks.dispatch.visits.end(asks.token)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(
        cookie_name(asks.dispatch),
        httponly=True,
        samesite="strict",
        secure=asks.dispatch.secure,
        path="/",
    )
    return response


def _login_page(dispatch: RequestDispatch, request: Request, *, error: Error | None = None) -> Response:
    token, proof = proof_for(dispatch, request)
    status = 200 if error is None else choose_status(error)
    response = page("login.html", {"proof": proof, "box": error and box(error)}, status=status)
    set_cookie(dispatch, response, token=token)
    return response


def _is_forwarded(request: Request) -> bool:
    """Return whether a proxy forwarded the request, or the browser used another name for this machine."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    return any(name in request.headers for name in _FORWARDED) or host.strip("[]") not in {
        "localhost",
        "127.0.0.1",
        "::1",
    }


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer for a path or a method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    told: Error = UsageError("no-such-page", "There is nothing here.", hint="See /, or /api/openapi.json.")
    if status == 405:  # noqa: PLR2004 - the status of HTTP
        told = UsageError("no-such-method", "This path needs another HTTP method.", hint="See /api/openapi.json.")
    if request.url.path.startswith("/api"):
        return problem_answer(told)
    return plain_page(told)
