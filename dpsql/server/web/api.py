"""JSON API: the operations with their names, scopes, parameters and handlers.

The same declarations make the routes and the OpenAPI document. A request authenticates by itself, with a password or a
token, never by a cookie, so another site cannot make a browser send one.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dpsql.answer_json import encode_answer, encode_balance, encode_interval, encode_notes
from dpsql.errors import Error, Refusal
from dpsql.server.http_requests import choose_status, name_user, parse_json, problem_response, without_paths
from dpsql.server.messages import (
    Explanation,
    Grant,
    Query,
    Statement,
    TokenTerms,
    encode_rows,
    list_tables,
    parse_number,
)
from dpsql.server.users import User
from dpsql.server.visits import Access
from dpsql.server.web.curator_pages import plain_spent, raise_total, verify_chain
from dpsql.server.web.requests import SURFACE, RequestDispatch, require_curator

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.session import Session


ARROW, CSV, JSON = "application/vnd.apache.arrow.stream", "text/csv", "application/json"
RECEIPT = "dpsql-receipt"  # the header of a CSV answer with its receipt in JSON
MOST_JSON_ROWS = 20_000
_MAX_RECEIPT = 4096  # bytes; proxies limit the headers of a response to 8 KiB
_REALM = 'Basic realm="dpsql", charset="UTF-8"'
_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)
Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request whose user may make it and whose body fits; `token` is that which it came with, if any."""

    dispatch: RequestDispatch
    access: Access
    body: msgspec.Struct | None
    last: int
    token: str | None
    request: Request

    @property
    def user(self) -> User:
        """The user whose password or token came with the request."""
        return self.access.user

    @property
    def statement(self) -> Statement:
        """The statement in the body."""
        return self.read(Statement)

    def read(self, kind: type[Body]) -> Body:
        """Return the body of an operation that declares this kind."""
        assert isinstance(self.body, kind)  # noqa: S101 - parse_json made it
        return self.body


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path: the scope and body that a request needs; `has_last` allows the parameter `last`."""

    method: str
    path: str
    name: str
    summary: str
    act: Callable[[ApiCall], Awaitable[Response]]
    scope: str | None = "read"
    body: type[msgspec.Struct] | None = None
    has_last: bool = False

    @property
    def curators_only(self) -> bool:
        """Whether only curators may do this."""
        return self.scope == "curate"

    @property
    def is_body_optional(self) -> bool:
        """Whether a request may have no body."""
        return self.body is TokenTerms


async def answer_call(dispatch: RequestDispatch, request: Request, *, operation: Operation) -> Response:
    """Return the answer to a request, or the problem with it."""
    try:
        access, token = await _who(dispatch, request)
    except Error as error:
        return problem_answer(error)
    name_user(request.scope, access.user.name)
    try:
        if operation.curators_only:
            require_curator(access.user)
        if operation.scope is not None:
            access.require(operation.scope)
        last = 100
        if operation.has_last and "last" in request.query_params:
            last = parse_number(request.query_params["last"], name="last")
        body = None
        if operation.body is not None:
            body = await parse_json(request, operation.body, is_optional=operation.is_body_optional)
        return await operation.act(ApiCall(dispatch, access, body, last, token, request))
    except Error as error:
        return problem_answer(error if access.user.is_curator else without_paths(error))


def problem_answer(error: Error) -> Response:
    """Return an error as a problem."""
    status = choose_status(error)
    return problem_response(error, headers={"www-authenticate": _REALM} if status == status.UNAUTHORIZED else None)


def json_answer(
    body: object,
    *,
    status: int = 200,
    kind: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return values as JSON; what JSON does not have comes as text."""
    text = json.dumps(body, default=str)
    return Response(text, status_code=status, media_type=kind, headers=dict(headers or {}))


async def _who(dispatch: RequestDispatch, request: Request) -> tuple[Access, str | None]:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            access = dispatch.gateway.find_token(SURFACE, given.strip())
            if access is not None:
                return access, given.strip()
        case "basic":
            name, password = _basic(given)
            address = "" if request.client is None else request.client.host
            return Access.with_password(await dispatch.login(name, password, address=address)), None
    if scheme.lower() == "bearer":
        hint = "Make one with POST /api/v1/token. One of dpsql user token is valid after SIGHUP to the server."
        raise Refusal("login-required", "This token is unknown, was revoked or has expired.", hint=hint)
    hint = "Send a name and password (HTTP Basic), or Authorization: Bearer with a token of POST /api/v1/token."
    raise Refusal("login-required", "Log in first.", hint=hint)


def _basic(given: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return (name, password) if colon else ("", "")


async def identified(dispatch: RequestDispatch, request: Request) -> User | None:
    """Return the user of a request, None without credentials; raise `Refusal` for credentials that do not suffice."""
    if "authorization" not in request.headers:
        return None
    access, _ = await _who(dispatch, request)
    access.require("curate")
    return access.user


async def _token(call: ApiCall) -> Response:
    if call.token is not None:
        hint = "Send Authorization: Basic to get another."
        raise Refusal("login-required", "A token is given for a password.", hint=hint)
    scopes = frozenset(call.read(TokenTerms).scopes)
    if "curate" in scopes:
        require_curator(call.user)
    gateway = call.dispatch.gateway
    token = gateway.tokens.create(call.user, scopes, users=gateway.users)
    return json_answer({"token": token, "type": "Bearer", "scopes": sorted(scopes)}, status=201)


async def _end(call: ApiCall) -> Response:
    if call.token is not None:
        call.dispatch.gateway.tokens.end(call.token, call.dispatch.gateway.users)
    return Response(status_code=204)


async def _query(call: ApiCall) -> Response:
    kind = choose_type(call.request.headers.get("accept", ""))
    statement = call.read(Query)
    answer = await call.dispatch.ask(
        call.user,
        statement.sql,
        parameters=statement.parameters,
        request=call.request,
        implicit=statement.implicit,
    )
    if kind == ARROW:
        return Response(await call.dispatch.run(lambda: _encode_arrow(answer)), media_type=ARROW)
    if kind == CSV:
        text = await call.dispatch.run(lambda: answer.to_csv(quote_formulas=statement.quote_formulas))
        return Response(text, media_type=f"{CSV}; header=present", headers={RECEIPT: _encode_receipt(answer)})
    if len(answer) > MOST_JSON_ROWS:  # encoded in one step, which blocks all other requests
        hint = (
            f"Send Accept: {ARROW} or {CSV}, or add LIMIT {MOST_JSON_ROWS}; what was charged is stored, and free again."
        )
        reason = f"An answer in JSON has at most {MOST_JSON_ROWS} rows."
        raise Refusal("answer-too-long", reason, hint=hint)
    return json_answer({**encode_answer(answer), "interval": encode_interval(answer), "statement": answer.statement()})


def choose_type(accept: str) -> str:
    """Return the type of an answer that a client prefers; JSON where it takes none of ours, or several equally."""
    best, chosen = 0.0, JSON
    weights = dict(_read_accept(accept))
    for kind in (JSON, CSV, ARROW):
        weight = weights.get(kind, 0.0)
        if kind == JSON:
            weight = max(weight, weights.get("*/*", 0.0), weights.get("application/*", 0.0))
        if weight > best:
            best, chosen = weight, kind
    return chosen


def _read_accept(accept: str) -> list[tuple[str, float]]:
    """Return the types of a header Accept with their weights (RFC 9110, section 12.5.1)."""
    found = []
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        weight = next((part.removeprefix("q=") for part in parameters if part.startswith("q=")), "1")
        found.append((kind, float(weight) if _WEIGHT.fullmatch(weight) else 0.0))
    return found


def _encode_receipt(answer: Answer) -> str:
    """Return what belongs beside the rows of a CSV file as a line of JSON in ASCII, short enough for a header."""
    receipt = answer.receipt
    brief = {
        "words": str(receipt),
        "replayed": receipt.replayed,
        "items_charged": receipt.items_charged,
        "used": float(receipt.used),
        "bounded_by": answer.bounded_by,
    }
    full = json.dumps({**brief, "note": answer.note, "explanation": answer.explanation})
    return full if len(full) <= _MAX_RECEIPT else json.dumps(brief)


def _encode_arrow(answer: Answer) -> bytes:
    """Return the answer as a stream of Arrow's IPC, its receipt in the metadata of the schema."""
    import pyarrow as pa

    table = answer.arrow()
    receipt = json.dumps(encode_notes(answer))
    schema = table.schema.with_metadata({**(table.schema.metadata or {}), b"dpsql.receipt": receipt.encode()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(table.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


async def _explain(call: ApiCall) -> Response:
    body = call.read(Explanation)

    def act(session: Session) -> dict[str, object]:
        plan = session.explain(body.sql, body.parameters, implicit=body.implicit)
        told = session.forecast(body.sql, body.parameters, times=int(body.times), implicit=body.implicit)
        return {
            "facts": [{"name": name, "value": value} for name, value in plan.facts()],
            "warnings": list(plan.warnings),
            "mechanism": plan.mechanism,
            "items": plan.worst_items,
            "free": plan.stored and not plan.fresh,
            "fits": {"times": told.times, "all": told.fits, "at_worst": told.at_worst, "at_half": told.at_half},
            "words": str(told),
        }

    return json_answer(await call.dispatch.look(call.user, act))


async def _describe(call: ApiCall) -> Response:
    body = call.statement
    schema = await call.dispatch.look(
        call.user, lambda session: session.describe(body.sql, body.parameters, implicit=body.implicit)
    )
    return json_answer({"columns": [{"name": each.name, "type": str(each.type)} for each in schema]})


async def _budget(call: ApiCall) -> Response:
    return json_answer(await call.dispatch.look(call.user, lambda session: encode_balance(session.budget)))


async def _history(call: ApiCall) -> Response:
    def act(session: Session) -> list[dict[str, object]]:
        table = session.history
        return encode_rows(table.slice(max(0, table.num_rows - call.last)))

    return json_answer({"queries": await call.dispatch.look(call.user, act)})


async def _tables(call: ApiCall) -> Response:
    return json_answer({"tables": await call.dispatch.look(call.user, list_tables)})


async def _spending(call: ApiCall) -> Response:
    return json_answer(await call.dispatch.run(lambda: plain_spent(call.dispatch.gateway, last=call.last)))


async def _grant(call: ApiCall) -> Response:
    given = msgspec.structs.asdict(call.read(Grant))
    granted = await call.dispatch.run(lambda: raise_total(call.dispatch.gateway, call.user, given=given))
    return json_answer(granted.plain(), status=201)


async def _verification(call: ApiCall) -> Response:
    found = await call.dispatch.run(lambda: verify_chain(call.dispatch.gateway))
    return json_answer({"events": found.events, "head": found.head})


async def _refusals(call: ApiCall) -> Response:
    seen = call.dispatch.gateway.telemetry.refusals(call.last)
    return json_answer(
        {
            "refusals": [
                {"at": one.at.isoformat(), "surface": one.surface, "code": one.code, "analyst": one.analyst}
                for one in seen
            ]
        }
    )


OPERATIONS = (
    Operation(
        "POST",
        "/token",
        "token",
        "Exchange a password for a token, which ends when it is not used.",
        _token,
        scope=None,
        body=TokenTerms,
    ),
    Operation("DELETE", "/token", "endToken", "End the token that the request came with.", _end, scope=None),
    Operation("POST", "/query", "query", "Run a statement, and charge it once.", _query, "query", Query),
    Operation("POST", "/explain", "explain", "Return what a private query may cost; free.", _explain, body=Explanation),
    Operation("POST", "/describe", "describe", "Return the columns of an answer; free.", _describe, body=Statement),
    Operation("GET", "/budget", "budget", "The budget: granted, spent, reserved and left.", _budget),
    Operation("GET", "/history", "history", "The queries of this analyst, oldest first.", _history, has_last=True),
    Operation("GET", "/tables", "tables", "The tables that may be queried, and their columns.", _tables),
    Operation("GET", "/spending", "spending", "Who spent what, on which queries.", _spending, "curate", has_last=True),
    Operation("POST", "/grants", "grant", "Raise the total, for good.", _grant, "curate", Grant),
    Operation("GET", "/verification", "verify", "Check the whole ledger.", _verification, "curate"),
    Operation(
        "GET", "/refusals", "refusals", "What was not answered, newest first.", _refusals, "curate", has_last=True
    ),
)
