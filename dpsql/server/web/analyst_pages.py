"""Pages of an analyst: the query with its answer, the price before it runs, the history, and the tables."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.responses import JSONResponse, RedirectResponse, Response

from dpsql.accounting import format_percent
from dpsql.completion import find_completions
from dpsql.display import Facts, Meter, Part, budget_html, facts_html, remove_style
from dpsql.errors import Error, LedgerError, Refusal, UsageError
from dpsql.receipt import REREAD
from dpsql.report.forecast import (
    describe_at_most,
    describe_plans,
    describe_together,
    forecast,
    price_together,
)
from dpsql.server.web.requests import VisitorRequest, answered_html

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.report.balance import Balance
    from dpsql.session import Session


@dataclass(frozen=True, slots=True)
class Preview:
    """In a few words, whether it is `free`, `stored`, `short` of budget or `priced`, and the facts of its plan.

    `warnings` say why the charge is likely wasted. `meters` and `facts` are markup; a statement that reads no private
    row has neither.
    """

    kind: str
    words: str
    warnings: tuple[str, ...] = ()
    meters: str = ""
    facts: str = ""


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
        facts = remove_style(facts_html(listed))
        cost, left = price_together(plans), balance.remaining
        words = f"{len(plans)} private queries: {describe_together(plans, balance)}."
        if cost is None:
            return Preview("stored", words, facts=facts)
        is_short = cost.refundable > left.refundable or cost.permanent > left.permanent
        return Preview("short" if is_short else "priced", words, warnings, facts=facts)
    (plan,) = plans
    facts, clause = remove_style(plan._repr_html_()), plan.query.clause
    reading = f"Read as {clause}. " if clause.implied else ""
    if plan.stored and not plan.fresh:
        words = "Answered before: asking again shows that answer and costs nothing."
        return Preview("stored", reading + words, facts=facts)
    balance = balance.of(plan.charged_values)
    fits, worst = forecast(plan, balance.remaining, times=1), plan.price(plan.worst_case)
    most, rest = describe_at_most(worst, balance), format_percent(balance.percent_left)
    warnings += tuple(value for name, value in fits.facts() if name == "consent")
    if not fits.at_worst:
        words = f"This may cost {most.removeprefix('at most ')}, and {rest} is left."
        return Preview("short", reading + words, warnings, facts=facts)
    queries = "1 such query fits" if fits.at_worst == 1 else f"{fits.at_worst:,} such queries fit"
    again = "It was answered before; fresh = true draws new noise. " if plan.stored else ""
    if plan.reread and not plan.stored:
        again = f"{REREAD[0].upper()}{REREAD[1:]}. "
    words = f"{reading}{again}{most[0].upper()}{most[1:]}. {queries} in what is left."
    rise = balance.measure(worst)
    used = [Part("already used", 1 - balance.left), Part("this, at most,", rise.share, now=True)]
    meter = Meter("budget", Fraction(1), used, max(Fraction(0), balance.left - rise.share))
    markup = remove_style(budget_html("What it would leave", [meter], notes=[]))
    return Preview("priced", words, warnings, meters=markup, facts=facts)


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
        answer = await visit.dispatch.ask(visit.user, visit.text, request=visit.request)
    except Error as error:
        return await _page(visit, text=visit.text, problem=visit.box(error))
    return await _page(visit, text=visit.text, answer=_AnswerView.of(answer, visit, text=visit.text))


async def preview(visit: VisitorRequest) -> Response:
    """Return the price of the query. Nothing is charged, and errors are unobtrusive while the user types."""
    found, problem = None, None
    if visit.text.strip():
        try:
            found = _encode_preview(
                await visit.dispatch.look(visit.user, lambda session: preview_cost(session, visit.text))
            )
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
    answer = await visit.dispatch.replay(visit.user, text, request=visit.request)
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


async def _replay(visit: VisitorRequest, text: str) -> tuple[_AnswerView | None, dict[str, object] | None]:
    """Return the stored answer to a query; for a query that would be charged, its preview."""
    try:
        answer = await visit.dispatch.replay(visit.user, text, request=visit.request)
    except Refusal as refusal:
        if refusal.code != "not-stored":
            raise
        found = await visit.dispatch.look(visit.user, lambda session: preview_cost(session, text))
        return None, _encode_preview(found)
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
    given = await visit.dispatch.read(visit.user, _tables)
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
    known = await visit.dispatch.read(visit.user, _tables)
    return visit.page("ask.html", {**given, "tables": known})


def _budget(balance: Balance) -> dict[str, object]:
    """Return the remaining budget in words, and the details as meters of both currencies and numbers."""
    pairs = zip(balance.certificate.currencies, (balance.refunded, balance.gone), strict=True)
    meters = [
        Meter(name, part.granted, [Part("spent", part.spent), Part("held", part.reserved, now=True)], part.remaining)
        for name, part in pairs
    ]
    return {
        "meters": answered_html(remove_style(budget_html("", meters, notes=[]))),
        "words": str(balance).splitlines(),
        "lines": balance.details(),
    }


def _encode_preview(found: Preview) -> dict[str, object]:
    return {
        "kind": found.kind,
        "words": found.words,
        "warnings": found.warnings,
        "meters": answered_html(found.meters),
        "facts": answered_html(found.facts),
    }


def _asked_before(session: Session, number: str) -> str:
    """Return the text of the analyst's query with this number, from 0."""
    table = session.history
    at = int(number) if number.isascii() and number.isdigit() and len(number) < len("1000000000") else -1
    if not 0 <= at < table.num_rows:
        raise UsageError("no-such-page", "There is no such query.", hint="The history lists the queries.")
    return str(table.column("query")[at].as_py())


def _tables(session: Session) -> list[dict[str, object]]:
    return [
        {
            "name": table.name,
            "unit": table.privacy_unit,
            "columns": [
                {"name": name, "type": str(type_), "is_unit": name == table.privacy_unit}
                for name, type_ in table.columns
            ],
        }
        for table in session.catalog.tables
    ]
