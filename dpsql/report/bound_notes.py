"""Words about the bounds of each unit: which measure is cut by which bound, and what follows for the true values.

A sum or number of rows that is cut at a bound is too low, or too high where values below 0 are cut. An average, or any
other value that is computed from coupled measures, can be either: units beyond a bound count less, whatever their
values are. In all of them a row counts with a value between the bounds.

A measure without words of the analyst is named by its columns. Measures that are equal may be written differently, as
AVG(x) and SUM(x) / COUNT(x): each is named by the aggregate that it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor, log10

from dpsql.display import shorten, unit_noun
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, is_presence
from dpsql.sql.ir.scope import split_conjuncts
from dpsql.sql.ir.statements import Output, PrivateQuery
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, Literal, strip_casts
from dpsql.sql.ir.types import Family
from dpsql.sql.syntax.computed import is_measure_name

_BOTH = "higher or lower"
_Sentence = tuple[str, str]  # what it is about, and what it says


def describe_bounds(query: PrivateQuery, bounded_by: int | None) -> str:
    """Return in words what bounds each unit where values are released, and what true values can be; "" if nothing does.

    Units count in at most `bounded_by` groups, None without such a bound; the others are those of the measures.
    """
    if query.counts_units_alone and bounded_by is None:
        return ""
    bounded = [measure for measure in query.measures if measure.bounds is not None] if query.releases_counts else []
    limits = sorted(bounded, key=_find_place)
    unit = unit_noun(query.unit_name)
    coupled = _list_coupled(query)
    together = {measure for each in coupled for measure in each}
    alone = [measure for measure in limits if measure not in together or _is_shown(query, measure)]
    found = list[str]()
    if bounded_by is not None:
        groups = "1 group" if bounded_by == 1 else f"{bounded_by} groups"
        values, differ = ("values", "higher") if limits else ("counts", "higher")
        differ = _BOTH if coupled or any(_can_be_lower(each) for each in alone) else differ
        found.append(f"each {unit} counted in at most {groups}: true {values} can be {differ}")
    found += _merge(_describe_alone(measure, unit) for measure in alone)
    if len(alone) > 1 and not coupled:
        found.append("do not divide these by each other: write the ratio, or AVG")
    if alone:
        found.append("intervals are of the values counted so")
    found += _merge(_describe_set(query, each, unit=unit) for each in coupled)
    return "; ".join(found)


def _merge(sentences: Iterable[_Sentence]) -> list[str]:
    """Return each sentence once, with all that it is about."""
    found = defaultdict[str, dict[str, None]](dict)
    for name, words in sentences:
        found[words][name] = None
    return [f"{_join(list(names))}: {words}" for words, names in found.items()]


def _join(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), *parts[-1:]])


def _find_place(measure: Measure) -> tuple[int, int]:
    """Return where a measure is in the statement, as far as that is known."""
    return (0, 0) if measure.words is None else (measure.words.line, measure.words.column)


def _list_coupled(query: PrivateQuery) -> list[tuple[Measure, ...]]:
    """Return the measures of each set, in the order of the statement."""
    if not query.releases_counts:
        return []
    sets = defaultdict[int, list[Measure]](list)
    for measure in sorted(query.measures, key=_find_place):
        if measure.weight is not None:
            sets[measure.weight.number].append(measure)
    for output in query.outputs:  # a count beside a sum around the middle of a range has its weight, too
        total = query.measures[output.measure]
        if output.divisor is not None and total.weight is not None:
            sets[total.weight.number].append(query.measures[output.divisor])
    return [tuple(dict.fromkeys(each)) for each in sets.values()]


def _is_shown(query: PrivateQuery, measure: Measure) -> bool:
    """Say whether a measure that an average shares is released beside it as well."""
    shown = (output for output in query.outputs if output.key is None and output.divisor is None)
    return measure.weight is None and any(query.measures[output.measure] == measure for output in shown)


def _describe_alone(measure: Measure, unit: str) -> _Sentence:
    """Return the words about a measure that has its own cut."""
    which = "number" if measure.aggregate is Aggregate.ROWS else "sum"
    between = "with" if measure.bounds is not None and measure.bounds.low < 0 else "with at most"
    differ = _BOTH if _can_be_lower(measure) else "higher"
    values = _describe_values(measure)
    return name_call(measure), (
        f"each {unit} counted {between} {describe_limit(measure)}{values}, so the true {which} can be {differ}"
    )


def _describe_values(measure: Measure) -> str:
    """Return what a row counts with whose value is outside of the range of a sum that has its own cut."""
    values = find_range(measure)
    if values is None:
        return ""
    if measure.row_range is not None:
        return f" and values outside {describe_ends(values, measure)} as its ends"
    if measure.row_bounds.low < 0:
        return ", as is each row"
    return " and values below 0 as 0" if can_be_below(measure, values[0]) else ""


def _can_be_lower(measure: Measure) -> bool:
    """Say whether a true sum can be lower than what is counted of it."""
    values = find_range(measure)
    return measure.row_bounds.low < 0 or (values is not None and can_be_below(measure, values[0]))


def _describe_set(query: PrivateQuery, measures: Sequence[Measure], *, unit: str) -> _Sentence:
    """Return the words about measures in which each unit has one weight."""
    outputs = [each for each in query.outputs if each.key is None and query.measures[each.measure] in measures]
    averaged = {query.measures[each.measure] for each in outputs if each.divisor is not None}
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    is_average = bool(averaged) and all(each in averaged for each in sums)
    name = name_average(sums[0]) if is_average else f"computed from {_join(list(map(name_call, measures)))}"
    weight = _describe_mean(sums[0]) if is_average and _counts_once(measures) else _describe_weight(measures)
    plain, of = ("average", "the weighted average") if is_average else ("value", "the weighted values")
    intervals = f"; {'its interval is' if is_average else 'intervals are'} of {of}"
    return name, (
        f"each {unit} {weight}: the plain {plain} can be {_BOTH}{intervals if any(map(_has_interval, outputs)) else ''}"
    )


def _counts_once(measures: Sequence[Measure]) -> bool:
    return any(each.aggregate is Aggregate.ROWS and each.row_bounds.high == 1 for each in measures)


def _describe_mean(total: Measure) -> str:
    """Return what a unit counts with in an average of one row of each."""
    values = find_range(total)
    cut = "" if values is None else f", each cut to {describe_ends(values, total)}"
    return f"counts once, with the mean of its rows{cut}"


def _describe_weight(measures: Sequence[Measure]) -> str:
    """Return what a unit counts with at most, and what a row does."""
    sums = [each for each in measures if each.aggregate is Aggregate.SUM]
    rows = [each for each in measures if each.aggregate is Aggregate.ROWS]
    limits = dict.fromkeys(map(_describe_share, [*rows, *(each for each in sums if not _is_centred(each))]))
    found = ["so one beyond that counts less"]
    for total in sums:
        of = f" of {name_argument(total)}" if len(sums) > 1 else ""
        values = find_range(total)
        if values is None:
            continue
        if total.row_range is not None or total.row_bounds.low < 0:
            found.append(f"values{of} outside {describe_ends(values, total)} count as its ends")
            continue
        found += [f"values{of} below 0 count as 0"] if can_be_below(total, values[0]) else []
        most = describe_ends(values[1:], total)
        found.append(f"a row{of} above {most} counts as {most}")
    return f"weighs as at most {_join(list(limits))}, {_join(found)}"


def _is_centred(measure: Measure) -> bool:
    return measure.weight is not None and measure.weight.centre is not None


def _describe_share(measure: Measure) -> str:
    limit = describe_limit(measure)
    return limit if measure.aggregate is Aggregate.ROWS else f"{limit} of {name_argument(measure)}"


def _has_interval(output: Output) -> bool:
    """Say whether an output has an interval in the answer, which one that is only computed with has not."""
    return not is_measure_name(output.name) or (output.divisor is not None and output.end is not None)


_UNSIGNED = frozenset(["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"])
_CALL = re.compile(r"(?:count|sum|avg) ?\( ?(.*?) ?\)", re.IGNORECASE)
_STATED = re.compile(r" ?, ?contribution_bounds_per_group ?=>.*", re.IGNORECASE)
_DIGITS, _PLACES = 5, 2  # of a bound: those that count, and at least so many after the point


def name_call(measure: Measure) -> str:
    """Return the call of a measure: COUNT(*), SUM(-x), SUM(x) FILTER (…)."""
    argument = _read_argument(measure)
    if measure.aggregate is Aggregate.ROWS:
        return _write_call("COUNT", argument or "*", measure=measure)
    return _write_call("SUM", argument, measure=measure)


def name_average(total: Measure) -> str:
    """Return the call of the average that a sum is a part of."""
    return _write_call("AVG", _read_argument(total), measure=total)


def name_argument(measure: Measure) -> str:
    """Return what a measure adds up."""
    columns = " and ".join(dict.fromkeys(column for _, column in measure.columns))
    return shorten(_read_argument(measure) or columns) or "an expression"


def _write_call(name: str, argument: str, *, measure: Measure) -> str:
    """Return a call with a sign that the measure has a FILTER, as far as the measure knows."""
    call = f"{name}({shorten(argument)})" if argument else f"{name} of {name_argument(measure)}"
    conditions = split_conjuncts(measure.condition)
    if argument != "*" and measure.aggregate is Aggregate.ROWS:  # where a value is present, by what it counts
        conditions = [each for each in conditions if not is_presence(each)]
    return f"{call} FILTER (…)" if conditions else call


def _read_argument(measure: Measure) -> str:
    """Return the argument of the call that the analyst wrote, "" where no call is known."""
    words = "" if measure.words is None else " ".join(measure.words.fragment.split())
    found = _CALL.fullmatch(words)
    return "" if found is None else _STATED.sub("", found[1])


def describe_limit(measure: Measure) -> str:
    """Return how many rows, or what sum, one unit counts with at most."""
    bounds = measure.row_bounds
    if measure.aggregate is Aggregate.ROWS:
        return "1 row" if bounds.high == 1 else f"{bounds.high:,} rows"
    low, high = _find_bounds(measure)
    return describe_ends([low, high] if low < 0 else [high], measure)


def describe_ends(ends: Sequence[Fraction], measure: Measure) -> str:
    """Return the end or both ends of a range of values of a measure, in few digits."""
    bounds = measure.row_bounds
    slack = (bounds.high - bounds.low) * bounds.step / MOST_STEPS  # what bounds in whole steps differ by at most
    return " to ".join(_write(end, slack, is_upper=at == len(ends) - 1) for at, end in enumerate(ends))


def _write(value: Fraction, slack: Fraction, *, is_upper: bool) -> str:
    """Return a number as it is if it is short, else as the short one within the slack, or rounded outwards."""
    size = float(abs(value))
    places = max(_PLACES, _DIGITS - 1 - floor(log10(size))) if size else _PLACES
    if slack and (value * 10**places).denominator != 1:
        places = min(places, -ceil(log10(slack)))
    unit = Fraction(10) ** -places
    nearest = round(value / unit) * unit
    outwards = (ceil(value / unit) if is_upper else floor(value / unit)) * unit
    return f"{float(nearest if abs(nearest - value) <= slack else outwards):,.15g}"


def _find_bounds(measure: Measure) -> tuple[Fraction, Fraction]:
    bounds = measure.row_bounds
    return bounds.low * bounds.step, bounds.high * bounds.step


def find_range(measure: Measure) -> tuple[Fraction, Fraction] | None:
    """Return the least and the greatest value that a row of a sum counts with; None where it has no others."""
    if measure.argument is None or _is_of_constants(measure.argument):
        return None
    return measure.row_range or _find_bounds(measure)


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


def can_be_below(measure: Measure, least: Fraction) -> bool:
    """Say whether the type of a sum's argument has values below one."""
    if measure.argument is None:
        return False
    stored = measure.argument.argument if isinstance(measure.argument, Cast) else measure.argument
    return least > 0 or stored.type.name not in _UNSIGNED
