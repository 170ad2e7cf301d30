"""Pages of a curator: spending, the policy, the ledger with its grants, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from starlette.responses import Response

from dpsql.accounting import ApproximateDP, describe_periods
from dpsql.display import Meter, Part, budget_html, remove_style
from dpsql.errors import Error, LedgerError, UsageError
from dpsql.report.policy_text import describe_policy
from dpsql.report.tables import describe_outcome
from dpsql.server.web import curator_actions
from dpsql.server.web.render import answered_html
from dpsql.server.web.requests import VisitorRequest

if TYPE_CHECKING:
    from dpsql.report.spending import Spender, Spending

__all__ = ["grant", "ledger", "policy", "refusals", "spending", "verify"]

_LATEST = 200
_NOBODY = "(no name)"


async def spending(visit: VisitorRequest) -> Response:
    """Return the page of accounts with their limits, and the latest queries."""
    found = await visit.dispatch.run(lambda: curator_actions.spent(visit.dispatch.gateway))
    latest = [
        {
            "asked_at": entry.opened_at,
            "account": _NOBODY if entry.account is None else entry.account,
            "query": entry.query,
            "state": describe_outcome(entry),
            "charged": None if entry.settlement is None else float(entry.settlement.loss),
            "held": float(entry.worst_case.refundable),
            "second": float(entry.permanent),
        }
        for entry in found.entries[: -_LATEST - 1 : -1]
    ]
    given = {
        "total": answered_html(remove_style(found.balance._repr_html_())),
        "accounts": list(_accounts(found)),
        "count": len(found.entries),
        "latest": latest,
        "currencies": found.balance.certificate.currencies,
    }
    return visit.page("spending.html", given)


async def policy(visit: VisitorRequest) -> Response:
    """Return the policy in the words of `dpsql check`, checked against the open data."""
    check = await visit.dispatch.run(visit.dispatch.gateway.service.check)
    return visit.page("policy.html", {"sections": list(_sections(describe_policy(check)))})


async def ledger(visit: VisitorRequest) -> Response:
    """Return the page of the ledger, with the form that raises its total."""
    return await _ledger(visit)


async def verify(visit: VisitorRequest) -> Response:
    """Verify the ledger, and return the page of the ledger with the result."""
    try:
        found = await visit.dispatch.run(lambda: curator_actions.verify(visit.dispatch.gateway))
    except Error as error:
        return await _ledger(visit, problem=visit.box(error))
    return await _ledger(visit, verified=found)


async def grant(visit: VisitorRequest) -> Response:
    """Return what a grant would change; raise the total once it is confirmed."""
    gateway, form = visit.dispatch.gateway, {name: value.strip() for name, value in visit.form.items()}
    try:
        budget = curator_actions.budget_asked(form)
        if form.get("confirmed") == "yes":
            granted = await visit.dispatch.run(lambda: curator_actions.raise_total(gateway, visit.user, given=form))
            return visit.page("granted.html", {"granted": granted, "budget": budget, "form": _fields(form)})
        if not form.get("note"):
            raise UsageError("grant-note", "A grant has a note.", hint="Say why; it is recorded for good.")
        found = await visit.dispatch.run(lambda: curator_actions.spent(gateway))
    except Error as error:
        return await _ledger(visit, problem=visit.box(error))
    wanted = ApproximateDP(budget.epsilon, budget.delta)
    given = {"before": found.balance.granted, "wanted": wanted, "form": _fields(form)}
    return visit.page("confirm.html", given)


async def refusals(visit: VisitorRequest) -> Response:
    """Return the refusals since the server started: time, analyst and reason, without texts."""
    return visit.page("refusals.html", {"refusals": visit.dispatch.gateway.telemetry.refusals(_LATEST)})


async def _ledger(visit: VisitorRequest, *, verified: object = None, problem: object = None) -> Response:
    total, periods = None, ""
    try:
        balance = (await visit.dispatch.run(lambda: curator_actions.spent(visit.dispatch.gateway))).balance
    except LedgerError as error:  # such as after a grant that the policy does not know of yet
        problem = problem or visit.box(error)
    else:
        total, periods = balance.granted, "" if balance.calendar is None else describe_periods(balance.calendar.periods)
    given = {
        "place": str(curator_actions.find_ledger(visit.dispatch.gateway)),
        "total": total,
        "periods": periods,
        "form": _fields(visit.form),
        "verified": verified,
        "problem": problem,
    }
    return visit.page("ledger.html", given)


def _fields(form: object) -> dict[str, str]:
    given = form if isinstance(form, dict) else {}
    return {name: str(given.get(name, "")).strip() for name in ("epsilon", "delta", "note", "period", "periods")}


def _accounts(found: Spending) -> Iterator[dict[str, object]]:
    for spender in found.spenders:
        name = _NOBODY if spender.name is None else spender.name
        yield {"name": name, "meters": answered_html(remove_style(_meters(spender, found)))}


def _meters(spender: Spender, found: Spending) -> str:
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
    return budget_html("", meters, notes=[])


def _sections(lines: list[str]) -> Iterator[dict[str, object]]:
    """Yield the parts of a check: a title in capitals, and the lines below it."""
    title, body = "", list[str]()
    for line in lines:
        if line and line == line.upper() and not line.startswith(" "):
            if title:
                yield {"title": title.capitalize(), "body": "\n".join(body).strip("\n")}
            title, body = line, []
        else:
            body.append(line)
    yield {"title": title.capitalize(), "body": "\n".join(body).strip("\n")}
