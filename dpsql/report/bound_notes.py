"""What bounds each unit where values are released, in words: cuts, weights, and which way a plain value can differ.

Measures that have a cut of their own come first, then those that share a weight, as averages do, then statistics of
spread and quantiles. With COUNT(x) of the same rows beside a quantile, it is said between which quantiles of these rows
the answer lies, by the noisy count. Rank and count are each right with probability 0.975, so that both are with 0.95.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from dpsql.display import plural, shorten, unit_noun
from dpsql.mechanisms.quantiles import ExponentialQuantile
from dpsql.plan.mechanisms.quantiles import (
    DrawnQuantiles,
    QuantilesPlan,
    describe_between,
    describe_fewest,
    describe_rank,
    format_value,
    name_quantile,
)
from dpsql.plan.plan import Plan
from dpsql.plan.release import Release, describe_noise, name_measure
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, Quantile, is_presence
from dpsql.sql.ir.statements import Output, PrivateQuery
from dpsql.sql.ir.tree import Call, Case, Cast, ColumnRef, Expression, Family, Literal, split_conjuncts, strip_casts
from dpsql.sql.syntax.computed import is_measure_name

_BOTH = "higher or lower"
_Sentence = tuple[str, str]  # what it is about, and what it says
_UNSIGNED = frozenset(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
_DISTINCT = re.compile(r"distinct\b ?", re.IGNORECASE)
_COUNTS_IF = re.compile(r"(?:count_?if|sum) ?\(", re.IGNORECASE)  # what a number of rows with a condition is written as
_CONDITIONAL = re.compile(r"(?:distinct )?(?:case\b|i?iff? ?\()", re.IGNORECASE)
_CALL = re.compile(
    r"(?:approx_count_distinct|count|count_?if|sum|avg|var|variance|stddev|(?:var|stddev|covar)_(?:pop|samp)) ?"
    r"\( ?(.*?) ?\)",
    re.IGNORECASE,
)
_STATED = re.compile(r" ?, ?contribution_bounds_per_(?:group|row) ?=>.*", re.IGNORECASE)
_DIGITS, _PLACES = 5, 2  # of a bound: those that count, and at least so many after the point
_NOUNS = {"VAR": "variance", "STDDEV": "deviation", "COVAR": "covariance"}
_EACH = 0.025  # of the two errors of an interval with a count


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures. A sum
    or number of rows that is cut at a bound is too low, or too high where values below 0 are cut. An average, or any
    other value that is computed from coupled measures, can be either: units beyond a bound count less, whatever their
    values are.
    """

    def find_place(measure: Measure) -> tuple[int, int]:
        return (0, 0) if measure.words is None else (measure.words.line, measure.words.column)

    measures = sorted(query.measures, key=find_place) if query.releases_counts else []
    spreads = list[_Sentence]()
    if any(output.statistic is not None for output in query.outputs):
        spreads, of_spreads = _describe_spreads(query, unit_noun(query.unit_name)), _list_spread_measures(query)
        measures = [measure for measure in measures if measure not in of_spreads]
    limits = [measure for measure in measures if measure.bounds is not None]
    coupled = _list_coupled(query, measures)
    certain = _count_certain_rows(query) if limits or coupled else math.inf
    if certain < math.inf:  # what cuts no row is not said to
        coupled = [each for each in coupled if not all(_is_whole(one, certain) for one in each)]
    together = {measure for each in coupled for measure in each}
    # a measure that an average shares may be released beside it as well
    shown = [query.measures[output.measure] for output in query.outputs if output.is_measure and output.divisor is None]
    alone = [each for each in limits if each not in together or (each.weight is None and each in shown)]
    alone = [each for each in alone if each in shown or each != query.measures[0]]  # one that ranks, and no more
    alone = [each for each in alone if certain == math.inf or not _is_whole(each, certain)]
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


def _count_certain_rows(query: PrivateQuery) -> float:
    """Return how many rows a unit has in one group by the text alone, such as 1 where a subquery groups by the unit."""
    from dpsql.plan.measures.rows import TableRows, count_rows, list_scans_of_rows

    units = dict(query.protected)
    tables = {path: TableRows(name, math.inf, units[name]) for path, name in query.private_tables if name in units}
    if any(scan.path not in tables for scan in list_scans_of_rows(query.body.source)):
        return math.inf  # rows of a public table may repeat those of a unit
    grouped = frozenset((key.relation, key.name) for key in query.keys if isinstance(key, ColumnRef))
    return count_rows(query.body.source, tables, grouped=grouped).total


def _is_whole(measure: Measure, certain: float) -> bool:
    """Say whether no unit has more rows or values than a measure counts, so that it cuts nothing."""
    if measure.aggregate is Aggregate.SUM:  # of constants, as in a share, a sum is a number of rows
        return measure.stated is None and certain <= 1 and _find_range(measure) is None
    return measure.bounds is not None and certain <= measure.row_bounds.high


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
        return name_call(measure), f"at most {limit} of each {unit} counted, so the true number can be higher"
    which = "number" if measure.aggregate is Aggregate.ROWS else "sum"
    between = "with" if measure.bounds is not None and measure.bounds.low < 0 else "with at most"
    differ = _BOTH if _can_be_lower(measure) else "higher"
    values, cut = _find_range(measure), ""
    if values is not None and measure.row_range is not None:
        cut = f" and values outside {_describe_ends(values, measure)} as its ends"
    elif values is not None and measure.row_bounds.low < 0:
        cut = ", as is each row"
    elif values is not None and _can_be_below(measure, values[0]):
        cut = " and values below 0 as 0"
    return name_call(measure), (
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
    name, weight = f"computed from {_join(list(map(name_call, measures)))}", _describe_weight(measures)
    if is_average:
        name = _write_call("AVG", _read_argument(sums[0]), measure=sums[0])
        if any(each.aggregate is Aggregate.ROWS and each.row_bounds.high == 1 for each in measures):
            values = _find_range(sums[0])
            cut = "" if values is None else f", each cut to {_describe_ends(values, sums[0])}"
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
            found.append(f"values{of} outside {_describe_ends(values, total)} count as its ends")
            continue
        found += [f"values{of} below 0 count as 0"] if _can_be_below(total, values[0]) else []
        most = _describe_ends(values[1:], total)
        found.append(f"a row{of} above {most} counts as {most}")
    return f"weighs as at most {_join(list(dict.fromkeys(limits)))}, {_join(found)}"


def name_call(measure: Measure) -> str:
    """Return the call of a measure: COUNT(*), SUM(-x), SUM(x) FILTER (…).

    Measures that are equal may be written differently, as AVG(x) and SUM(x) / COUNT(x): each is named by the aggregate
    that it is.
    """
    argument = _read_argument(measure)
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
    return shorten(_read_argument(measure) or columns) or "an expression"


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
    return _describe_ends([low, high] if low < 0 else [high], measure)


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
    # CAST(x AS DOUBLE) of an unsigned x is never below 0, although a DOUBLE may be.
    stored = measure.argument.argument if isinstance(measure.argument, Cast) else measure.argument
    return least > 0 or stored.type.name not in _UNSIGNED


def _list_spread_measures(query: PrivateQuery) -> frozenset[Measure]:
    """Return the measures that statistics of spread are computed from, and no other output is."""
    outputs = [output for output in query.outputs if output.is_measure]
    own = {at for output in outputs if output.statistic is not None for at in output.places}
    others = {at for output in outputs if output.statistic is None for at in output.places}
    return frozenset(query.measures[at] for at in own - others)


def _describe_spreads(query: PrivateQuery, unit: str) -> list[tuple[str, str]]:
    """Return the name of each statistic of spread, once, with the words about it."""
    found = dict[tuple[object, ...], list[Output]]()
    for output in query.outputs:
        if output.statistic is not None:
            found.setdefault((output.statistic, output.places), []).append(output)
    return [_describe_spread(query, same, unit=unit) for same in found.values()]


def _describe_spread(query: PrivateQuery, outputs: Sequence[Output], *, unit: str) -> tuple[str, str]:
    """Return the name of a statistic and the words about it, of the outputs that it and its ends are."""
    statistic, (first, _, *others) = outputs[0].statistic, outputs[0].places
    assert statistic is not None  # noqa: S101 - of the caller
    *more, products = (query.measures[at] for at in others)
    rows = 0 if products.weight is None else products.weight.rows
    sums = [query.measures[first], *more]
    argument = _read_argument(products) or " and ".join(column for each in sums for _, column in each.columns)
    name = f"{statistic.value}({shorten(argument)})"
    if query.measures[outputs[0].places[0]].condition is not None and not more:
        name += " FILTER (\N{HORIZONTAL ELLIPSIS})"
    ranges = [_describe_ends(each.row_range, each) for each in sums if each.row_range is not None]
    cut = f"values outside {' and '.join(ranges)} count as its ends"
    if more:
        named = [" and ".join(column for _, column in each.columns) or "an expression" for each in sums]
        cut = " and ".join(f"values of {shorten(of)} outside {ends}" for of, ends in zip(named, ranges, strict=True))
        cut += " count as the ends"
    noun = _NOUNS[statistic.value.partition("_")[0]]
    has_interval = any(not is_measure_name(each.name) or each.end is not None for each in outputs)
    interval = f"; its interval is of the weighted {noun}" if has_interval else ""
    limit = "1 row" if rows == 1 else f"{rows:,} rows"
    return name, (
        f"each {unit} weighs as at most {limit}, so one beyond that counts less, and {cut}: "
        f"the plain {noun} can be higher or lower{interval}"
    )


def describe_quantiles(plan: Plan, released: Release) -> str:
    """Return in words what bounds each unit in the quantiles of an answer, and how near they are; "" for none."""
    own = plan.mechanism_plan
    if not isinstance(own, QuantilesPlan):
        return ""
    found = list[str]()
    for drawn in own.drawn:
        found += _describe_drawn(plan, drawn, released=released)
    units, scale = plural(unit_noun(plan.query.unit_name)), _find_scale(plan, released)
    needs = max((each for drawn in own.drawn for each in drawn.mechanisms), key=lambda each: each.fewest_rows)
    found.append(describe_fewest(needs, units=units, scale=scale))
    shown = (at for at, output in enumerate(plan.query.outputs) if output.quantile is not None)
    if any(released.table.column(at).null_count for at in shown) and any(
        each.rows > 1 for each in plan.query.quantiles
    ):
        found.append("max_rows_contributed = 1 in WITH (...) needs fewer")
    return "; ".join(found)


def _find_scale(plan: Plan, released: Release) -> float:
    """Return by what the errors of an answer that was drawn on other terms differ from those of the plan."""
    return float(plan.epsilon.value / released.terms.epsilon.value)


def _describe_drawn(plan: Plan, drawn: DrawnQuantiles, *, released: Release) -> Iterator[str]:
    """Yield the words about quantiles of the same rows: each error of the rank, then what all of them share."""
    quantiles = [plan.query.quantiles[at] for at in drawn.numbers]
    first, unit = quantiles[0], unit_noun(plan.query.unit_name)
    scale = _find_scale(plan, released)
    fewest = _count_fewest(plan, first, released=released)
    for quantile, mechanism in zip(quantiles, drawn.mechanisms, strict=True):
        words = describe_rank(mechanism, scale=scale)
        if fewest is not None and fewest > 0:
            groups = " in each group" if plan.query.keys else ""
            between = _find_quantiles(quantile, mechanism, rows=fewest, scale=scale)
            words = f"by COUNT, {fewest:,} rows or more{groups}, {between}"
        yield f"{name_quantile(quantile)}: {words}"
    of_each = "" if len(quantiles) == 1 else "of all these "
    bins, last = drawn.bins, drawn.bins.count - 1
    low, high = (format_value(bins.read_value(number, first.type)) for number in (0, last))
    most, least = map(format_value, bins.describe_ends(first.type))
    rows = "1 row" if first.rows == 1 else f"{first.rows:,} rows"
    ends = f"an answer of {low} means at most {most}, and {high} at least {least}"
    yield f"{of_each}each {unit} weighs as at most {rows}; {ends}"


def _count_fewest(plan: Plan, quantile: Quantile, *, released: Release) -> int | None:
    """Return the rows that a group has at least, by a count of the quantile's rows; None without one, or any group."""
    wanted, found = set(split_conjuncts(quantile.condition)), list[int]()
    for at, measure in enumerate(plan.query.measures if released.terms.noises else ()):
        is_same = measure.aggregate is Aggregate.ROWS and set(split_conjuncts(measure.condition)) == wanted
        if is_same and measure.weight is None and measure.bounds is not None and measure.bounds.high == quantile.rows:
            noise = released.terms.noises[at]
            values = noise.read(released.canonical.column(name_measure(at)).to_pylist())
            reach = describe_noise(noise, measure).reach(1 - _EACH)
            # The least released count, less what its noise exceeds in few cases: hardly any group has fewer rows.
            found += [int(min(values)) - int(reach)] if values else []
    return max(found, default=None)


def _find_quantiles(quantile: Quantile, mechanism: ExponentialQuantile, *, rows: int, scale: float) -> str:
    """Return between which quantiles of so many rows the answer lies."""
    reach = Fraction(mechanism.rank_error(_EACH) * scale / rows)
    return f"{describe_between(quantile.wanted, reach)} with probability 0.95"


def _read_argument(measure: Measure) -> str:
    """Return the argument of the call that the analyst wrote, "" where no call is known."""
    words = "" if measure.words is None else " ".join(measure.words.fragment.split())
    found = _CALL.fullmatch(words)
    return "" if found is None else _STATED.sub("", found[1])


def _describe_ends(ends: Sequence[Fraction], measure: Measure) -> str:
    """Return the end or both ends of a range of values of a measure, in few digits."""
    bounds = measure.row_bounds
    slack = (bounds.high - bounds.low) * bounds.step / MOST_STEPS  # what bounds in whole steps differ by at most
    written = []
    for at, end in enumerate(ends, start=1):
        size = float(abs(end))
        places = max(_PLACES, _DIGITS - 1 - math.floor(math.log10(size))) if size else _PLACES
        if slack and (end * 10**places).denominator != 1:
            places = min(places, -math.ceil(math.log10(slack)))
        unit = Fraction(10) ** -places
        nearest = round(end / unit) * unit
        outwards = (math.ceil(end / unit) if at == len(ends) else math.floor(end / unit)) * unit
        # as it is if it is short, else the short number within the slack, or rounded outwards
        written.append(f"{float(nearest if abs(nearest - end) <= slack else outwards):,.15g}")
    return " to ".join(written)
