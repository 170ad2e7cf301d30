"""Requests over HTTP, for the page, the API and MCP: bodies within limits, threads for statements, and safe responses.

JSON bodies and arguments of MCP's tools are messages: types that msgspec checks and describes. Their whole numbers are
floats that are multiples of 1: JSON has one type of numbers, and msgspec's int refuses 30.0.
Statements run in one of two bounded pools of threads, so that long ones delay no other request. Errors become problems
of RFC 9457. Around every application is a `Guard`: it sets headers, limits what clients leave unread, and hides faults.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import parse_qsl

import anyio
import msgspec
from anyio import CapacityLimiter, Semaphore
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from dpsql import curator
from dpsql.accounting import (
    ApproximateDP,
    Periods,
    describe_periods,
)
from dpsql.connect import reopen_ledger
from dpsql.errors import BudgetExceeded, EngineError, Error, LedgerError, Place, PolicyError, Refusal, UsageError
from dpsql.ledger.base import MAY_BE_CHARGED, RESERVING, SETTLING
from dpsql.policy import Budget
from dpsql.policy.settings import UNLISTED
from dpsql.publications import PublicationPlan, PublicationRequest
from dpsql.report.answer_json import encode_value
from dpsql.report.free_answers import columns_table, tables_table
from dpsql.report.stored_tables import name_versions
from dpsql.server.gateway import REQUEST_CODES, Gateway
from dpsql.server.users import Access, User, Visits
from dpsql.server.users import Scope as TokenScope

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.ledger import Verified
    from dpsql.policy import DatabaseUrl
    from dpsql.report.balance import Spending
    from dpsql.session import Session

Body = TypeVar("Body")
LONGEST_BODY = 1 << 20  # bytes; a statement has 16 KiB at most, and its parameters are many
_LONGEST_TIME = 10.0  # seconds
_MOST_FIELDS = 20
_MAX_REASON = 200  # characters; msgspec repeats the names of unknown members
MAX_NOTE = 500  # characters of the note of a grant
Value = str | int | float | bool | None
Amount = Annotated[
    Annotated[float, Meta(gt=0)]
    | Annotated[str, Meta(pattern=r"^[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$", max_length=70)],
    Meta(description="A number, or its decimal digits as text."),
]
Parameters = Annotated[
    Annotated[list[Value], Meta(max_length=2000)] | Annotated[dict[str, Value], Meta(max_length=2000)],
    Meta(description="The values of ? and $1 in their order, or of :name by name."),
]
LAST = Annotated[int, Meta(ge=1, le=1000, description="The number of latest entries to return.")]
Planned = Annotated[float, Meta(ge=1, le=1_000_000, multiple_of=1, description="How many such queries are planned.")]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class StatementBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement with its parameters."""

    sql: Annotated[str, Meta(min_length=1, max_length=16 * 1024, description="One SQL statement.")]
    parameters: Parameters = []
    implicit: Annotated[
        bool | None,
        Meta(description="Whether standard SQL over private tables is read as private; by default as the policy says."),
    ] = None
    consent: Annotated[
        bool | None,
        Meta(description="Whether a query that can hardly return a row is run; by default as the policy says."),
    ] = None

    def run(self, session: Session, stop: Stop | None = None) -> Answer:
        """Return the answer of the session, charged once; raise as that does."""
        return session.sql(self.sql, self.parameters, stop=stop, implicit=self.implicit, consent=self.consent)

    def run_within(self, access: Access) -> Callable[[Session, Stop | None], Answer]:
        """Return `run`, or without the scope "query" an act that answers what is free and never charges."""

        def replay(session: Session, stop: Stop | None = None) -> Answer:
            try:
                return session.replay(self.sql, self.parameters, stop=stop, implicit=self.implicit)
            except Refusal as error:
                if error.code != "not-stored":
                    raise
            raise access.refusal("query")

        return self.run if "query" in access.scopes else replay


class Query(StatementBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement to run, and the form of its answer."""

    quote_formulas: Annotated[
        bool, Meta(description="Of an answer in CSV: put ' before text that a spreadsheet would compute.")
    ] = False


class Explanation(StatementBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement whose price is wanted, for a planned number of times."""

    times: Planned = 1


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A total to which the budget is raised."""

    epsilon: Amount
    delta: Amount
    note: Annotated[str, Meta(min_length=1, max_length=MAX_NOTE)]
    period: Annotated[str, Meta(min_length=2, max_length=20)] | None = None
    periods: Annotated[float, Meta(ge=1, le=100_000, multiple_of=1)] | None = None


class TokenTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a new token may do."""

    scopes: Annotated[
        tuple[TokenScope, ...],
        Meta(min_length=1, max_length=3, description="Some of read, query and curate; by default read and query."),
    ] = ("read", "query")


class Last(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The number of latest queries that are wanted."""

    last: Annotated[
        float, Meta(ge=1, le=1000, multiple_of=1, description="The number of latest queries to return.")
    ] = 20


def decode_message(body: bytes, kind: type[Body]) -> Body:
    """Return a JSON body as a message; raise `UsageError`, which names the place but none of its values."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        reason = _sentence(error)
    except (msgspec.DecodeError, RecursionError):
        reason = "The body is not JSON in UTF-8."
    # Raised outside the handlers, so that msgspec's error is not its context: that one repeats parts of the body.
    raise UsageError("request-malformed", reason, hint="See /api/openapi.json for what may be sent.")


def convert_message(values: Mapping[str, object], kind: type[Body], *, hint: str) -> Body:
    """Return decoded JSON as a message; raise as `decode_message` does, with this hint."""
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        reason = _sentence(error)
    raise UsageError("request-malformed", reason, hint=hint)


def parse_number(text: str, *, name: str) -> int:
    """Return the number of latest entries that a parameter of an address has; raise `UsageError` for another text."""
    try:
        # int() alone would also read "1_0", " 5" and the digits of other scripts.
        return msgspec.convert(int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else text, LAST)
    except msgspec.ValidationError:
        pass
    hint = "Use a whole number from 1 to 1000."
    raise UsageError("request-malformed", f"The parameter {name} is not such a number.", hint=hint)


def describe_messages(*kinds: object) -> tuple[list[dict[str, object]], dict[str, dict[str, object]]]:
    """Return the JSON Schemas of messages, and the schemas to which these refer by name."""
    schemas, named = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return list(schemas), named


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:_MAX_REASON]}." if text and text.isprintable() else "The request has an unexpected form."


def list_tables(session: Session) -> list[dict[str, object]]:
    """Return the tables that may be queried, each with its columns, as values that JSON has."""
    return [
        {**row, "columns": encode_rows(columns_table(session.catalog, session.terms, name=str(row["name"])))}
        for row in encode_rows(tables_table(session.catalog, session.terms))
    ]


def encode_rows(table: pa.Table) -> list[dict[str, object]]:
    """Return the rows of a table as values that JSON has."""
    return [{name: encode_value(value) for name, value in row.items()} for row in table.to_pylist()]


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


async def parse_json(request: Request, kind: type[Body], *, is_optional: bool) -> Body:
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
    "no-share": HTTPStatus.FORBIDDEN,
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

    def refuse(self, user: User, error: Error) -> Error:
        """Return an error as the user may see it; count one of the request, as the gateway does those of statements."""
        if error.code in REQUEST_CODES:
            self.gateway.count_refusal(self.surface, error.code, analyst=user.name)
        return error if user.is_curator else without_paths(error)

    async def answer(self, user: User, act: Callable[[Session, Stop], Answer], *, stop: Stop) -> Answer:
        """Return the answer of an act on the session; raise as `Gateway.ask`, and `Refusal` for too many at once.

        What is free is interrupted soon after `stop` returns True.
        """
        if self.asking[user.name] >= _AT_ONCE:
            hint = "Wait for the answers to those that are running."
            raise Refusal("server-busy", "This user has too many statements running.", hint=hint)
        # Before the first await: only the event loop counts, so of requests that come together each sees the others.
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


_USER = "dpsql.user"


def name_user(scope: Scope, name: str) -> None:
    """Say for whom a request is answered: what is not read counts for this user."""
    scope[_USER] = name


SURFACE = "web"  # of the page and the API


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
            seconds = self.gateway.throttle.count_seconds(name, address)
            hint = f"Check both, and try again in {seconds} s." if seconds else "Check both."
            raise Refusal("login-failed", "Name and password do not fit.", hint=hint)
        return user

    def begin(self, user: User) -> str:
        """Return the token of a new visit of a user who has logged in."""
        return self.visits.begin(user.name, mark=self.gateway.users.verifier(user.name).stored_key)

    def visitor(self, token: str) -> User | None:
        """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
        access = self.visits.resume(token, self.gateway.users)
        return None if access is None else access.user

    async def answer_client(self, user: User, act: Callable[[Session, Stop], Answer], *, request: Request) -> Answer:
        """Return the answer of an act as `answer` does; what is free is stopped when the client goes away.

        The body of the `request` was read.
        """
        gone = threading.Event()
        watching = asyncio.create_task(watch_client(request.receive, gone))
        try:
            return await self.answer(user, act, stop=gone.is_set)
        finally:
            watching.cancel()


async def watch_client(receive: Receive, gone: threading.Event) -> None:
    """Set an event once the client has left, whose request was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def require_curator(user: User) -> None:
    """Raise `Refusal` for a user who is not a curator."""
    if not user.is_curator:
        raise Refusal(
            "curators-only", "This is for curators.", hint="Ask a curator, or make one: dpsql user add NAME --curator"
        )


@dataclass(frozen=True, slots=True)
class Granted:
    """A total that was raised: what it was, what it is, and in which periods it is granted now."""

    before: ApproximateDP
    now: ApproximateDP
    periods: Periods | None

    def plain(self) -> dict[str, object]:
        """Return it as values that JSON has."""
        return {
            "before": {"epsilon": float(self.before.epsilon), "delta": float(self.before.delta)},
            "now": {"epsilon": float(self.now.epsilon), "delta": float(self.now.delta)},
            "periods": None if self.periods is None else describe_periods(self.periods),
            "next": "Write the same total into the policy, and have the server read it again.",
        }


def find_ledger(gateway: Gateway) -> Path | DatabaseUrl:
    """Return the ledger's place."""
    place = gateway.service.policy.ledger
    assert place is not None  # noqa: S101 - a service refuses a policy without one
    return place


def spent(gateway: Gateway) -> Spending:
    """Return who spent what, of the ledger as it is now."""
    return curator.read_spending(gateway.service.policy)


def verify_chain(gateway: Gateway) -> Verified:
    """Compute the chain of all events again; raise `LedgerError` at the first thing that does not fit."""
    return curator.verify_ledger(find_ledger(gateway))


def budget_asked(given: Mapping[str, object]) -> Budget:
    """Return the requested total; raise `PolicyError` or `UsageError` for an invalid one."""
    periods, period = given.get("periods"), given.get("period")
    if isinstance(periods, str) and periods:
        # A form sends text, and JSON a number. Text that is no number of at most six digits becomes 0, which is
        # refused.
        periods = int(periods) if periods.isascii() and periods.isdigit() and len(periods) < len("1000000") else 0
    return Budget(
        _amount(given.get("epsilon")),
        _amount(given.get("delta")),
        period=None if not isinstance(period, str) or not period else period,
        periods=int(periods) if isinstance(periods, int | float) else None,
    )


def raise_total(gateway: Gateway, user: User, *, given: Mapping[str, object]) -> Granted:
    """Raise the ledger's total, for good; the note says by whom. Raises as `dpsql.curator.grant`."""
    budget, note = budget_asked(given), str(given.get("note", "")).strip()
    if not note or len(note) > MAX_NOTE or not note.isprintable():
        hint = "In one line, such as: agreed on 12 May, for the survey of the spring."
        raise UsageError("grant-note", f"A grant has a note of 1 to {MAX_NOTE} printable characters.", hint=hint)
    policy, note = gateway.service.policy, f"{note} (by {user.name}, on the page)"
    before, periods = curator.grant(find_ledger(gateway), budget, note=note, policy=policy)
    gateway.telemetry.log("granted", surface="web", user=user.name)
    return Granted(before, ApproximateDP(budget.epsilon, budget.delta), periods)


def list_accounts(gateway: Gateway, user: User) -> list[str]:
    """Return the accounts that a curator may charge for a published table: their own, and those of the policy."""
    analysts = gateway.service.policy.analysts
    own = analysts.get(user.name, analysts.get(UNLISTED))
    names = [user.name] if own is None or own.has_share else []
    names += [name for name, each in analysts.items() if each.has_share and name != UNLISTED]
    return list(dict.fromkeys(names))


def list_published(gateway: Gateway) -> list[dict[str, object]]:
    """Return the last table of each published name, and whether it is of an earlier version of the data."""
    with closing(reopen_ledger(find_ledger(gateway))) as record:
        version, tables = record.tables()
    last = [(name, each) for name, each in name_versions(tables) if "@" not in name]
    return [
        {"name": name, "account": each.account, "at": each.at, "is_due": each.data_version < version}
        for name, each in last
    ]


def change_published(gateway: Gateway, user: User, *, given: Mapping[str, str]) -> tuple[str, str | None]:
    """Publish, refresh or drop a table if `given` has the price and the loss that were shown; return what was done.

    With others, or without them, return the price in words and the exact loss. Raises as `dpsql.curator.publish`.
    """
    name, account, act = given.get("name", ""), given.get("account", ""), given.get("act", "")
    if act not in {"publish", "refresh", "drop"}:
        raise Refusal("form-expired", "The form does not say what to do.", hint="Load the page again.")
    if act == "drop":
        price = f"{name}: nobody reads it any more. What it cost stays charged."
        if given.get("price") != price:
            return price, ""
        curator.drop(gateway.service.policy, name)
        done = f"{name} is dropped."
    else:
        if account not in list_accounts(gateway, user):
            hint = "Choose another account, or give this one a share under [analysts] in the policy."
            raise Refusal("no-share", "This account has no share of the budget.", hint=hint)

        def publish(session: Session, _: Stop) -> tuple[str, str | None]:
            sql = None if act == "refresh" else given.get("sql", "").replace("\r\n", "\n")
            plan = PublicationPlan(session, PublicationRequest(name, sql, given.get("comment", "")))
            plan.check_budget()
            price = plan.describe_price(), plan.worst_case
            return (str(plan.publish()), None) if (given.get("price"), given.get("loss")) == price else price

        done, loss = gateway.service.answer(account, publish)
        if loss is not None:
            return done, loss
    gateway.telemetry.log("published", surface="web", user=user.name)
    return done, None


def _amount(value: object) -> float | str:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value or "").strip()
