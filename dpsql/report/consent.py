"""Consent: a query that can hardly return a row, and that may cost much, is run only if the analyst says so.

A group of a ranking needs some number of units for an even chance to be returned (`Plan.need`). Where that is much of
the population that the policy declares, few groups have it, or none. From public numbers alone:

    need / population    what happens
    -----------------    -------------------------------------------------------------------------------------
    above 10 %           EXPLAIN and the receipt warn
    above 20 %           refused without consent, if the worst case is above 10 % of what is left of the budget
    even with one group  refused in any case: a group that the whole population has, and no other, would be
    for each unit        returned with a chance below 1 in 100

Where a key is the privacy unit itself, no group has two units: that is refused without consent at any price.

Nothing is said of queries over known names or a known domain, whose answers need no threshold, of rankings by rows or
sums, which one unit may raise by any number of steps, and of tables without a population. A stored answer is returned
whatever this says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

from dpsql.accounting import BudgetVector
from dpsql.dialects import quote_text, write_name
from dpsql.display import is_plural, key_noun, plural, unit_noun, with_article
from dpsql.errors import Error, Refusal
from dpsql.ledger.base import Shortfall
from dpsql.plan.mechanisms.record import find_epsilon_within
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate
from dpsql.sql.ir.statements import Clause, Explained, Option, Output, PrivateQuery
from dpsql.sql.ir.tree import ColumnRef, strip_casts
from dpsql.terms import Terms

_WARNED, _ASKED = Fraction(1, 10), Fraction(1, 5)  # of the population
_CHEAP = Fraction(1, 10)  # of what is left of the budget
_TRIED_BOUNDS = (3, 1)


def describe_key(query: PrivateQuery) -> tuple[str, str]:
    """Return what one key of the query is called, and several: by the names of the columns that show them."""
    names = dict.fromkeys(key_noun(output.name) for output in query.outputs if output.key is not None)
    if len(query.keys) == 1 and names:
        name = next(iter(names))
        # the name of an expression may be any word, and so may that of a cast without AS
        is_noun = isinstance(strip_casts(query.keys[0]), ColumnRef) and "::" not in name and "(" not in name
        is_word = not name.isascii() or (len(name) > 1 and not set("aeiouy").isdisjoint(name.lower()))
        if is_noun and not is_word:  # "10 ns" says nothing
            return f'value of "{name}"', f'values of "{name}"'
        return (name, plural(name)) if is_noun and not is_plural(name) else (f"value of {name}", f"values of {name}")
    listed = " and ".join(names)
    return ("combination", "combinations") if not listed else (f"combination of {listed}", f"combinations of {listed}")


@dataclass(frozen=True, slots=True)
class Reach:
    """How many `units` a group needs of a `population` for an even chance, and the `least` for a chance at all.

    With fewer than these last, in no other group, its chance is below 1 in 100. `is_single`: each group is one unit.
    """

    units: Fraction
    least: Fraction
    population: int
    is_single: bool = False

    @property
    def share(self) -> Fraction:
        """Share of the population that a group needs."""
        return self.units / self.population

    @property
    def is_possible(self) -> bool:
        """Whether the population is enough for a group in any data."""
        return self.least <= self.population

    def asks(self, worst: BudgetVector, left: BudgetVector) -> bool:
        """Return whether a query of this worst case needs consent, with so much left of the budget."""
        return self.is_single or (self.share > _ASKED and worst.share_of(left) > _CHEAP)


_SINGLE = Reach(Fraction(2), Fraction(0), 1, is_single=True)  # two are the least that can stand out


def groups_by_unit(query: PrivateQuery) -> bool:
    """Return whether a key is the privacy unit itself, cast or not, so that no group has two."""
    return strip_casts(query.unit) in map(strip_casts, query.keys)


def describe_single(query: PrivateQuery) -> str:
    """Return why a query whose groups are single units has no rows, and what to group by."""
    noun = unit_noun(query.unit_name)
    return (
        f"Each group is a single {noun}, and no single {noun} can stand out. Group by a column that many "
        f"{plural(noun)} share."
    )


def find_reach(plan: Plan) -> Reach | None:
    """Return how much of the declared population a group needs; None where nothing can be said of it."""
    if groups_by_unit(plan.query):
        return None if plan.query.domain is not None or plan.spec.rows.known else _SINGLE
    population = 0
    for name in plan.query.tables:
        declared = plan.request.terms.tables[name].population
        if declared is None:
            return None
        population = max(population, declared)  # a unit of a join is one of any of its tables
    need = None if plan.query.domain is not None or plan.spec.rows.known else plan.need
    if need is None or need.measure.aggregate is not Aggregate.UNITS:
        return None
    return Reach(Fraction(need.units), Fraction(need.least or 0), population)


def warn_of_reach(plan: Plan, reach: Reach | None) -> tuple[str, ...]:
    """Return a sentence on a query that can hardly return a row; none where nothing speaks against it."""
    if reach is not None and reach.is_single:
        return ()  # it is said of known names, too
    if reach is not None and not reach.is_possible:
        return (f"{_describe(plan, reach)} The query is refused.",)
    if reach is not None and reach.share > _WARNED:
        return (_describe(plan, reach),)
    return _warn_of_many(plan)


def _warn_of_many(plan: Plan) -> tuple[str, ...]:
    """Return a warning of a k that is more than can stand out, if no bound cuts the groups of each unit."""
    k, population, need = plan.query.clause.k, plan.population, None if plan.population is None else plan.need
    if k is None or population is None or need is None or plan.spec.rows.known or need.units * k <= population:
        return ()
    many, units = describe_key(plan.query)[1], plural(unit_noun(plan.query.unit_name))
    shown_keys = max(1, int(population / max(1.0, need.units)))
    warning = (
        f"TOP {k} is more than is likely to stand out: each needs about {need.units:,.0f} {units}, which of about "
        f"{population:,} in all perhaps the first {shown_keys:,} {many} have."
    )
    return (warning,)


def _describe(plan: Plan, reach: Reach) -> str:
    """Return in words how much of the population a group needs."""
    if reach.is_single:
        return describe_single(plan.query)
    singular, noun = describe_key(plan.query)[0], unit_noun(plan.query.unit_name)
    units, population = plural(noun), f"{reach.population:,}"
    if not reach.is_possible:
        return (
            f"Hardly {with_article(singular)} could be returned: even if all of about {population} {units} had it, and "
            "no other, its chance would be below 1 in 100."
        )
    about = f"Each {singular} needs about {float(reach.units):,.0f}"
    if reach.share > 1:
        return f"{about} {units} for an even chance to be returned. There are about {population}."
    return f"{about} of {population} {units}, {_write_percent(reach.share)}, for an even chance to be returned."


def _write_percent(share: Fraction) -> str:
    return f"{math.ceil(100 * share)} %"


def has_consent(plan: Plan, *, given: bool | None = None) -> bool:
    """Return whether a query has consent, needed or not.

    Its own option decides before that of the connection or the call, which is `given`, and that before the policy's.
    """
    option = plan.query.clause.options.get("consent")
    if option is not None:
        return option.value == "true"
    return plan.request.terms.limits.consent if given is None else given


def needs_consent(plan: Plan, left: BudgetVector, *, given: bool | None = None) -> bool:
    """Return whether a query that is charged needs consent which it does not have."""
    reach = None if has_consent(plan, given=given) else find_reach(plan)
    return reach is not None and reach.is_possible and reach.asks(plan.price(plan.worst_case), left)


def find_refusal(
    plan: Plan,
    reach: Reach | None,
    *,
    read_left: Callable[[], BudgetVector],
    terms: Terms,
    given: bool | None = None,
    postgres: bool = False,
) -> Refusal | Shortfall | None:
    """Return the refusal of a query that is charged and can hardly return a row; None where it is run.

    It is the shortfall of the budget where that is short, with consent or without. `read_left` reads what is left,
    which few queries need; `postgres` says that SET gives consent.
    """
    if reach is None or (reach.is_possible and reach.share <= _ASKED):
        return None
    left, worst = read_left(), plan.price(plan.worst_case)
    if reach.is_possible and (has_consent(plan, given=given) or not reach.asks(worst, left)):
        return None
    if reach.is_possible and not _fits(worst, left):
        return Shortfall(worst, left, account=None if terms.account is None else terms.account.name)
    others = " or ".join(list_alternatives(plan, left, terms=terms))
    hint = f"These need fewer {plural(unit_noun(plan.query.unit_name))}, and no consent: {others}." if others else ""
    reason, place = _describe(plan, reach), plan.query.clause.place
    if not reach.is_possible:
        hint = hint.replace(", and no consent", "") or "Leave the query out."
        hint += f" If there are more {plural(unit_noun(plan.query.unit_name))}, ask the curator to raise population."
        return Refusal("unreachable", reason, hint=hint, place=place)
    share = _write_percent(worst.share_of(left))
    reason = f"{reason} The query may use {share} of what is left of the budget."
    hint = f"{_propose_consent(plan.query, postgres=postgres)} {hint}".rstrip()
    return Refusal("consent", reason, hint=hint, place=place)


def _propose_consent(query: PrivateQuery, *, postgres: bool) -> str:
    is_set = ", or SET dpsql.consent = on" if postgres and query.clause.implied else ""
    return f"To run it all the same, {propose_option(query, consent='true')}{is_set}."


def propose_option(query: PrivateQuery, **option: str) -> str:
    """Return in words how an option is added to a query."""
    if query.clause.form == "header":
        return f"add {' and '.join(f'{name} = {value}' for name, value in option.items())} to OPTIONS"
    verb = "write" if query.clause.form == "leading" else "end the private query with"
    return f"{verb} {_write_clause(query, k=None, **option)}"


def is_admitted(plan: Plan, left: BudgetVector, *, consents: bool = False) -> bool:
    """Return whether a query fits into what is left and, unless the analyst `consents`, needs no consent."""
    worst, reach = plan.price(plan.worst_case), find_reach(plan)
    if reach is not None and not (reach.is_possible and (consents or not reach.asks(worst, left))):
        return False
    return _fits(worst, left)


def _fits(worst: BudgetVector, left: BudgetVector) -> bool:
    return worst.refundable <= left.refundable and worst.permanent <= left.permanent


def list_alternatives(plan: Plan, left: BudgetVector, *, terms: Terms) -> Iterator[str]:
    """Yield queries of the same kind that fit into what is left, and for which groups are likely to have enough units.

    They are written as they can be pasted, and are run without consent. The last is a total.
    """
    query, clause = plan.query, plan.query.clause

    def is_likely(k: int | None = clause.k, /, **options: Decimal) -> bool:
        changed = {name: Option(value, clause.place) for name, value in options.items()}
        other = replace(clause, k=k, options=MappingProxyType({**clause.options, **changed}))
        other_plan = _plan_other(replace(query, clause=other), terms)
        reach = None if other_plan is None else find_reach(other_plan)
        return other_plan is not None and is_admitted(other_plan, left) and (reach is None or reach.share <= _ASKED)

    def find_epsilon(**options: Decimal) -> Decimal | None:
        return _find_larger_epsilon(plan, left, terms=terms, is_run=lambda value: is_likely(epsilon=value, **options))

    # fewer keys; a smaller bound, or a larger epsilon, or both; and a total, which needs no threshold
    if clause.form != "header":  # SELECT WITH DIFFERENTIAL_PRIVACY has no clause to write
        fewer = _find_last((clause.k or 1) - 1, is_likely)
        if fewer:
            is_short = clause.implied and clause.form == "limit" and not (clause.options or clause.parameter)
            yield f"LIMIT {fewer}" if is_short else _write_clause(query, k=fewer)
        bound = plan.max_groups_contributed
        is_open = bound is None or plan.request.own_cap
        bounds = [each for each in _TRIED_BOUNDS if is_open or (bound is not None and each < bound)]
        enough = next((each for each in bounds if is_likely(max_groups_contributed=Decimal(each))), None)
        larger = find_epsilon()
        if enough is not None:
            yield _write_clause(query, max_groups_contributed=str(enough))
        if larger is not None:
            yield _write_clause(query, epsilon=f"{larger:f}")
        if bounds and enough is None and larger is None:
            larger = find_epsilon(max_groups_contributed=Decimal(bounds[0]))
            if larger is not None:
                yield _write_clause(query, max_groups_contributed=str(bounds[0]), epsilon=f"{larger:f}")
    # of one value of `budget_by` a total of all values is charged to all of them
    if query.charged_values is None and _is_run(_make_total(query), left, terms=terms):
        source = ".".join(map(write_name, query.table.split(".")))
        yield f"SELECT COUNT(DISTINCT {write_name(query.unit_name)}) FROM {source} PRIVATE"  # noqa: S608


def write_list_note(plan: Plan, terms: Terms) -> Plan:
    """Return the plan with a note on a list that is cut which proposes a longer one only if that needs no consent."""
    cut = plan.query.cut_list
    if cut is None or has_consent(plan) or find_reach(plan) is None:
        return plan
    limit = terms.budget if terms.account is None else terms.account.budget
    # the longest list whose price, in proportion to its items, is within the limit
    price, items = plan.price(plan.worst_case).refundable, plan.worst_items
    longest = next((k for k in range(cut.more, cut.k, -1) if price * plan.items(k) <= limit.refundable * items), 0)
    other = replace(plan.query, clause=replace(plan.query.clause, k=longest))
    is_run = longest > 0 and _is_run(other, limit, terms=terms)
    note = cut.describe(lambda k: is_run and k == longest)
    return replace(plan, query=replace(plan.query, list_note=note))


def _is_run(query: PrivateQuery, left: BudgetVector, *, terms: Terms) -> bool:
    """Return whether a query fits into what is left, and is run without consent."""
    other = _plan_other(query, terms)
    return other is not None and is_admitted(other, left)


def _plan_other(query: PrivateQuery, terms: Terms) -> Plan | None:
    """Return the plan of a query that is priced, and not run; None where it is refused."""
    with suppress(Error):  # the policy, or another option of the query, excludes it
        return plan_unkeyed(replace(query, explained=Explained.NO), terms, salts=(0, 0))
    return None


def _find_last(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` for which something holds that holds for all smaller ones; 0 for none."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _find_larger_epsilon(
    plan: Plan, left: BudgetVector, *, terms: Terms, is_run: Callable[[Decimal], bool]
) -> Decimal | None:
    """Return the least epsilon, in steps, with which the query is run; None where the largest is not enough."""
    now = plan.epsilon.value
    largest = min(find_epsilon_within(left, plan.worst_items), terms.limits.max_epsilon.value)
    if largest <= now:
        return None
    # Tried are the steps of the third digit of the largest: 0.871, 0.870, 0.869 ...
    exponent = Decimal(largest.numerator / largest.denominator).adjusted() - 2
    most, least = (int(value / Fraction(10) ** exponent) for value in (largest, now))
    steps = _find_last(most - least - 1, lambda below: is_run(Decimal(most - below).scaleb(exponent)))
    # 0 steps down is the largest itself, which has not been tried yet.
    found = Decimal(most - steps).scaleb(exponent)
    return found if steps or is_run(found) else None


def _make_total(query: PrivateQuery) -> PrivateQuery:
    """Return the query for the number of units of its first table."""
    return replace(
        query,
        keys=(),
        outputs=(Output("n", None),),
        order=(),
        limit=None,
        keep=(),
        partitions=None,
        names=None,
        measures=(DISTINCT_UNITS,),
        clause=Clause(None, MappingProxyType({}), query.clause.place, shape="total"),
    )


def _write_clause(query: PrivateQuery, *, k: int | None = None, **changes: str) -> str:
    """Return the clause of a query as it is written, with another k and other values of options, and where it belongs.

    Parameters stay, since the text is pasted and run with as many of them; the values that change are named beside it.
    """
    clause = query.clause
    options = {name: option.parameter or _write_value(option) for name, option in clause.options.items()}
    bound = {name: value for name, value in changes.items() if name in options and clause.options[name].parameter}
    options |= {name: value for name, value in changes.items() if name not in bound}
    if k and clause.parameter:
        bound["k"] = str(k)
    listed = ", ".join(f"{name} = {value}" for name, value in options.items())
    with_options = f" WITH ({listed})" if listed else ""
    per = "" if clause.per is None else f" PER {write_name(clause.per.text)}"
    top = f"TOP {clause.parameter} PRIVATE" if clause.parameter else f"{replace(clause, k=k or clause.k)}"
    match clause.form:
        case "leading":  # k stays behind SELECT, and options end the query
            at_end = f"{with_options.strip()} at the end{', in place of WITH' if clause.options else ''}"
            written = at_end if changes else f"{top} after SELECT"
        case "limit":
            written = f"{top}{per}{with_options} in place of LIMIT"
        case _:
            ends_in_comment = clause.implied and "--" in query.text
            written = f"{top}{per}{with_options}{' on a line of its own' if ends_in_comment else ''}"
    values = " and ".join(f"{value} as the parameter of {name}" for name, value in bound.items())
    return f"{written}{values and f' with {values}'}"


def _write_value(option: Option) -> str:
    """Return the value of an option as it is written."""
    match option.value:
        case str():
            return option.value if option.word else quote_text(option.value)
        case tuple():
            return f"[{', '.join(map(quote_text, option.value))}]"
    return f"{option.value:f}"
