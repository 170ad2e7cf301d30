"""Requests of the page: the visit they belong to, the origin of their forms, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dpsql.display import Message, box_html, remove_style
from dpsql.errors import Error, Refusal
from dpsql.server.bodies import parse_form
from dpsql.server.http_requests import name_user
from dpsql.server.problem_details import choose_status, without_paths
from dpsql.server.random_bytes import draw_text
from dpsql.server.users import User
from dpsql.server.web.render import answered_html, page
from dpsql.server.web.request_dispatch import RequestDispatch, require_curator

__all__ = ["PROOF", "Handler", "VisitorRequest", "answer", "box", "cookie_name", "plain_page", "proof_for"]
__all__ += ["choose_status", "proven_form", "set_cookie"]

PROOF = "proof"  # the field of every form that proves where it came from
_FRAGMENT = "hx-request"


@dataclass(frozen=True, slots=True)
class VisitorRequest:
    """Request of a user who is logged in; `form` holds the fields of a form that came from our page."""

    dispatch: RequestDispatch
    request: Request
    user: User
    token: str
    form: Mapping[str, str]

    @property
    def is_fragment(self) -> bool:
        """Whether the request is for a part of the current page."""
        return _FRAGMENT in self.request.headers

    @property
    def text(self) -> str:
        """The statement in the form; browsers end its lines with CR LF, the analyst did not."""
        return self.form.get("text", "").replace("\r\n", "\n")

    def page(self, name: str, given: Mapping[str, object], *, status: int = 200) -> Response:
        """Return a page with what every page shows."""
        common = {
            "path": self.request.url.path,
            "proof": self.dispatch.visits.proof(self.token),
            "user": self.user,
            "may_ask": self.dispatch.gateway.may_ask(self.user),
        }
        return page(name, {**common, **given}, status=status)

    def box(self, error: Error) -> object:
        """Return an error as markup, for this user."""
        return box(error if self.user.is_curator else without_paths(error), self.text)


Handler = Callable[[VisitorRequest], Awaitable[Response]]


async def answer(
    dispatch: RequestDispatch, request: Request, *, handler: Handler, curators_only: bool = False
) -> Response:
    """Return the answer of a handler, the login page without a login, or a page with the error."""
    token = request.cookies.get(cookie_name(dispatch), "")
    user = dispatch.visitor(token)
    if user is None:
        return _to_login(request)
    name_user(request.scope, user.name)
    visit = VisitorRequest(dispatch, request, user, token, {})
    try:
        if curators_only:
            require_curator(user)
        if request.method != "GET":
            visit = VisitorRequest(dispatch, request, user, token, await proven_form(dispatch, request, token=token))
        return await handler(visit)
    except Error as error:
        if visit.is_fragment:
            return page("box.html", {"box": visit.box(error)}, status=200)
        return visit.page("problem.html", {"box": visit.box(error)}, status=choose_status(error))


def box(error: Error, statement: str = "") -> object:
    """Return an error as markup: what was refused, where in the statement, why, and what to write instead."""
    return answered_html(remove_style(box_html(Message(error, statement))))


def plain_page(error: Error) -> Response:
    """Return the page of an error without a login."""
    return page("alone.html", {"box": box(error)}, status=choose_status(error))


def cookie_name(dispatch: RequestDispatch) -> str:
    """Return the name of the cookie; under TLS one that browsers take from this host alone."""
    return "__Host-dpsql" if dispatch.secure else "dpsql"


def set_cookie(dispatch: RequestDispatch, response: Response, *, token: str) -> None:
    """Set the cookie of a visit: for this host and its own pages only, and unreadable for scripts."""
    response.set_cookie(
        cookie_name(dispatch), token, httponly=True, samesite="strict", secure=dispatch.secure, path="/"
    )


def proof_for(dispatch: RequestDispatch, request: Request) -> tuple[str, str]:
    """Return the token of a browser that has not logged in, its own or a new one, and what its forms must prove."""
    token = request.cookies.get(cookie_name(dispatch), "") or draw_text(32)
    return token, dispatch.visits.proof(token)


async def proven_form(dispatch: RequestDispatch, request: Request, *, token: str) -> Mapping[str, str]:
    """Return the fields of a form that came from our page; raise `Refusal` for any other."""
    form = await parse_form(request)
    if not dispatch.visits.proves(token, form.get(PROOF, "")):
        raise Refusal("form-expired", "This form is no longer good.", hint="Load the page again, and send it again.")
    return form


def _to_login(request: Request) -> Response:
    if _FRAGMENT in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    return RedirectResponse("/login", status_code=303)
