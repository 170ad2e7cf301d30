"""JSON API: the operations with their names, permissions, parameters and handlers.

The same declarations make the routes and the OpenAPI document. A request authenticates by itself, with a password or a
token, never by a cookie, so another site cannot make a browser send one.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from dpsql.answer_json import encode_answer, encode_balance, encode_notes, encode_value
from dpsql.errors import Error, Refusal
from dpsql.plan.report.tables import columns_table, tables_table
from dpsql.server.users import User
from dpsql.server.web import curator_actions
from dpsql.server.web.bodies import parse_json
from dpsql.server.web.problem_details import choose_status, plain_problem, without_paths
from dpsql.server.web.request_dispatch import RequestDispatch, require_curator
from dpsql.server.web.schemas import ASKED, DESCRIBED, EXPLAINED, GRANTED, LAST, Schema, check, number_in

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.session import Session

__all__ = ["ARROW", "MOST_JSON_ROWS", "OPERATIONS", "Call", "Operation", "answer_call", "identified", "json_answer"]
__all__ += ["problem_answer"]

ARROW = "application/vnd.apache.arrow.stream"
MOST_JSON_ROWS = 20_000
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose user is known and whose body fits; `token` is that of its visit, if it came with one."""

    dispatch: RequestDispatch
    user: User
    body: Mapping[str, object]
    numbers: Mapping[str, int]
    token: str | None
    request: Request

    @property
    def accepts(self) -> str:
        """The types of answers that the client takes."""
        return self.request.headers.get("accept", "")

    @property
    def sql(self) -> str:
        """The statement."""
        return str(self.body["sql"])

    @property
    def parameters(self) -> list[object] | dict[str, object]:
        """The values of its parameters."""
        given = self.body.get("parameters", [])
        return given if isinstance(given, list | dict) else []

    @property
    def implicit(self) -> bool | None:
        """Whether standard SQL is read as private; None leaves it to the policy."""
        given = self.body.get("implicit")
        return given if isinstance(given, bool) else None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path; `numbers` are parameters of its address, `body` is what a request must bring along."""

    method: str
    path: str
    name: str
    summary: str
    act: Callable[[Call], Awaitable[Response]]
    body: Schema | None = None
    numbers: Mapping[str, Schema] = field(default_factory=dict)
    curators_only: bool = False


async def answer_call(dispatch: RequestDispatch, request: Request, *, operation: Operation) -> Response:
    """Return the answer to a request, or the problem with it."""
    try:
        user, token = await _who(dispatch, request)
    except Error as error:
        return problem_answer(error)
    try:
        if operation.curators_only:
            require_curator(user)
        numbers = {
            name: number_in(schema, request.query_params[name], name=name)
            for name, schema in operation.numbers.items()
            if name in request.query_params
        }
        body: object = {}
        if operation.body is not None:
            body = await parse_json(request)
            check(operation.body, body)
        known = body if isinstance(body, dict) else {}
        return await operation.act(Call(dispatch, user, known, numbers, token, request))
    except Error as error:
        return problem_answer(error if user.is_curator else without_paths(error))


def problem_answer(error: Error) -> Response:
    """Return an error as a problem."""
    status = choose_status(error)
    headers = {"www-authenticate": 'Basic realm="dpsql", charset="UTF-8"'} if status == status.UNAUTHORIZED else {}
    return json_answer(plain_problem(error), status=status, kind="application/problem+json", headers=headers)


def json_answer(
    body: object,
    *,
    status: int = 200,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return values as JSON; what JSON does not have comes as text."""
    text = json.dumps(body, default=str)
    return Response(text, status_code=status, media_type=kind, headers=dict(headers or {}))


async def _who(dispatch: RequestDispatch, request: Request) -> tuple[User, str | None]:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            user = dispatch.visitor(given.strip())
            if user is not None:
                return user, given.strip()
        case "basic":
            name, password = _basic(given)
            address = "" if request.client is None else request.client.host
            return await dispatch.login(name, password, address=address), None
    hint = "Send Authorization: Basic, or the Bearer token of POST /api/v1/token; tokens end when they are not used."
    raise Refusal("login-required", "Log in first.", hint=hint)


def _basic(given: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return (name, password) if colon else ("", "")


async def identified(dispatch: RequestDispatch, request: Request) -> User | None:
    """Return the user of a request, None without credentials; raise `Refusal` for wrong credentials."""
    return (await _who(dispatch, request))[0] if "authorization" in request.headers else None


async def _token(call: Call) -> Response:
    if call.token is not None:
        hint = "Send Authorization: Basic to get another."
        raise Refusal("login-required", "A token is given for a password.", hint=hint)
    return json_answer({"token": call.dispatch.begin(call.user), "type": "Bearer"}, status=201)


async def _end(call: Call) -> Response:
    if call.token is not None:
        call.dispatch.visits.end(call.token)
    return Response(status_code=204)


async def _query(call: Call) -> Response:
    answer = await call.dispatch.ask(
        call.user, call.sql, parameters=call.parameters, request=call.request, implicit=call.implicit
    )
    if ARROW in call.accepts:
        return Response(_stream(answer), media_type=ARROW)
    if len(answer) > MOST_JSON_ROWS:  # encoded in one step, which blocks all other requests
        hint = f"Send Accept: {ARROW}, or add LIMIT {MOST_JSON_ROWS}; what was charged is stored, and free again."
        reason = f"An answer in JSON has at most {MOST_JSON_ROWS} rows."
        raise Refusal("answer-too-long", reason, hint=hint)
    return json_answer({**encode_answer(answer), "interval": _interval(answer), "statement": answer.statement()})


def _interval(answer: Answer) -> dict[str, object] | None:
    """Return how far the exact counts are from the released ones at most, with which probability, and which those are.

    Counts that were made monotone have none.
    """
    if answer.counts is None or answer.counts.adjusted:
        return None
    first, *others = (
        {"reach": each.half_width(_LEVEL), "columns": list(each.columns)}
        for each in (answer.counts, *answer.counts.others)
    )
    return {"level": _LEVEL, **first, **({"others": others} if others else {})}


def _stream(answer: Answer) -> bytes:
    """Return the answer as a stream of Arrow's IPC, its receipt in the metadata of the schema."""
    import pyarrow as pa

    table = answer.arrow()
    receipt = json.dumps(encode_notes(answer))
    schema = table.schema.with_metadata({**(table.schema.metadata or {}), b"dpsql.receipt": receipt.encode()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(table.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


async def _explain(call: Call) -> Response:
    times = call.body.get("times", 1)
    planned = int(times) if isinstance(times, int | float) else 1

    def act(session: Session) -> dict[str, object]:
        plan = session.explain(call.sql, call.parameters, implicit=call.implicit)
        told = session.forecast(call.sql, call.parameters, times=planned, implicit=call.implicit)
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


async def _describe(call: Call) -> Response:
    schema = await call.dispatch.look(
        call.user, lambda session: session.describe(call.sql, call.parameters, implicit=call.implicit)
    )
    return json_answer({"columns": [{"name": each.name, "type": str(each.type)} for each in schema]})


async def _budget(call: Call) -> Response:
    return json_answer(await call.dispatch.look(call.user, lambda session: encode_balance(session.budget)))


async def _history(call: Call) -> Response:
    last = call.numbers.get("last", 100)

    def act(session: Session) -> list[dict[str, object]]:
        table = session.history
        return _rows(table.slice(max(0, table.num_rows - last)))

    return json_answer({"queries": await call.dispatch.look(call.user, act)})


async def _tables(call: Call) -> Response:
    def act(session: Session) -> list[dict[str, object]]:
        return [
            {**row, "columns": _rows(columns_table(session.catalog, session.terms, name=str(row["name"])))}
            for row in _rows(tables_table(session.catalog, session.terms))
        ]

    return json_answer({"tables": await call.dispatch.look(call.user, act)})


async def _spending(call: Call) -> Response:
    last = call.numbers.get("last", 100)
    return json_answer(await call.dispatch.run(lambda: curator_actions.plain_spent(call.dispatch.gateway, last=last)))


async def _grant(call: Call) -> Response:
    granted = await call.dispatch.run(
        lambda: curator_actions.raise_total(call.dispatch.gateway, call.user, given=call.body)
    )
    return json_answer(granted.plain(), status=201)


async def _verification(call: Call) -> Response:
    found = await call.dispatch.run(lambda: curator_actions.verify(call.dispatch.gateway))
    return json_answer({"events": found.events, "head": found.head})


async def _refusals(call: Call) -> Response:
    seen = call.dispatch.gateway.telemetry.refusals(call.numbers.get("last", 100))
    return json_answer(
        {
            "refusals": [
                {"at": one.at.isoformat(), "surface": one.surface, "code": one.code, "analyst": one.analyst}
                for one in seen
            ]
        }
    )


def _rows(table: pa.Table) -> list[dict[str, object]]:
    return [{name: encode_value(value) for name, value in row.items()} for row in table.to_pylist()]


_LAST = {"last": LAST}
OPERATIONS = (
    Operation("POST", "/token", "token", "Exchange a password for a token, which ends when it is not used.", _token),
    Operation("DELETE", "/token", "endToken", "End the token that the request came with.", _end),
    Operation("POST", "/query", "query", "Answer a statement, and charge it once.", _query, ASKED),
    Operation("POST", "/explain", "explain", "Return what a private query may cost; free.", _explain, EXPLAINED),
    Operation("POST", "/describe", "describe", "Return the columns of an answer; free.", _describe, DESCRIBED),
    Operation("GET", "/budget", "budget", "The budget: granted, spent, reserved and left.", _budget),
    Operation("GET", "/history", "history", "The queries of this analyst, oldest first.", _history, numbers=_LAST),
    Operation("GET", "/tables", "tables", "The tables that may be queried, and their columns.", _tables),
    Operation(
        "GET",
        "/spending",
        "spending",
        "Who spent what, on which queries.",
        _spending,
        numbers=_LAST,
        curators_only=True,
    ),
    Operation("POST", "/grants", "grant", "Raise the total, for good.", _grant, GRANTED, curators_only=True),
    Operation("GET", "/verification", "verify", "Check the whole ledger.", _verification, curators_only=True),
    Operation(
        "GET",
        "/refusals",
        "refusals",
        "What was not answered, newest first.",
        _refusals,
        numbers=_LAST,
        curators_only=True,
    ),
)
