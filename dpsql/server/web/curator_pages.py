"""Pages and actions of a curator: spending, the policy, the ledger with its grants, and refusals.

The actions, which the API shares, use the policy, the ledger and the telemetry; no private row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from starlette.responses import Response

from dpsql import curator
from dpsql.accounting import (
    ApproximateDP,
    Periods,
    compute_used_share,
    describe_periods,
    format_percent,
    round_up,
    to_percent,
)
from dpsql.display import Meter, Part, budget_html, remove_style
from dpsql.errors import Error, LedgerError, PolicyError, UsageError
from dpsql.policy import Budget
from dpsql.report.balance import describe_outcome
from dpsql.report.policy_text import describe_policy
from dpsql.server.gateway import Gateway
from dpsql.server.http_requests import MAX_NOTE
from dpsql.server.users import User
from dpsql.server.web.requests import VisitorRequest, answered_html

if TYPE_CHECKING:
    from pathlib import Path

    from dpsql.ledger import Verified
    from dpsql.policy import DatabaseUrl
    from dpsql.report.balance import Spender, Spending


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
    """Return the ledger's place; raise `PolicyError` for a policy without one."""
    place = gateway.service.policy.ledger
    if place is None:
        hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
        raise PolicyError("policy-ledger", "The policy names no ledger.", hint=hint, place="ledger")
    return place


def spent(gateway: Gateway) -> Spending:
    """Return who spent what, of the ledger as it is now."""
    find_ledger(gateway)
    return curator.read_spending(gateway.service.policy)


def verify_chain(gateway: Gateway) -> Verified:
    """Compute the chain of all events again; raise `LedgerError` at the first thing that does not fit."""
    return curator.verify_ledger(find_ledger(gateway))


def budget_asked(given: Mapping[str, object]) -> Budget:
    """Return the requested total; raise `PolicyError` or `UsageError` for an invalid one."""
    periods, period = given.get("periods"), given.get("period")
    if isinstance(periods, str) and periods:
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
    before, periods = curator.grant(find_ledger(gateway), budget, note=f"{note} (by {user.name}, on the page)")
    gateway.telemetry.log("granted", surface="web", user=user.name)
    return Granted(before, ApproximateDP(budget.epsilon, budget.delta), periods)


def _amount(value: object) -> float | str:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value or "").strip()


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
                "meters": answered_html(remove_style(_meters(spender, found))),
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
    return await _ledger(visit)


async def verify(visit: VisitorRequest) -> Response:
    """Verify the ledger, and return the page of the ledger with the result."""
    try:
        found = await visit.dispatch.run(lambda: verify_chain(visit.dispatch.gateway))
    except Error as error:
        return await _ledger(visit, problem=visit.box(error))
    return await _ledger(visit, verified=found)


async def grant(visit: VisitorRequest) -> Response:
    """Return what a grant would change; raise the total once it is confirmed."""
    gateway, form = visit.dispatch.gateway, {name: value.strip() for name, value in visit.form.items()}
    try:
        budget = budget_asked(form)
        if form.get("confirmed") == "yes":
            granted = await visit.dispatch.run(lambda: raise_total(gateway, visit.user, given=form))
            return visit.page("granted.html", {"granted": granted, "budget": budget, "form": _fields(form)})
        if not form.get("note"):
            raise UsageError("grant-note", "A grant has a note.", hint="Say why; it is recorded for good.")
        found = await visit.dispatch.run(lambda: spent(gateway))
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
        balance = (await visit.dispatch.run(lambda: spent(visit.dispatch.gateway))).balance
    except LedgerError as error:  # such as after a grant that the policy does not know of yet
        problem = problem or visit.box(error)
    else:
        total, periods = balance.granted, "" if balance.calendar is None else describe_periods(balance.calendar.periods)
    given = {
        "place": str(find_ledger(visit.dispatch.gateway)),
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
    used = round_up(compute_used_share(state, limit))
    return budget_html(f"{format_percent(to_percent(used))} is used", meters, notes=[])
