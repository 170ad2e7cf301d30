"""Requests over HTTP, for the page, the API and MCP: bodies within limits, threads for statements, and safe responses.

Statements run in one of two bounded pools of threads, so that long ones delay no other request. Errors become problems
of RFC 9457. Around every application is a `Guard`: it sets headers, limits what clients leave unread, and hides faults.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

import anyio
from anyio import CapacityLimiter, Semaphore
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpsql.errors import BudgetExceeded, EngineError, Error, LedgerError, Place, PolicyError, Refusal, UsageError
from dpsql.ledger.failures import MAY_BE_CHARGED, RESERVING, SETTLING
from dpsql.server.gateway import Gateway, fault
from dpsql.server.memory import Holding, MemoryQuota
from dpsql.server.messages import decode_message
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import User

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.session import Session

LONGEST_BODY = 1 << 20  # bytes; a statement has 16 KiB at most, and its parameters are many
_LONGEST_TIME = 10.0  # seconds
_MOST_FIELDS = 20
Body = TypeVar("Body")


async def parse_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise `UsageError` for what is none, and `Refusal` for too much."""
    _require(request, "application/x-www-form-urlencoded")
    body = await read_body(request)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        pass
    else:
        return dict(fields)
    hint = "See /api/openapi.json for what may be sent."
    raise UsageError("request-malformed", "The form cannot be read.", hint=hint)


async def parse_json(request: Request, kind: type[Body], *, is_optional: bool = False) -> Body:
    """Return the JSON of a request as a message; raise `UsageError` for what is none.

    An empty body that `is_optional` is the message with all defaults.
    """
    if not is_optional:
        _require(request, "application/json")
    body = await read_body(request)
    if is_optional and not body:
        return kind()
    _require(request, "application/json")
    return decode_message(body, kind)


async def read_body(request: Request) -> bytes:
    """Return the body of a request; raise `Refusal` for one that is too long or too slow."""
    body = bytearray()
    with anyio.move_on_after(_LONGEST_TIME):
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                hint = f"A body has at most {LONGEST_BODY} bytes."
                raise Refusal("request-length", "The body is too long.", hint=hint)
        return bytes(body)
    raise Refusal("request-slow", "The body did not come in time.", hint="Send it again.")


def _require(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != wanted:
        raise UsageError("request-type", "The body has another type.", hint=f"Send Content-Type: {wanted}")


_STATUS = {
    "analyst-disabled": HTTPStatus.FORBIDDEN,
    "closed": HTTPStatus.SERVICE_UNAVAILABLE,
    "curators-only": HTTPStatus.FORBIDDEN,
    "engine-busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "foreign-origin": HTTPStatus.FORBIDDEN,
    "form-expired": HTTPStatus.FORBIDDEN,
    "ledger-grant": HTTPStatus.CONFLICT,
    "login-failed": HTTPStatus.UNAUTHORIZED,
    "login-required": HTTPStatus.UNAUTHORIZED,
    "no-analyst": HTTPStatus.FORBIDDEN,
    "no-such-method": HTTPStatus.METHOD_NOT_ALLOWED,
    "no-such-page": HTTPStatus.NOT_FOUND,
    "not-stored": HTTPStatus.NOT_FOUND,
    "request-length": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "request-malformed": HTTPStatus.BAD_REQUEST,
    "request-slow": HTTPStatus.REQUEST_TIMEOUT,
    "request-type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "server-busy": HTTPStatus.TOO_MANY_REQUESTS,
    "server-failed": HTTPStatus.INTERNAL_SERVER_ERROR,
    "token-scope": HTTPStatus.FORBIDDEN,
    "too-many-statements": HTTPStatus.TOO_MANY_REQUESTS,
    "unread-answers": HTTPStatus.TOO_MANY_REQUESTS,
    "user-removed": HTTPStatus.UNAUTHORIZED,
}


def choose_status(error: Error) -> HTTPStatus:
    """Return the HTTP status of an error: 422 for a refused statement, 409 for a short budget.

    It is 500, which no proxy sends again, where a repetition may be charged a second time.
    """
    if error.charge in {RESERVING, SETTLING}:
        return HTTPStatus.INTERNAL_SERVER_ERROR
    known = _STATUS.get(error.code)
    if known is not None:
        return known
    match error:
        case BudgetExceeded():
            return HTTPStatus.CONFLICT
        case EngineError():
            return HTTPStatus.INTERNAL_SERVER_ERROR
        case LedgerError():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            return HTTPStatus.UNPROCESSABLE_ENTITY


def plain_problem(error: Error) -> dict[str, object]:
    """Return an error as values that JSON has; the place is that of a `Place`, or words."""
    status, place = choose_status(error), error.place
    where: object = None if place is None else str(place)
    if isinstance(place, Place):
        where = {"line": place.line, "column": place.column, "fragment": place.fragment}
    return {
        "type": f"urn:dpsql:{error.code}",
        "title": type(error).__name__,
        "status": int(status),
        "detail": error.reason,
        "code": error.code,
        "reason": error.reason,
        "hint": error.hint,
        "place": where,
    }


def problem_response(error: Error, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as a response of its status."""
    body = json.dumps(plain_problem(error))
    return Response(body, status_code=choose_status(error), media_type="application/problem+json", headers=headers)


def without_paths(error: Error) -> Error:
    """Return an error without places of the curator, such as the path of the ledger, unless the user is one."""
    if isinstance(error, EngineError | LedgerError | PolicyError) and error.place is not None:
        shown = type(error)(error.code, error.reason, hint=error.hint)
        shown.charge = error.charge
        return shown
    return error


def stopping(*, may_be_charged: bool) -> UsageError:
    """Return the problem of a request that the server, which is stopping, does not wait for any longer."""
    hint = f"{MAY_BE_CHARGED} Send it when the server is there again." if may_be_charged else "Send it again later."
    error = UsageError("closed", "The server is stopping, and did not wait for the answer.", hint=hint)
    error.charge = SETTLING if may_be_charged else ""
    return error


_STATEMENTS, _OTHERS = 256, 32  # threads; more of the first than statements that wait for an engine
_AT_ONCE = 4  # statements of one user; further ones are refused
_LOOKS = 3  # threads of the others of one user; further looks wait
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementDispatch:
    """Access of a surface's requests to the gateway."""

    gateway: Gateway
    surface: str
    asking: Counter[str] = field(default_factory=Counter)
    looking: dict[str, Semaphore] = field(default_factory=dict)
    statements: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_STATEMENTS))
    others: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_OTHERS))

    async def answer(self, user: User, act: Callable[[Session, Stop], Answer], *, stop: Stop) -> Answer:
        """Return the answer of an act on the session; raise as `Gateway.ask`, and `Refusal` for too many at once.

        What is free is interrupted soon after `stop` returns True.
        """
        if self.asking[user.name] >= _AT_ONCE:
            hint = "Wait for the answers to those that are running."
            raise Refusal("server-busy", "This user has too many statements running.", hint=hint)
        self.asking[user.name] += 1
        try:
            return await anyio.to_thread.run_sync(
                lambda: self.gateway.ask(self.surface, user, act=act, stop=stop), limiter=self.statements
            )
        finally:
            self.asking[user.name] -= 1
            if not self.asking[user.name]:
                del self.asking[user.name]

    async def look(self, user: User, act: Callable[[Session], T]) -> T:
        """Return the result of `read`, counted against statements_per_minute."""
        if not self.gateway.throttle.may_ask(user.name):
            hint = "Wait a little; the policy's statements_per_minute says how many there may be."
            raise Refusal("too-many-statements", "This analyst has too many statements waiting.", hint=hint)
        return await self.read(user, act)

    async def read(self, user: User, act: Callable[[Session], T]) -> T:
        """Return the result of an act on the user's session that reads no private row and charges nothing."""
        async with self.looking.setdefault(user.name, Semaphore(_LOOKS)):
            return await self.run(lambda: self.gateway.look(user, act))

    async def run(self, act: Callable[[], T]) -> T:
        """Return the result of a blocking act."""
        return await anyio.to_thread.run_sync(act, limiter=self.others)


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FOR_A_YEAR = "max-age=31536000"
_PIECE = 64 * 1024
_UNREAD, _UNREAD_OF_USER = 512 << 20, 64 << 20  # bytes of responses that clients have not read
_USER = "dpsql.user"


def name_user(scope: Scope, name: str) -> None:
    """Say for whom a request is answered: what is not read counts for this user."""
    scope[_USER] = name


class Guard:
    """An application around another: adds headers, and answers faults with one sentence, the same each time.

    A response is sent in pieces as the client reads it. One for which a user's unread responses leave no room is
    replaced by a problem; with little unread, any is sent.
    """

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry, surface: str, secure: bool) -> None:
        headers = {**_HEADERS, **({"strict-transport-security": _FOR_A_YEAR} if secure else {})}
        self._app = app
        self._telemetry, self._surface = telemetry, surface
        self._quota = MemoryQuota(_UNREAD, _UNREAD_OF_USER, full=_unread_error)
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send, headers=self._headers, quota=self._quota, scope=scope)
        try:
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            pass  # the client left in the middle of its request
        except asyncio.CancelledError:  # the server stops, and its grace is over
            if not response.has_begun:
                await response.fail(stopping(may_be_charged=scope["method"] == "POST"))
            raise
        except Exception as error:  # noqa: BLE001 - its text and frames could contain values
            self._telemetry.log_fault(error, surface=self._surface)
            if not response.has_begun:
                await response.fail(fault())


class _Response:
    """A response on its way to a client; what of its body was not read counts for the user until all of it is sent."""

    def __init__(self, send: Send, *, headers: list[tuple[bytes, bytes]], quota: MemoryQuota, scope: Scope) -> None:
        self._send, self._headers, self._quota, self._scope = send, headers, quota, scope
        self._holding: Holding | None = None
        self._is_replaced = False
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send a part of a response, or a problem in place of one that there is no room for."""
        if self._is_replaced:
            return
        if message["type"] != "http.response.start":
            await _send_pieces(self._send, message)
            return
        try:
            self._hold(message)
        except Refusal as error:
            await self.fail(error)
            self._is_replaced = True
            return
        self.has_begun = True
        message["headers"] = [*message.get("headers", ()), *self._headers, *_cache_headers(message)]
        await self._send(message)

    async def fail(self, error: Error) -> None:
        """Send the problem of an error."""
        response = problem_response(error)
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": response.body})

    def _hold(self, start: Message) -> None:
        """Count the body; raise `Refusal` if too much is unread."""
        length = next((value for name, value in start.get("headers", ()) if name.lower() == b"content-length"), b"0")
        if int(length) > _PIECE:
            quota = self._quota.of_user(self._scope.get(_USER, ""))
            self._holding = quota.hold(int(length), is_forced=quota.has_room)


async def _send_pieces(send: Send, message: Message) -> None:
    """Send a body in pieces, each when the client has read most of what came before."""
    body = memoryview(message.get("body", b""))
    if len(body) <= _PIECE:
        await send(message)
        return
    for at in range(0, len(body), _PIECE):
        more = at + _PIECE < len(body) or message.get("more_body", False)
        await send({**message, "body": bytes(body[at : at + _PIECE]), "more_body": more})


def _unread_error() -> Refusal:
    hint = "Read the responses that the server has sent, and send this again: what was charged is stored, and free."
    return Refusal("unread-answers", "This user has left too much unread.", hint=hint)


def _cache_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the header that forbids caching, unless the response has its own."""
    if any(name.lower() == b"cache-control" for name, _ in message.get("headers", ())):
        return []
    return [(b"cache-control", b"no-store")]
