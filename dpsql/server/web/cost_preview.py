"""Cost of a statement before it runs, from its plan and the remaining budget; no row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.display import Facts, Meter, Part, budget_html, facts_html, remove_style
from dpsql.errors import Refusal
from dpsql.plan import Plan
from dpsql.receipt import REREAD, format_share
from dpsql.report import Balance, Forecast
from dpsql.report.forecast import forecast
from dpsql.report.shortfall import describe_together, price_together
from dpsql.report.tables import describe_plans
from dpsql.session import Session

__all__ = ["Preview", "balance_html", "preview_cost"]


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
    if len(plans) > 1:
        return _preview_several(plans, balance)
    (plan,) = plans
    facts, clause = remove_style(plan._repr_html_()), plan.query.clause
    reading = f"Read as {clause}. " if clause.implied else ""
    if plan.stored and not plan.fresh:
        words = "Answered before: asking again shows that answer and costs nothing."
        return Preview("stored", reading + words, facts=facts)
    balance = balance.of(plan.charged_values)
    fits = forecast(plan, balance.remaining, times=1)
    if not fits.at_worst:
        return Preview("short", reading + _describe_shortage(plan, balance), plan.warnings, facts=facts)
    words = reading + _words(plan, fits, balance=balance)
    return Preview("priced", words, plan.warnings, meters=_meters(plan, balance), facts=facts)


def _preview_several(plans: Sequence[Plan], balance: Balance) -> Preview:
    """Return the preview of a statement with several private queries: what they cost together."""
    facts = remove_style(
        facts_html(Facts("Plan: nothing was read, nothing was charged", describe_plans(plans, balance)))
    )
    worst, left = price_together(plans), balance.remaining
    together = describe_together(plans, balance)
    words = f"{len(plans)} private queries: {together}."
    if worst is None:
        return Preview("stored", words, facts=facts)
    warnings = tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings))
    is_short = worst.refundable > left.refundable or worst.permanent > left.permanent
    return Preview("short" if is_short else "priced", words, warnings, facts=facts)


def balance_html(balance: Balance) -> str:
    """Return both currencies of a balance as meters: spent, reserved and left."""
    pairs = zip(balance.certificate.currencies, (balance.refunded, balance.gone), strict=True)
    meters = [
        Meter(name, part.granted, [Part("spent", part.spent), Part("held", part.reserved, now=True)], part.remaining)
        for name, part in pairs
    ]
    return budget_html("", meters, notes=[])


def _describe_shortage(plan: Plan, balance: Balance) -> str:
    share, left = _share(plan, balance), format_share(balance.left, down=True)
    return f"This may cost {share} of the budget, and {left} is left."


def _words(plan: Plan, fits: Forecast, *, balance: Balance) -> str:
    queries = "1 such query fits" if fits.at_worst == 1 else f"{fits.at_worst:,} such queries fit"
    again = "It was answered before; fresh = true draws new noise. " if plan.stored else ""
    if plan.reread and not plan.stored:
        again = f"{REREAD[0].upper()}{REREAD[1:]}. "
    return f"{again}At most {_share(plan, balance)} of the budget. {queries} in what is left."


def _share(plan: Plan, balance: Balance) -> str:
    return format_share(plan.price(plan.worst_case).share_of(balance.limit))


def _meters(plan: Plan, balance: Balance) -> str:
    """Return both currencies as meters: already used, at most used by this query, and then left."""
    worst = plan.price(plan.worst_case)
    accounts = (balance.refunded, worst.refundable), (balance.gone, worst.permanent)
    meters = [
        Meter(
            name,
            account.granted,
            [
                Part("already used", max(Fraction(0), account.granted - account.remaining)),
                Part("this, at most,", took, now=True),
            ],
            max(Fraction(0), account.remaining - took),
        )
        for name, (account, took) in zip(plan.certificate.currencies, accounts, strict=True)
    ]
    return remove_style(budget_html("What it would leave", meters, notes=[]))
