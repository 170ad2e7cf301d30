"""Pages of an analyst: the query with its answer and its price, the history, and the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, RedirectResponse, Response

from dpsql.completion.candidates import find_completions
from dpsql.display import remove_style
from dpsql.errors import Error, UsageError
from dpsql.server.web.cost_preview import Preview, balance_html, preview_cost
from dpsql.server.web.render import answered_html
from dpsql.server.web.visitor_request import VisitorRequest

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.plan import Balance
    from dpsql.session import Session

__all__ = ["ask", "complete", "history", "home", "preview", "replay", "tables"]

_SHOWN = 100  # entries of the history
_OFFERED = 12  # words
_COMPLETED = 4096  # characters of a statement that is completed; completions are searched at every key press
_FREE = frozenset(["free", "stored"])


@dataclass(frozen=True, slots=True)
class _Shown:
    """An answer, as the page shows it."""

    html: object
    cited: str
    state: str

    @classmethod
    def of(cls, answer: Answer) -> _Shown:
        state = "free"
        if answer.receipt.k:
            state = "replayed" if answer.receipt.replayed else "charged"
        markup = remove_style(answer._repr_html_())
        return cls(answered_html(markup), answer.statement(), state)


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
    return await _page(visit, text=visit.text, answer=_Shown.of(answer))


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

    def look(session: Session) -> tuple[str, Preview]:
        text = _asked_before(session, visit.form.get("number", ""))
        return text, preview_cost(session, text)

    text, found = await visit.dispatch.look(visit.user, look)
    shown, preview = None, None
    if found.kind in _FREE:
        shown = _Shown.of(await visit.dispatch.ask(visit.user, text, request=visit.request))
    else:
        preview = _encode_preview(found)
    if visit.is_fragment:
        return visit.page("replayed.html", {"answer": shown, "preview": preview, "problem": None})
    return await _page(visit, text=text, answer=shown, preview=preview)


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
    answer: _Shown | None = None,
    problem: object = None,
    preview: object = None,
) -> Response:
    """Return the query page, or only its changed parts for a fragment request."""
    given = {
        "answer": answer,
        "budget": await visit.dispatch.read(visit.user, lambda session: _budget(session.budget)),
        "preview": preview,
        "problem": problem,
        "text": text,
    }
    if visit.is_fragment:
        return visit.page("answered.html", given)
    known = await visit.dispatch.read(visit.user, _tables)
    return visit.page("ask.html", {**given, "tables": known})


def _budget(balance: Balance) -> dict[str, object]:
    """Return the remaining budget in words, and the details as meters and numbers."""
    return {
        "meters": answered_html(remove_style(balance_html(balance))),
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
