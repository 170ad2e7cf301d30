"""Requests of the page and the API: their logins and visits, the origin of their forms, and pages as text.

Templates escape what they are given, and no character in it turns the writing around.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dpsql.display import Message, box_html, remove_style, replace_unprintable
from dpsql.errors import Error, Refusal
from dpsql.server.http_requests import StatementDispatch, choose_status, name_user, parse_form, without_paths
from dpsql.server.users import User, Visits

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.session import Session
    from dpsql.sql.syntax.parameters import ParameterValues

_TEMPLATES = Path(__file__).parent / "templates"


def page(name: str, given: Mapping[str, object], *, status: int = 200) -> HTMLResponse:
    """Return a template's page."""
    return HTMLResponse(_environment.get_template(name).render(given), status_code=status)


def answered_html(html: str) -> Markup:
    """Return what dpsql.display made, which is escaped already, as markup."""
    return Markup(html)  # noqa: S704 - see dpsql.display


def _finalize(value: object) -> object:
    """Return a value for a page: markup as it is, and everything else escaped."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) else replace_unprintable(str(value))


def _lines(text: str) -> Markup:
    """Return text of several lines with its breaks; nothing else of it is obeyed."""
    return Markup("\n".join(escape(replace_unprintable(line.expandtabs(4))) for line in text.split("\n")))  # noqa: S704 - escaped


_environment = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_environment.filters.update(
    as_typed=lambda text: Markup(escape(text)),  # noqa: S704 - the analyst's own text, for the box in which they write
    figures=lambda value: "" if value is None else f"{value:.4g}",
    lines=_lines,
    moment=lambda value: value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
)


SURFACE = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDispatch(StatementDispatch):
    """Context of every handler of a request; the `visits` are those of browsers."""

    surface: str = SURFACE
    secure: bool
    visits: Visits = field(default_factory=Visits)

    async def login(self, name: str, password: str, *, address: str) -> User:
        """Return the user with this name and password; raise the same `Refusal` in every other case."""
        user = await self.run(lambda: self.gateway.login(SURFACE, name, password=password, address=address))
        if user is None:
            hint = "Check both; after several failures, wait some minutes."
            raise Refusal("login-failed", "Name and password do not fit.", hint=hint)
        return user

    def begin(self, user: User) -> str:
        """Return the token of a new visit of a user who has logged in."""
        return self.visits.begin(user.name, mark=self.gateway.users.verifier(user.name).stored_key)

    def visitor(self, token: str) -> User | None:
        """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
        access = self.visits.resume(token, self.gateway.users)
        return None if access is None else access.user

    async def ask(
        self,
        user: User,
        text: str,
        *,
        request: Request,
        parameters: ParameterValues = (),
        implicit: bool | None = None,
        consent: bool | None = None,
    ) -> Answer:
        """Return the answer to a statement; raise as `Gateway.ask`, and `Refusal` for too many at once.

        The body of the `request` was read; what is free is stopped when its client goes away.
        """
        return await self._answer(
            user,
            lambda session, stop: session.sql(text, parameters, stop=stop, implicit=implicit, consent=consent),
            request=request,
        )

    async def replay(self, user: User, text: str, *, request: Request) -> Answer:
        """Return the answer to a statement that is stored or free; raise as `Session.replay` and as `ask`."""
        return await self._answer(user, lambda session, stop: session.replay(text, stop=stop), request=request)

    async def _answer(self, user: User, act: Callable[[Session, Stop], Answer], *, request: Request) -> Answer:
        gone = threading.Event()

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":  # the body was read
                pass
            gone.set()

        watching = asyncio.create_task(watch())
        try:
            return await self.answer(user, act, stop=gone.is_set)
        finally:
            watching.cancel()


def require_curator(user: User) -> None:
    """Raise `Refusal` for a user who is not a curator."""
    if not user.is_curator:
        raise Refusal(
            "curators-only", "This is for curators.", hint="Ask a curator, or make one: dpsql user add NAME --curator"
        )


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
    if user is None and _FRAGMENT in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    if user is None:
        return RedirectResponse("/login", status_code=303)
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


def cookie_name(dispatch: RequestDispatch) -> str:
    """Return the name of the cookie; under TLS one that browsers take from this host alone."""
    return "__Host-dpsql" if dispatch.secure else "dpsql"


def set_cookie(dispatch: RequestDispatch, response: Response, *, token: str) -> None:
    """Set the cookie of a visit: for this host and its own pages only, and unreadable for scripts."""
    response.set_cookie(
        cookie_name(dispatch), token, httponly=True, samesite="strict", secure=dispatch.secure, path="/"
    )


async def proven_form(dispatch: RequestDispatch, request: Request, *, token: str) -> Mapping[str, str]:
    """Return the fields of a form that came from our page; raise `Refusal` for any other."""
    form = await parse_form(request)
    if not dispatch.visits.proves(token, form.get(PROOF, "")):
        raise Refusal("form-expired", "This form is no longer good.", hint="Load the page again, and send it again.")
    return form
