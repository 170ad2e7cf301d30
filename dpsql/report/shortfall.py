"""When the budget is short: what would still fit, from public numbers only."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction

from dpsql.accounting import BudgetVector
from dpsql.errors import BudgetExceeded
from dpsql.ledger.base import Shortfall
from dpsql.ledger.calendar import Calendar
from dpsql.plan.mechanisms import LEAST_DELTA
from dpsql.plan.mechanisms.certificate_rules import find_epsilon_within
from dpsql.plan.plan import Plan
from dpsql.plan.terms import Terms
from dpsql.quantities import Epsilon
from dpsql.receipt import format_share
from dpsql.report.balance import Balance
from dpsql.sql.ir.statements import PrivateQuery

__all__ = ["check_together", "describe_together", "explain_shortfall", "price_together"]

_DIGITS = 3
_PLAIN = -6  # the least exponent that is written out in decimals


def explain_shortfall(
    plan: Plan, short: Shortfall, *, terms: Terms, calendar: Calendar | None = None
) -> BudgetExceeded:
    """Return the error for a plan whose worst case is more than what remains, with the nearest queries that fit.

    `short` is the error of the ledger; `calendar` says when more is granted.
    """
    remaining, worst = short.remaining, plan.price(plan.worst_case)
    whose, limit = "the budget", terms.budget
    if short.account is not None and terms.account is not None:
        whose, limit = f"the limit of account {short.account}", terms.account.budget
    left = format_share(remaining.least_share_of(limit), down=True)
    reason = f"This query may use {format_share(worst.share_of(limit))} of {whose}, and {left} is left."
    affordable = math.floor(remaining.refundable / plan.item_price)
    hint = "Write a smaller epsilon into OPTIONS."  # of WITH DIFFERENTIAL_PRIVACY, which has no clause to write
    if not (plan.query.clause.implied and plan.query.clause.options):
        hint = _what_fits(plan, remaining, affordable=affordable, least_epsilon=terms.limits.min_epsilon)
    if calendar is not None:
        hint += f" Now: {calendar}."
    return BudgetExceeded("budget-exceeded", reason, hint=hint, place=plan.query.clause.place)


def price_together(plans: Sequence[Plan]) -> BudgetVector | None:
    """Return the worst case of the private queries of one statement together, None if all are stored."""
    drawn = [plan for plan in plans if plan.fresh or not plan.stored]
    different = {plan.key: plan for plan in drawn if not plan.fresh}  # the second of two that are equal is a replay
    prices = [plan.price(plan.worst_case) for plan in (*different.values(), *(plan for plan in drawn if plan.fresh))]
    return sum(prices[1:], prices[0]) if prices else None


def describe_together(plans: Sequence[Plan], balance: Balance) -> str:
    """Return what the private queries of one statement cost together at most, in shares of the budget."""
    worst = price_together(plans)
    if worst is None:
        return "answered before; asking again costs nothing"
    left = format_share(balance.remaining.least_share_of(balance.limit), down=True)
    return f"at most {format_share(worst.share_of(balance.limit))} of the budget; {left} is left"


def check_together(plans: Sequence[Plan], balance: Balance, *, terms: Terms) -> None:
    """Raise `BudgetExceeded` unless the worst cases of the private queries of one statement fit together.

    Of a unit they fit if those do that count its value.
    """
    for value in dict.fromkeys([None, *(value for plan in plans for value in plan.charged_values)]):
        counting = [plan for plan in plans if not plan.charged_values or value in plan.charged_values]
        if counting:
            _check_sum(counting, balance.of(() if value is None else (value,)), terms=terms)


def _check_sum(plans: Sequence[Plan], balance: Balance, *, terms: Terms) -> None:
    worst, left = price_together(plans), balance.remaining
    if worst is None or (worst.refundable <= left.refundable and worst.permanent <= left.permanent):
        return
    whose = "the budget" if terms.account is None else f"the limit of account {terms.account.name}"
    reason = (
        f"The {len(plans)} private queries of this statement may use {format_share(worst.share_of(balance.limit))} of "
        f"{whose}, and {format_share(left.least_share_of(balance.limit), down=True)} is left."
    )
    hint = "Ask for fewer rows, with a smaller epsilon, or each question in a statement of its own."
    raise BudgetExceeded("budget-exceeded", reason, hint=hint, place=plans[0].query.clause.place)


def _what_fits(plan: Plan, remaining: BudgetVector, *, affordable: int, least_epsilon: Epsilon) -> str:
    """Return the hint: each of its queries would be admitted now."""
    delta, worst = "", plan.price(plan.worst_case)
    if worst.permanent > remaining.permanent:
        if remaining.permanent < LEAST_DELTA:
            return "Only a query whose keys are known fits: name them, such as domain = ['DE', 'FR']."
        delta = f"delta = {_rounded_down(remaining.permanent)}"
    clause, bound = plan.query.clause, affordable // len(plan.query.measures or [None])
    before, after = _place_options(plan.query)
    if worst.refundable <= remaining.refundable:
        return f"{before}WITH ({delta}){after} would fit."
    fits = []
    adaptive = clause.is_adaptive
    keys = bisect_right(range(1, plan.k + 1), affordable, key=plan.items)
    if clause.shape == "all" and bound:
        fits.append(f"{before}WITH (max_groups_contributed = {bound}){after} at this epsilon")
    if clause.shape == "top" and keys and plan.takes(keys, plan.epsilon.value):
        options = ", ".join(filter(None, [f"k_bar = {keys}" if adaptive else "", delta]))
        top = f"TOP {'ADAPTIVE' if adaptive else keys} PRIVATE"
        short = f"LIMIT {keys}" if clause.implied else top
        fits.append(f"{f'{top} WITH ({options}){after}' if options else short} at this epsilon")
    each, reach = plan.mechanism_plan.price.items(plan.k), plan.spec.charged_partitions
    if reach > 1 and affordable >= each:
        fits.append(
            f"{affordable // each} of the {plan.spec.rows.partitions} partitions{f' WITH ({delta})' if delta else ''}"
        )
    epsilon = _rounded_down(find_epsilon_within(remaining, plan.worst_items))
    if Fraction(epsilon) >= least_epsilon.value and plan.takes(plan.k, Fraction(epsilon)):
        these = f"at most {plan.k}" if adaptive else "this one" if plan.k == 1 else f"these {plan.k}"
        fits.append(f"{before}WITH (epsilon = {epsilon}{delta and ', '}{delta}){after} for {these}")
    return f"{' or '.join(fits)} would fit." if fits else "What is left is not enough for a single row."


def _place_options(query: PrivateQuery) -> tuple[str, str]:
    """Return what to write before and after WITH: the clause and its place, where standard SQL has none."""
    if not query.clause.implied:
        return "", ""
    return f"{query.clause} ", " at its end" if query.limit is None else " in place of LIMIT"


def _rounded_down(value: Fraction) -> str:
    """Return a value in three digits that is not above it, as the options of a query are written."""
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    digits = math.floor(value / Fraction(10) ** exponent)
    while not digits % 10:
        digits, exponent = digits // 10, exponent + 1
    return f"{digits}e{exponent}" if exponent < _PLAIN else f"{float(digits * Fraction(10) ** exponent):.12g}"
