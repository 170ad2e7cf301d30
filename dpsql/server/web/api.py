"""JSON API: the operations with their names, scopes, parameters and handlers, and their OpenAPI document.

The same declarations make the routes, the document and its page, which has no script. A request authenticates by
itself, with a password or a token, never by a cookie, so another site cannot make a browser send one.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dpsql.errors import Error, Refusal
from dpsql.report.answer_json import encode_answer, encode_balance, encode_interval, encode_notes, encode_spending
from dpsql.server.http_requests import (
    LAST,
    SURFACE,
    Explanation,
    Grant,
    Query,
    RequestDispatch,
    StatementBody,
    TokenTerms,
    choose_status,
    describe_messages,
    encode_rows,
    list_tables,
    name_user,
    parse_json,
    parse_number,
    problem_response,
    raise_total,
    require_curator,
    spent,
    verify_chain,
)
from dpsql.server.users import Access, User

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
Json = Mapping[str, Any]


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
        return problem_answer(dispatch.refuse(access.user, error))


def problem_answer(error: Error) -> Response:
    """Return an error as a problem."""
    status = choose_status(error)
    return problem_response(error, headers={"www-authenticate": _REALM} if status == status.UNAUTHORIZED else None)


def json_answer(body: object, *, status: int = 200) -> Response:
    """Return values as JSON; what JSON does not have comes as text."""
    return Response(json.dumps(body, default=str), status_code=status, media_type=JSON)


async def _who(dispatch: RequestDispatch, request: Request) -> tuple[Access, str | None]:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    address = "" if request.client is None else request.client.host
    match scheme.lower():
        case "bearer":
            access = dispatch.gateway.find_token(SURFACE, given.strip(), address=address)
            if access is not None:
                return access, given.strip()
        case "basic":
            # Malformed credentials are tried as an empty name: the same error after the same time, and counted as a
            # failure.
            name, password = "", ""
            with suppress(ValueError):  # the base of the errors of base64 and of UTF-8
                decoded = base64.b64decode(given.strip(), validate=True).decode()
                name, password = decoded.split(":", 1)
            return Access.with_password(await dispatch.login(name, password, address=address)), None
    if scheme.lower() == "bearer":
        hint = "Make one with POST /api/v1/token. One of dpsql user token is valid after SIGHUP to the server."
        raise Refusal("login-required", "This token is unknown, was revoked or has expired.", hint=hint)
    hint = "Send a name and password (HTTP Basic), or Authorization: Bearer with a token of POST /api/v1/token."
    raise Refusal("login-required", "Log in first.", hint=hint)


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
    answer = await call.dispatch.answer_client(call.user, statement.run_within(call.access), request=call.request)
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
    weights = dict[str, float]()  # by type, as RFC 9110 says in section 12.5.1
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        weight = next((part.removeprefix("q=") for part in parameters if part.startswith("q=")), "1")
        weights[kind] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    best, chosen = 0.0, JSON
    for kind in (JSON, CSV, ARROW):
        weight_of_kind = weights.get(kind, 0.0)
        if kind == JSON:
            weight_of_kind = max(weight_of_kind, weights.get("*/*", 0.0), weights.get("application/*", 0.0))
        if weight_of_kind > best:
            best, chosen = weight_of_kind, kind
    return chosen


def _encode_receipt(answer: Answer) -> str:
    """Return what belongs beside the rows of a CSV file as a line of JSON in ASCII, short enough for a header."""
    receipt = answer.receipt
    brief = {
        "words": str(receipt),
        "replayed": receipt.replayed,
        "items_charged": receipt.items_charged,
        "used": float(receipt.used),
        "percent_used": float(receipt.percent_used),
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
        told = session.forecast(
            body.sql, body.parameters, times=int(body.times), implicit=body.implicit, consent=body.consent
        )
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
    body = call.read(StatementBody)
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
    def read() -> dict[str, object]:
        found = spent(call.dispatch.gateway)
        return encode_spending(found, found.entries[-call.last :])

    return json_answer(await call.dispatch.run(read))


async def _grant(call: ApiCall) -> Response:
    given = msgspec.structs.asdict(call.read(Grant))
    granted = await call.dispatch.run(lambda: raise_total(call.dispatch.gateway, call.user, given=given))
    return json_answer(granted.plain(), status=201)


async def _verification(call: ApiCall) -> Response:
    found = await call.dispatch.run(lambda: verify_chain(call.dispatch.gateway))
    return json_answer({"events": found.events, "head": found.head})


async def _refusals(call: ApiCall) -> Response:
    latest = call.dispatch.gateway.telemetry.refusals(call.last)
    rows = [
        {"at": one.at.isoformat(), "surface": one.surface, "code": one.code, "analyst": one.analyst} for one in latest
    ]
    return json_answer({"refusals": rows})


OPERATIONS = (
    Operation(
        "POST",
        "/token",
        "token",
        "Exchange a password for a token, which ends when it is not used.",
        _token,
        None,
        TokenTerms,
    ),
    Operation("DELETE", "/token", "endToken", "End the token that the request came with.", _end, None),
    Operation("POST", "/query", "query", "Run a statement, and charge it once.", _query, "query", Query),
    Operation("POST", "/explain", "explain", "Return what a private query may cost; free.", _explain, body=Explanation),
    Operation("POST", "/describe", "describe", "Return the columns of an answer; free.", _describe, body=StatementBody),
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

PREFIX = "/api/v1"
_PROBLEMS = {
    "400": "The request cannot be read.",
    "401": "No user is logged in.",
    "403": "This user may not do this.",
    "408": "The body did not come in time.",
    "409": "The budget that is left does not cover the worst case, or a grant would lower the total; nothing was done.",
    "413": "The body is too long.",
    "415": "The body has another type.",
    "422": "The statement is not answered, or what was given cannot be used; nothing was charged.",
    "429": "Too many requests.",
    "500": "The server could not answer; where a query may have been charged, the reason says so.",
    "503": "The server is stopping, or its ledger cannot be used.",
}
_MADE = {"token": "201", "grant": "201", "endToken": "204"}
_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "reason": {"type": "string"},
        "hint": {"type": "string"},
        "place": {
            "anyOf": [
                {"type": ["string", "null"]},
                {
                    "type": "object",
                    "properties": {
                        "line": {"type": "integer"},
                        "column": {"type": "integer"},
                        "fragment": {"type": "string"},
                    },
                },
            ]
        },
    },
    "required": ["type", "title", "status", "detail", "code", "reason", "hint", "place"],
}


def document() -> dict[str, object]:
    """Return the document, of version 3.1."""
    kinds = {operation.body for operation in OPERATIONS if operation.body is not None}
    (last,), _ = describe_messages(LAST)
    _, described = describe_messages(*kinds)
    named = {_name(title): {**schema, "title": _name(title)} for title, schema in described.items()}
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation, last)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpsql",
            "version": version("dpsql"),
            "description": "Private top-k analytics in SQL: every answer is within the policy's total guarantee.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Problem": _PROBLEM, **dict(sorted(named.items()))},
            "responses": {"Problem": _problem("What went wrong.")},
        },
        "security": [{"password": []}, {"token": []}],
    }


def _name(title: str) -> str:
    """Return the name of a schema: that of its message."""
    return title.removesuffix("Body")


def _operation(operation: Operation, last: object) -> dict[str, object]:
    success: dict[str, object] = {"description": "The token has ended."}
    if operation.name != "endToken":
        content: dict[str, object] = {"application/json": {"schema": {"type": "object"}}}
        success = {"description": "The answer.", "content": content}
        if operation.name == "query":
            content[CSV] = {"schema": {"type": "string"}}
            content[ARROW] = {"schema": {"type": "string", "contentMediaType": ARROW}}
            words = "The receipt of an answer in CSV, as JSON."
            success["headers"] = {RECEIPT: {"description": words, "schema": {"type": "string"}}}
    problems = {status: _problem(words) for status, words in _PROBLEMS.items()}
    described: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": ["curator" if operation.curators_only else "analyst"],
        "responses": {_MADE.get(operation.name, "200"): success, **problems},
    }
    if operation.scope is not None:
        described["security"] = [{"password": []}, {"token": [operation.scope]}]
    if operation.has_last:
        described["parameters"] = [{"name": "last", "in": "query", "required": False, "schema": last}]
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{_name(operation.body.__name__)}"}
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": not operation.is_body_optional, "content": content}
    return described


def _problem(words: str) -> dict[str, object]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": words, "content": {"application/problem+json": {"schema": schema}}}


_EXAMPLES: Mapping[str, object] = {
    "Statement": {"sql": "SELECT country FROM reads GROUP BY country TOP 10 PRIVATE"},
    "Explanation": {"sql": "SELECT country FROM reads GROUP BY country TOP 10 PRIVATE", "times": 5},
    "TokenTerms": {"scopes": ["read", "query"]},
    "Grant": {"epsilon": 2, "delta": "1e-6", "note": "agreed on 12 May"},
}
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
_SCALARS = {"string", "number", "boolean", "null"}


def describe_api(document: Json) -> dict[str, Any]:
    """Return an OpenAPI document as the template shows it."""
    schemas = document["components"]["schemas"]
    operations = [
        _describe_operation(path, method, raw=raw, schemas=schemas)
        for path, methods in document["paths"].items()
        for method, raw in methods.items()
    ]
    problems = next(iter(operations))["problems"]
    return {"info": document["info"], "operations": operations, "problems": problems}


def _describe_operation(path: str, method: str, *, raw: Json, schemas: Json) -> dict[str, Any]:
    """Return an operation as the template shows it."""
    body = raw.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    name = "" if body is None else body["$ref"].rpartition("/")[2]
    answers = {status: one for status, one in raw["responses"].items() if status.startswith("2")}
    (status, answer), *_ = answers.items()
    members = schemas[name] if name else {"properties": {}}
    example = (
        f" \\\n  -H 'Content-Type: application/json' -d '{json.dumps(_EXAMPLES[name])}'" if name in _EXAMPLES else ""
    )
    verb = "" if method == "get" or example else f" -X {method.upper()}"
    scope = next((named["token"][0] for named in raw.get("security", []) if named.get("token")), "")
    return {
        "id": raw["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": raw["summary"],
        "scope": scope,
        "curators_only": "curator" in raw["tags"],
        "parameters": [
            {"name": one["name"], "type": _spell(one["schema"]), "words": one["schema"].get("description", "")}
            for one in raw.get("parameters", [])
        ],
        "members": [
            {
                "name": member,
                "type": _spell(one),
                "words": one.get("description", ""),
                "required": member in members.get("required", []),
            }
            for member, one in members["properties"].items()
        ],
        "is_body_optional": not raw.get("requestBody", {"required": True})["required"],
        "example": f"curl -u NAME{verb} $SERVER{path}{example}",
        "status": status,
        "types": list(answer.get("content", {})),
        "problems": {code: one["description"] for code, one in raw["responses"].items() if code not in answers},
    }


def _spell(schema: Json) -> str:
    """Return the values that a schema allows in words."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    branches = schema.get("anyOf")
    if branches is not None:
        if {branch.get("type") for branch in branches} >= _SCALARS:
            return "text, numbers, true, false or null"
        return " or ".join(dict.fromkeys(_spell(branch) for branch in branches if branch.get("type") != "null"))
    kind = "integer" if schema.get("multipleOf") == 1 else schema["type"]
    if kind == "array":
        return f"list of {_spell(schema['items'])}"
    if kind == "object":
        return f"object of {_spell(schema['additionalProperties'])}"
    low, high = (schema.get(key) for key in ("minimum", "maximum"))
    most = schema.get("maxLength")
    if low is not None and high is not None:
        return f"{_KINDS[kind]} from {low:,.0f} to {high:,.0f}"
    return _KINDS[kind] if most is None else f"{_KINDS[kind]} of at most {most:,} characters"
