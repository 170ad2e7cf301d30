"""What is said beside an answer: what bounds each unit, why rows are missing, and why a charge is likely wasted.

All of it comes from public numbers: the bounds of a query, and how many units a key needs at this price by the planner.
Each option that is proposed was planned, and fits the policy and the remaining budget.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction

from dpsql.accounting import BudgetVector
from dpsql.display import plural, shorten, unit_noun, with_article
from dpsql.errors import Error
from dpsql.plan.mechanisms.record import describe_amount
from dpsql.plan.plan import Plan
from dpsql.plan.planner import plan_unkeyed
from dpsql.plan.release import Release, ReleaseTerms
from dpsql.report.consent import has_consent, is_admitted
from dpsql.report.key_nouns import describe_key
from dpsql.report.measure_words import describe_ends, read_argument
from dpsql.sql.ir.measures import Aggregate, Measure, is_presence
from dpsql.sql.ir.statements import Option, PrivateQuery
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Derived,
    Expression,
    Family,
    In,
    Literal,
    split_conjuncts,
    strip_casts,
)
from dpsql.sql.syntax.computed import is_measure_name
from dpsql.terms import Terms

_TRIED_BOUND = 3
_ROUNDED_DOWN = Context(prec=3, rounding=ROUND_DOWN)
_WORTH_SAYING = 0.8  # of the present need; a smaller difference is no advice


def explain_short_answer(
    plan: Plan, released: Release, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> str:
    """Return why a released answer is not longer, and what would make it so.

    Where a stored answer was drawn on other terms than those of `plan`, the numbers are those of a new answer.
    """
    returned, need = released.canonical.num_rows, plan.need
    is_drawn_now = released.terms.without_noise == ReleaseTerms.of(plan).choose(released.chosen).without_noise
    price = "At this price" if is_drawn_now else "Asked again with fresh = true, which is charged,"
    singular, many = describe_key(plan.query)
    noun = unit_noun(plan.query.unit_name)
    units = plural(noun)
    if plan.spec.report.chooses == "k":
        gap = describe_amount(plan.query.measures[0], float(plan.threshold_offset), about="about ", units=units)
        return (
            f"No list of {many} ended in a wide gap. {price} the last {singular} must have {gap} more than the next. "
            "To see more: write TOP 10 PRIVATE in place of TOP ADAPTIVE PRIVATE, or raise epsilon."
        )
    lead = f"No {singular} stood out." if not returned else f"Only {returned} of {plan.k} {many} stood out."
    if plan.query.partitions is not None and returned:
        lead = f"In some partitions fewer than {plan.k} {many} stood out."
    if _groups_by_unit(plan.query):
        return f"{lead} Each is a single {noun}: group by a column that many {units} share."
    if plan.spec.rows.known:
        least = None if plan.record.evidence is None else plan.record.evidence(plan.request)
        about = "" if least is None else describe_amount(plan.query.measures[0], least, about="about ", units=units)
        return (
            f"{lead} {plan.spec.rows.known:,} {many} are known from earlier answers."
            f"{about and f' {price} they need {about}.'} To see more: raise epsilon, or write known = all for noisy "
            "ones that perhaps no row has."
        )
    if plan.query.measures[0].bounds is not None:
        known = f" {price} {describe_need(plan)}." if need is not None else ""
        return f"{lead}{known} To see more: raise epsilon, or group by something coarser than {singular}."
    if need is None:
        return f"{lead} To see more: raise epsilon, or leave the mechanism out."
    variants = _find_variants(plan, need.units, terms=terms, remaining=remaining, salts=salts)
    instead = ", ".join(f"with {name} = {value:f} about {needed:,.0f}" for name, (value, needed) in variants.items())
    ways = list(_list_ways(plan, variants, singular=singular))
    listed = " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))
    return f"{lead} {price} {describe_need(plan)}{instead and f' ({instead})'}. To see more: {listed}."


def describe_need(plan: Plan) -> str:
    """Return how many units, or how much of a measure, a key needs for an even chance to be returned.

    It is "" with a known domain or known names, or without a prediction.
    """
    need = plan.need
    if need is None or plan.query.domain is not None or plan.spec.rows.known:
        return ""
    singular, units = describe_key(plan.query)[0], plural(unit_noun(plan.query.unit_name))
    compared = f" more than the {singular} at rank {need.rank:,}" if need.rank else ""
    amount = describe_amount(need.measure, need.units, about="about ", units=units)
    return f"{with_article(singular)} needs {amount}{compared}"


def _groups_by_unit(query: PrivateQuery) -> bool:
    """Return whether a key is the privacy unit itself, cast or not, so that no group has two."""
    return strip_casts(query.unit) in map(strip_casts, query.keys)


def _find_variants(
    plan: Plan, needed: float, *, terms: Terms, remaining: BudgetVector, salts: tuple[int, int]
) -> dict[str, tuple[Decimal, float]]:
    """Return options of WITH with which keys would need clearly fewer units than `needed`, and how many."""
    options = dict[str, Decimal]()
    bound = plan.max_groups_contributed
    if bound is None or plan.spec.report.cap or bound > _TRIED_BOUND:
        options["max_groups_contributed"] = Decimal(_TRIED_BOUND)
    elif bound > 1:
        options["max_groups_contributed"] = Decimal(1)
    larger = min(2 * plan.epsilon.value, terms.limits.max_epsilon.value)
    if larger > plan.epsilon.value:
        options["epsilon"] = _ROUNDED_DOWN.divide(*map(Decimal, larger.as_integer_ratio()))
    variants = dict[str, tuple[Decimal, float]]()
    for name, value in options.items():
        option = Option(value, plan.query.clause.place)
        clause = replace(plan.query.clause, options={**plan.query.clause.options, name: option})
        try:
            other = plan_unkeyed(replace(plan.query, clause=clause, explained=False), terms, salts=salts)
        except Error:  # the policy, or another option of the query, excludes it
            continue
        fits = is_admitted(other, remaining, consents=has_consent(other))
        if fits and other.need is not None and other.need.units <= _WORTH_SAYING * needed:
            variants[name] = value, other.need.units
    return variants


def _list_ways(plan: Plan, helpful: Iterable[str], *, singular: str) -> Iterator[str]:
    """Yield ways to a longer answer that exist for this query."""
    if "epsilon" in helpful:
        yield "raise epsilon"
        if plan.k > 1:
            yield "ask for fewer keys at a higher epsilon"
    if "max_groups_contributed" in helpful:
        bounded = plan.max_groups_contributed is not None and not plan.spec.report.cap
        yield "lower the bound" if bounded else "set a bound"
    if len(plan.query.keys) == 1 and plan.query.domain is None and not plan.least_threshold:
        yield "name a domain"
    yield f"group by something coarser than {singular}"


def find_waste(plan: Plan) -> tuple[str, ...]:
    """Return one sentence or two for each reason why the charge of this query may be wasted."""
    query, rows, listed = plan.query, plan.spec.rows, _count_listed(plan.query)
    need = None if listed is None else plan.need  # it takes longer to predict than the rest of the plan
    warnings = []
    if _groups_by_unit(query):
        noun = unit_noun(query.unit_name)
        warnings.append(
            f"Each group is a single {noun}, and no single {noun} can stand out. Group by a column that many "
            f"{plural(noun)} share."
        )
    if listed is not None and listed < (2 if need is None else need.units / need.measure.width):
        noun = unit_noun(query.unit_name)
        whom = f"one {noun}" if listed == 1 else f"{listed} {plural(noun)}"
        is_noise = rows.known and not rows.evident
        shown = "what is returned is noise on known names" if is_noise else "nothing about so few is returned"
        condition = f"The condition on {shorten(query.unit_name)}"
        warnings.append(f"{condition} leaves at most {whom}, and {shown}. Leave the condition out.")
    if query.reads_seconds:
        warnings.append(
            "The query reads the clock to the second, so running it again is a new query with a new charge. With "
            "current_date, or date_trunc('hour', now()), it stays the same query and is free again."
        )
    if plan.fresh:
        warnings.append("fresh = true is charged each time it is run. Without it, running the query again is free.")
    return tuple(warnings)


def _count_listed(query: PrivateQuery) -> int | None:
    """Return how many units a condition of the query, or of its subqueries, leaves at most; None if none lists them."""
    body, unit, counts = query.body, strip_casts(query.unit), list[int]()
    while True:
        for condition in split_conjuncts(body.where):
            match condition:
                case Call(function="=", arguments=(left, right)):
                    sides = {strip_casts(left): right, strip_casts(right): left}
                    counts += [1] if unit in sides and isinstance(strip_casts(sides[unit]), Literal) else []
                case In(argument=argument, choices=choices) if strip_casts(argument) == unit:
                    is_listed = all(isinstance(strip_casts(choice), Literal) for choice in choices)
                    counts += [len(choices)] if is_listed else []
        source = body.source
        if not (isinstance(source, Derived) and isinstance(unit, ColumnRef) and unit.relation == source.number):
            return min(counts, default=None)
        # the unit is output "c2" of the subquery: go on with the second output, and its WHERE
        body, unit = source.body, strip_casts(source.outputs[int(unit.name[1:]) - 1])


_BOTH = "higher or lower"
_Sentence = tuple[str, str]  # what it is about, and what it says
_UNSIGNED = frozenset(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
_DISTINCT = re.compile(r"distinct\b ?", re.IGNORECASE)
_COUNTS_IF = re.compile(r"(?:count_?if|sum) ?\(", re.IGNORECASE)  # what a number of rows with a condition is written as
_CONDITIONAL = re.compile(r"(?:distinct )?(?:case\b|i?iff? ?\()", re.IGNORECASE)


def note_ranking(plan: Plan) -> Plan:
    """Return the plan with a note on the measure that ranks its groups, where no column of the answer is that."""
    query = plan.query
    shown = any(each.key is None and each.divisor is None and each.measure == 0 for each in query.outputs)
    if shown or query.clause.shape != "top":
        return plan
    divided = [each for each in query.outputs if each.divisor is not None]
    names = list(dict.fromkeys(each.divided_name for each in divided))
    is_of_pairs = any(each.divisor == 0 and each.statistic and each.statistic.is_of_pairs for each in divided)
    ranks = "the number of rows with both values" if is_of_pairs else _name_call(query.measures[0])
    verb = "do" if names[1:] else "does"
    note = f"the groups are ranked by {ranks}, as {' and '.join(names)} alone {verb} not rank"
    return replace(plan, query=replace(query, list_note="; ".join(filter(None, [note, query.list_note]))))


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures. A sum
    or number of rows that is cut at a bound is too low, or too high where values below 0 are cut. An average, or any
    other value that is computed from coupled measures, can be either: units beyond a bound count less, whatever their
    values are.
    """
    if query.counts_units_alone and bounded_by is None:
        return ""

    def find_place(measure: Measure) -> tuple[int, int]:
        return (0, 0) if measure.words is None else (measure.words.line, measure.words.column)

    measures = sorted(query.measures, key=find_place) if query.releases_counts else []
    spreads = list[_Sentence]()
    if any(output.statistic is not None for output in query.outputs):
        from dpsql.report.spread_notes import describe_spreads, list_spread_measures

        spreads, of_spreads = describe_spreads(query, unit_noun(query.unit_name)), list_spread_measures(query)
        measures = [measure for measure in measures if measure not in of_spreads]
    limits = [measure for measure in measures if measure.bounds is not None]
    coupled = _list_coupled(query, measures)
    together = {measure for each in coupled for measure in each}
    # a measure that an average shares may be released beside it as well
    shown = [query.measures[output.measure] for output in query.outputs if output.is_measure and output.divisor is None]
    alone = [each for each in limits if each not in together or (each.weight is None and each in shown)]
    alone = [each for each in alone if each in shown or each != query.measures[0]]  # one that ranks, and no more
    unit, found = unit_noun(query.unit_name), list[str]()
    if bounded_by is not None:
        groups = "1 group" if bounded_by == 1 else f"{bounded_by} groups"
        differ = _BOTH if coupled or spreads or any(_can_be_lower(each) for each in alone) else "higher"
        values = "values" if limits or spreads else "counts"
        found.append(f"each {unit} counted in at most {groups}: true {values} can be {differ}")
    found += _merge(_describe_alone(measure, unit) for measure in alone)
    if sum(each.aggregate is not Aggregate.ITEMS for each in alone) > 1 and not coupled:
        found.append("do not divide these by each other: write the ratio, or AVG")
    if alone:
        found.append("intervals are of the values counted so")
    found += _merge(_describe_set(query, each, unit=unit) for each in coupled)
    found += _merge(spreads)
    return "; ".join(found)


def _list_coupled(query: PrivateQuery, measures: Sequence[Measure]) -> list[tuple[Measure, ...]]:
    """Return the measures of each set in which a unit has one weight."""
    if not query.releases_counts:
        return []
    sets = defaultdict[int, list[Measure]](list)
    for measure in measures:
        if measure.weight is not None:
            sets[measure.weight.number].append(measure)
    for output in query.outputs:  # a count beside a sum around the middle of a range has its weight, too
        total = query.measures[output.measure]
        if output.divisor is not None and total.weight is not None and output.statistic is None:
            sets[total.weight.number].append(query.measures[output.divisor])
    return [tuple(dict.fromkeys(each)) for each in sets.values()]


def _merge(sentences: Iterable[_Sentence]) -> list[str]:
    """Return each sentence once, with all that it is about."""
    found = defaultdict[str, dict[str, None]](dict)
    for name, words in sentences:
        found[words][name] = None
    return [f"{_join(list(names))}: {words}" for words, names in found.items()]


def _join(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), *parts[-1:]])


def _describe_alone(measure: Measure, unit: str) -> _Sentence:
    """Return the words about a measure that has its own cut, and about rows whose value is outside of its range."""
    if measure.aggregate is Aggregate.ITEMS:
        limit = _describe_limit(measure)
        return _name_call(measure), f"at most {limit} of each {unit} counted, so the true number can be higher"
    which = "number" if measure.aggregate is Aggregate.ROWS else "sum"
    between = "with" if measure.bounds is not None and measure.bounds.low < 0 else "with at most"
    differ = _BOTH if _can_be_lower(measure) else "higher"
    values, cut = _find_range(measure), ""
    if values is not None and measure.row_range is not None:
        cut = f" and values outside {describe_ends(values, measure)} as its ends"
    elif values is not None and measure.row_bounds.low < 0:
        cut = ", as is each row"
    elif values is not None and _can_be_below(measure, values[0]):
        cut = " and values below 0 as 0"
    return _name_call(measure), (
        f"each {unit} counted {between} {_describe_limit(measure)}{cut}, so the true {which} can be {differ}"
    )


def _can_be_lower(measure: Measure) -> bool:
    """Say whether a true sum can be lower than what is counted of it."""
    if measure.aggregate is Aggregate.ITEMS:
        return False
    values = _find_range(measure)
    return measure.row_bounds.low < 0 or (values is not None and _can_be_below(measure, values[0]))


def _describe_set(query: PrivateQuery, measures: Sequence[Measure], *, unit: str) -> _Sentence:
    """Return the words about measures in which each unit has one weight."""
    outputs = [each for each in query.outputs if each.is_measure and query.measures[each.measure] in measures]
    averaged = {query.measures[each.measure] for each in outputs if each.divisor is not None}
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    is_average = bool(averaged) and all(each in averaged for each in sums)
    name, weight = f"computed from {_join(list(map(_name_call, measures)))}", _describe_weight(measures)
    if is_average:
        name = _write_call("AVG", read_argument(sums[0]), measure=sums[0])
        if any(each.aggregate is Aggregate.ROWS and each.row_bounds.high == 1 for each in measures):
            values = _find_range(sums[0])
            cut = "" if values is None else f", each cut to {describe_ends(values, sums[0])}"
            weight = f"counts once, with the mean of its rows{cut}"
    # an output that others are computed with has no interval in the answer
    has_interval = any(
        not is_measure_name(each.name) or (each.divisor is not None and each.end is not None) for each in outputs
    )
    plain, intervals = "value", "; intervals are of the weighted values"
    if is_average:
        plain, intervals = "average", "; its interval is of the weighted average"
    return name, f"each {unit} {weight}: the plain {plain} can be {_BOTH}{intervals if has_interval else ''}"


def _describe_weight(measures: Sequence[Measure]) -> str:
    """Return what a unit counts with at most, and what a row does."""
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    limits = [_describe_limit(each) for each in measures if each.aggregate is Aggregate.ROWS]
    limits += [
        f"{_describe_limit(each)} of {_name_argument(each)}"
        for each in sums
        if each.weight is None or each.weight.centre is None
    ]
    found = ["so one beyond that counts less"]
    for total in sums:
        of, values = f" of {_name_argument(total)}" if len(sums) > 1 else "", _find_range(total)
        if values is None:
            continue
        if total.row_range is not None or total.row_bounds.low < 0:
            found.append(f"values{of} outside {describe_ends(values, total)} count as its ends")
            continue
        found += [f"values{of} below 0 count as 0"] if _can_be_below(total, values[0]) else []
        most = describe_ends(values[1:], total)
        found.append(f"a row{of} above {most} counts as {most}")
    return f"weighs as at most {_join(list(dict.fromkeys(limits)))}, {_join(found)}"


def _name_call(measure: Measure) -> str:
    """Return the call of a measure: COUNT(*), SUM(-x), SUM(x) FILTER (…).

    Measures that are equal may be written differently, as AVG(x) and SUM(x) / COUNT(x): each is named by the aggregate
    that it is.
    """
    argument = read_argument(measure)
    if measure.aggregate is Aggregate.ROWS:
        words = "" if measure.words is None else " ".join(measure.words.fragment.split())
        if argument and _COUNTS_IF.match(words):
            return f"{words.partition('(')[0].rstrip()}({shorten(argument)})"
        if not any(map(is_presence, split_conjuncts(measure.condition))) and words[:3].lower() == "avg":
            argument = "*"  # the rows of a share
        return _write_call("COUNT", argument or "*", measure=measure)
    if measure.aggregate is Aggregate.ITEMS:
        return _write_call("COUNT", argument and f"DISTINCT {_DISTINCT.sub('', argument)}", measure=measure)
    return _write_call("SUM", argument, measure=measure)


def _name_argument(measure: Measure) -> str:
    """Return what a measure adds up; without words of the analyst the names of its columns."""
    columns = " and ".join(dict.fromkeys(column for _, column in measure.columns))
    return shorten(read_argument(measure) or columns) or "an expression"


def _write_call(name: str, argument: str, *, measure: Measure) -> str:
    """Return a call with a sign that the measure has a FILTER, as far as the measure knows."""
    call = f"{name}({shorten(argument)})" if argument else f"{name} of {_name_argument(measure)}"
    conditions = [] if _CONDITIONAL.match(argument) else split_conjuncts(measure.condition)
    if argument != "*" and measure.aggregate is Aggregate.ROWS:  # where a value is present, by what it counts
        conditions = [each for each in conditions if not is_presence(each)]
    return f"{call} FILTER (…)" if conditions else call


def _describe_limit(measure: Measure) -> str:
    """Return how many rows, or what sum, one unit counts with at most."""
    bounds = measure.row_bounds
    if measure.aggregate is Aggregate.ROWS:
        return "1 row" if bounds.high == 1 else f"{bounds.high:,} rows"
    if measure.aggregate is Aggregate.ITEMS:
        return "1 value" if bounds.high == 1 else f"{bounds.high:,} different values"
    low, high = bounds.low * bounds.step, bounds.high * bounds.step
    return describe_ends([low, high] if low < 0 else [high], measure)


def _find_range(measure: Measure) -> tuple[Fraction, Fraction] | None:
    """Return the least and the greatest value that a row of a sum counts with; None where it has no others."""
    if measure.argument is None or _is_of_constants(measure.argument):
        return None
    bounds = measure.row_bounds
    return measure.row_range or (bounds.low * bounds.step, bounds.high * bounds.step)


def _is_of_constants(expression: Expression) -> bool:
    """Say whether the values of an expression are written in the statement, or are true and false."""
    match bare := strip_casts(expression):
        case Literal():
            return True
        case Case(branches=branches, default=default):
            results = [result for _, result in branches] + ([] if default is None else [default])
            return all(map(_is_of_constants, results))
        case Call(function="neg" | "coalesce", arguments=arguments):
            return all(map(_is_of_constants, arguments))
    return bare.type.family is Family.BOOLEAN


def _can_be_below(measure: Measure, least: Fraction) -> bool:
    """Say whether the type of a sum's argument has values below one."""
    if measure.argument is None:
        return False
    stored = measure.argument.argument if isinstance(measure.argument, Cast) else measure.argument
    return least > 0 or stored.type.name not in _UNSIGNED
