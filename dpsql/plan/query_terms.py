"""Terms of a whole query, which SELECT WITH DIFFERENTIAL_PRIVACY states, as options of one item.

A query that has loss rho and a delta of its own, d, is (epsilon, delta)-differentially private if rho implies
(epsilon, delta - d)-differential privacy. Where the mechanism needs a delta, d is half of the delta that is stated,
and 0 elsewhere. Of the items that the query may return at worst, each then has the largest epsilon, rounded down to
five digits, with which all of them cost at most rho.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from types import MappingProxyType

from dpsql.accounting import ApproximateDP, Certificate, rho_of_total
from dpsql.errors import Refusal
from dpsql.plan.mechanisms.base import sqrt_rounded_down
from dpsql.plan.plan import Plan
from dpsql.plan.terms import Terms
from dpsql.quantities import Delta, Epsilon
from dpsql.sql.ir.statements import Option, PrivateQuery, QueryTerms

__all__ = ["plan_within_terms"]

_ROUNDS = 8  # the planner may choose another mechanism, with other items, at another epsilon
_DIGITS = Context(prec=5, rounding=ROUND_DOWN)
_HALF = Context(prec=20, rounding=ROUND_DOWN)


def plan_within_terms(
    query: PrivateQuery, stated: QueryTerms, *, terms: Terms, build: Callable[[PrivateQuery], Plan]
) -> Plan:
    """Return the plan of a query whose worst case is within the terms that it states; refuse what does not convert."""
    query = replace(query, clause=replace(query.clause, terms=None))
    _check_min_units(query, stated, terms=terms)
    if stated.epsilon is None:
        if stated.delta is not None:
            hint = "Add epsilon = 1 to OPTIONS, or leave delta out."
            reason = "The delta of a whole query means nothing without its epsilon."
            raise Refusal("option", reason, hint=hint, place=stated.delta.place)
        return build(query)
    epsilon, delta = _read_epsilon(stated.epsilon), _read_delta(stated, terms=terms)
    plan = build(query)
    for _ in range(_ROUNDS):
        worst = plan.price(plan.worst_case)
        own = _HALF.divide(delta, Decimal(2)) if worst.permanent else Decimal(0)
        rho = rho_of_total(ApproximateDP(Epsilon(epsilon), Delta(Fraction(delta) - Fraction(own)))).value
        item = _round_down(sqrt_rounded_down(plan.epsilon.value**2 * rho / worst.refundable))
        options = {**query.clause.options, "epsilon": Option(item, stated.epsilon.place)}
        if own and stated.delta is not None:
            options["delta"] = Option(own, stated.delta.place)
        _check_item(item, stated.epsilon, terms=terms)
        plan = build(replace(query, clause=replace(query.clause, options=MappingProxyType(options))))
        worst = plan.price(plan.worst_case)
        if worst.refundable <= rho and worst.permanent <= Fraction(own):
            return plan
    hint = "Leave epsilon and delta out of OPTIONS: the query then costs what the policy says."
    raise Refusal("option", "These terms do not convert to those of an item.", hint=hint, place=stated.place)


def _read_epsilon(option: Option) -> Fraction:
    if not isinstance(option.value, Decimal) or not option.value:
        hint = "Write epsilon = 1."
        raise Refusal("option-range", "epsilon must be a number above 0.", hint=hint, place=option.place)
    return Fraction(option.value)


def _read_delta(stated: QueryTerms, *, terms: Terms) -> Decimal:
    """Return the delta of the whole query; refuse a session or a statement that has none to convert with."""
    if terms.certificate is not Certificate.zcdp:
        hint = "Leave epsilon and delta out of OPTIONS: the query then costs what the policy says."
        reason = f"Under the certificate {terms.certificate.value} the terms of a whole query are not converted."
        raise Refusal("certificate", reason, hint=hint, place=stated.place)
    if stated.delta is None:
        hint = "Add delta = 1e-8 to OPTIONS."
        reason = "The epsilon of a whole query converts to items only with a delta."
        raise Refusal("option", reason, hint=hint, place=stated.place)
    value = stated.delta.value
    if not isinstance(value, Decimal) or not 0 < value < 1:
        hint = "Write delta = 1e-8."
        raise Refusal("option-range", "delta must be above 0 and below 1.", hint=hint, place=stated.delta.place)
    return value


def _check_item(item: Decimal, option: Option, *, terms: Terms) -> None:
    """Refuse an epsilon that leaves an item more or less than the policy allows."""
    low, high = terms.limits.min_epsilon.value, terms.limits.max_epsilon.value
    if low <= Fraction(item) <= high:
        return
    change, than = ("Lower", "at most") if Fraction(item) > high else ("Raise", "at least")
    limit = high if Fraction(item) > high else low
    hint = f"{change} epsilon, or leave epsilon and delta out of OPTIONS."
    reason = f"This leaves {item} for each item, and the policy wants {than} {float(limit):g}."
    raise Refusal("option-range", reason, hint=hint, place=option.place)


def _check_min_units(query: PrivateQuery, stated: QueryTerms, *, terms: Terms) -> None:
    """Refuse more units of a group than the policy's min_units sees to."""
    option = stated.min_units
    if option is None:
        return
    most = max(terms.tables[name].min_units or 1 for name in query.tables)
    if isinstance(option.value, Decimal) and option.value.as_tuple().exponent == 0 and 1 <= option.value <= most:
        return
    hint = "Leave it out." if most == 1 else f"Write min_privacy_units_per_group = {most}, or leave it out."
    reason = f"The smallest number of units of a group is the policy's min_units, {most} here."
    raise Refusal("min-units", reason, hint=hint, place=option.place)


def _round_down(value: Fraction) -> Decimal:
    return _DIGITS.create_decimal(Decimal(int(value * 10**12)).scaleb(-12))
