"""Pages of analysts and curators, the visits that ask for them, and the origin of their forms.

An analyst has the query with its answer, the price before it runs, the history, and the tables; a curator has spending,
the policy, the ledger with its grants, and refusals, for which no private row is read. Templates escape what they are
given, and no character in it turns the writing around.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from dpsql.accounting import ApproximateDP, compute_used_share, describe_periods, format_percent, round_up, to_percent
from dpsql.completion import find_completions
from dpsql.curator import refuse_falling_shares
from dpsql.display import (
    Facts,
    Message,
    Meter,
    Part,
    box_html,
    budget_html,
    facts_html,
    remove_style,
    replace_unprintable,
)
from dpsql.errors import Error, LedgerError, Refusal, UsageError
from dpsql.receipt import REREAD
from dpsql.report.balance import describe_outcome
from dpsql.report.forecast import (
    describe_at_most,
    describe_offer,
    describe_plans,
    describe_together,
    forecast,
    price_together,
)
from dpsql.report.policy_text import describe_policy
from dpsql.server.http_requests import (
    RequestDispatch,
    StatementBody,
    budget_asked,
    change_published,
    choose_status,
    find_ledger,
    list_accounts,
    list_published,
    name_user,
    parse_form,
    raise_total,
    require_curator,
    spent,
    verify_chain,
    without_paths,
)
from dpsql.server.users import User

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.report.balance import Balance, Spender, Spending
    from dpsql.session import Session


_TEMPLATES = Path(__file__).parent / "templates"


def page(
    name: str, given: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> HTMLResponse:
    """Return a template's page."""
    return HTMLResponse(_environment.get_template(name).render(given), status_code=status, headers=headers)


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


async def answer_visit(
    dispatch: RequestDispatch, request: Request, *, handler: Handler, curators_only: bool = False
) -> Response:
    """Return the answer of a handler, the login page without a login, or a page with the error."""
    token = request.cookies.get(cookie_name(dispatch), "")
    user = dispatch.visitor(token)
    if user is None and _FRAGMENT in request.headers:
        # htmx would follow a redirect and put the login page into the fragment.
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
        shown = {"box": visit.box(dispatch.refuse(user, error))}
        if visit.is_fragment:
            # htmx puts only the body of a success into the page.
            return page("box.html", shown, status=200)
        return visit.page("problem.html", shown, status=choose_status(error))


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


@dataclass(frozen=True, slots=True)
class Preview:
    """In a few words, whether it is `free`, `stored`, `short` of budget or `priced`, and the facts of its plan.

    `warnings` say why the charge is likely wasted. A statement that reads no private
    row has neither `meters` nor `facts`.
    """

    kind: str
    words: str
    warnings: tuple[str, ...] = ()
    meters: Markup | None = None
    facts: Markup | None = None


def preview_cost(session: Session, text: str) -> Preview:
    """Return the preview of a statement; raise as `dpsql.Session.explain` for one that cannot be run."""
    try:
        plans = session.explain_all(text)
    except Refusal as refusal:
        if refusal.code != "not-a-query" or refusal.place is not None:
            raise
        session.describe(text)  # the statement's own errors say what else is wrong
        return Preview("free", "This reads no private row and costs nothing.")
    balance = session.budget
    warnings = tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings))
    if len(plans) > 1:  # what they cost together
        described = describe_plans(plans, balance)
        warnings += tuple(dict.fromkeys(value for name, value in described if name == "consent"))
        listed = Facts("Plan: nothing was read, nothing was charged", described)
        facts = answered_html(remove_style(facts_html(listed)))
        cost, left = price_together(plans), balance.remaining
        words = f"{len(plans)} private queries: {describe_together(plans, balance)}."
        if cost is None:
            return Preview("stored", words, facts=facts)
        is_short = cost.refundable > left.refundable or cost.permanent > left.permanent
        return Preview("short" if is_short else "priced", words, warnings, facts=facts)
    (plan,) = plans
    facts, clause = answered_html(remove_style(plan._repr_html_())), plan.query.clause
    reading = f"Read as {clause}. " if clause.implied else ""
    if plan.stored and not plan.fresh:
        words = "Answered before: asking again shows that answer and costs nothing."
        if plan.reused is not None:
            words = f"{plan.reused.words[0].upper()}{plan.reused.words[1:]}: asking shows it and costs nothing."
        return Preview("stored", reading + words, facts=facts)
    balance = balance.of(plan.charged_values)
    fits, worst = forecast(plan, balance.remaining, times=1), plan.price(plan.worst_case)
    most, rest = describe_at_most(worst, balance), format_percent(balance.percent_left)
    warnings += tuple(value for name, value in fits.facts() if name == "consent")
    offer = describe_offer(plan) and f" {describe_offer(plan).strip()}"
    if not fits.at_worst:
        words = f"This may cost {most.removeprefix('at most ')}, and {rest} is left.{offer}"
        return Preview("short", reading + words, warnings, facts=facts)
    queries = "1 such query fits" if fits.at_worst == 1 else f"{fits.at_worst:,} such queries fit"
    again = "It was answered before; fresh = true draws new noise. " if plan.stored else ""
    if plan.reread and not plan.stored:
        again = f"{REREAD[0].upper()}{REREAD[1:]}. "
    words = f"{reading}{again}{most[0].upper()}{most[1:]}. {queries} in what is left.{offer}"
    rise = balance.measure(worst)
    used = [
        Part("already used, by all" if balance.others else "already used", 1 - balance.left),
        Part("this, at most,", rise.share, now=True),
    ]
    meter = Meter("budget", Fraction(1), used, max(Fraction(0), balance.left - rise.share))
    meters = answered_html(remove_style(budget_html("What it would leave", [meter], notes=[])))
    return Preview("priced", words, warnings, meters=meters, facts=facts)


_LONGEST_LINK = 4_000  # characters of a statement
_SHOWN = 100  # entries of the history
_OFFERED = 12  # words
_COMPLETED = 4096  # characters of a statement that is completed; completions are searched at every key press
_FORMATS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


@dataclass(frozen=True, slots=True)
class _AnswerView:
    """An answer, as the page shows it; `link` is the query of an address that shows it again, "" for a long one."""

    html: object
    cited: str
    state: str
    text: str
    python: str
    link: str

    @classmethod
    def of(cls, answer: Answer, visit: VisitorRequest, *, text: str) -> _AnswerView:
        state = "free"
        if answer.receipt.k:
            state = "replayed" if answer.receipt.replayed else "charged"
        markup = remove_style(answer._repr_html_())
        link = urlencode({"text": text}) if len(text) <= _LONGEST_LINK else ""
        # a program that runs the query over the PostgreSQL protocol, from which the server's host is known
        listening = visit.dispatch.gateway.service.policy.server.listens().get("postgres")
        port = listening[1] if isinstance(listening, tuple) else 5433
        address = f"host={visit.request.url.hostname} port={port} user={visit.user.name}"
        python = (
            "import psycopg  # the password is in PGPASSWORD or ~/.pgpass\n\n"
            f"with psycopg.connect({address!r}, autocommit=True) as connection:\n"
            f"    rows = connection.execute({text!r}).fetchall()"
        )
        return cls(answered_html(markup), answer.statement(), state, text, python, link)


async def home(visit: VisitorRequest) -> Response:
    """Return the page with the query box; `again` fills in an earlier query by its number."""
    if not visit.dispatch.gateway.may_ask(visit.user):
        return RedirectResponse("/curator/spending", status_code=303)
    wanted = visit.request.query_params.get("again", "")
    text = ""
    if wanted:
        text = await visit.dispatch.read(visit.user, lambda session: _asked_before(session, wanted))
    return await _page(visit, text=text)


async def ask(visit: VisitorRequest) -> Response:
    """Run the query, and charge it."""
    try:
        statement = StatementBody(sql=visit.text)
        answer = await visit.dispatch.answer_client(visit.user, statement.run, request=visit.request)
    except Error as error:
        return await _page(visit, text=visit.text, problem=visit.box(error))
    return await _page(visit, text=visit.text, answer=_AnswerView.of(answer, visit, text=visit.text))


async def preview(visit: VisitorRequest) -> Response:
    """Return the price of the query. Nothing is charged, and errors are unobtrusive while the user types."""
    found, problem = None, None
    if visit.text.strip():
        try:
            found = await visit.dispatch.look(visit.user, lambda session: preview_cost(session, visit.text))
        except Error as error:
            problem = error
    if visit.is_fragment:
        return visit.page("preview.html", {"preview": found, "problem": problem})
    return await _page(visit, text=visit.text, preview=found, problem=problem and visit.box(problem))


async def replay(visit: VisitorRequest) -> Response:
    """Return a stored answer of the history; where running the query would be charged, return the price instead."""
    number = visit.form.get("number", "")
    text = await visit.dispatch.read(visit.user, lambda session: _asked_before(session, number))
    shown, preview = await _replay(visit, text)
    if visit.is_fragment:
        return visit.page("replayed.html", {"answer": shown, "preview": preview, "problem": None})
    return await _page(visit, text=text, answer=shown, preview=preview)


async def stored(visit: VisitorRequest) -> Response:
    """Return the page of a stored answer of the visitor; where the query would be charged, return its price instead."""
    text = visit.request.query_params.get("text", "")
    shown, preview = await _replay(visit, text)
    return await _page(visit, text=text, answer=shown, preview=preview)


async def download(visit: VisitorRequest) -> Response:
    """Return a stored answer of the visitor as a CSV or Parquet file; refuse one that would be charged.

    With the parameter quote_formulas=true, CSV is for a spreadsheet.
    """
    kind = visit.request.path_params["format"]
    if kind not in _FORMATS:
        raise UsageError("no-such-page", "There is no such format.", hint="Formats are csv and parquet.")
    text = visit.request.query_params.get("text", "")
    answer = await _find_stored(visit, text)
    headers = {"content-disposition": f'attachment; filename="answer.{kind}"'}
    quote_formulas = visit.request.query_params.get("quote_formulas") == "true"

    def encode() -> bytes:
        if kind == "csv":
            return (answer.to_csv(quote_formulas=quote_formulas) or "").encode()
        import pyarrow as pa
        from pyarrow import parquet

        sink = pa.BufferOutputStream()
        parquet.write_table(answer.arrow(), sink)
        return bytes(sink.getvalue())

    file = await visit.dispatch.run(encode)
    return Response(file, media_type=_FORMATS[kind], headers=headers)


async def describe_language(visit: VisitorRequest) -> Response:
    """Return the page that says how to ask, and what an answer means."""
    return visit.page("help.html", {})


async def _find_stored(visit: VisitorRequest, text: str) -> Answer:
    """Return the answer to a statement that is stored or free; raise as `Session.replay`."""
    return await visit.dispatch.answer_client(
        visit.user, lambda session, stop: session.replay(text, stop=stop), request=visit.request
    )


async def _replay(visit: VisitorRequest, text: str) -> tuple[_AnswerView | None, Preview | None]:
    """Return the stored answer to a query; for a query that would be charged, its preview."""
    try:
        answer = await _find_stored(visit, text)
    except Refusal as refusal:
        if refusal.code != "not-stored":
            raise
        return None, await visit.dispatch.look(visit.user, lambda session: preview_cost(session, text))
    return _AnswerView.of(answer, visit, text=text), None


async def complete(visit: VisitorRequest) -> Response:
    """Return completions of a statement: words of the language and names of the policy."""
    before = visit.text if len(visit.text) <= _COMPLETED else ""
    begun, words = await visit.dispatch.read(
        visit.user, lambda session: find_completions(before, session.catalog, commands={})
    )
    is_written = begun.lower() in map(str.lower, words)
    return JSONResponse({"begun": begun, "words": [] if is_written else words[:_OFFERED]})


async def history(visit: VisitorRequest) -> Response:
    """Return the page of the analyst's queries, newest first."""

    def look(session: Session) -> tuple[int, list[dict[str, object]], tuple[str, str]]:
        table = session.history
        first = max(0, table.num_rows - _SHOWN)
        rows = table.slice(first).to_pylist()
        currencies = session.terms.certificate.currencies
        entries = [
            {
                "number": first + at,
                "asked_at": row["asked_at"],
                "query": row["query"],
                "state": row["state"],
                "used": format_percent(Decimal(str(row["percent_used"]))),
                "charged": [row[f"{currency}_charged"] for currency in currencies],
            }
            for at, row in enumerate(rows)
        ]
        return table.num_rows, entries[::-1], currencies

    count, rows, currencies = await visit.dispatch.read(visit.user, look)
    return visit.page("history.html", {"count": count, "rows": rows, "currencies": currencies})


async def tables(visit: VisitorRequest) -> Response:
    """Return the page of the tables and their columns."""
    given = await visit.dispatch.read(visit.user, lambda session: [*session.catalog.list_tables()])
    return visit.page("tables.html", {"tables": given})


async def _page(
    visit: VisitorRequest,
    *,
    text: str,
    answer: _AnswerView | None = None,
    problem: object = None,
    preview: object = None,
) -> Response:
    """Return the query page, or only its changed parts for a fragment request."""
    budget, unread = None, None
    try:
        budget = await visit.dispatch.read(visit.user, lambda session: _budget(session.budget))
    except LedgerError as error:
        unread = error
    if unread is not None and answer is None and problem is None:  # these are shown without the budget
        raise unread
    given = {
        "answer": answer,
        "budget": budget,
        "preview": preview,
        "problem": problem,
        "text": text,
    }
    if visit.is_fragment:
        return visit.page("answered.html", given)
    known = await visit.dispatch.read(visit.user, lambda session: [*session.catalog.list_tables()])
    return visit.page("ask.html", {**given, "tables": known})


def _budget(balance: Balance) -> dict[str, object]:
    """Return the remaining budget in words, usual queries that fit, what is free, and the details as meters."""
    pairs = zip(balance.certificate.currencies, (balance.refunded, balance.gone), strict=True)
    meters = [
        Meter(name, part.granted, [Part("spent", part.spent), Part("held", part.reserved, now=True)], part.remaining)
        for name, part in pairs
    ]
    return {
        "meters": answered_html(remove_style(budget_html("", meters, notes=[]))),
        "words": balance.list_notes(),
        "tiles": balance.tiles,
        "by": balance.by,
        "answers": balance.answers,
        "published": balance.published,
        "lines": balance.details(),
    }


def _asked_before(session: Session, number: str) -> str:
    """Return the text of the analyst's query with this number, from 0."""
    table = session.history
    at = int(number) if number.isascii() and number.isdigit() and len(number) < len("1000000000") else -1
    if not 0 <= at < table.num_rows:
        raise UsageError("no-such-page", "There is no such query.", hint="The history lists the queries.")
    return str(table.column("query")[at].as_py())


_LATEST = 200
_NOBODY = "(no name)"


async def spending(visit: VisitorRequest) -> Response:
    """Return the page of accounts with their limits, and the latest queries."""
    found = await visit.dispatch.run(lambda: spent(visit.dispatch.gateway))
    latest = [
        {
            "asked_at": entry.opened_at,
            "account": _NOBODY if entry.account is None else entry.account,
            "query": entry.query,
            "state": describe_outcome(entry),
            "used": format_percent(found.rises[entry.number].percent),
            "charged": None if entry.settlement is None else float(entry.settlement.loss),
            "held": float(entry.worst_case.refundable),
            "second": float(entry.permanent),
        }
        for entry in found.entries[: -_LATEST - 1 : -1]
    ]
    given = {
        "total": answered_html(remove_style(found.balance._repr_html_())),
        "accounts": [
            {
                "name": _NOBODY if spender.name is None else spender.name,
                "meters": answered_html(remove_style(_spender_meters(spender, found))),
            }
            for spender in found.spenders
        ],
        "count": len(found.entries),
        "latest": latest,
        "currencies": found.balance.certificate.currencies,
    }
    return visit.page("spending.html", given)


async def policy(visit: VisitorRequest) -> Response:
    """Return the policy in the words of `dpsql check`, checked against the open data."""
    check = await visit.dispatch.run(visit.dispatch.gateway.service.check)
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in describe_policy(check):  # a title in capitals, and the lines below it
        if line and line == line.upper() and not line.startswith(" "):
            parts.append((line.capitalize(), []))
        else:
            parts[-1][1].append(line)
    sections = [{"title": title, "body": "\n".join(body).strip("\n")} for title, body in parts]
    return visit.page("policy.html", {"sections": sections if len(sections) == 1 else sections[1:]})


async def ledger(visit: VisitorRequest) -> Response:
    """Return the page of the ledger, with the form that raises its total."""
    return await _ledger_page(visit)


async def verify(visit: VisitorRequest) -> Response:
    """Verify the ledger, and return the page of the ledger with the result."""
    try:
        found = await visit.dispatch.run(lambda: verify_chain(visit.dispatch.gateway))
    except Error as error:
        return await _ledger_page(visit, problem=visit.box(error))
    return await _ledger_page(visit, verified=found)


async def grant(visit: VisitorRequest) -> Response:
    """Return what a grant would change; raise the total once it is confirmed."""
    gateway, form = visit.dispatch.gateway, {name: value.strip() for name, value in visit.form.items()}
    try:
        budget = budget_asked(form)
        if form.get("confirmed") == "yes":
            granted = await visit.dispatch.run(lambda: raise_total(gateway, visit.user, given=form))
            return visit.page("granted.html", {"granted": granted, "budget": budget, "form": _grant_fields(form)})
        if not form.get("note"):
            raise UsageError("grant-note", "A grant has a note.", hint="Say why; it is recorded for good.")
        found = await visit.dispatch.run(lambda: spent(gateway))
        refuse_falling_shares(gateway.service.policy, budget, before=found.balance.granted)
    except Error as error:
        return await _ledger_page(visit, problem=visit.box(error))
    wanted = ApproximateDP(budget.epsilon, budget.delta)
    given = {"before": found.balance.granted, "wanted": wanted, "form": _grant_fields(form)}
    return visit.page("confirm.html", given)


async def published(visit: VisitorRequest) -> Response:
    """Return the page of the published tables, with the form that publishes another."""
    return await _published_page(visit)


async def publish(visit: VisitorRequest) -> Response:
    """Return the price of publishing, refreshing or dropping a table; do it once that price is confirmed."""
    gateway, form = visit.dispatch.gateway, {name: value.strip() for name, value in visit.form.items()}
    try:
        words, loss = await visit.dispatch.run(lambda: change_published(gateway, visit.user, given=form))
    except Error as error:
        return await _published_page(visit, problem=visit.box(error))
    if loss is None:
        return await _published_page(visit, done=words)
    kept = {name: form.get(name, "") for name in ("act", "name", "sql", "comment", "account")}
    return await _published_page(visit, asked={**kept, "price": words, "loss": loss})


async def _published_page(
    visit: VisitorRequest, *, problem: object = None, done: str = "", asked: Mapping[str, str] | None = None
) -> Response:
    gateway = visit.dispatch.gateway
    given = {
        "tables": await visit.dispatch.run(lambda: list_published(gateway)),
        "accounts": list_accounts(gateway, visit.user),
        "form": {name: visit.form.get(name, "") for name in ("name", "sql", "comment", "account")},
        "problem": problem,
        "done": done,
        "asked": asked,
    }
    return visit.page("published.html", given)


async def refusals(visit: VisitorRequest) -> Response:
    """Return the refusals since the server started: time, analyst and reason, without texts."""
    return visit.page("refusals.html", {"refusals": visit.dispatch.gateway.telemetry.refusals(_LATEST)})


async def _ledger_page(visit: VisitorRequest, *, verified: object = None, problem: object = None) -> Response:
    total, periods = None, ""
    try:
        balance = (await visit.dispatch.run(lambda: spent(visit.dispatch.gateway))).balance
    except LedgerError as error:  # such as after a grant that the policy does not know of yet
        problem = problem or visit.box(error)
    else:
        total, periods = balance.granted, "" if balance.calendar is None else describe_periods(balance.calendar.periods)
    given = {
        "place": str(find_ledger(visit.dispatch.gateway)),
        "total": total,
        "periods": periods,
        "form": _grant_fields(visit.form),
        "verified": verified,
        "problem": problem,
    }
    return visit.page("ledger.html", given)


def _grant_fields(form: object) -> dict[str, str]:
    given = form if isinstance(form, dict) else {}
    return {name: str(given.get(name, "")).strip() for name in ("epsilon", "delta", "note", "period", "periods")}


def _spender_meters(spender: Spender, found: Spending) -> str:
    """Return both currencies of an account against its limit, or a sentence for an account without access."""
    state, limit = spender.state, spender.limit
    first, second = found.balance.certificate.currencies
    if limit is None:
        note = f"No access; spent {first} {float(state.spent):.6g}, {second} {float(state.permanent):.6g}."
        return budget_html("", [], notes=[note])
    amounts = (first, limit.refundable, state.spent, state.reserved), (second, limit.permanent, state.permanent, 0)
    meters = [
        Meter(
            name,
            granted,
            [Part("spent", gone), Part("held", Fraction(waiting), now=True)],
            max(Fraction(0), granted - gone - waiting),
        )
        for name, granted, gone, waiting in amounts
    ]
    used = round_up(compute_used_share(state, limit))
    return budget_html(f"{format_percent(to_percent(used))} is used", meters, notes=[])
