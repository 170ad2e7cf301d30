"""The pages of an analyst: the question and its answer, what it would cost, what was asked before, and the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, RedirectResponse, Response

from dpsql.completion.candidates import find_completions
from dpsql.display import remove_style
from dpsql.errors import Error, UsageError
from dpsql.server.web.cost_preview import Preview, balance_html, preview_of
from dpsql.server.web.render import answered_html
from dpsql.server.web.visitor_request import VisitorRequest

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.plan import Balance
    from dpsql.session import Session

__all__ = ["ask", "complete", "history", "home", "preview", "replay", "tables"]

_SHOWN = 100  # entries of the history
_OFFERED = 12  # words
_COMPLETED = 4096  # characters; nobody types more by hand, and what is offered is looked for at every key
_FREE = frozenset(["free", "stored"])


@dataclass(frozen=True, slots=True)
class _Shown:
    """An answer, as the page shows it."""

    html: object
    receipt: str
    cited: str
    state: str

    @classmethod
    def of(cls, answer: Answer) -> _Shown:
        state = "free"
        if answer.receipt.k:
            state = "replayed" if answer.receipt.replayed else "charged"
        markup = remove_style(answer._repr_html_())
        return cls(answered_html(markup), str(answer.receipt), answer.statement(), state)


async def home(asked: VisitorRequest) -> Response:
    """Show the box for a question, with the text of an earlier one where its number is given."""
    if not asked.dispatch.gateway.may_ask(asked.user):
        return RedirectResponse("/curator/spending", status_code=303)
    wanted = asked.request.query_params.get("again", "")
    text = ""
    if wanted:
        text = await asked.dispatch.read(asked.user, lambda session: _asked_before(session, wanted))
    return await _page(asked, text=text)


async def ask(asked: VisitorRequest) -> Response:
    """Answer the question, and charge it."""
    try:
        answer = await asked.dispatch.ask(asked.user, asked.text, request=asked.request)
    except Error as error:
        return await _page(asked, text=asked.text, problem=asked.box(error))
    return await _page(asked, text=asked.text, answer=_Shown.of(answer))


async def preview(asked: VisitorRequest) -> Response:
    """Tell what the question would cost; nothing is charged, and while it is typed errors are told quietly."""
    found, problem = None, None
    if asked.text.strip():
        try:
            found = _told(await asked.dispatch.look(asked.user, lambda session: preview_of(session, asked.text)))
        except Error as error:
            problem = error
    if asked.is_fragment:
        return asked.page("preview.html", {"preview": found, "problem": problem})
    return await _page(asked, text=asked.text, preview=found, problem=problem and asked.box(problem))


async def replay(asked: VisitorRequest) -> Response:
    """Show an answer of the history again, where that costs nothing; where it would cost something, say what."""

    def look(session: Session) -> tuple[str, Preview]:
        text = _asked_before(session, asked.form.get("number", ""))
        return text, preview_of(session, text)

    text, found = await asked.dispatch.look(asked.user, look)
    shown, preview = None, None
    if found.kind in _FREE:
        shown = _Shown.of(await asked.dispatch.ask(asked.user, text, request=asked.request))
    else:
        preview = _told(found)
    if asked.is_fragment:
        return asked.page("replayed.html", {"answer": shown, "preview": preview, "problem": None})
    return await _page(asked, text=text, answer=shown, preview=preview)


async def complete(asked: VisitorRequest) -> Response:
    """Offer what may stand next in a statement that is being typed: words of the language and names of the policy."""
    before = asked.text if len(asked.text) <= _COMPLETED else ""
    begun, words = await asked.dispatch.read(
        asked.user, lambda session: find_completions(before, session.catalog, commands={})
    )
    is_written = begun.lower() in map(str.lower, words)
    return JSONResponse({"begun": begun, "words": [] if is_written else words[:_OFFERED]})


async def history(asked: VisitorRequest) -> Response:
    """List what this analyst asked, newest first."""

    def look(session: Session) -> tuple[int, list[dict[str, object]], tuple[str, str]]:
        table = session.history
        first = max(0, table.num_rows - _SHOWN)
        rows = table.slice(first).to_pylist()
        currencies = session.terms.certificate.currencies
        kept = [
            {
                "number": first + at,
                "asked_at": row["asked_at"],
                "query": row["query"],
                "state": row["state"],
                "charged": [row[f"{currency}_charged"] for currency in currencies],
            }
            for at, row in enumerate(rows)
        ]
        return table.num_rows, kept[::-1], currencies

    count, rows, currencies = await asked.dispatch.read(asked.user, look)
    return asked.page("history.html", {"count": count, "rows": rows, "currencies": currencies})


async def tables(asked: VisitorRequest) -> Response:
    """List the tables that may be asked, and their columns."""
    given = await asked.dispatch.read(asked.user, _tables)
    return asked.page("tables.html", {"tables": given})


async def _page(
    asked: VisitorRequest,
    *,
    text: str,
    answer: _Shown | None = None,
    problem: object = None,
    preview: object = None,
) -> Response:
    """Return the page of the question, or of it what is new."""
    given = {
        "answer": answer,
        "budget": await asked.dispatch.read(asked.user, lambda session: _budget(session.budget)),
        "preview": preview,
        "problem": problem,
        "text": text,
    }
    if asked.is_fragment:
        return asked.page("answered.html", given)
    known = await asked.dispatch.read(asked.user, _tables)
    return asked.page("ask.html", {**given, "tables": known})


def _budget(balance: Balance) -> dict[str, object]:
    """Return what is left, as meters, in items, and in numbers."""
    return {
        "meters": answered_html(remove_style(balance_html(balance))),
        "more": balance.items,
        "epsilon": balance.epsilon,
        "lines": str(balance).splitlines()[:-1],
    }


def _told(found: Preview) -> dict[str, object]:
    return {
        "kind": found.kind,
        "words": found.words,
        "meters": answered_html(found.meters),
        "facts": answered_html(found.facts),
    }


def _asked_before(session: Session, number: str) -> str:
    """Return the text of this analyst's question of that number, from 0."""
    table = session.history
    at = int(number) if number.isascii() and number.isdigit() and len(number) < len("1000000000") else -1
    if not 0 <= at < table.num_rows:
        raise UsageError("no-such-page", "There is no such question.", hint="See the history for those that there are.")
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
